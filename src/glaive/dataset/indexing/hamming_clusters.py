"""Groups of rows whose hashes differ in few bits, in a partition, a sample or a range of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.dataset.indexing.describe import missing_index, uuid_of
from glaive.dataset.indexing.duplicates import check_partition, opened_segment, partition_rows
from glaive.dataset.sampling import sample_positions
from glaive.errors import OptionError
from glaive.index.vector.plain_codes import PlainCodes
from glaive.kernels.distances import Queries, VectorBlock, measure
from glaive.scan.indices import IndexedSegment, SnapshotIndices
from glaive.scan.nearest.vectors import VectorType, row_vectors
from glaive.scan.snapshot import Snapshot
from glaive.scan.system_columns import refuse_taken
from glaive.types import Int64s, UInt8s, UInt64s

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = [
    "get_ivf_partition_info",
    "hamming_clustering_for_ivf_partition",
    "hamming_clustering_for_range",
    "hamming_clustering_for_sample",
]

_SCHEMA: Final = pa.schema(
    [
        pa.field("representative", pa.uint64(), nullable=False),
        pa.field("duplicates", pa.list_(pa.uint64()), nullable=False),
    ]
)
_ROW_ID: Final = "_rowid"
_MAX_EDGES: Final = 1 << 20
"""Pairs that are collected before groups are joined by them."""


def get_ivf_partition_info(
    dataset: LanceDataset,
    index_name: str,
    *,
    index_segments: Iterable[str | UUID] | None = None,
) -> list[dict[str, int]]:
    """The rows of each partition of an IVF_FLAT index, those that were deleted since included.

    Parameters
    ----------
    dataset, index_name
        What is indexed, and the name of the index.
    index_segments
        Ids of the segments that are counted; by default all.

    Returns
    -------
    list of dict
        ``partition_id`` and ``size``.

    Raises
    ------
    OptionError
        There is no such index or segment, or it stores no plain vectors.
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
    """Groups of near hashes in a partition of an IVF_FLAT index, of all its segments together.

    Parameters
    ----------
    dataset, index_name, index_segments
        As for :func:`get_ivf_partition_info`.
    partition_id
        Number of the partition.
    hamming_threshold
        Bits up to which two hashes are near.

    Returns
    -------
    pyarrow.RecordBatchReader
        ``representative``, the least row id of a group, and ``duplicates``, its others. Rows
        that are near no other are in no group. Takes time by the square of the rows.

    Raises
    ------
    OptionError
        There is no such index, segment or partition, it does not store hashes, or its segments
        have different centroids.
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
    dataset: LanceDataset,
    column: str,
    sample_size: int | None = None,
    hamming_threshold: int = 10,
) -> pa.RecordBatchReader:
    """Groups of near hashes among random rows, or all.

    Parameters
    ----------
    dataset, column
        Where the hashes are: fixed-size lists of ``uint8``, of a multiple of 8 bytes.
    sample_size
        Rows; None for all of them.
    hamming_threshold
        Bits up to which two hashes are near.

    Returns
    -------
    pyarrow.RecordBatchReader
        As :func:`hamming_clustering_for_ivf_partition`.

    Raises
    ------
    ColumnNotFoundError, OptionError
        There is no such column, or it has no hashes.
    """
    _check_hashes(dataset.snapshot, column)
    _check_bits(hamming_threshold)
    if sample_size is None or sample_size >= len(dataset):
        rows = dataset.to_table(columns=[column], with_row_id=True)
    else:
        refuse_taken(dataset.lance_schema, _ROW_ID)
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
    """Groups of near hashes among rows of a fragment that follow each other.

    Parameters
    ----------
    fragment_id
        Of the fragment.
    start_row, num_rows
        The first row, and how many; deleted ones are not counted.
    dataset, column, hamming_threshold
        As for :func:`hamming_clustering_for_sample`.

    Returns
    -------
    pyarrow.RecordBatchReader
        As :func:`hamming_clustering_for_ivf_partition`.

    Raises
    ------
    ColumnNotFoundError, OptionError
        There is no such column, fragment or row, or the column has no hashes.
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
    """Segments of an index of plain vectors."""
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
    """Groups that near hashes make, the one with the least row id first."""
    order = np.argsort(ids, kind="stable")
    ids, hashes = ids[order], np.ascontiguousarray(hashes[order])
    roots = _roots(hashes, threshold)
    groups, sizes = np.unique(roots, return_counts=True)
    groups, sizes = groups[sizes > 1], sizes[sizes > 1]
    if not len(groups):
        return pa.RecordBatchReader.from_batches(_SCHEMA, [])
    others = np.flatnonzero(roots != np.arange(len(roots)))
    others = others[np.argsort(roots[others], kind="stable")]
    offsets = np.concatenate(([0], np.cumsum(sizes - 1))).astype(np.int32)
    of_lists: Any = pa.ListArray
    lists = of_lists.from_arrays(pa.array(offsets), pa.array(ids[others]))
    batch = pa.RecordBatch.from_arrays([pa.array(ids[groups]), lists], schema=_SCHEMA)
    return pa.RecordBatchReader.from_batches(_SCHEMA, [batch])


def _roots(hashes: UInt8s, threshold: int) -> Int64s:
    """The first row of the group of each row."""
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
    """Make one group of those that pairs connect."""
    while True:
        first, second = roots[edges]
        if not (first != second).any():
            return
        np.minimum.at(roots, np.maximum(first, second), np.minimum(first, second))
        shorter = roots[roots]
        while (shorter != roots).any():
            roots[:] = shorter
            shorter = roots[roots]
