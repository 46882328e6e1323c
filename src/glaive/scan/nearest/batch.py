"""Exact search for many queries at once, by matrix products.

A product of single precision is not exact enough to tell the nearest rows: distances of near
vectors are small differences of large numbers. So it selects those that may be among the nearest,
by a bound of its error, and their distances are computed one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.kernels.distances import (
    VectorBlock,
    measure_pairs,
    products,
    select_near,
    squared_norms,
)
from glaive.scan.nearest.loaded import LoadedVectors
from glaive.scan.nearest.top import TopRows
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.types import Flags, Float32s, Int64s

__all__ = ["BatchSearch"]

_BLOCK_PRODUCTS: Final = 1 << 20
"""Products at a time, about: 4 MiB."""

_MIN_BLOCK_ROWS: Final = 1024
_CAPACITY: Final = 1 << 16
"""Pairs of a query and a row at a time whose distances are computed, at least."""


class BatchSearch:
    """Looks for the nearest rows of many queries, block by block. Threads may share one."""

    def __init__(self, query: VectorQuery, top: TopRows) -> None:
        self._query, self._top = query, top
        queries = query.queries
        with np.errstate(all="ignore"):
            self._matrix = queries.matrix.astype(np.float32)
            self._squares = np.square(queries.norms)
        self._rows = self.block_rows(query)
        # Of sums of so many products, in units of the sum of both squared lengths.
        self._error = np.float32(2 * (query.kind.dimension + 16) * np.finfo(np.float32).eps)

    @staticmethod
    def block_rows(query: VectorQuery) -> int:
        """Vectors of a block."""
        return max(_MIN_BLOCK_ROWS, _BLOCK_PRODUCTS // max(1, query.queries.count))

    @classmethod
    def is_possible(cls, query: VectorQuery) -> bool:
        """Whether products select few rows for this query."""
        few = query.count * 2 <= cls.block_rows(query)
        return few and not query.kind.several and query.metric != "hamming"

    def search(self, loaded: LoadedVectors) -> None:
        """Add the nearest rows of some vectors."""
        vectors = loaded.vectors
        searched: Flags | None = vectors.valid
        if loaded.kept is not None:
            searched = np.zeros(vectors.block.count, np.bool_)
            searched[loaded.kept] = True
            if vectors.valid is not None:
                searched &= vectors.valid
        dimension = self._query.kind.dimension
        room = np.empty(self._matrix.shape[0] * self._rows, np.float32)
        for start in range(0, vectors.block.count, self._rows):
            stop = min(vectors.block.count, start + self._rows)
            values = vectors.block.values[start * dimension : stop * dimension]
            block = replace(vectors.block, values=values)
            part = None if searched is None else searched[start:stop]
            self._block(loaded, start, block, part, room)

    def _block(
        self,
        loaded: LoadedVectors,
        start: int,
        block: VectorBlock,
        searched: Flags | None,
        room: Float32s,
    ) -> None:
        query, top = self._query, self._top
        wide = block.widened()
        with np.errstate(all="ignore"):
            if wide.element != "float32":
                wide = VectorBlock(wide.values.astype(np.float32), wide.dimension, "float32")
            rows = wide.count
            by_query = room[: query.queries.count * rows].reshape(-1, rows)
            products(wide, self._matrix, by_query)
            offsets, factors, widths = self._bounds(squared_norms(wide))
            if searched is not None:
                offsets[~searched], factors[~searched] = np.inf, 0
            if np.isinf(top.limits).any() and query.low is None:
                self._first_limits(by_query, offsets, factors, widths)
        first = 0
        while first < query.queries.count:
            limits = self._limits()
            query_of, row_of, first = select_near(
                by_query, offsets, factors, limits, first, max(_CAPACITY, rows)
            )
            self._add(loaded, start, block, query_of, row_of.astype(np.int64), searched)

    def _bounds(self, squares: Float32s) -> tuple[Float32s, Float32s, Float32s]:
        """Per row: what to add to its products, their factor, and how far bounds lie apart.

        Sum and product, less what :meth:`_limits` takes off, are at most the distance.
        """
        count = len(squares)
        if self._query.metric == "l2":
            wide = self._error * squares
            return squares - wide, np.full(count, -2, np.float32), 2 * wide
        if self._query.metric == "dot":
            wide = self._error * squares
            return -wide, np.full(count, -1, np.float32), 2 * wide
        # Vectors of length 0 have no cosine.
        lengths = np.sqrt(squares)
        offsets = np.where(lengths > 0, np.float32(0), np.float32(np.inf))
        factors = np.where(lengths > 0, -1 / lengths, np.float32(0)).astype(np.float32)
        return offsets, factors, np.zeros(count, np.float32)

    def _limits(self) -> Float32s:
        """What sums of offset and product must not exceed, for each query."""
        limits, metric = self._top.limits, self._query.metric
        made: NDArray[Any]
        with np.errstate(all="ignore"):
            if metric == "l2":
                made = limits - self._squares + 2 * self._error * (self._squares + limits)
            else:
                made = limits + np.abs(limits) * self._error - 1 + self._error
                if metric == "dot":
                    made = made + self._error * self._squares
                else:
                    made = made * self._query.queries.norms
            return made.astype(np.float32)

    def _first_limits(
        self, by_query: Float32s, offsets: Float32s, factors: Float32s, widths: Float32s
    ) -> None:
        """Lower the limits to upper bounds of the nearest distances of a block."""
        count, query = self._query.count, self._query
        if count > by_query.shape[1]:
            return
        upper = offsets + factors * by_query + widths
        last = np.partition(upper, count - 1, axis=1)[:, count - 1]
        squares: Float32s = self._squares
        highest: NDArray[Any]
        if query.metric == "l2":
            highest = last + squares + 2 * self._error * squares
        elif query.metric == "dot":
            highest = 1 + last + 2 * self._error * (squares + 1)
        else:
            highest = 1 + last / query.queries.norms + 2 * self._error
        highest += np.abs(highest) * self._error
        better = highest < self._top.limits  # NaN is not
        self._top.limits[better] = highest[better]

    def _add(
        self,
        loaded: LoadedVectors,
        start: int,
        block: VectorBlock,
        query_of: NDArray[np.int32],
        row_of: Int64s,
        searched: Flags | None,
    ) -> None:
        """Compute distances of selected pairs, and keep what is near."""
        query, top = self._query, self._top
        if searched is not None:
            kept = searched[row_of]
            query_of, row_of = query_of[kept], row_of[kept]
        distances = measure_pairs(block, query.queries, query.metric, row_of, query_of)
        distances = query.in_range(distances)
        near = np.flatnonzero(distances <= top.limits[query_of])
        if len(near):
            top.add(loaded.found(query_of[near], start + row_of[near], distances[near]))
