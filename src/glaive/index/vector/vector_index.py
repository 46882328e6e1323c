"""Vector indices of all kinds: IVF with plain vectors or codes, with and without graphs.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.segment import IndexFileWriter, Segment, SegmentWriter
from glaive.index.vector.graph import GRAPHS, NODE_COLUMNS, Graphs, rows_of
from glaive.index.vector.mending import without_nodes
from glaive.index.vector.one_file import remap_one_file
from glaive.index.vector.partitions import MODEL, Partitions
from glaive.index.vector.storage import ADDRESSES, DETAILS, SIGNS, Storage
from glaive.index.vector.vectors import Vectors

__all__ = ["VectorIndex"]

CODES = "auxiliary.idx"
INDEX = "index.idx"

_BATCH_BYTES = 64 << 20
_BUFFERS = ("codebook_position", "rotate_mat_position")

Mask = NDArray[np.bool_]


@index_kind
class VectorIndex(IndexKind):
    """Rows by partition, their codes, and graphs over them."""

    name: ClassVar[str] = "vector"
    newest: ClassVar[int] = 2
    marker: ClassVar[str] = INDEX

    def remap(
        self, segment: Segment, moved: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Take rows that are gone out of their partitions and graphs; the model stays."""
        if not segment.has(CODES):
            return remap_one_file(segment, INDEX, moved, out)
        storage = Storage(segment.open(CODES))
        if storage.details.get("layered"):
            return None
        stored = storage.file.read([ADDRESSES])[ADDRESSES]
        storage.file.check_present(stored)
        found, kept = moved.apply(stored.to_numpy().astype(np.uint64, copy=False))
        index = segment.open(INDEX)
        if GRAPHS in index.metadata and storage.column == SIGNS:
            return None
        if GRAPHS not in index.metadata:
            out.copy(segment, INDEX)
            _write_codes(storage, found, kept, out, None)
            return RebuiltSegment()
        graphs = _GraphWriter(Graphs(index, len(storage.partitions)), storage, out)
        _write_codes(storage, found, kept, out, graphs)
        graphs.finish()
        return RebuiltSegment()


def _write_codes(
    storage: Storage,
    found: NDArray[np.uint64],
    kept: Mask,
    out: SegmentWriter,
    graphs: _GraphWriter | None,
) -> None:
    """Write the file with the codes, and hand the codes on to the graphs."""
    left = storage.partitions.without(kept)
    file = out.create(CODES, storage.file.schema)
    file.add_metadata({MODEL: str(file.add_buffer(left.encoded()))})
    _copy_buffers(storage, file)
    empty = True
    for first, last in _batches(storage):
        rows = slice(int(storage.partitions.bounds[first]), int(storage.partitions.bounds[last]))
        mask = kept[rows]
        parts = [
            slice(one.start - rows.start, one.stop - rows.start)
            for one in map(storage.partitions.rows, range(first, last))
        ]
        codes = storage.kept(storage.read(rows.start, rows.stop), parts, mask)
        addresses = pa.array(found[rows][mask])
        at = codes.schema.get_field_index(ADDRESSES)
        codes = codes.set_column(at, codes.schema.field(at), addresses)
        if len(codes) or (empty and last == len(storage.partitions)):
            file.write(codes)
            empty = False
        if graphs is not None:
            for partition in range(first, last):
                own = left.rows(partition)
                begin = int(left.bounds[first])
                codes_here = codes.slice(own.start - begin, own.stop - own.start)
                graphs.add(partition, kept[storage.partitions.rows(partition)], codes_here)
    file.finish()


def _copy_buffers(storage: Storage, file: IndexFileWriter) -> None:
    """Copy codebook or rotation, and say where they are now."""
    details, before = dict(storage.details), dict(storage.details)
    for key in _BUFFERS:
        if isinstance(details.get(key), int):
            details[key] = file.add_buffer(storage.file.buffer(details[key]).to_pybytes())
    if details != before:
        text = json.dumps(details, separators=(",", ":"))
        file.add_metadata({DETAILS: json.dumps([text], separators=(",", ":"))})


def _batches(storage: Storage) -> Iterator[tuple[int, int]]:
    """Partitions to be read at once, so that they take little memory or are alone."""
    row = sum(storage.bytes_of_row(name) for name in storage.file.schema.names)
    limit = max(1, _BATCH_BYTES // max(1, row))
    bounds, first = storage.partitions.bounds, 0
    while first < len(bounds) - 1:
        last = int(np.searchsorted(bounds, bounds[first] + limit, side="right")) - 1
        last = max(first + 1, last)
        yield first, last
        first = last


class _GraphWriter:
    """Rebuilds graphs, one partition after the other."""

    def __init__(self, graphs: Graphs, storage: Storage, out: SegmentWriter) -> None:
        self._graphs, self._storage, self._out = graphs, storage, out
        self._vectors: Vectors | None = None
        self._texts: list[str] = []
        self._rows: list[pa.Table] = []

    def add(self, partition: int, kept: Mask, codes: pa.Table) -> None:
        """Add the graph of a partition of which these codes are left."""
        text, rows = self._made(partition, kept, codes)
        self._texts.append(text)
        self._rows.append(rows)

    def _made(self, partition: int, kept: Mask, codes: pa.Table) -> tuple[str, pa.Table]:
        graphs = self._graphs
        rows = graphs.read(partition)
        if not kept.any():
            return "", rows.slice(0, 0)
        if kept.all():
            return graphs.texts[partition], rows
        header = graphs.header(partition)
        levels = graphs.levels(rows, header, len(kept))
        if not any(kept[level.ids].any() for level in levels):
            raise CorruptFileError(
                f"graph of partition {partition} of an index",
                expected="a node for each vector",
                found=f"{len(rows)} nodes, of vectors that are gone",
                where=graphs.file.path,
            )
        if self._vectors is None:
            self._vectors = Vectors(self._storage)
        vectors = self._vectors.of(codes[self._vectors.column])
        text, levels = without_nodes(header, levels, kept, vectors, dot=self._vectors.dot)
        return text, rows_of(levels, rows.schema)

    def finish(self) -> None:
        """Write the file."""
        bounds = np.cumsum([0, *(len(row) for row in self._rows)])
        partitions: Partitions = self._graphs.partitions.with_bounds(bounds)
        self._out.write(
            INDEX,
            pa.concat_tables(self._rows) if self._rows else self._graphs.file.read(NODE_COLUMNS),
            metadata={
                **self._graphs.file.metadata,
                GRAPHS: json.dumps(self._texts, separators=(",", ":")),
            },
            buffers={MODEL: partitions.encoded()},
        )
