"""Bit-packed blocks of 128 or 256 integers in 4 or 8 lanes.

Specification: "Numbers" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.types import Int64s, UInt8s, UInt64s

__all__ = ["LANE", "MAX_BITS", "bits_of", "pack", "unpack"]

LANE: Final = 32
"""Integers of a lane."""

MAX_BITS: Final = 32


def bits_of(values: Int64s) -> Int64s:
    """Bits of the largest integer of each row."""
    largest = values.max(axis=1, initial=0)
    bits = np.zeros(len(values), np.int64)
    for bit in range(MAX_BITS):
        bits += largest >> bit > 0
    return bits


def unpack(data: UInt8s, starts: Int64s, bits: Int64s, lanes: int) -> Int64s:
    """Unpack blocks that begin at ``starts`` into (blocks, 32 * lanes) integers.

    All blocks must lie within ``data``.
    """
    values = np.zeros((len(starts), LANE, lanes), np.int64)
    for width in np.unique(bits).tolist():
        if width:
            blocks = np.flatnonzero(bits == width)
            at = starts[blocks][:, None] + np.arange(width * lanes * 4)
            words = data[at].view("<u4").reshape(len(blocks), width, lanes).astype(np.uint64)
            values[blocks] = _from_words(words, width)
    return values.reshape(len(starts), LANE * lanes)


def _from_words(words: UInt64s, width: int) -> NDArray[Any]:
    first = np.arange(LANE) * width
    word, shift = first // 32, (first % 32).astype(np.uint64)[:, None]
    following = np.minimum(word + 1, width - 1)
    both = words[:, word] | words[:, following] << np.uint64(32)
    return (both >> shift) & np.uint64((1 << width) - 1)


def pack(values: Int64s, bits: Int64s, data: UInt8s, starts: Int64s, lanes: int) -> None:
    """Pack each row of 32 * lanes integers into ``data`` at its start."""
    numbers = values.reshape(len(values), LANE, lanes).astype(np.uint64)
    for width in np.unique(bits).tolist():
        if width:
            blocks = np.flatnonzero(bits == width)
            words = np.zeros((len(blocks), width + 1, lanes), np.uint64)
            for row in range(LANE):
                word, shift = divmod(row * width, 32)
                shifted = numbers[blocks, row] << np.uint64(shift)
                words[:, word] |= shifted & np.uint64(0xFFFF_FFFF)
                words[:, word + 1] |= shifted >> np.uint64(32)
            flat = words[:, :width].astype("<u4").reshape(len(blocks), -1).view(np.uint8)
            data[starts[blocks][:, None] + np.arange(width * lanes * 4)] = flat
