"""NumPy references of ``glaive.kernels.products``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glaive.kernels.products import _LANES, CHUNK, ROUNDS, NearPairs, QueryTable, check_products
from glaive.types import Float32s, UInt8s


def select_near(
    rows: Float32s,
    queries: QueryTable,
    offsets: Float32s,
    factors: Float32s,
    limits: Float32s,
    start: int,
    capacity: int,
) -> NearPairs:
    """List pairs for which ``offset + factor * product`` is within the limit of the query."""
    count = len(rows)
    check_products(rows, queries.rows.shape, offsets, factors, limits)
    if not 0 <= start <= count or capacity < CHUNK * len(queries):
        raise ValueError(f"from row {start} of {count}, {capacity} pairs")
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


def rotate(rows: Float32s, signs: UInt8s) -> Float32s:
    """Rotated copies of vectors: sign changes and Walsh-Hadamard transforms in four rounds."""
    dimension = rows.shape[1]
    if rows.dtype != np.float32 or dimension % _LANES or not dimension:
        raise ValueError(
            f"{rows.dtype} of shape {rows.shape}: expected a multiple of 8 as the dimension"
        )
    if len(signs) != ROUNDS * dimension // 8 or signs.dtype != np.uint8:
        raise ValueError(f"{len(signs)} bytes of signs for dimension {dimension}")
    bits = np.unpackbits(signs, bitorder="little").reshape(ROUNDS, dimension)
    factors = np.where(bits, np.float32(-1), np.float32(1))
    size = 1 << (dimension.bit_length() - 1)
    scale = np.float32(1 / np.sqrt(size))
    rotated = np.array(rows, np.float32, order="C")
    with np.errstate(all="ignore"):
        return _rotate_numpy(rotated, factors, size, scale)


def _rotate_numpy(rotated: Float32s, factors: Float32s, size: int, scale: np.float32) -> Float32s:
    dimension = rotated.shape[1]
    for turn in range(ROUNDS):
        rotated *= factors[turn]
        start = dimension - size if turn % 2 else 0
        part = rotated[:, start : start + size]
        stride = 1
        while stride < size:
            pairs = part.reshape(len(part), size // (2 * stride), 2, stride)
            part = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2)
            part = part.reshape(len(part), size)
            stride *= 2
        rotated[:, start : start + size] = part * scale
        if size != dimension:
            half = dimension // 2
            left, right = rotated[:, :half], rotated[:, half:]
            rotated = np.concatenate([left + right, left - right], axis=1)
    return rotated if size == dimension else rotated * np.float32(0.25)


def quantize_rotated(rows: Float32s, factors: Float32s, max_code: int) -> UInt8s:
    """Codes of numbers from 0 on: ``floor(number * factor)``, at most ``max_code``."""
    if rows.dtype != np.float32 or not rows.flags.c_contiguous or rows.shape[1] % _LANES:
        raise ValueError(
            f"{rows.dtype} of shape {rows.shape}: expected a multiple of 8 as the dimension"
        )
    if not 1 <= max_code <= 255 or not len(factors) or factors.dtype != np.float32:
        raise ValueError(f"{len(factors)} factors for codes up to {max_code}")
    if not all(np.isfinite(one).all() and (one >= 0).all() for one in (rows, factors)):
        raise ValueError("numbers to be encoded are negative or not finite")
    codes = np.empty(rows.shape, np.uint8)
    best: NDArray[np.float32] = np.full(len(rows), -1, np.float32)
    for factor in factors:
        with np.errstate(over="ignore"):
            candidate = np.minimum(rows * factor, np.float32(max_code)).astype(np.uint8)
            values = candidate + np.float32(0.5)
            products = (rows * values).sum(axis=1)
            quality = products * products / (values * values).sum(axis=1)
        better = quality > best
        codes[better], best[better] = candidate[better], quality[better]
    return codes
