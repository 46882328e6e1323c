"""The rotation of RaBitQ: a stored matrix, or signs and Walsh-Hadamard transforms.

Specification: "Bits of rotated vectors" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from glaive.types import Flags, Float32s, UInt8s

__all__ = ["FastRotation", "MatrixRotation", "Rotation"]

ROUNDS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class MatrixRotation:
    """A matrix of shape ``(dimension, dimension)``."""

    matrix: Float32s

    def apply(self, vectors: Float32s) -> Float32s:
        """Rotate vectors, of shape ``(n, dimension)``."""
        rotated: Float32s = vectors @ self.matrix.T
        return rotated


class FastRotation:
    """Four rounds of flipped signs and a transform of as many elements as a power of two has.

    Parameters
    ----------
    signs
        ``uint8`` of shape ``(4 * dimension / 8,)``: a bit for each element in each round,
        the lowest first.
    dimension
        Divisible by 8.
    """

    def __init__(self, signs: UInt8s, dimension: int) -> None:
        bits = np.unpackbits(signs, bitorder="little").reshape(ROUNDS, dimension)
        self._flipped: Flags = bits.view(np.bool_)
        self._size = 1 << (dimension.bit_length() - 1)
        self._dimension = dimension

    def apply(self, vectors: Float32s) -> Float32s:
        """Rotate vectors, of shape ``(n, dimension)``."""
        size, dimension = self._size, self._dimension
        scale = np.float32(1 / np.sqrt(size))
        x = vectors.astype(np.float32)
        for number, flipped in enumerate(self._flipped):
            x = np.where(flipped, -x, x)
            if size == dimension:
                x = _transformed(x) * scale
                continue
            first = slice(0, size) if number % 2 == 0 else slice(dimension - size, dimension)
            x[:, first] = _transformed(x[:, first]) * scale
            half = dimension // 2
            low, high = x[:, :half].copy(), x[:, half : 2 * half].copy()
            x[:, :half], x[:, half : 2 * half] = low + high, low - high
        return x if size == dimension else x * np.float32(0.25)


Rotation = MatrixRotation | FastRotation


def _transformed(x: Float32s) -> Float32s:
    """The Walsh-Hadamard transform of each row, whose length is a power of two."""
    count, size = x.shape
    stride = 1
    while stride < size:
        pairs = x.reshape(count, -1, 2, stride)
        sums, gaps = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
        x = np.stack([sums, gaps], axis=2).reshape(count, size)
        stride *= 2
    return x
