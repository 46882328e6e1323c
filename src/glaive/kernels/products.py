"""Find pairs of a query and a row that may be near, by products of single precision."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple
from glaive.kernels._addresses import address
from glaive.kernels.native import products as products_loops
from glaive.kernels.native import rotation as rotation_loops
from glaive.types import Float32s, UInt8s

Int32s = NDArray[np.int32]

LANES: Final = 16
ROWS: Final = 6
CHUNK: Final = 48
"""Rows between checks of the capacity: few enough to stay in the cache."""


class QueryTable:
    """Queries in the kernel's order. Immutable.

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
        """Number of elements in a query."""
        return int(self.rows.shape[1])

    @cached_property
    def blocks(self) -> Float32s:
        """Blocks of 16 queries, dimension by dimension."""
        count, dimension = self.rows.shape
        padded = np.zeros((-(-count // LANES) * LANES, dimension), np.float32)
        padded[:count] = self.rows
        return np.ascontiguousarray(padded.reshape(-1, LANES, dimension).transpose(0, 2, 1))


class NearPairs(NamedTuple):
    """Query and row of each pair, unordered, and the row where the next call starts."""

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

    NaN counts as within. The kernel runs on one core, so that several threads may call it.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``, contiguous.
    offsets, factors
        ``float32`` of shape ``(n,)``.
    limits
        ``float32``, one per query.
    start
        Row where the search starts.
    capacity
        Largest number of pairs; at least the pairs of :data:`CHUNK` rows with all queries.
    """
    count = len(rows)
    check_products(rows, queries.rows.shape, offsets, factors, limits)
    if not 0 <= start <= count or capacity < CHUNK * len(queries):
        raise ValueError(f"from row {start} of {count}, {capacity} pairs")
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
    """Check the arrays for kernels of products; ``shape`` is the shape of the queries.

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
    """Append zeros to rows and their numbers if they are fewer than one step of the kernels."""
    missing = ROWS - len(rows)
    if missing <= 0:
        return rows, offsets, factors
    zeros = np.zeros(missing, np.float32)
    return (
        np.concatenate([rows, np.zeros((missing, rows.shape[1]), np.float32)]),
        np.concatenate([offsets, zeros]),
        np.concatenate([factors, zeros]),
    )


# --- Rotate vectors as RaBitQ does, and encode the elements of rotated vectors ----------
#
# Specification: "Rotation" in ``docs/format/rabitq.md``.

ROUNDS: Final = 4
_LANES: Final = 8


def rotate(rows: Float32s, signs: UInt8s) -> Float32s:
    """Return rotated vectors: sign changes and Walsh-Hadamard transforms in four rounds.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``; the dimension is a multiple of 8.
    signs
        ``4 * dimension / 8`` bytes: a bit for each element in each round, 1 to change its sign.
    """
    dimension = rows.shape[1]
    if rows.dtype != np.float32 or dimension % _LANES or not dimension:
        raise ValueError(
            f"{rows.dtype} of shape {rows.shape}: expected a multiple of 8 as the dimension"
        )
    if len(signs) != ROUNDS * dimension // 8 or signs.dtype != np.uint8:
        raise ValueError(f"{len(signs)} bytes of signs for dimension {dimension}")
    factors = _factors(signs.tobytes())
    size = 1 << (dimension.bit_length() - 1)
    scale = np.float32(1 / np.sqrt(size))
    rotated = np.array(rows, np.float32, order="C")
    rotation_loops.rotate(address(rotated), len(rotated), dimension, address(factors), size, scale)
    return rotated


@lru_cache(maxsize=16)
def _factors(signs: bytes) -> Float32s:
    """Return -1 for each bit that is set, and 1 for each other."""
    bits = np.unpackbits(np.frombuffer(signs, np.uint8), bitorder="little")
    return np.where(bits, np.float32(-1), np.float32(1))


def quantize_rotated(rows: Float32s, factors: Float32s, max_code: int) -> UInt8s:
    """Return codes of numbers from 0 on: ``floor(number * factor)``, at most ``max_code``.

    For each row this takes the factor with the largest cosine between the row and its codes plus
    1/2; among equal cosines the first.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``, contiguous, finite and ≥ 0; the dimension is a
        multiple of 8.
    factors
        ``float32``, from 0 on.
    max_code
        From 1 to 255.

    Returns
    -------
    numpy.ndarray
        ``uint8`` of the shape of the rows.
    """
    if rows.dtype != np.float32 or not rows.flags.c_contiguous or rows.shape[1] % _LANES:
        raise ValueError(
            f"{rows.dtype} of shape {rows.shape}: expected a multiple of 8 as the dimension"
        )
    if not 1 <= max_code <= 255 or not len(factors) or factors.dtype != np.float32:
        raise ValueError(f"{len(factors)} factors for codes up to {max_code}")
    if not all(np.isfinite(one).all() and (one >= 0).all() for one in (rows, factors)):
        raise ValueError("numbers to be encoded are negative or not finite")
    codes = np.empty(rows.shape, np.uint8)
    factors = np.ascontiguousarray(factors)
    rotation_loops.quantize_rotated(
        rows=address(rows), row_count=len(rows), dimension=rows.shape[1],
        factors=address(factors), factor_count=len(factors), max_code=max_code,
        codes=address(codes),
    )  # fmt: skip
    return codes
