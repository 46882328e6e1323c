"""What a vector index is made of: its centroids, and the rows of its partitions.

Specification: "Partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.dataset.indexing.describe import missing_index
from glaive.dataset.indexing.vector_models import IvfModel
from glaive.errors import (
    IndexNotFoundError,
    OptionError,
    PartitionIndexError,
    UnsupportedFeatureError,
)
from glaive.index.segment import Segment
from glaive.index.vector.stored_model import StoredIndex
from glaive.scan.indices import LogicalIndex, SnapshotIndices
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["VectorIndexReader", "ivf_model", "vector_index_on"]


class VectorIndexReader:
    """Partitions of a vector index, one by one.

    Parameters
    ----------
    dataset
        The version whose index is read.
    index_name
        Of the index.

    Raises
    ------
    IndexNotFoundError
        There is no index of this name.
    OptionError
        It is none of vectors.
    """

    def __init__(self, dataset: OpenDataset, index_name: str) -> None:
        self.dataset, self.index_name = dataset, index_name
        snapshot = dataset.opened.snapshot
        self._segments = [
            StoredIndex(Segment.of(snapshot.store, snapshot.manifest, segment.entry))
            for segment in _index_of(snapshot, index_name).segments
        ]

    def num_partitions(self) -> int:
        """Partitions of the first segment, and as a rule of all."""
        return len(self._segments[0].storage.partitions)

    def read_partition(self, partition_id: int, *, with_vector: bool = False) -> pa.Table:
        """The rows of a partition, of all segments.

        Parameters
        ----------
        partition_id
            From 0 on.
        with_vector
            Read what the index keeps of the vectors as well: these, or their codes.

        Returns
        -------
        pyarrow.Table
            ``_rowid``, as the index numbers rows; with codes, row after row, as they are stored.

        Raises
        ------
        PartitionIndexError
            There is no such partition.
        CorruptFileError, DataFileMissingError
            The index is damaged.
        UnsupportedFeatureError
            Segments have codes of different types.
        """
        count = self.num_partitions()
        if not 0 <= partition_id < count:
            raise PartitionIndexError(
                f"partition_id: Partition id {partition_id!r} is out of range, expected a number "
                f"from 0 to {count - 1}"
            )
        parts: list[pa.Table] = []
        for segment in self._segments:
            if partition_id >= len(segment.storage.partitions):
                continue
            part = segment.partition(partition_id, codes=with_vector)
            if parts and not part.schema.equals(parts[0].schema):
                raise UnsupportedFeatureError(
                    f"{segment.storage.file.path}: has other columns of codes than the first "
                    "segment, so that they are no one table. Read it without with_vector"
                )
            parts.append(part)
        return pa.concat_tables(parts)


def ivf_model(snapshot: Snapshot, name: str) -> IvfModel:
    """The centroids of the first segment of an index, and its metric.

    Raises
    ------
    IndexNotFoundError
        There is no index of this name.
    OptionError
        It is none of vectors, or has no segment with rows.
    """
    segment = _index_of(snapshot, name).segments[0]
    opened: Any = SnapshotIndices.of(snapshot).open(segment)
    flat = np.ascontiguousarray(opened.centroids).reshape(-1)
    centroids: Any = pa.FixedSizeListArray.from_arrays(pa.array(flat), opened.dimension)
    return IvfModel(centroids, opened.metric)


def vector_index_on(snapshot: Snapshot, column: str | None) -> str:
    """Name of the first vector index over a column.

    Raises
    ------
    IndexNotFoundError
        There is none.
    OptionError, ColumnNotFoundError
        The column is not given, or does not exist.
    """
    if column is None:
        raise OptionError("index_name, column: one of them has to be given")
    field = snapshot.manifest.schema.find(column)[-1]
    for index in SnapshotIndices.of(snapshot).on(field.id):
        if _is_of_vectors(index):
            return index.name
    raise IndexNotFoundError(
        f"No IVF index for column {column!r}: it has no vector index with rows in "
        f"{snapshot.manifest.title}"
    )


def _is_of_vectors(index: LogicalIndex) -> bool:
    return index.kind.name == "vector"


def _index_of(snapshot: Snapshot, name: str) -> LogicalIndex:
    """The vector index with this name."""
    if all(entry.name != name for entry in snapshot.manifest.indices):
        raise missing_index(snapshot.manifest, name)
    index = next((one for one in SnapshotIndices.of(snapshot).all if one.name == name), None)
    if index is None or not _is_of_vectors(index):
        raise OptionError(f"index_name: {name!r} is no vector index with rows")
    return index
