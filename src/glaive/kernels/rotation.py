"""Rotate vectors as RaBitQ does, and encode the numbers of rotated ones.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.kernels._addresses import address
from glaive.kernels.native import rotation as rotation_loops
from glaive.kernels.native import use_compiled
from glaive.types import Float32s, UInt8s

ROUNDS: Final = 4
_LANES: Final = 8


def rotate(rows: Float32s, signs: UInt8s) -> Float32s:
    """Rotated copies of vectors: sign changes and Walsh-Hadamard transforms in four rounds.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``; the dimension is a multiple of 8.
    signs
        ``4 * dimension / 8`` bytes: a bit for each number in each round, set to change its sign.
    """
    dimension = rows.shape[1]
    if rows.dtype != np.float32 or dimension % _LANES or not dimension:
        raise ValueError(f"{rows.dtype} of shape {rows.shape}: the dimension is no multiple of 8")
    if len(signs) != ROUNDS * dimension // 8 or signs.dtype != np.uint8:
        raise ValueError(f"{len(signs)} bytes of signs for dimension {dimension}")
    bits = np.unpackbits(signs, bitorder="little").reshape(ROUNDS, dimension)
    factors = np.where(bits, np.float32(-1), np.float32(1))
    size = 1 << (dimension.bit_length() - 1)
    scale = np.float32(1 / np.sqrt(size))
    rotated = np.array(rows, np.float32, order="C")
    if use_compiled(rotated.size):
        rotation_loops.rotate(
            address(rotated), len(rotated), dimension, address(factors), size, scale
        )
        return rotated
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


def quantize_rotated(rows: Float32s, factors: Float32s, most: int) -> UInt8s:
    """Codes of numbers from 0 on: ``floor(number * factor)``, at most ``most``.

    Of the factors each row takes the one with the largest cosine between the row and its
    codes plus 1/2; of equal ones the first.

    Parameters
    ----------
    rows
        ``float32`` of shape ``(n, dimension)``, contiguous, finite and not negative; the
        dimension is a multiple of 8.
    factors
        ``float32``, from 0 on.
    most
        From 1 to 255.

    Returns
    -------
    numpy.ndarray
        ``uint8`` of the shape of the rows.
    """
    if rows.dtype != np.float32 or not rows.flags.c_contiguous or rows.shape[1] % _LANES:
        raise ValueError(f"{rows.dtype} of shape {rows.shape}: the dimension is no multiple of 8")
    if not 1 <= most <= 255 or not len(factors) or factors.dtype != np.float32:
        raise ValueError(f"{len(factors)} factors for codes up to {most}")
    if not all(np.isfinite(one).all() and (one >= 0).all() for one in (rows, factors)):
        raise ValueError("numbers to be encoded are negative or not finite")
    codes = np.empty(rows.shape, np.uint8)
    if use_compiled(rows.size * len(factors)):
        factors = np.ascontiguousarray(factors)
        rotation_loops.quantize_rotated(
            rows=address(rows), row_count=len(rows), dimension=rows.shape[1],
            factors=address(factors), factor_count=len(factors), most=most, codes=address(codes),
        )  # fmt: skip
        return codes
    best: NDArray[np.float32] = np.full(len(rows), -1, np.float32)
    for factor in factors:
        with np.errstate(over="ignore"):
            candidate = np.minimum(rows * factor, np.float32(most)).astype(np.uint8)
            values = candidate + np.float32(0.5)
            products = (rows * values).sum(axis=1)
            quality = products * products / (values * values).sum(axis=1)
        better = quality > best
        codes[better], best[better] = candidate[better], quality[better]
    return codes
