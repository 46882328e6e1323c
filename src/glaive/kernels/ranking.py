"""The vectors of a block that are nearest to queries, in order: centroids of partitions."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address
from glaive.kernels._tier import use_compiled
from glaive.kernels.distances import ELEMENTS, METRICS, Metric, Queries, VectorBlock, measure
from glaive.kernels.native import ranking as compiled
from glaive.kernels.vector_records import RankVectors
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, Int64s

__all__ = ["RankedVectors", "Ranking", "exercise", "rank_vectors"]

_MOST_LISTED: Final = 256
"""Vectors that are kept in order while others come; more are put in order at the end."""

_MOST_VECTORS: Final = 1 << 30


class Ranking(NamedTuple):
    """Numbers of vectors, and their distances, the nearest first: a row for each query."""

    numbers: NDArray[np.signedinteger]
    distances: Float32s


@dataclass(frozen=True, eq=False)
class RankedVectors:
    """Vectors that queries are compared with. What they are is checked once, here.

    Parameters
    ----------
    vectors
        Of ``float32``, or of bytes.
    among
        Numbers of those that are ranked, ascending; None: all.

    Raises
    ------
    ValueError
        Vectors are of another type, or a number is not that of one.
    """

    vectors: VectorBlock
    among: Int64s | None = None
    count: int = field(init=False)
    """How many are ranked."""
    _places: tuple[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        vectors, among = self.vectors, self.among
        kind = ELEMENTS[vectors.element]
        plain = vectors.values.dtype == kind and vectors.values.flags.c_contiguous
        if vectors.element not in ("float32", "uint8") or not plain or vectors.dimension < 1:
            raise ValueError(f"vectors of {vectors.values.dtype} called {vectors.element}")
        if vectors.count > _MOST_VECTORS:
            raise ValueError(f"{vectors.count} vectors")
        if among is not None:
            good = among.dtype == np.int64 and among.ndim == 1 and among.flags.c_contiguous
            if not good or (len(among) and not 0 <= among.min() <= among.max() < vectors.count):
                raise ValueError(f"{len(among)} numbers of {vectors.count} vectors")
        object.__setattr__(self, "count", vectors.count if among is None else len(among))
        object.__setattr__(self, "_places", self._located() if KEEPS_ADDRESSES else (0, 0))

    def _located(self) -> tuple[int, int]:
        return address(self.vectors.values), 0 if self.among is None else address(self.among)

    @property
    def located(self) -> tuple[int, int]:
        """Where vectors and numbers are, for the kernel."""
        return self._places if KEEPS_ADDRESSES else self._located()


def rank_vectors(
    ranked: RankedVectors, queries: NDArray[Any], metric: Metric, count: int
) -> Ranking:
    """The vectors nearest to each query, at most so many.

    Of equal distances the lower number comes first; NaN comes last.

    Parameters
    ----------
    queries
        Of shape ``(n, dimension)`` and the type of the vectors, contiguous.
    metric
        Without ``cosine``, which is ``l2`` for vectors of one length.
    """
    vectors = ranked.vectors
    dimension, bits = vectors.dimension, vectors.element == "uint8"
    several = len(queries)
    good = queries.shape == (several, dimension) and queries.dtype == vectors.values.dtype
    if not good or not queries.flags.c_contiguous or count < 0:
        raise ValueError(f"{count} of queries {queries.shape} of {queries.dtype}")
    if metric == "cosine" or (metric == "hamming") != bits:
        raise ValueError(f"distance {metric} of {vectors.element}")
    most = min(count, ranked.count)
    if not 0 < most <= _MOST_LISTED or not use_compiled(ranked.count * dimension):
        numbers, distances = np.empty((several, most), np.int32), np.empty((several, most))
        for at, query in enumerate(queries):
            numbers[at], distances[at] = _ordered(ranked, query, metric, most)
        return Ranking(numbers, distances.astype(np.float32))
    listed = np.empty((2, several, most), np.int32)
    into, step = address(listed), dimension * vectors.values.itemsize
    values, among = ranked.located
    call = RankVectors(
        values, step, among, ranked.count, dimension, METRICS.index(metric), address(queries),
        several, step, most, into, into + 4 * several * most,
    )  # fmt: skip
    compiled.rank_vectors(*call)
    return Ranking(listed[0], listed[1].view(np.float32))


def _ordered(
    ranked: RankedVectors, query: NDArray[Any], metric: Metric, most: int
) -> tuple[Int64s, Float32s]:
    far = measure(ranked.vectors, Queries(query[None]), metric)
    if ranked.among is not None:
        far = far[ranked.among]
    near: Int64s = np.arange(len(far))
    if most < len(far):
        # Only those that may be among them are put in order.
        last = np.partition(far, most - 1)[most - 1] if most else np.float32(np.nan)
        within = np.flatnonzero(far <= last)
        near = within if len(within) >= most else near  # else the last of them is NaN
    near = near[far[near].argsort(kind="stable")[:most]]
    return near if ranked.among is None else ranked.among[near], far[near]


def exercise() -> None:
    """Call every wrapper once with little data."""
    vectors = VectorBlock(np.eye(2, dtype=np.float32).reshape(-1), 2, "float32")
    rank_vectors(RankedVectors(vectors), np.zeros((1, 2), np.float32), "l2", 1)
