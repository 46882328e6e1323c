"""Opened vector indices: centroids in memory, partitions read when searches need them.

Specification: "Partitions" and "Searching partitions" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.format.pb import index_pb2
from glaive.index.index_file import IndexFile
from glaive.index.protocol import OpenedIndex
from glaive.index.row_set import RowNumbers
from glaive.index.segment import Segment
from glaive.index.vector.codes import Codes, PreparedQuery
from glaive.index.vector.graph import Graphs
from glaive.index.vector.metric import normalized
from glaive.index.vector.opened_graph import PartitionGraph, read_graph
from glaive.index.vector.partitions import Partitions
from glaive.index.vector.search_defaults import SearchDefaults
from glaive.index.vector.tensors import read_tensor, single_precision
from glaive.kernels.code_scan import CodeRows
from glaive.kernels.distances import (
    LEAST_LENGTH,
    METRICS,
    MOST_LENGTH,
    Element,
    Metric,
    VectorBlock,
)
from glaive.kernels.graph_search import (
    MAX_CAPACITY,
    ReachedNodes,
    ReachedRows,
    Scale,
    search_graph,
)
from glaive.kernels.partition_rows import RowPlaces
from glaive.kernels.ranking import RankedVectors, Ranking, rank_vectors
from glaive.types import Float32s

__all__ = [
    "LoadedPartition",
    "OpenedVectorIndex",
    "metric_of",
    "read_centroids",
]

_MIN_GRAPH_ROWS: Final = 2000
"""Rows of a partition from which on its graph is read: fewer are compared one by one."""

_ROWS_PER_NODE: Final = 200
"""Rows that are compared one after the other in the time that a graph needs for one it keeps."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPartition:
    """The rows of a partition.

    Parameters
    ----------
    number
        Of the partition.
    rows
        Number of each row, as the segment stores it.
    codes
        What the kind of codes keeps of each row.
    nbytes
        Bytes of memory.
    graph
        Over the rows.
    scanned
        The codes, where several partitions can be scanned at once.
    """

    number: int
    rows: RowNumbers
    codes: Any
    nbytes: int
    graph: PartitionGraph | None = None
    scanned: CodeRows | None = None


