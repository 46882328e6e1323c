"""Pairs of a query and a row that are likely to be near, by products of bytes.

Numbers are rounded to bytes, by the largest of each row and query. What that can change of
a product is bounded by the lengths of both and of what rounding left: so no near pair is missed.
Processors compute four times as many products of bytes as of floats.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import byte_products as compiled
from glaive.kernels.products import CHUNK, LANES, ROWS, NearPairs, check_products, padded_to_step
from glaive.kernels.vector_records import SelectLikely
from glaive.types import Float32s

__all__ = ["MAX_DIMENSION", "ByteQueries", "exercise", "is_quick", "select_likely"]

MAX_DIMENSION: Final = 1 << 15
"""Numbers of a vector at most, so that sums of products fit 32 bits."""

_MIDDLE: Final = 128
"""What is added to bytes of rows, which have no sign."""

_LEAST, _MOST = 1e-15, 1e15
_SLACK: Final = 1.001
"""What bounds are multiplied with, for they are rounded, too."""

_ROW_NUMBERS: Final = 16
_PRODUCTS_PER_VALUE: Final = 256
"""Multiplications that cost about as much as one value in other kernels."""


class ByteQueries:
    """Queries as bytes, in the order in which the kernel reads them. Immutable.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(queries, dimension)``, at most :data:`MAX_DIMENSION` numbers each.
    """

    def __init__(self, rows: Float32s) -> None:
        if rows.ndim != 2 or not rows.size or rows.shape[1] > MAX_DIMENSION:
            raise ValueError(f"queries of shape {rows.shape}")
        count, self.dimension = rows.shape
        self._count = int(count)
        self.line = -(-self.dimension // 4) * 4
        padded = -(-count // LANES) * LANES
        codes, scales, errors, lengths = _rounded(rows)
        wide = np.zeros((padded, self.line), np.int8)
        wide[:count, : self.dimension] = codes
        self.codes = wide[:count, : self.dimension]
        words = wide.reshape(-1, LANES, self.line // 4, 4)
        self.table = np.ascontiguousarray(words.transpose(0, 2, 1, 3))
        """``int8``: blocks of 16 queries, four dimensions by four."""
        self.lanes = np.zeros((5, padded), np.float32)
        """For each query: what sums begin with (as ``int32``), scale, length, error, limit."""
        self.lanes[0, :count] = (-_MIDDLE * codes.sum(axis=1, dtype=np.int32)).view(np.float32)
        self.lanes[1:4, :count] = scales, lengths * _SLACK, errors * _SLACK

    def __len__(self) -> int:
        return self._count


def is_quick(products: int) -> bool:
    """Whether so many products are quicker than those of floats.

    Only where the processor has an instruction for them.
    """
    return use_compiled(products // _PRODUCTS_PER_VALUE) and bool(compiled.multiplies_bytes())


def select_likely(
    rows: Float32s,
    queries: ByteQueries,
    offsets: Float32s,
    factors: Float32s,
    limits: Float32s,
    start: int,
    capacity: int,
) -> NearPairs:
    """As :func:`~glaive.kernels.products.select_near`, with some pairs beyond the limits as well.

    How far beyond depends on the largest number of a row and of a query, beside the others.
    """
    count = len(rows)
    check_products(rows, queries.codes.shape, offsets, factors, limits)
    if not 0 <= start <= count or capacity < CHUNK * len(queries):
        raise ValueError(f"from row {start} of {count}, {capacity} pairs")
    if not use_compiled(count * queries.codes.size // _PRODUCTS_PER_VALUE):
        return _select_numpy(rows, queries, offsets, factors, limits, start, capacity)
    rows, offsets, factors = padded_to_step(rows, offsets, factors)
    lanes = queries.lanes.copy()
    lanes[4, : len(limits)] = limits
    codes = np.empty((CHUNK + ROWS, queries.line), np.uint8)
    numbers = np.empty((CHUNK + ROWS, _ROW_NUMBERS), np.uint8)
    masks = np.empty(ROWS, np.uint64)
    query_of, row_of = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    call = SelectLikely(
        rows=address(rows), row_count=count, present=len(rows), dimension=queries.dimension,
        line=queries.line, table=address(queries.table), queries=len(queries),
        offsets=address(offsets), factors=address(factors), lanes=address(lanes),
        padded=lanes.shape[1], start=start, chunk=CHUNK, capacity=capacity, codes=address(codes),
        numbers=address(numbers), masks=address(masks), query_out=address(query_of),
        row_out=address(row_of),
    )  # fmt: skip
    found, end = compiled.select_likely(*call)
    return NearPairs(query_of[:found], row_of[:found], end)


def _rounded(
    rows: Float32s,
) -> tuple[NDArray[np.int8], Float32s, Float32s, Float32s]:
    """Rows as bytes, what a byte stands for, the length of what is left, and that of the row.

    Rows that bytes cannot stand for have NaN as the length of what is left.
    """
    with np.errstate(all="ignore"):
        most = np.abs(rows).max(axis=1)
        within = (most < _MOST) & ((most > _LEAST) | (most == 0))
        scales = np.where(within, most / 127, 0).astype(np.float32)
        inverse = np.where(scales > 0, 1 / scales, 0).astype(np.float32)
        codes = np.rint(np.where(within[:, None], rows, 0) * inverse[:, None])
        left = np.linalg.norm(rows - codes * scales[:, None], axis=1)
        lengths = np.linalg.norm(rows, axis=1)
    errors = np.where(within, left, np.nan).astype(np.float32)
    return codes.astype(np.int8), scales, errors, lengths.astype(np.float32)


def _select_numpy(
    rows: Float32s,
    queries: ByteQueries,
    offsets: Float32s,
    factors: Float32s,
    limits: Float32s,
    start: int,
    capacity: int,
) -> NearPairs:
    end = start
    parts: list[NDArray[np.int64]] = []
    found = 0
    numbers: NDArray[Any] = queries.codes.astype(np.float32)
    _, scale, length, error = queries.lanes[:4, : len(queries), None]
    while end < len(rows) and min(CHUNK, len(rows) - end) * len(queries) <= capacity - found:
        part = slice(end, end + CHUNK)
        codes, scales, errors, lengths = _rounded(rows[part])
        with np.errstate(all="ignore"):
            products = numbers @ codes.astype(np.float32).T * scale * scales
            bound = np.abs(factors[part]) * _SLACK
            values = offsets[part] + factors[part] * products
            values -= bound * (errors * length + (lengths + errors) * error)
            parts.append(np.argwhere(~(values > limits[:, None])) + np.array([0, end]))
        found += len(parts[-1])
        end = min(end + CHUNK, len(rows))
    pairs = np.concatenate(parts) if parts else np.empty((0, 2), np.int64)
    return NearPairs(pairs[:, 0].astype(np.int32), pairs[:, 1].astype(np.int32), end)


def exercise() -> None:
    """Call every wrapper once with little data."""
    rows = np.eye(7, dtype=np.float32)
    numbers = np.ones(7, np.float32)
    is_quick(7 * 7 * 7)
    select_likely(rows, ByteQueries(rows), numbers, numbers, numbers, 0, CHUNK * 7)
