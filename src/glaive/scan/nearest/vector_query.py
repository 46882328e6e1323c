"""What a search for nearest vectors compares rows with."""

from __future__ import annotations

import numpy as np

from glaive.dataclass import dataclass
from glaive.kernels.distances import Metric, Queries, measure
from glaive.scan.nearest.top import TopRows
from glaive.scan.nearest.vectors import RowVectors, VectorType
from glaive.types import Float32s

__all__ = ["VectorQuery"]


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """What is searched for.

    Parameters
    ----------
    kind
        Type of the column.
    queries
        Query vectors: a batch, or those of one query for a column with several vectors per row.
    metric
        Kind of distance.
    count
        Rows wanted for each query.
    low, high
        Least distance, and the one that distances have to stay below.
    """

    kind: VectorType
    queries: Queries
    metric: Metric
    count: int
    low: float | None = None
    high: float | None = None

    @property
    def answers(self) -> int:
        """How many queries are answered separately."""
        return 1 if self.kind.several else self.queries.count

    @property
    def limit(self) -> float:
        """The greatest distance that rows may have."""
        if self.high is None:
            return float("inf")
        return float(np.nextafter(np.float32(self.high), np.float32(-np.inf)))

    def top(self) -> TopRows:
        """Where found rows go."""
        limits = np.empty(self.answers, np.float32)
        limits.fill(self.limit)
        return TopRows(self.count, limits)

    def in_range(self, distances: Float32s) -> Float32s:
        """The distances, those below the range as NaN."""
        if self.low is None:
            return distances
        kept: Float32s = np.where(distances >= np.float32(self.low), distances, np.float32(np.nan))
        return kept

    def distances(self, vectors: RowVectors, query: int) -> Float32s:
        """Distance of each row from a query; NaN where there is none, or it is below the range."""
        if self.kind.several:
            far = self._of_several(vectors)
        else:
            far = measure(vectors.block, self.queries, self.metric, query=query)
        if vectors.valid is not None:
            far[~vectors.valid] = np.nan
        return self.in_range(far)

    def _of_several(self, vectors: RowVectors) -> Float32s:
        """For each vector of the query the least distance of any of a row's, added up."""
        bounds = vectors.bounds
        if bounds is None:
            raise ValueError("rows with one vector each")
        total = np.full(len(bounds) - 1, np.nan, np.float32)
        rows = np.flatnonzero(np.diff(bounds))
        if len(rows):
            total[rows] = 0
            for query in range(self.queries.count):
                far = measure(vectors.block, self.queries, self.metric, query=query)
                total[rows] += np.fmin.reduceat(far, bounds[rows])
        return total
