"""Vector indices of all kinds: IVF with plain vectors or codes, with and without graphs.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.format.pb import table_pb2
from glaive.index.address_map import AddressMap
from glaive.index.protocol import BuiltSegment, IndexKind, OpenedIndex, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.segment import IndexFileWriter, Segment, SegmentWriter, batches
from glaive.index.source import IndexSource
from glaive.index.vector.details import details_by_name, options_of
from glaive.index.vector.graph import GRAPHS, NODE_COLUMNS, Graphs, rows_of
from glaive.index.vector.graph_repair import without_nodes
from glaive.index.vector.index_writer import build_index
from glaive.index.vector.legacy import remap_legacy
from glaive.index.vector.merge import extend_index, merge_indices
from glaive.index.vector.opening import open_vector_index
from glaive.index.vector.parameters import parse_parameters
from glaive.index.vector.partitions import MODEL, Partitions
from glaive.index.vector.storage import ADDRESSES, DETAILS, SIGNS, Storage
from glaive.index.vector.stored_model import StoredIndex
from glaive.index.vector.vectors import Vectors
from glaive.types import Flags, UInt64s

__all__ = ["VectorIndex"]

CODES = "auxiliary.idx"
INDEX = "index.idx"

_BATCH_BYTES = 64 << 20
_BUFFERS = ("codebook_position", "rotate_mat_position")


@index_kind
class VectorIndex(IndexKind):
    """Rows by partition, with their codes, and graphs over them."""

    name: ClassVar[str] = "vector"
    newest: ClassVar[int] = 2
    answers_filters: ClassVar[bool] = False
    marker: ClassVar[str] = INDEX

    def open(self, segment: Segment) -> OpenedIndex:
        """Read centroids, and what codes need: codebook, bounds or rotation."""
        return open_vector_index(segment, INDEX, CODES)

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Remove deleted rows from their partitions and graphs; the model does not change."""
        if not segment.has(CODES):
            return remap_legacy(segment, INDEX, address_map, out)
        storage = Storage(segment.open(CODES))
        if storage.details.get("layered"):
            return None
        stored = storage.file.read([ADDRESSES])[ADDRESSES]
        storage.file.check_present(stored)
        new_addresses, kept = address_map.apply(stored.to_numpy().astype(np.uint64, copy=False))
        index = segment.open(INDEX)
        if GRAPHS in index.metadata and storage.column == SIGNS:
            return None
        if GRAPHS not in index.metadata:
            out.copy(segment, INDEX)
            _write_codes(storage, new_addresses, kept, out, None)
            return RebuiltSegment()
        graphs = _GraphWriter(Graphs(index, len(storage.partitions)), storage, out)
        _write_codes(storage, new_addresses, kept, out, graphs)
        graphs.finish()
        return RebuiltSegment()

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Train a model and write the vectors of a source; see :meth:`IndexKind.build`."""
        return build_index(source, parse_parameters(parameters, source.field), out)

    def details(self, entry: table_pb2.IndexMetadata) -> dict[str, Any]:
        """Metric, codes, graph, and what the build was asked for."""
        return details_by_name(entry.index_details.value, f"details of index {entry.name!r}")

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The parameters that describe the segment."""
        if not segment.sizes():
            return options_of(segment.entry.index_details.value, segment.where)
        return StoredIndex(segment).options()

    def statistics(self, segment: Segment) -> dict[str, Any]:
        """Its partitions, centroids, and what the codes are made of."""
        return StoredIndex(segment).statistics()

    def extend(self, segment: Segment, source: IndexSource, out: SegmentWriter) -> BuiltSegment:
        """Encode rows with the model of a segment."""
        return extend_index(segment, source, out)

    def merge(
        self, segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
    ) -> BuiltSegment:
        """Write one segment with the model of others; see :meth:`IndexKind.merge`."""
        return merge_indices(segments, source, out)


def _write_codes(
    storage: Storage,
    new_addresses: UInt64s,
    kept: Flags,
    out: SegmentWriter,
    graphs: _GraphWriter | None,
) -> None:
    """Write the file with the codes, and pass the codes to the graphs."""
    surviving = storage.partitions.without(kept)
    file = out.create(CODES, storage.file.schema)
    file.add_metadata({MODEL: str(file.add_buffer(surviving.encoded()))})
    _copy_buffers(storage, file)
    empty = True
    row_bytes = sum(storage.bytes_of_row(name) for name in storage.file.schema.names)
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
    """Copy the codebook or the rotation, and store their new buffer numbers."""
    details, before = dict(storage.details), dict(storage.details)
    for key in _BUFFERS:
        if isinstance(details.get(key), int):
            details[key] = file.add_buffer(storage.file.buffer(details[key]).to_pybytes())
    if details != before:
        text = json.dumps(details, separators=(",", ":"))
        file.add_metadata({DETAILS: json.dumps([text], separators=(",", ":"))})


class _GraphWriter:
    """Rebuilds graphs, one partition after the other."""

    def __init__(self, graphs: Graphs, storage: Storage, out: SegmentWriter) -> None:
        self._graphs, self._storage, self._out = graphs, storage, out
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
            INDEX,
            pa.concat_tables(self._rows) if self._rows else self._graphs.file.read(NODE_COLUMNS),
            metadata={
                **self._graphs.file.metadata,
                GRAPHS: json.dumps(self._headers, separators=(",", ":")),
            },
            buffers={MODEL: partitions.encoded()},
        )