class OpenedVectorIndex(OpenedIndex):
    """A segment of a vector index that is ready to be searched.

    Parameters
    ----------
    segment
        Keeps the partitions that were read.
    metric
        Kind of distance.
    centroids
        ``float32`` of shape ``(partitions, dimension)``; bytes for ``hamming``.
    partitions
        Which rows of the codes belong to each.
    codes
        How rows are stored.
    graphs
        Over the rows of the partitions.
    """

    def __init__(
        self,
        segment: Segment,
        metric: Metric,
        centroids: NDArray[Any],
        partitions: Partitions,
        codes: Codes,
        *,
        graphs: Graphs | None = None,
    ) -> None:
        self.metric = metric
        self.centroids = centroids
        self.partitions = partitions
        self.codes = codes
        self._graphs = graphs
        self._segment = segment
        element: Element = "uint8" if metric == "hamming" else "float32"
        vectors = VectorBlock(centroids.reshape(-1), self.dimension, element)
        filled = np.flatnonzero(np.diff(partitions.bounds))
        self._ranked = RankedVectors(vectors, filled if len(filled) < len(centroids) else None)

    @cached_property
    def defaults(self) -> SearchDefaults | None:
        """How it is searched where queries do not say."""
        return SearchDefaults.of(self._segment.entry.index_details.value, self._segment.where)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return int(self.centroids.nbytes + self.partitions.bounds.nbytes) + self.codes.nbytes

    @property
    def dimension(self) -> int:
        """Elements of a vector."""
        return int(self.centroids.shape[1])

    @property
    def num_rows(self) -> int:
        """Rows of all partitions, those that were deleted since included."""
        return int(self.partitions.bounds[-1])

    def query(self, vector: NDArray[Any]) -> NDArray[Any]:
        """A query vector as it is compared: of length 1 for the cosine distance."""
        if vector.dtype == self.centroids.dtype and self.metric != "cosine":
            return np.ascontiguousarray(vector)
        with np.errstate(all="ignore"):
            made = vector
            if self.metric == "cosine":  # first: 32 bits may not hold numbers of 64
                length = np.linalg.norm(vector)
                usual = LEAST_LENGTH < length < MOST_LENGTH
                made = vector / length if usual else normalized(vector[None])[0]
            return np.ascontiguousarray(made, self.centroids.dtype)

    def queries(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Query vectors as of :meth:`query`."""
        if self.metric == "cosine":
            return np.stack([self.query(vector) for vector in matrix])
        return self.query(matrix)

    def ranked(self, queries: NDArray[Any], count: int) -> Ranking:
        """Partitions that have rows, the nearest to each of :meth:`queries` first, so many.

        Distances are those of the residual where codes are of residuals: squared ones. Of equal
        distances the lower number comes first; NaN comes last.
        """
        return rank_vectors(
            self._ranked, queries, "l2" if self.metric == "cosine" else self.metric, count
        )

    def prepare(self, query: NDArray[Any]) -> PreparedQuery:
        """What comparing a query of :meth:`query` with codes needs, for all partitions."""
        return self.codes.prepare(query)

    def load(self, number: int) -> LoadedPartition:
        """Read a partition, or find it read.

        Raises
        ------
        CorruptFileError
            It is damaged.
        """

        def read() -> tuple[LoadedPartition, int]:
            rows, codes, nbytes = self.codes.load(number, self.partitions.rows(number))
            nbytes += int(rows.nbytes)
            graph = None
            if self._graphs is not None and len(rows) > _MIN_GRAPH_ROWS:
                graph = read_graph(self._graphs, number, len(rows))
                nbytes += graph.nbytes
            scanned = self.codes.scanned(codes, has_graph=graph is not None)
            if scanned is not None and scanned.blocks is not None:
                nbytes += scanned.blocks.nbytes
            loaded = LoadedPartition(number, rows, codes, nbytes, graph, scanned)
            return loaded, loaded.nbytes

        return cast("LoadedPartition", self._segment.keep(self.key(number), read))

    @staticmethod
    def key(number: int) -> Hashable:
        """What a partition that was read is kept under, among what is kept of the segment."""
        return "partition", number

    def distances(
        self, prepared: PreparedQuery, partition: LoadedPartition, centroid_distance: float
    ) -> Float32s:
        """Distance of each row of a partition from a query; approximate, as the codes are."""
        return self.codes.distances(prepared, partition.number, partition.codes, centroid_distance)

    @property
    def has_graphs(self) -> bool:
        """Whether partitions have graphs."""
        return self._graphs is not None

    def nearest(
        self,
        prepared: PreparedQuery,
        partition: LoadedPartition,
        centroid_distance: float,
        capacity: int,
        places: RowPlaces | None = None,
        wanted: int = 0,
    ) -> ReachedNodes | ReachedRows | None:
        """Rows of a partition that its graph leads to, the nearest first, with their distances.

        None where there is no graph, or comparing all rows is about as quick.

        Parameters
        ----------
        capacity
            Rows that the search keeps, and returns.
        places, wanted
            See :func:`search_graph`.
        """
        graph = partition.graph
        if graph is None or capacity > min(MAX_CAPACITY, len(partition.rows) // _ROWS_PER_NODE):
            return None
        codes = self.codes
        nodes, query = codes.nodes(prepared, partition.codes), codes.code_query(prepared)
        if nodes is None or query is None:
            return None
        offset, _ = codes.start(prepared, centroid_distance)
        scale = Scale(offset, query[3], query[2])
        return search_graph(
            graph.levels, graph.entry, nodes, capacity, scale, places=places, wanted=wanted
        )

    def prewarm(self) -> int:
        """Read all partitions, as far as the session keeps them; bytes of memory after it."""
        filled = np.flatnonzero(np.diff(self.partitions.bounds))  # empty ones take requests, too
        sizes = [self.load(number).nbytes for number in filled.tolist()]
        return self.nbytes + sum(sizes)


def metric_of(name: str, file: IndexFile) -> Metric:
    """The kind of distance that a file names.

    Raises
    ------
    UnsupportedFeatureError
        It is not known.
    """
    if name not in METRICS:
        raise UnsupportedFeatureError(f"{file.path}: the distance {name!r:.40} is not known")
    return name


def read_centroids(
    model: index_pb2.IVF, partitions: int, metric: Metric, file: IndexFile
) -> NDArray[Any]:
    """The centroids of the partitions, as (partitions, dimension).

    Raises
    ------
    CorruptFileError
        There are none, or others than partitions.
    """
    centroids = read_tensor(model.centroids_tensor, "centroids of an index", file)
    right = centroids.ndim == 2 and len(centroids) == partitions and centroids.shape[1]
    if not right or (metric == "hamming") != (centroids.dtype == np.uint8):
        found = f"{centroids.dtype} of shape {centroids.shape}"
        raise file.corrupt("centroids of an index", f"{partitions} vectors", found)
    if metric == "hamming":
        return np.ascontiguousarray(centroids)
    return single_precision(centroids)
