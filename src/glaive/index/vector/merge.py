"""Merge segments of equal models, and rows that none of them has.

Specification: "Merging" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.index.protocol import BuiltSegment
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.source import IndexSource
from glaive.index.vector.details import TYPE_URL, version_of
from glaive.index.vector.index_writer import add_source, write_index
from glaive.index.vector.model import VectorModel
from glaive.index.vector.partition_sort import PartitionSort
from glaive.index.vector.scalar_coder import ScalarCoder
from glaive.index.vector.storage import SCALAR
from glaive.index.vector.stored_model import StoredIndex
from glaive.index.vector.vector_column import VectorColumn

__all__ = ["extend_index", "merge_indices"]

_MEMORY_LIMIT = 1 << 30
"""Of a merge without new rows, which has no source to say it."""


def merge_indices(
    segments: Sequence[Segment], source: IndexSource | None, out: SegmentWriter
) -> BuiltSegment:
    """Write the rows of segments, and of a source, with the model that the segments share.

    Segments without files have no rows; at least one has files. Reads codes and the source
    once; graphs are built again.

    Raises
    ------
    UnsupportedFeatureError
        Their models differ, there is none, or it cannot encode.
    CorruptFileError, DataFileMissingError, NotLanceError
        A file of a segment is damaged or absent.
    """
    stored = [StoredIndex(segment) for segment in segments if segment.sizes()]
    if not stored:
        raise UnsupportedFeatureError("segments without a model cannot be merged: build the index")
    first = stored[0]
    for other in stored[1:]:
        if other.signature != first.signature:
            raise UnsupportedFeatureError(
                f"{other.segment.where}: has another model than {first.segment.where}, so that"
                " their codes cannot be compared. Keep both, or build the index again"
            )
    return _written(first, stored, source, out)


def extend_index(segment: Segment, source: IndexSource, out: SegmentWriter) -> BuiltSegment:
    """Write the rows of a source, with the model of a segment; errors as for merges."""
    if not segment.sizes():
        raise UnsupportedFeatureError("a segment without a model cannot encode: build the index")
    return _written(StoredIndex(segment), (), source, out)


def _written(
    first: StoredIndex,
    stored: Sequence[StoredIndex],
    source: IndexSource | None,
    out: SegmentWriter,
) -> BuiltSegment:
    """Write the rows of stored segments, and of a source, with the model of the first."""
    parameters, model = first.parameters(), first.model()
    scalar: Any = model.coder if isinstance(model.coder, ScalarCoder) else None
    coders: list[Any] = [one.model().coder for one in stored] if scalar is not None else []
    if coders:
        scalar.start = min(coder.start for coder in coders)
        scalar.end = max(coder.end for coder in coders)
    limit = _MEMORY_LIMIT if source is None else source.memory_limit
    with PartitionSort(len(model), model.dtype, limit // 2) as records:
        for at, one in enumerate(stored):
            for partitions, rows in one.records(model.dtype):
                if scalar is not None:
                    rows[SCALAR] = scalar.recoded(rows[SCALAR], coders[at])
                records.add(partitions, rows)
        if source is not None:
            add_source(records, source, _for_source(model, source), None)
        write_index(records, model, parameters, out)
    entry = first.segment.entry
    return BuiltSegment(TYPE_URL, entry.index_details.value, version_of(parameters))


def _for_source(model: VectorModel, source: IndexSource) -> VectorModel:
    """The same model for the column of a source.

    Raises
    ------
    UnsupportedFeatureError
        The column has other vectors.
    """
    try:
        column = VectorColumn.of(source.field, model.column.metric)
    except OptionError as error:
        raise UnsupportedFeatureError(f"the index does not fit its column: {error}") from error
    if (column.dimension, column.kind) != (model.column.dimension, model.column.kind):
        raise UnsupportedFeatureError(
            f"column {column.name!r} has vectors of {column.dimension} {column.kind}, the index of"
            f" {model.column.dimension} {model.column.kind}: build it again"
        )
    return VectorModel(column, model.centroids, model.coder, model.loss)
