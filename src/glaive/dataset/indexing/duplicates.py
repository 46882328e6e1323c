"""Find near duplicates among rows of a vector index; cluster vectors.

Specification: "Codes" in ``docs/format/vector-codes.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.dataclass import NamedTuple
from glaive.dataset.indexing.describe import missing_index, uuid_of
from glaive.dataset.stats import sample_positions
from glaive.errors import OptionError, TrainingError
from glaive.index.vector.coder import Clusters, Training, assign_all, train_clusters
from glaive.index.vector.codes import PlainCodes
from glaive.index.vector.opened import OpenedVectorIndex
from glaive.index.vector.storage import metric_named, normalized
from glaive.io.pool import ordered_map
from glaive.kernels.distances import ELEMENTS, Metric, Queries, VectorBlock, measure
from glaive.kernels.graph_search import RowPlaces
from glaive.options import integer
from glaive.scan.indices import IndexedSegment, LogicalIndex, SnapshotIndices
from glaive.scan.nearest.indexed import locate_rows
from glaive.scan.nearest.vectors import VectorType, row_vectors
from glaive.scan.projection import refuse_reserved_names
from glaive.scan.snapshot import Snapshot
from glaive.types import Flags, Float32s, Int64s, UInt8s, UInt64s

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset


_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("row_id_a", pa.uint64(), nullable=False),
    pa.field("row_id_b", pa.uint64(), nullable=False),
    pa.field("distance", pa.float32(), nullable=False),
]
_SCHEMA: Final = pa.schema(_FIELDS)
_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 16 << 20
_ANCHOR_ROWS: Final = 32
"""Rows to compare with a batch at a time; their pairs are one batch of the result."""

_MEMORY_LIMIT: Final = 256 << 20


def find_duplicate_pairs(
    dataset: LanceDataset,
    column: str,
    distance_threshold: float,
    *,
    memory_limit: int | None = None,
    max_concurrency: int | None = None,
) -> pa.RecordBatchReader:
    """Find pairs of near rows in one partition of a vector index, which covers all fragments.

    Parameters
    ----------
    dataset, column
        The dataset and the column, which has exactly one vector index.
    distance_threshold
        Maximum distance of a pair, by the metric of the index, between the vectors that its codes
        decode to. Squared distance for ``l2``, bits for ``hamming``.
    memory_limit
        Bytes of decoded vectors to keep per partition; default: 256 MiB. With fewer, glaive
        decodes vectors again for each batch.
    max_concurrency
        Number of threads; default: one per core.

    Returns
    -------
    pyarrow.RecordBatchReader
        ``row_id_a``, ``row_id_b`` (``uint64``) and ``distance`` (``float32``): every pair once,
        in the index's order of rows. Pairs across partitions or segments are left
        out. The time is quadratic in the rows of a partition.

    Raises
    ------
    ColumnNotFoundError
        The column is unknown.
    OptionError
        The column has zero or several vector indices, or the index lacks fragments. Or a limit is
        invalid.
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
    """Find pairs like :func:`find_duplicate_pairs`, in one partition of one segment.

    Parameters
    ----------
    segment_id
        Id of the segment: ``dataset.describe_indices()[0].segments[0].uuid``.
    partition_id
        Number of the partition in the segment.
    dataset, column, distance_threshold, memory_limit, max_concurrency
        See :func:`find_duplicate_pairs`. The index may lack fragments.

    Raises
    ------
    ColumnNotFoundError, OptionError
        See :func:`find_duplicate_pairs`; or the segment or partition is missing.
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
    """Raise an ``OptionError`` if the index lacks a partition."""
    count = len(opened.partitions)
    if not 0 <= partition < count:
        raise OptionError(
            f"partition_id={partition} out of range 0..{count}{of}: Partition ID {partition} is "
            f"out of range (0..{count})"
        )


def opened_segment(snapshot: Snapshot, segment: IndexedSegment) -> OpenedVectorIndex:
    """Open a segment of a vector index; raise an ``OptionError`` for another kind."""
    opened = SnapshotIndices.of(snapshot).open(segment)
    if not isinstance(opened, OpenedVectorIndex):
        raise OptionError(f"segment {UUID(bytes=segment.uuid)} does not belong to a vector index")
    return opened


def partition_rows(
    snapshot: Snapshot, segment: IndexedSegment, number: int
) -> tuple[RowPlaces, Any]:
    """Return the locations of the rows of a partition, and their codes.

    Raises
    ------
    CorruptFileError
        The index is damaged.
    """
    opened = opened_segment(snapshot, segment)
    rows, codes, _ = opened.codes.load(number, opened.partitions.rows(number))
    return locate_rows(SnapshotIndices.of(snapshot), segment, rows), codes


class _Tile(NamedTuple):
    """Rows of a partition to compare with the rows of a batch."""

    anchors: slice
    others: slice
    anchor_batch: slice


def _pairs(
    snapshot: Snapshot, segment: IndexedSegment, number: int, limits: _Limits
) -> Iterator[pa.RecordBatch]:
    """Yield pairs of a partition, in its order of rows."""
    opened = opened_segment(snapshot, segment)
    count = opened.partitions.rows(number)
    if count.stop - count.start < 2:
        return
    places, codes = partition_rows(snapshot, segment, number)
    width = (
        opened.dimension * ELEMENTS["uint8" if opened.metric == "hamming" else "float32"].itemsize
    )
    step = min(_BATCH_ROWS, max(_ANCHOR_ROWS, _BATCH_BYTES // width))
    batches = [slice(at, min(at + step, len(places))) for at in range(0, len(places), step)]
    # Both batches of a tile are in memory anyway; memory decides how many more are kept.
    cached_blocks = max(2, limits.memory // (step * width))
    vectors = lru_cache(cached_blocks)(partial(_decoded, opened, number, codes, step))
    live = np.ones(len(places), np.bool_) if places.live is None else places.live
    metric: Metric = "dot" if opened.metric == "cosine" else opened.metric
    tiles = (
        _Tile(slice(at, min(at + _ANCHOR_ROWS, anchors.stop)), others, anchors)
        for row, anchors in enumerate(batches)
        for others in batches[row:]
        for at in range(anchors.start, anchors.stop, _ANCHOR_ROWS)
    )
    work = partial(_tile_pairs, vectors, places, live, metric, limits.distance)
    for found in ordered_map(work, tiles, workers=limits.workers):
        if found.num_rows:
            yield found


def _decoded(
    opened: OpenedVectorIndex, number: int, codes: Any, count: int, start: int
) -> VectorBlock:
    """Decode up to ``count`` codes to vectors; for the cosine distance, normalise them."""
    rows = opened.partitions.rows(number)
    stop = min(start + count, rows.stop - rows.start)
    block = opened.codes.decoded(number, codes, slice(start, stop)).widened()
    if opened.metric != "cosine":
        return block
    vectors = np.ascontiguousarray(normalized(block.matrix))
    return VectorBlock(vectors.reshape(-1), block.dimension, block.element)


def _tile_pairs(
    vectors: Callable[[int], VectorBlock],
    places: RowPlaces,
    live: Flags,
    metric: Metric,
    limit: float,
    tile: _Tile,
) -> pa.RecordBatch:
    """Find pairs of some rows with later rows of a batch."""
    block = vectors(tile.others.start)
    first = vectors(tile.anchor_batch.start)
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


# --- Groups of rows whose hashes differ in few bits: of a partition, a sample or a range of rows

_CLUSTERS_SCHEMA: Final = pa.schema(
    [
        pa.field("representative", pa.uint64(), nullable=False),
        pa.field("duplicates", pa.list_(pa.uint64()), nullable=False),
    ]
)
_ROW_ID: Final = "_rowid"
_MAX_EDGES: Final = 1 << 20
"""Pairs to collect before glaive joins groups by them."""


def get_ivf_partition_info(
    dataset: LanceDataset, index_name: str, *, index_segments: Iterable[str | UUID] | None = None
) -> list[dict[str, int]]:
    """Count the rows of each partition of an IVF_FLAT index, including deleted rows.

    Parameters
    ----------
    dataset, index_name
        The dataset, and the name of the index.
    index_segments
        Ids of the segments to count; default: all.

    Returns
    -------
    list of dict
        ``partition_id`` and ``size``.

    Raises
    ------
    OptionError
        The index or a segment is missing, or it stores codes.
    """
    segments = _segments(dataset.snapshot, index_name, index_segments)
    lengths: Int64s = np.sum(
        [
            np.diff(opened_segment(dataset.snapshot, segment).partitions.bounds)
            for segment in segments
        ],
        axis=0,
    )
    return [{"partition_id": at, "size": size} for at, size in enumerate(lengths.tolist())]


def hamming_clustering_for_ivf_partition(
    dataset: LanceDataset,
    index_name: str,
    partition_id: int,
    hamming_threshold: int,
    *,
    index_segments: Iterable[str | UUID] | None = None,
) -> pa.RecordBatchReader:
    """Group near hashes in a partition of an IVF_FLAT index, over all its segments.

    Parameters
    ----------
    dataset, index_name, index_segments
        See :func:`get_ivf_partition_info`.
    partition_id
        Number of the partition.
    hamming_threshold
        Maximum number of different bits of near hashes.

    Returns
    -------
    pyarrow.RecordBatchReader
        ``representative``, the smallest row id of a group, and ``duplicates``, its other row ids.
        Rows far from all others are left out. The time is quadratic in the rows.

    Raises
    ------
    OptionError
        The index, a segment or the partition is missing, or the index does not store
        hashes. Or its segments have different centroids.
    """
    snapshot = dataset.snapshot
    _check_bits(hamming_threshold)
    segments = _segments(snapshot, index_name, index_segments)
    first = opened_segment(snapshot, segments[0])
    check_partition(first, partition_id)
    hashes, ids = [], []
    for segment in segments:
        places, codes = partition_rows(snapshot, segment, partition_id)
        opened = opened_segment(snapshot, segment)
        if opened.metric != "hamming":
            raise OptionError(
                f"index_name: index {index_name!r} is by {opened.metric}, not hamming"
            )
        block = opened.codes.decoded(partition_id, codes, slice(0, len(places)))
        live = slice(None) if places.live is None else places.live
        hashes.append(block.matrix[live])
        ids.append(places.key[live])
    return _clusters(np.concatenate(hashes), np.concatenate(ids), hamming_threshold)


def hamming_clustering_for_sample(
    dataset: LanceDataset, column: str, sample_size: int | None = None, hamming_threshold: int = 10
) -> pa.RecordBatchReader:
    """Group near hashes among random rows, or all rows.

    Parameters
    ----------
    dataset, column
        The dataset and a column of hashes: fixed-size lists of ``uint8``, of 8n bytes.
    sample_size
        Number of rows; None for all.
    hamming_threshold
        Maximum number of different bits of near hashes.

    Returns
    -------
    pyarrow.RecordBatchReader
        See :func:`hamming_clustering_for_ivf_partition`.

    Raises
    ------
    ColumnNotFoundError, OptionError
        The column is unknown, or does not hold hashes.
    """
    _check_hashes(dataset.snapshot, column)
    _check_bits(hamming_threshold)
    if sample_size is None or sample_size >= len(dataset):
        rows = dataset.to_table(columns=[column], with_row_id=True)
    else:
        refuse_reserved_names(dataset.lance_schema, _ROW_ID)
        positions = sample_positions(len(dataset), sample_size, randomize_order=False)
        rows = dataset.take(positions, [column, _ROW_ID])
    return _of_table(rows, column, hamming_threshold)


def hamming_clustering_for_range(
    dataset: LanceDataset,
    column: str,
    fragment_id: int,
    start_row: int,
    num_rows: int,
    hamming_threshold: int = 10,
) -> pa.RecordBatchReader:
    """Group near hashes among consecutive rows of a fragment.

    Parameters
    ----------
    fragment_id
        Id of the fragment.
    start_row, num_rows
        The first row and the number of rows, counted in live rows.
    dataset, column, hamming_threshold
        See :func:`hamming_clustering_for_sample`.

    Returns
    -------
    pyarrow.RecordBatchReader
        See :func:`hamming_clustering_for_ivf_partition`.

    Raises
    ------
    ColumnNotFoundError, OptionError
        The column, fragment or row is missing, or the column does not hold hashes.
    """
    _check_hashes(dataset.snapshot, column)
    _check_bits(hamming_threshold)
    fragment = dataset.get_fragment(fragment_id)
    if fragment is None:
        raise OptionError(
            f"fragment_id: Fragment with ID {fragment_id} not found. See get_fragments()"
        )
    if not 0 <= start_row < fragment.physical_rows or num_rows < 0:
        raise OptionError(
            f"start_row {start_row} is out of range for fragment with {fragment.physical_rows} "
            f"physical rows, num_rows {num_rows}"
        )
    scanner = fragment.scanner(columns=[column], with_row_id=True, offset=start_row, limit=num_rows)
    return _of_table(scanner.to_table(), column, hamming_threshold)


def _segments(
    snapshot: Snapshot, name: str, uuids: Iterable[str | UUID] | None
) -> list[IndexedSegment]:
    """Return the segments of an index that stores plain vectors."""
    index = next((each for each in SnapshotIndices.of(snapshot).all if each.name == name), None)
    if index is None:
        raise OptionError(
            f"Index {name!r} not found on dataset: {missing_index(snapshot.manifest, name)}"
        )
    known = {segment.uuid: segment for segment in index.segments}
    wanted = list(known)
    if uuids is not None:
        wanted = [uuid_of("index_segments", uuid).bytes for uuid in uuids]
        if not wanted:
            raise OptionError(
                f"Segment selection for index {name!r} must not be empty; omit index_segments to "
                "use all segments"
            )
        absent = [str(UUID(bytes=uuid)) for uuid in wanted if uuid not in known]
        if absent:
            raise OptionError(
                f"index_segments: Lance index not found: name={name}, segment_ids={absent}"
            )
    segments = [known[uuid] for uuid in dict.fromkeys(wanted)]
    models = [opened_segment(snapshot, segment) for segment in segments]
    if index.kind.name != "vector" or not all(
        isinstance(model.codes, PlainCodes) for model in models
    ):
        raise OptionError(f"index_name: index {name!r} stores no plain vectors; expected IVF_FLAT")
    if any(not np.array_equal(model.centroids, models[0].centroids) for model in models):
        raise OptionError(
            f"index_name: segments of index {name!r} have different centroids. Select some by "
            "index_segments, or build the index again"
        )
    return segments


def _check_hashes(snapshot: Snapshot, column: str) -> None:
    kind: Any = snapshot.manifest.schema.find(column)[-1].to_arrow().type
    hashes = pa.types.is_fixed_size_list(kind) and kind.value_type == pa.uint8()
    if not hashes or not kind.list_size or kind.list_size % 8:
        raise OptionError(
            f"Column {column!r} must be FixedSizeList<UInt8, N> where N is a positive multiple of "
            f"8 bytes, got {kind}"
        )


def _check_bits(threshold: int) -> None:
    if threshold < 0:
        raise OptionError(f"hamming_threshold must not be negative, got {threshold}")


def _of_table(rows: pa.Table, column: str, threshold: int) -> pa.RecordBatchReader:
    hashes: Any = one_array(rows[column])
    stored = row_vectors(hashes, VectorType("uint8", hashes.type.list_size))
    whole = slice(None) if stored.valid is None else stored.valid
    ids = one_array(rows[_ROW_ID]).to_numpy()
    return _clusters(stored.block.matrix[whole], ids[whole], threshold)


def _clusters(hashes: UInt8s, ids: UInt64s, threshold: int) -> pa.RecordBatchReader:
    """Return groups of near hashes, sorted by their smallest row id."""
    order = np.argsort(ids, kind="stable")
    ids, hashes = ids[order], np.ascontiguousarray(hashes[order])
    roots = _roots(hashes, threshold)
    groups, sizes = np.unique(roots, return_counts=True)
    groups, sizes = groups[sizes > 1], sizes[sizes > 1]
    if not len(groups):
        return pa.RecordBatchReader.from_batches(_CLUSTERS_SCHEMA, [])
    others = np.flatnonzero(roots != np.arange(len(roots)))
    others = others[np.argsort(roots[others], kind="stable")]
    offsets = np.concatenate(([0], np.cumsum(sizes - 1))).astype(np.int32)
    of_lists: Any = pa.ListArray
    lists = of_lists.from_arrays(pa.array(offsets), pa.array(ids[others]))
    batch = pa.RecordBatch.from_arrays([pa.array(ids[groups]), lists], schema=_CLUSTERS_SCHEMA)
    return pa.RecordBatchReader.from_batches(_CLUSTERS_SCHEMA, [batch])


def _roots(hashes: UInt8s, threshold: int) -> Int64s:
    """Return for each row the first row of its group."""
    count, width = hashes.shape
    roots = np.arange(count)
    if count < 2:
        return roots
    queries = Queries(hashes)
    found: list[NDArray[np.int64]] = []
    held = 0
    for row in range(count - 1):
        after = VectorBlock(hashes[row + 1 :].reshape(-1), width, "uint8")
        near = np.flatnonzero(measure(after, queries, "hamming", query=row) <= threshold)
        if len(near):
            found.append(np.stack([np.full(len(near), row), near + row + 1]))
            held += len(near)
        if held > _MAX_EDGES or (row == count - 2 and found):
            _join(roots, np.concatenate(found, axis=1))
            found, held = [], 0
    return roots


def _join(roots: Int64s, edges: Int64s) -> None:
    """Join the groups that pairs connect."""
    while True:
        first, second = roots[edges]
        if not (first != second).any():
            return
        np.minimum.at(roots, np.maximum(first, second), np.minimum(first, second))
        shorter = roots[roots]
        while (shorter != roots).any():
            roots[:] = shorter
            shorter = roots[roots]


# --- K-means over arrays in memory ------------------------------------------------------
# Specification: "Training" in ``docs/format/vector-indices.md``.


class KMeans:
    """Clusters of vectors around centroids.

    Parameters
    ----------
    k
        Number of clusters.
    metric_type
        ``l2``, ``cosine`` or ``dot``.
    max_iters
        Maximum number of iterations of training.
    centroids
        Fixed-size lists of ``float``; None: :meth:`fit` trains them.

    Raises
    ------
    OptionError
        An argument is wrong.
    """

    def __init__(
        self, k: int, metric_type: str = "l2", max_iters: int = 50, centroids: object = None
    ) -> None:
        self.k = integer(1).check("k", k)
        self._max_iters = integer(1).check("max_iters", max_iters)
        if metric_type.lower() not in ("l2", "euclidean", "cosine", "dot"):
            raise OptionError(
                f"Invalid metric_type: {metric_type}. Expected l2, euclidean, cosine or dot"
            )
        self._metric = metric_named(metric_type)
        self._clusters: Clusters | None = None
        if centroids is not None:
            self._clusters = Clusters(_matrix(centroids), self._metric)
            if len(self._clusters) != k:
                raise OptionError(f"centroids: expected {k}, found {len(self._clusters)}")

    def __repr__(self) -> str:
        return f"glaive.KMeans(k={self.k}, metric_type={self._metric})"

    @property
    def centroids(self) -> pa.FixedShapeTensorArray | None:
        """The centroids; None before training."""
        if self._clusters is None:
            return None
        values = self._clusters.centroids
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        kind = pa.fixed_shape_tensor(pa.float32(), [values.shape[1]])
        centroids: Any = pa.FixedShapeTensorArray.from_storage(kind, vectors)
        return centroids  # type: ignore[no-any-return]  # the stubs have another class

    def fit(self, data: object) -> None:
        """Train the centroids.

        Parameters
        ----------
        data
            ``float32`` of shape ``(n, dimension)``: a NumPy array or fixed-size lists.

        Raises
        ------
        OptionError
            The data has another type.
        TrainingError
            The data has fewer vectors than clusters.
        """
        vectors = self._fitting(data)
        if len(vectors) < self.k:
            raise TrainingError(
                "KMeans: training does not have sufficient data points: "
                f"n({len(vectors)}) is smaller than k({self.k})"
            )
        training = Training(self._metric, self._max_iters)
        self._clusters = Clusters(train_clusters(vectors, self.k, training)[0], self._metric)

    def predict(self, data: object) -> pa.Array[Any]:
        """Return the cluster of each vector; :meth:`fit` explains ``data``.

        Raises
        ------
        TrainingError
            The centroids are missing.
        OptionError
            The vectors have another dimension.
        """
        if self._clusters is None:
            raise TrainingError("KMeans must fit (train) first: call fit, or pass centroids")
        vectors = self._fitting(data)
        expected = self._clusters.centroids.shape[1]
        if vectors.shape[1] != expected:
            raise OptionError(f"data: expected dimension {expected}, found {vectors.shape[1]}")
        ids, _ = assign_all(self._clusters, vectors, parallel=True)
        return pa.array(ids.astype(np.uint32))

    def _fitting(self, data: object) -> Float32s:
        """Return vectors as the metric compares them."""
        vectors = _matrix(data)
        if self._metric == "cosine":
            vectors = np.nan_to_num(np.asarray(normalized(vectors), np.float32))
        return vectors


def _matrix(data: Any) -> Float32s:
    if isinstance(data, pa.FixedShapeTensorArray):
        kind: Any = data.type
        if len(kind.shape) != 1:
            found = f"got {len(kind.shape)}-D"
            raise OptionError(f"data: Fixed shape tensor array must be a 1-D array, {found}")
        data = data.storage
    if isinstance(data, pa.FixedSizeListArray):
        if data.null_count or data.flatten().null_count:
            raise OptionError("data: expected vectors, found nulls")
        data = data.flatten().to_numpy(zero_copy_only=False).reshape(-1, data.type.list_size)
    if not isinstance(data, np.ndarray):
        kinds = "a FixedSizeListArray, Tensor or numpy array"
        raise OptionError(f"data: Data must be {kinds}, got: {type(data).__name__}")
    if data.dtype != np.float32:
        raise OptionError(f"data: Numpy array must be float32 type, got: {data.dtype}")
    if data.ndim != 2:
        raise OptionError(f"data: Numpy array must be a 2-D array, got {data.ndim}-D")
    if not np.isfinite(data).all():
        raise OptionError("data: expected finite numbers, found NaN or infinity")
    return np.ascontiguousarray(data)


# --- Check a vector index: every vector is nearest to itself ----------------------------
# Specification: "Searching" in ``docs/format/indices.md``.

_DISTANCE_TOLERANCE = 1e-6


def validate_vector_index(
    dataset: LanceDataset,
    column: str,
    refine_factor: int = 5,
    sample_size: int | None = None,
    pass_threshold: float = 1.0,
) -> None:
    """Check that searches for vectors of a dataset find these vectors.

    Parameters
    ----------
    dataset, column
        The dataset and the indexed column.
    refine_factor
        Factor of candidates whose exact distance is computed.
    sample_size
        Number of vectors to search for, with one search each; None for all.
    pass_threshold
        Share of these vectors that searches must find.

    Raises
    ------
    TrainingError
        Searches found fewer vectors.
    OptionError
        The column is empty.
    """
    count = dataset.count_rows() if sample_size is None else sample_size
    rows = dataset.sample(count, columns=[column])
    lists: Any = one_array(rows[column]).drop_null()
    if not pa.types.is_fixed_size_list(lists.type):
        raise OptionError(f"column: expected a column of vectors, found {lists.type} {column!r}")
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    vectors = flat.reshape(-1, lists.type.list_size)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    found = 0
    for vector in vectors:
        search = {
            "column": column, "q": vector, "k": 1, "nprobes": 1, "refine_factor": refine_factor,
        }  # fmt: skip
        distances = dataset.to_table(columns=["_distance"], nearest=search)["_distance"]
        found += len(distances) > 0 and abs(distances[0].as_py()) < _DISTANCE_TOLERANCE
    if len(vectors) and found / len(vectors) < pass_threshold:
        raise TrainingError(
            f"Vector index failed sanity check, only {found}/{len(vectors)} passed: build the "
            f"index of column {column!r} again"
        )
