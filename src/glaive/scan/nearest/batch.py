"""Exact search for many queries at once, by matrix products.

A product of single precision is not exact enough to tell the nearest rows: distances of near
vectors are small differences of large numbers. So it selects those that may be among the nearest,
by a bound of its error, and their distances are computed one by one. Products of bytes do so in a
quarter of the time, unless they select too many.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.index.vector.metric import normalized
from glaive.kernels.byte_products import MAX_DIMENSION, ByteQueries, is_quick, select_likely
from glaive.kernels.distances import (
    LEAST_LENGTH,
    MOST_LENGTH,
    VectorBlock,
    measure_pairs,
    squared_norms,
)
from glaive.kernels.products import CHUNK, QueryTable, select_near
from glaive.scan.metrics import Meter
from glaive.scan.nearest.loaded import LoadedVectors
from glaive.scan.nearest.top import TopRows
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.types import Flags, Float32s, Int64s

__all__ = ["BatchSearch"]

_FIRST_ROWS: Final = 512
_MOST_ROWS: Final = 1 << 14
"""Vectors of the first block, and of all but the first: limits fall with each of them."""

_CAPACITY: Final = 1 << 16
"""Pairs of a query and a row at a time whose distances are computed, at least."""

_FAR_SHARE: Final = 0.05
"""Share of pairs that are not near after all from which on bytes cost more than they save."""


class BatchSearch:
    """Looks for the nearest rows of many queries, block by block. Threads may share one."""

    def __init__(self, query: VectorQuery, top: TopRows, meter: Meter) -> None:
        self._query, self._top, self._meter = query, top, meter
        queries = query.queries
        with np.errstate(all="ignore"):
            matrix = queries.matrix
            if query.metric == "cosine":
                matrix = np.nan_to_num(normalized(matrix))
            self._matrix = matrix.astype(np.float32)
            self._squares = np.square(queries.norms)
        self._table = QueryTable(self._matrix)
        self._takes_bytes = query.kind.dimension <= MAX_DIMENSION
        self._capacity = max(_CAPACITY, CHUNK * len(self._matrix))
        # Of sums of so many products, in units of the sum of both squared lengths.
        self._error = np.float32(2 * (query.kind.dimension + 16) * np.finfo(np.float32).eps)

    @cached_property
    def _bytes(self) -> ByteQueries:
        return ByteQueries(self._matrix)

    @classmethod
    def is_possible(cls, query: VectorQuery) -> bool:
        """Whether products select few rows for this query."""
        few = query.count * 2 <= _MOST_ROWS
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
        start, size = 0, _MOST_ROWS
        if np.isinf(self._top.limits).any():
            size = max(_FIRST_ROWS, 2 * self._query.count)
        while start < vectors.block.count:
            stop = min(vectors.block.count, start + size)
            values = vectors.block.values[start * dimension : stop * dimension]
            block = replace(vectors.block, values=values)
            part = None if searched is None else searched[start:stop]
            if np.isinf(self._top.limits).any() and self._query.low is None:
                self._first_limits(block, part)
            self._block(loaded, start, block, part)
            start, size = stop, min(2 * size, _MOST_ROWS)

    def _block(
        self, loaded: LoadedVectors, start: int, block: VectorBlock, searched: Flags | None
    ) -> None:
        stored = wide = block.widened()
        with np.errstate(all="ignore"):
            if wide.element != "float32":
                wide = VectorBlock(wide.values.astype(np.float32), wide.dimension, "float32")
            offsets, factors = self._bounds(stored, squared_norms(wide))
            if searched is not None:
                offsets[~searched], factors[~searched] = np.inf, 0
        end = 0
        while end < wide.count:
            begin, numbers = end, (offsets, factors, self._limits(), end, self._capacity)
            if self._takes_bytes and is_quick((wide.count - begin) * self._matrix.size):
                query_of, row_of, end = select_likely(wide.matrix, self._bytes, *numbers)
            else:
                query_of, row_of, end = select_near(wide.matrix, self._table, *numbers)
            near = self._add(loaded, start, block, query_of, row_of.astype(np.int64), searched)
            far = len(row_of) - near
            if self._takes_bytes and far > _FAR_SHARE * len(self._matrix) * (end - begin):
                self._takes_bytes = False
                self._meter.fallback("products of bytes", "too many rows seem near")

    def _bounds(self, stored: VectorBlock, squares: Float32s) -> tuple[Float32s, Float32s]:
        """Per row: what to add to its products, and their factor.

        Sum and product, less what :meth:`_limits` takes off, are at most the distance.
        """
        count = len(squares)
        if self._query.metric == "l2":
            return squares - self._error * squares, np.full(count, -2, np.float32)
        if self._query.metric == "dot":
            return -self._error * squares, np.full(count, -1, np.float32)
        lengths = np.sqrt(squares)
        factors = (-1 / lengths).astype(np.float32)
        offsets = np.zeros(count, np.float32)
        odd = np.flatnonzero(~((lengths > LEAST_LENGTH) & (lengths < MOST_LENGTH)))
        if len(odd):
            # Vectors of length 0 have no cosine. Products of the others may be inexact: they are
            # within all limits, as NaN is.
            none = np.isnan(squares[odd]) | ~stored.matrix[odd].any(axis=1)
            offsets[odd], factors[odd] = np.where(none, np.inf, np.nan), 0
        return offsets, factors

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
            return made.astype(np.float32)

    def _first_limits(self, block: VectorBlock, searched: Flags | None) -> None:
        """Lower the limits to the distances of the nearest rows of a part of a block."""
        count, query = self._query.count, self._query
        rows = np.arange(block.count) if searched is None else np.flatnonzero(searched)
        rows = rows[: max(_FIRST_ROWS, count)]
        if len(rows) < count:
            return
        queries = np.repeat(np.arange(query.queries.count, dtype=np.int32), len(rows))
        distances = measure_pairs(
            block, query.queries, query.metric, np.tile(rows, query.queries.count), queries
        ).reshape(-1, len(rows))
        last = np.partition(distances, count - 1, axis=1)[:, count - 1]  # NaN come last
        better = last < self._top.limits
        self._top.limits[better] = last[better]

    def _add(
        self,
        loaded: LoadedVectors,
        start: int,
        block: VectorBlock,
        query_of: NDArray[np.int32],
        row_of: Int64s,
        searched: Flags | None,
    ) -> int:
        """Compute distances of selected pairs, and keep what is near; how many that is."""
        query, top = self._query, self._top
        if searched is not None:
            kept = searched[row_of]
            query_of, row_of = query_of[kept], row_of[kept]
        distances = measure_pairs(block, query.queries, query.metric, row_of, query_of)
        distances = query.in_range(distances)
        near = np.flatnonzero(distances <= top.limits[query_of])
        if len(near):
            top.add(loaded.found(query_of[near], start + row_of[near], distances[near]))
        return len(near)
