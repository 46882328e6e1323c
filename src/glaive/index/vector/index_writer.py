"""Write the files of a vector index: codes by partition, and the model.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import OptionError
from glaive.format.pb import index_pb2
from glaive.index.protocol import BuiltSegment
from glaive.index.row_set import RowNumbers
from glaive.index.segment import SegmentWriter
from glaive.index.source import IndexSource
from glaive.index.vector.coder import fixed_size_lists
from glaive.index.vector.details import TYPE_URL, details_of, version_of
from glaive.index.vector.graph_writer import NODE_SCHEMA, GraphWriter
from glaive.index.vector.model import VectorModel, train_model
from glaive.index.vector.parameters import VectorParameters
from glaive.index.vector.partition_sort import PartitionSort, SortedPartitions
from glaive.index.vector.partitions import MODEL
from glaive.index.vector.storage import ADDRESSES
from glaive.index.vector.vector_column import VectorBlock
from glaive.io.pool import ordered_map
from glaive.types import Int64s

__all__ = [
    "CODES",
    "FLAT",
    "INDEX",
    "KIND",
    "add_source",
    "build_index",
    "encoded_blocks",
    "write_index",
]

CODES: Final = "auxiliary.idx"
INDEX: Final = "index.idx"
FLAT: Final = "lance:flat"
"""Metadata key of the list of partitions without graphs."""

KIND: Final = "lance:index"
_METRIC: Final = "distance_type"
_MARKER: Final = "__flat_marker"
_RECORDS_SHARE: Final = 2


def build_index(
    source: IndexSource, parameters: VectorParameters, out: SegmentWriter
) -> BuiltSegment:
    """Train and write an index; no files if there is no vector.

    Reads a sample of the column, then the column once.
    """
    model = train_model(source, parameters) if parameters.train and source.num_rows else None
    if model is not None:
        dtype, limit = model.dtype, source.memory_limit // _RECORDS_SHARE
        with PartitionSort(len(model), dtype, limit) as records:
            add_source(records, source, model, parameters.partitions)
            write_index(records, model, parameters, out)
    return BuiltSegment(TYPE_URL, details_of(parameters), version_of(parameters))


def add_source(
    records: PartitionSort, source: IndexSource, model: VectorModel, partitions: pa.Table | None
) -> None:
    """Encode the vectors of a source."""
    for ids, encoded in encoded_blocks(source, model, partitions):
        records.add(ids, encoded)


def encoded_blocks(
    source: IndexSource, model: VectorModel, partitions: pa.Table | None
) -> Iterator[tuple[NDArray[np.int32], NDArray[Any]]]:
    """Partitions and records of the vectors of a source, in their order, encoded on all cores.

    Parameters
    ----------
    partitions
        ``row_id`` and ``partition`` of each row, if they are known.

    Raises
    ------
    OptionError
        A row is not in that table, or a partition does not exist.
    """
    known = None if partitions is None else _KnownPartitions(partitions, len(model))
    encode = partial(_encode, model=model, known=known)
    yield from ordered_map(encode, model.column.blocks(source))


def _encode(
    block: VectorBlock, model: VectorModel, known: _KnownPartitions | None
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    return model.encode(block, None if known is None else known.of(block.rows))


_KNOWN: Final = pa.schema({"row_id": pa.uint64(), "partition": pa.int64()})


class _KnownPartitions:
    """Partitions that were computed elsewhere.

    Raises
    ------
    OptionError
        A partition does not exist, or numbers are of another type.
    """

    def __init__(self, table: pa.Table, count: int) -> None:
        try:
            known = table.select(_KNOWN.names).drop_null().cast(_KNOWN)
        except pa.ArrowException as error:
            raise OptionError(f"precomputed_partitions: expected integers ({error})") from error
        rows, partitions = (column.to_numpy() for column in known.columns)
        if len(rows) and (partitions.min() < 0 or partitions.max() >= count):
            raise OptionError(f"precomputed_partitions: expected partitions below {count}")
        order = np.argsort(rows)
        self._rows, self._partitions = rows[order], partitions[order].astype(np.int32)

    def of(self, rows: RowNumbers) -> NDArray[np.int32]:
        """The partition of each row."""
        at = np.minimum(np.searchsorted(self._rows, rows), max(0, len(self._rows) - 1))
        if len(rows) and (not len(self._rows) or (self._rows[at] != rows).any()):
            raise OptionError("precomputed_partitions: a row of the column is not in the table")
        return self._partitions[at]


def write_index(
    records: PartitionSort, model: VectorModel, parameters: VectorParameters, out: SegmentWriter
) -> None:
    """Write both files out of collected records."""
    metric = parameters.column.metric
    schema = pa.schema([pa.field(ADDRESSES, pa.uint64()), *model.coder.fields])
    codes = out.create(CODES, schema)
    ivf = _extents(records.sizes)
    codes.add_metadata({_METRIC: metric, MODEL: str(codes.add_buffer(ivf.SerializeToString()))})
    model.coder.add_to(codes)
    said = {KIND: json.dumps({"type": parameters.kind, _METRIC: metric}, separators=(",", ":"))}
    graphs = None
    if parameters.graph is not None:
        graphs = GraphWriter(out.create(INDEX, NODE_SCHEMA), parameters.graph)
    for group in records.groups():
        codes.write(_stored(group, model, schema))
        if graphs is not None:
            graphs.add(group, model.coder)
    codes.finish()
    message = model.message()
    if graphs is not None:
        graphs.finish(message, said)
        return
    message.MergeFrom(_extents(np.zeros(len(model), np.int64)))
    marker = pa.schema([pa.field(_MARKER, pa.uint64(), nullable=False)])
    texts = json.dumps([""] * len(model), separators=(",", ":"))
    out.write(
        INDEX,
        marker.empty_table(),
        metadata={**said, FLAT: texts},
        buffers={MODEL: message.SerializeToString()},
    )


def _extents(sizes: Int64s) -> index_pb2.IVF:
    """Offsets and lengths of partitions."""
    offsets = np.cumsum(sizes) - sizes
    return index_pb2.IVF(offsets=offsets.tolist(), lengths=sizes.tolist())


def _stored(group: SortedPartitions, model: VectorModel, schema: pa.Schema) -> pa.Table:
    """Records of complete partitions as they are stored."""
    columns: list[Any] = [pa.array(np.ascontiguousarray(group.records[ADDRESSES]))]
    bounds = group.bounds.tolist()
    for field in model.coder.fields:
        codes = group.records[field.name]
        if model.coder.is_arranged(field.name):
            parts = [
                model.coder.arranged(field.name, codes[start:stop])
                for start, stop in pairwise(bounds)
            ]
            codes = np.concatenate(parts)
        is_list = pa.types.is_fixed_size_list(field.type)
        columns.append(
            fixed_size_lists(codes, field.type)
            if is_list
            else pa.array(np.ascontiguousarray(codes))
        )
    return pa.Table.from_arrays(columns, schema=schema)
