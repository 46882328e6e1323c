"""Compiled kernels for distances of vectors; their wrappers are in ``glaive.kernels.distances``.

``element`` and ``metric`` are the numbers that the wrapper gives them.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    float_of_bits,
    item_f32,
    item_f64,
    item_u16,
    kernel,
    kernel_of,
    kernel_with_sums,
    load_f32,
    load_i32,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    put_f32,
    square_root,
    store_f32,
)
from glaive.kernels.vector_records import MeasurePairs

_F16, _BF16, _F64, _U8 = 1, 2, 3, 4
_L2, _COSINE, _DOT = 0, 1, 2

_LEAST, _MOST = np.float32(1e-15), np.float32(1e15)
"""Lengths of vectors between which squares and products are exact enough in 32 bits."""

_LEAST_OF_DOUBLES, _MOST_OF_DOUBLES = 1e-140, 1e140
"""The same in 64 bits."""


@kernel_with_sums
def squared_f32(first: int, second: int, dimension: int) -> np.float32:
    """Squared distance."""
    total = np.float32(0)
    for i in range(dimension):
        gap = item_f32(first, i) - item_f32(second, i)
        total += gap * gap
    return total


@kernel_with_sums
def dot_f32(first: int, second: int, dimension: int) -> np.float32:
    """Dot product."""
    total = np.float32(0)
    for i in range(dimension):
        total += item_f32(first, i) * item_f32(second, i)
    return total


@kernel_with_sums
def cosine_f32(vector: int, query: int, dimension: int, norm: np.float32) -> np.float32:
    """One minus the cosine, given the norm of the query."""
    product = np.float32(0)
    square = np.float32(0)
    for i in range(dimension):
        x = item_f32(vector, i)
        product += x * item_f32(query, i)
        square += x * x
    length = square_root(square)
    if _LEAST < length < _MOST and _LEAST < norm < _MOST:
        return np.float32(1) - product / length / norm
    return cosine_of_doubles(vector, query, dimension)


@kernel_with_sums
def cosine_of_doubles(vector: int, query: int, dimension: int) -> np.float32:
    """The same where squares in 32 bits may be 0, inexact or infinite."""
    product = square = other = 0.0
    for i in range(dimension):
        x, y = np.float64(item_f32(vector, i)), np.float64(item_f32(query, i))
        product += x * y
        square += x * x
        other += y * y
    return np.float32(1.0 - product / square_root(square) / square_root(other))


@kernel_with_sums
def squared_f64(first: int, second: int, dimension: int) -> float:
    """Squared distance."""
    total = 0.0
    for i in range(dimension):
        gap = item_f64(first, i) - item_f64(second, i)
        total += gap * gap
    return total


@kernel_with_sums
def dot_f64(first: int, second: int, dimension: int) -> float:
    """Dot product."""
    total = 0.0
    for i in range(dimension):
        total += item_f64(first, i) * item_f64(second, i)
    return total


@kernel
def hamming(first: int, second: int, dimension: int) -> np.float32:
    """Bits that differ."""
    bits = np.uint64(0)
    words = dimension // 8 * 8
    for i in range(0, words, 8):
        bits += popcount(load_u64(first + i) ^ load_u64(second + i))
    for i in range(words, dimension):
        bits += popcount(np.uint64(load_u8(first + i) ^ load_u8(second + i)))
    return np.float32(bits)


@kernel_with_sums
def widen_f16(source: int, target: int, count: int) -> None:
    """Convert half floats. Their bits, shifted, are a float that is 2^112 times too small."""
    scale = float_of_bits(np.uint32(0x77800000))
    for i in range(count):
        half = np.uint32(item_u16(source, i))
        bits = (half & np.uint32(0x7FFF)) << np.uint32(13)
        value = float_of_bits(bits) * scale
        special = float_of_bits(bits | np.uint32(0x7F800000))
        value = special if half & np.uint32(0x7C00) == np.uint32(0x7C00) else value
        put_f32(target, i, -value if half & np.uint32(0x8000) else value)


@kernel
def widen_bf16(source: int, target: int, count: int) -> None:
    """Convert brain floats: the upper halves of floats."""
    for i in range(count):
        put_f32(target, i, float_of_bits(np.uint32(item_u16(source, i)) << np.uint32(16)))


@kernel_with_sums
def distance_f32(
    vector: int, query: int, dimension: int, metric: int, norm: np.float32
) -> np.float32:
    """Distance of one vector."""
    if metric == _L2:
        return squared_f32(vector, query, dimension)
    if metric == _COSINE:
        return cosine_f32(vector, query, dimension, norm)
    return np.float32(1) - dot_f32(vector, query, dimension)


@kernel_with_sums
def distance_f64(vector: int, query: int, dimension: int, metric: int) -> np.float32:
    """Distance of one vector, rounded at the end."""
    if metric == _L2:
        return np.float32(squared_f64(vector, query, dimension))
    product = dot_f64(vector, query, dimension)
    if metric == _COSINE:
        length = square_root(dot_f64(vector, vector, dimension))
        other = square_root(dot_f64(query, query, dimension))
        usual = _LEAST_OF_DOUBLES < length < _MOST_OF_DOUBLES
        if usual and _LEAST_OF_DOUBLES < other < _MOST_OF_DOUBLES:
            product = product / length / other
        else:
            product = scaled_cosine_f64(vector, query, dimension)
    return np.float32(1.0 - product)


@kernel_with_sums
def scaled_cosine_f64(vector: int, query: int, dimension: int) -> float:
    """The cosine where squares in 64 bits may be 0, inexact or infinite."""
    most = other_most = 0.0
    for i in range(dimension):
        most = max(most, abs(item_f64(vector, i)))
        other_most = max(other_most, abs(item_f64(query, i)))
    product = square = other = 0.0
    for i in range(dimension):
        x, y = item_f64(vector, i) / most, item_f64(query, i) / other_most
        product += x * y
        square += x * x
        other += y * y
    return product / square_root(square) / square_root(other)


@kernel_of(MeasurePairs, sums=True)
def measure(
    values: int, rows: int, step: int, pairs: int, dimension: int, element: int, metric: int,
    queries: int, query_of: int, norms: int, scratch: int, out: int,
) -> None:  # fmt: skip
    """Distances of pairs of a vector and a query.

    ``rows`` and ``query_of`` (int32) say which; 0: vector i, and the first query. A vector begins
    ``step`` bytes times its row behind ``values``. ``norms`` are those of the queries, for the
    cosine.
    """
    width = 4
    if element == _F64:
        width = 8
    elif element == _U8:
        width = 1
    elif element in (_F16, _BF16):
        width = 2
    query_width = 4 if width == 2 else width
    query = queries
    norm = np.float32(0)
    if norms:
        norm = load_f32(norms)
    for i in range(pairs):
        row = i
        if rows:
            row = load_i64(rows + i * 8)
        if query_of:
            number = load_i32(query_of + i * 4)
            query = queries + number * dimension * query_width
            if norms:
                norm = load_f32(norms + number * 4)
        vector = values + row * step
        if element == _U8:
            distance = hamming(vector, query, dimension)
        elif element == _F64:
            distance = distance_f64(vector, query, dimension, metric)
        else:
            if element == _F16:
                widen_f16(vector, scratch, dimension)
                vector = scratch
            elif element == _BF16:
                widen_bf16(vector, scratch, dimension)
                vector = scratch
            distance = distance_f32(vector, query, dimension, metric, norm)
        store_f32(out + i * 4, distance)


@kernel
def widen(source: int, target: int, count: int, element: int) -> None:
    """Convert half or brain floats."""
    if element == _F16:
        widen_f16(source, target, count)
    else:
        widen_bf16(source, target, count)


@kernel_with_sums
def squares(values: int, rows: int, dimension: int, out: int) -> None:
    """Squared norms of vectors."""
    for i in range(rows):
        vector = values + i * dimension * 4
        store_f32(out + i * 4, dot_f32(vector, vector, dimension))
