"""Removing deleted rows from a segment of an index: from its partitions and graphs.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from glaive.index.address_map import AddressMap
from glaive.index.protocol import RebuiltSegment
from glaive.index.segment import IndexFileWriter, Segment, SegmentWriter, batches
from glaive.index.vector.graph import GRAPHS, NODE_COLUMNS, Graphs, rows_of
from glaive.index.vector.graph_repair import without_nodes
from glaive.index.vector.legacy import remap_legacy
from glaive.index.vector.partitions import MODEL, Partitions
from glaive.index.vector.storage import ADDRESSES, DETAILS, SIGNS, Storage
from glaive.index.vector.vectors import Vectors
from glaive.types import Flags, UInt64s

__all__ = ["remap_vector_index"]

_BATCH_BYTES = 64 << 20
_BUFFERS = ("codebook_position", "rotate_mat_position")


def remap_vector_index(
    segment: Segment, index_name: str, codes_name: str, address_map: AddressMap, out: SegmentWriter
) -> RebuiltSegment | None:
    """Remove deleted rows; the model does not change. See :meth:`IndexKind.remap`."""
    if not segment.has(codes_name):
        return remap_legacy(segment, index_name, address_map, out)
    storage = Storage(segment.open(codes_name))
    if storage.details.get("layered"):
        return None
    stored = storage.file.read([ADDRESSES])[ADDRESSES]
    storage.file.check_present(stored)
    new_addresses, kept = address_map.apply(stored.to_numpy().astype(np.uint64, copy=False))
    index = segment.open(index_name)
    if GRAPHS in index.metadata and storage.column == SIGNS:
        return None
    if GRAPHS not in index.metadata:
        out.copy(segment, index_name)
        _write_codes(storage, new_addresses, kept, out, None, codes_name)
        return RebuiltSegment()
    graphs = _GraphWriter(Graphs(index, len(storage.partitions)), storage, out, index_name)
    _write_codes(storage, new_addresses, kept, out, graphs, codes_name)
    graphs.finish()
    return RebuiltSegment()


def _write_codes(
    storage: Storage,
    new_addresses: UInt64s,
    kept: Flags,
    out: SegmentWriter,
    graphs: _GraphWriter | None,
    codes_name: str,
) -> None:
    """Write the file with the codes, and pass the codes to the graphs."""
    surviving = storage.partitions.without(kept)
    file = out.create(codes_name, storage.schema)
    file.add_metadata({MODEL: str(file.add_buffer(surviving.encoded()))})
    _copy_buffers(storage, file)
    empty = True
    row_bytes = sum(storage.bytes_of_row(name) for name in storage.schema.names)
    bounds = storage.partitions.bounds
    for first, last in batches(bounds, max(1, _BATCH_BYTES // max(1, row_bytes))):
        rows = slice(int(bounds[first]), int(bounds[last]))
        mask = kept[rows]
        parts = [
            slice(partition_rows.start - rows.start, partition_rows.stop - rows.start)
            for partition_rows in map(storage.partitions.rows, range(first, last))
        ]
        codes = storage.select(storage.read(rows.start, rows.stop), parts, mask)
        addresses = pa.array(new_addresses[rows][mask])
        at = codes.schema.get_field_index(ADDRESSES)
        codes = codes.set_column(at, codes.schema.field(at), addresses)
        if len(codes) or (empty and last == len(storage.partitions)):
            file.write(codes)
            empty = False
        if graphs is not None:
            for partition in range(first, last):
                own = surviving.rows(partition)
                begin = int(surviving.bounds[first])
                codes_here = codes.slice(own.start - begin, own.stop - own.start)
                graphs.add(partition, kept[storage.partitions.rows(partition)], codes_here)
    file.finish()


def _copy_buffers(storage: Storage, file: IndexFileWriter) -> None:
    """Copy the codebook or the rotation, and store their new buffer numbers.

    Number 0 is that of the schema: the codebook is in the metadata then.
    """
    details, before = dict(storage.details), dict(storage.details)
    for key in _BUFFERS:
        if details.get(key) and isinstance(details[key], int):
            details[key] = file.add_buffer(storage.file.buffer(details[key]).to_pybytes())
    if details != before:
        text = json.dumps(details, separators=(",", ":"))
        file.add_metadata({DETAILS: json.dumps([text], separators=(",", ":"))})


class _GraphWriter:
    """Rebuilds graphs, one partition after the other."""

    def __init__(
        self, graphs: Graphs, storage: Storage, out: SegmentWriter, index_name: str
    ) -> None:
        self._graphs, self._storage, self._out = graphs, storage, out
        self._index_name = index_name
        self._vectors: Vectors | None = None
        self._headers: list[str] = []
        self._rows: list[pa.Table] = []

    def add(self, partition: int, kept: Flags, codes: pa.Table) -> None:
        """Add the graph of a partition; ``codes`` are those of its surviving rows."""
        header, rows = self._rebuilt(partition, kept, codes)
        self._headers.append(header)
        self._rows.append(rows)

    def _rebuilt(self, partition: int, kept: Flags, codes: pa.Table) -> tuple[str, pa.Table]:
        graphs = self._graphs
        rows = graphs.read(partition)
        if not kept.any():
            return "", rows.slice(0, 0)
        if kept.all():
            return graphs.headers[partition], rows
        header = graphs.header(partition)
        levels = graphs.levels(rows, header, len(kept))
        if not any(kept[level.ids].any() for level in levels):
            raise graphs.file.corrupt(
                f"graph of partition {partition} of an index",
                "a node for each vector",
                f"{len(rows)} nodes, all of deleted vectors",
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
            self._index_name,
            pa.concat_tables(self._rows) if self._rows else self._graphs.file.read(NODE_COLUMNS),
            metadata={
                **self._graphs.file.metadata,
                GRAPHS: json.dumps(self._headers, separators=(",", ":")),
            },
            buffers={MODEL: partitions.encoded()},
        )
