"""Pairs of rows that a vector index stores as near duplicates, partition by partition.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from glaive.dataset.indexing.describe import uuid_of
from glaive.errors import OptionError
from glaive.index.vector.metric import normalized
from glaive.index.vector.opened import OpenedVectorIndex
from glaive.io.pool import ordered_map
from glaive.kernels.distances import ELEMENTS, Metric, Queries, VectorBlock, measure
from glaive.kernels.partition_rows import RowPlaces
from glaive.named_tuple import NamedTuple
from glaive.scan.indices import IndexedSegment, LogicalIndex, SnapshotIndices
from glaive.scan.nearest.located import locate_rows
from glaive.scan.snapshot import Snapshot
from glaive.types import Flags

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = [
    "check_partition",
    "find_duplicate_pairs",
    "find_duplicate_pairs_in_partition",
    "opened_segment",
    "partition_rows",
]

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("row_id_a", pa.uint64(), nullable=False),
    pa.field("row_id_b", pa.uint64(), nullable=False),
    pa.field("distance", pa.float32(), nullable=False),
]
_SCHEMA: Final = pa.schema(_FIELDS)
_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 16 << 20
_ANCHORS: Final = 32
"""Rows that are compared with a batch at a time, whose pairs are one batch of the result."""

_MEMORY_LIMIT: Final = 256 << 20


def find_duplicate_pairs(
    dataset: LanceDataset,
    column: str,
    distance_threshold: float,
    *,
    memory_limit: int | None = None,
    max_concurrency: int | None = None,
) -> pa.RecordBatchReader:
    """Pairs of near rows in the same partition of a vector index, which covers all fragments.

    Parameters
    ----------
    dataset, column
        What is indexed, by exactly one vector index.
    distance_threshold
        Distance up to which two rows are a pair: by the metric of the index, between the
        vectors that its codes stand for. The squared distance for ``l2``, bits for ``hamming``.
    memory_limit
        Bytes of decoded vectors that are kept of a partition, by default 256 MiB. With fewer
        they are decoded again for each batch that they are compared with.
    max_concurrency
        Threads; by default one for each core.

    Returns
    -------
    pyarrow.RecordBatchReader
        ``row_id_a``, ``row_id_b`` (``uint64``) and ``distance`` (``float32``): every pair once,
        in the order in which the index stores rows. Pairs of rows in different partitions or
        segments are left out. Takes time by the square of the rows of a partition.

    Raises
    ------
    ColumnNotFoundError
        There is no such column.
    OptionError
        It has no vector index, or several, or one that does not cover all fragments; a limit
        cannot be used.
    """
    limits = _limits(distance_threshold, memory_limit, max_concurrency)
    snapshot = dataset.snapshot
    index = _only_index(snapshot, column)
    if index.fragments != frozenset(snapshot.manifest.fragment_ids.tolist()):
        raise OptionError(
            f"column: vector index on column {column!r} does not cover all fragments; optimize "
            "the index first: dataset.optimize.optimize_indices()"
        )

    def pairs() -> Iterator[pa.RecordBatch]:
        for segment in index.segments:
            opened = opened_segment(snapshot, segment)
            for number in range(len(opened.partitions)):
                yield from _pairs(snapshot, segment, number, limits)

    return pa.RecordBatchReader.from_batches(_SCHEMA, pairs())


def find_duplicate_pairs_in_partition(
    dataset: LanceDataset,
    column: str,
    segment_id: str | UUID,
    partition_id: int,
    distance_threshold: float,
    *,
    memory_limit: int | None = None,
    max_concurrency: int | None = None,
) -> pa.RecordBatchReader:
    """What :func:`find_duplicate_pairs` returns of one partition of one segment.

    Parameters
    ----------
    segment_id
        Of the segment: ``dataset.describe_indices()[0].segments[0].uuid``.
    partition_id
        Number of the partition in the segment.
    dataset, column, distance_threshold, memory_limit, max_concurrency
        As for :func:`find_duplicate_pairs`; other fragments need not be indexed.

    Raises
    ------
    ColumnNotFoundError, OptionError
        As for :func:`find_duplicate_pairs`; or the index has no such segment or partition.
    """
    limits = _limits(distance_threshold, memory_limit, max_concurrency)
    snapshot = dataset.snapshot
    wanted = uuid_of("segment_id", segment_id)
    index = _only_index(snapshot, column)
    named = [segment for segment in index.segments if segment.uuid == wanted.bytes]
    if not named:
        raise OptionError(
            f"segment_id={wanted} is not an active segment of column {column!r}. See "
            "dataset.describe_indices()"
        )
    check_partition(opened_segment(snapshot, named[0]), partition_id, f" for segment {wanted}")
    return pa.RecordBatchReader.from_batches(
        _SCHEMA, _pairs(snapshot, named[0], partition_id, limits)
    )


class _Limits(NamedTuple):
    distance: float
    memory: int
    workers: int | None


def _limits(distance: float, memory: int | None, workers: int | None) -> _Limits:
    if not isfinite(distance):
        raise OptionError(f"distance_threshold must be finite, got {distance}")
    if memory is not None and memory < 0:
        raise OptionError(f"memory_limit must not be negative, got {memory}")
    if workers is not None and workers < 1:
        raise OptionError(f"max_concurrency must be positive, got {workers}")
    return _Limits(distance, _MEMORY_LIMIT if memory is None else memory, workers)


def _only_index(snapshot: Snapshot, column: str) -> LogicalIndex:
    field = snapshot.manifest.schema.find(column)[-1]
    on_column = SnapshotIndices.of(snapshot).on(field.id)
    found = [index for index in on_column if index.kind.name == "vector"]
    if len(found) != 1:
        raise OptionError(
            f"column {column!r} requires exactly one vector index, found {len(found)}. See "
            "dataset.create_index and dataset.drop_index"
        )
    return found[0]


def check_partition(opened: OpenedVectorIndex, partition: int, of: str = "") -> None:
    """Raise an ``OptionError`` if an index has no such partition."""
    count = len(opened.partitions)
    if not 0 <= partition < count:
        raise OptionError(
            f"partition_id={partition} out of range 0..{count}{of}: Partition ID {partition} is "
            f"out of range (0..{count})"
        )


def opened_segment(snapshot: Snapshot, segment: IndexedSegment) -> OpenedVectorIndex:
    """A segment of a vector index, opened; an ``OptionError`` for one of another index."""
    opened = SnapshotIndices.of(snapshot).open(segment)
    if not isinstance(opened, OpenedVectorIndex):
        raise OptionError(f"segment {UUID(bytes=segment.uuid)} is none of a vector index")
    return opened


def partition_rows(
    snapshot: Snapshot, segment: IndexedSegment, number: int
) -> tuple[RowPlaces, Any]:
    """Where the rows of a partition are, and their codes.

    Raises
    ------
    CorruptFileError
        It is damaged.
    """
    opened = opened_segment(snapshot, segment)
    rows, codes, _ = opened.codes.load(number, opened.partitions.rows(number))
    return locate_rows(SnapshotIndices.of(snapshot), segment, rows), codes


class _Tile(NamedTuple):
    """Rows of a partition to be compared with those of a batch, both by their first and end."""

    anchors: slice
    others: slice
    anchor_batch: slice


def _pairs(
    snapshot: Snapshot, segment: IndexedSegment, number: int, limits: _Limits
) -> Iterator[pa.RecordBatch]:
    """Pairs of a partition, in the order in which it stores its rows."""
    opened = opened_segment(snapshot, segment)
    count = opened.partitions.rows(number)
    if count.stop - count.start < 2:
        return
    places, codes = partition_rows(snapshot, segment, number)
    width = (
        opened.dimension * ELEMENTS["uint8" if opened.metric == "hamming" else "float32"].itemsize
    )
    step = min(_BATCH_ROWS, max(_ANCHORS, _BATCH_BYTES // width))
    batches = [slice(at, min(at + step, len(places))) for at in range(0, len(places), step)]
    # Both batches of a tile are at hand anyway; more are kept as memory allows.
    room = max(2, limits.memory // (step * width))
    vectors = _kept(partial(_decoded, opened, number, codes), room)
    live = np.ones(len(places), np.bool_) if places.live is None else places.live
    metric: Metric = "dot" if opened.metric == "cosine" else opened.metric
    tiles = (
        _Tile(slice(at, min(at + _ANCHORS, anchors.stop)), others, anchors)
        for row, anchors in enumerate(batches)
        for others in batches[row:]
        for at in range(anchors.start, anchors.stop, _ANCHORS)
    )
    work = partial(_tile_pairs, vectors, places, live, metric, limits.distance)
    for found in ordered_map(work, tiles, workers=limits.workers):
        if found.num_rows:
            yield found


def _decoded(opened: OpenedVectorIndex, number: int, codes: Any, at: slice) -> VectorBlock:
    """Vectors that codes stand for; for the cosine distance of length one."""
    block = opened.codes.decoded(number, codes, at).widened()
    if opened.metric != "cosine":
        return block
    vectors = np.ascontiguousarray(normalized(block.matrix))
    return VectorBlock(vectors.reshape(-1), block.dimension, block.element)


def _kept(decode: Callable[[slice], VectorBlock], room: int) -> Callable[[slice], VectorBlock]:
    """The same function, which remembers as many batches as there is room for."""
    known: dict[int, VectorBlock] = {}

    def batch(at: slice) -> VectorBlock:
        block = known.get(at.start)
        if block is None:
            block = decode(at)
            while len(known) >= room and known:
                known.pop(next(iter(known)), None)
            known[at.start] = block
        return block

    return batch


def _tile_pairs(
    vectors: Callable[[slice], VectorBlock],
    places: RowPlaces,
    live: Flags,
    metric: Metric,
    limit: float,
    tile: _Tile,
) -> pa.RecordBatch:
    """Pairs of some rows with those of a batch that come after them."""
    block = vectors(tile.others)
    first = vectors(tile.anchor_batch)
    start = tile.anchors.start - tile.anchor_batch.start
    anchors = first.matrix[start : start + tile.anchors.stop - tile.anchors.start]
    queries = Queries.of(anchors, block.element)
    later = np.arange(tile.others.start, tile.others.stop)
    parts = []
    for at, row in enumerate(range(tile.anchors.start, tile.anchors.stop)):
        if not live[row]:
            continue
        distances = measure(block, queries, metric, query=at)
        near = (distances <= limit) & np.isfinite(distances) & (later > row) & live[tile.others]
        others = np.flatnonzero(near)
        parts.append((np.full(len(others), row), others + tile.others.start, distances[others]))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not columns:
        return pa.RecordBatch.from_pylist([], schema=_SCHEMA)
    a, b, distance = columns
    arrays = [places.key[a], places.key[b], distance.astype(np.float32, copy=False)]
    return pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], schema=_SCHEMA)
