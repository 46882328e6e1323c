"""Pairs of a query and a row that may be near, by products of single precision."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple
from glaive.kernels._addresses import address
from glaive.kernels.native import products as products_loops
from glaive.kernels.native import use_compiled
from glaive.types import Float32s

Int32s = NDArray[np.int32]

LANES: Final = 16
ROWS: Final = 6
CHUNK: Final = 48
"""Rows whose pairs fit, or none of them is begun: few enough to stay in the cache."""

_PRODUCTS_PER_VALUE: Final = 64
"""Multiplications that cost about as much as one value in other kernels."""


class QueryTable:
    """Queries in the order in which the kernel reads them. Immutable.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(queries, dimension)``.
    """

    def __init__(self, rows: Float32s) -> None:
        if rows.ndim != 2 or not rows.size:
            raise ValueError(f"queries of shape {rows.shape}")
        self.rows = np.ascontiguousarray(rows, np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dimension(self) -> int:
        """Numbers of a query."""
        return int(self.rows.shape[1])

    @cached_property
    def blocks(self) -> Float32s:
        """Blocks of 16 queries, dimension by dimension."""
        count, dimension = self.rows.shape
        padded = np.zeros((-(-count // LANES) * LANES, dimension), np.float32)
        padded[:count] = self.rows
        return np.ascontiguousarray(padded.reshape(-1, LANES, dimension).transpose(0, 2, 1))


class NearPairs(NamedTuple):
    """Query and row of each pair, in no order, and the row to go on with."""

    query: Int32s
    row: Int32s
    end: int


def select_near(
    rows: Float32s,
    queries: QueryTable,
    offsets: Float32s,
    factors: Float32s,
    limits: Float32s,
    start: int,
    capacity: int,
) -> NearPairs:
    """List pairs for which ``offset + factor * product`` is within the limit of the query.

    NaN counts as within. On one core, so that several threads may do this.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``, contiguous.
    offsets, factors
        ``float32`` of shape ``(n,)``.
    limits
        ``float32``, one per query.
    start
        Row to begin with.
    capacity
        Pairs at most; at least those of :data:`CHUNK` rows with all queries.
    """
    count = len(rows)
    check_products(rows, queries.rows.shape, offsets, factors, limits)
    if not 0 <= start <= count or capacity < CHUNK * len(queries):
        raise ValueError(f"from row {start} of {count}, {capacity} pairs")
    if not use_compiled(count * queries.rows.size // _PRODUCTS_PER_VALUE):
        parts, found, end = [np.empty((0, 2), np.int64)], 0, start
        while end < count and min(CHUNK, count - end) * len(queries) <= capacity - found:
            part = slice(end, end + CHUNK)
            with np.errstate(all="ignore"):
                values = offsets[part] + factors[part] * (queries.rows @ rows[part].T)
                parts.append(np.argwhere(~(values > limits[:, None])) + np.array([0, end]))
            found += len(parts[-1])
            end = min(end + CHUNK, count)
        query_of, row_of = np.concatenate(parts).astype(np.int32).T
        return NearPairs(query_of, row_of, end)
    rows, offsets, factors = padded_to_step(rows, offsets, factors)
    blocks = queries.blocks
    padded = np.zeros(len(blocks) * LANES, np.float32)
    padded[: len(limits)] = limits
    masks = np.empty(ROWS, np.uint64)
    query_of, row_of = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    found, end = products_loops.select_near(
        rows=address(rows), row_count=count, present=len(rows), dimension=queries.dimension,
        table=address(blocks), queries=len(queries), offsets=address(offsets),
        factors=address(factors), limits=address(padded), start=start, chunk=CHUNK,
        capacity=capacity, masks=address(masks), query_out=address(query_of),
        row_out=address(row_of),
    )  # fmt: skip
    return NearPairs(query_of[:found], row_of[:found], end)


def check_products(
    rows: Float32s, shape: tuple[int, int], offsets: Float32s, factors: Float32s, limits: Float32s
) -> None:
    """Check what the kernels of products read; ``shape`` is that of the queries.

    Raises
    ------
    ValueError
        Sizes, types or strides are wrong.
    """
    sizes = (*rows.shape, len(offsets), len(factors), len(limits))
    if sizes != (len(rows), shape[1], len(rows), len(rows), shape[0]):
        raise ValueError(f"rows {rows.shape}, {sizes[2:]} numbers for queries {shape}")
    for numbers in (rows, offsets, factors, limits):
        if numbers.dtype != np.float32 or not numbers.flags.c_contiguous:
            raise ValueError(f"numbers of type {numbers.dtype} with strides {numbers.strides}")


def padded_to_step(
    rows: Float32s, offsets: Float32s, factors: Float32s
) -> tuple[Float32s, Float32s, Float32s]:
    """Rows and their numbers, with zeros behind if they are fewer than one step of the kernels."""
    missing = ROWS - len(rows)
    if missing <= 0:
        return rows, offsets, factors
    zeros = np.zeros(missing, np.float32)
    return (
        np.concatenate([rows, np.zeros((missing, rows.shape[1]), np.float32)]),
        np.concatenate([offsets, zeros]),
        np.concatenate([factors, zeros]),
    )
