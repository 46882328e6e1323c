"""One FastLanes block of 1,024 values, packed and unpacked, per word width.

The rows of a block follow one another in memory when packed; unpacked, row ``r`` begins at
value ``ORDER[r // 8] * 16 + (r % 8) * 128``, where ``ORDER`` (0 4 2 6 1 5 3 7) is the three
bits of its index read backwards. Specification: "FastLanes" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel
from glaive.kernels.loops.rows import (
    pack_first_8,
    pack_first_16,
    pack_first_32,
    pack_first_64,
    pack_more_8,
    pack_more_16,
    pack_more_32,
    pack_more_64,
    pack_rest_8,
    pack_rest_16,
    pack_rest_32,
    pack_rest_64,
    unpack_8,
    unpack_16,
    unpack_32,
    unpack_64,
    unpack_straddling_8,
    unpack_straddling_16,
    unpack_straddling_32,
    unpack_straddling_64,
)

__all__ = [
    "low_bits",
    "pack_block",
    "pack_block_8",
    "pack_block_16",
    "pack_block_32",
    "pack_block_64",
    "row_start",
    "unpack_block",
    "unpack_block_8",
    "unpack_block_16",
    "unpack_block_32",
    "unpack_block_64",
]

ROW = 128
"""Bytes of a row, packed or not."""


@kernel
def low_bits(width: int) -> np.uint64:
    """A word with the lowest ``width`` bits set, 1 ≤ width ≤ 64."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)


@kernel
def row_start(row: int) -> int:
    """Index of the first value of a row."""
    part = row >> 3
    backwards = ((part & 1) << 2) | (part & 2) | (part >> 2)
    return (backwards << 4) + ((row & 7) << 7)


@kernel
def unpack_block(word_bits: int, source: int, width: int, target: int) -> None:
    """Write the 1,024 values of one block, 1 ≤ width ≤ word_bits."""
    if word_bits == 64:
        unpack_block_64(source, width, target)
    elif word_bits == 32:
        unpack_block_32(source, width, target)
    elif word_bits == 16:
        unpack_block_16(source, width, target)
    else:
        unpack_block_8(source, width, target)


@kernel
def pack_block(word_bits: int, source: int, width: int, target: int) -> None:
    """Pack 1,024 values into ``width`` rows of words, 1 ≤ width ≤ word_bits."""
    if word_bits == 64:
        pack_block_64(source, width, target)
    elif word_bits == 32:
        pack_block_32(source, width, target)
    elif word_bits == 16:
        pack_block_16(source, width, target)
    else:
        pack_block_8(source, width, target)


@kernel
def unpack_block_64(source: int, width: int, target: int) -> None:
    """Write the values of one block; as ``unpack_block``."""
    mask = low_bits(width)
    for row in range(64):
        bit = row * width
        shift = bit & 63
        words = source + (bit >> 6) * ROW
        values = target + row_start(row) * 8
        if shift + width > 64:
            unpack_straddling_64(values, words, shift, mask)
        else:
            unpack_64(values, words, shift, mask)


@kernel
def unpack_block_32(source: int, width: int, target: int) -> None:
    """Write the values of one block; as ``unpack_block``."""
    mask = low_bits(width)
    for row in range(32):
        bit = row * width
        shift = bit & 31
        words = source + (bit >> 5) * ROW
        values = target + row_start(row) * 4
        if shift + width > 32:
            unpack_straddling_32(values, words, shift, mask)
        else:
            unpack_32(values, words, shift, mask)


@kernel
def unpack_block_16(source: int, width: int, target: int) -> None:
    """Write the values of one block; as ``unpack_block``."""
    mask = low_bits(width)
    for row in range(16):
        bit = row * width
        shift = bit & 15
        words = source + (bit >> 4) * ROW
        values = target + row_start(row) * 2
        if shift + width > 16:
            unpack_straddling_16(values, words, shift, mask)
        else:
            unpack_16(values, words, shift, mask)


@kernel
def unpack_block_8(source: int, width: int, target: int) -> None:
    """Write the values of one block; as ``unpack_block``."""
    mask = low_bits(width)
    for row in range(8):
        bit = row * width
        shift = bit & 7
        words = source + (bit >> 3) * ROW
        values = target + row_start(row)
        if shift + width > 8:
            unpack_straddling_8(values, words, shift, mask)
        else:
            unpack_8(values, words, shift, mask)


@kernel
def pack_block_64(source: int, width: int, target: int) -> None:
    """Pack the values of one block; as ``pack_block``."""
    mask = low_bits(width)
    for row in range(64):
        bit = row * width
        shift = bit & 63
        words = target + (bit >> 6) * ROW
        values = source + row_start(row) * 8
        if shift == 0:
            pack_first_64(words, values, shift, mask)
        else:
            pack_more_64(words, values, shift, mask)
        if shift + width > 64:
            pack_rest_64(words + ROW, values, 64 - shift, mask)


@kernel
def pack_block_32(source: int, width: int, target: int) -> None:
    """Pack the values of one block; as ``pack_block``."""
    mask = low_bits(width)
    for row in range(32):
        bit = row * width
        shift = bit & 31
        words = target + (bit >> 5) * ROW
        values = source + row_start(row) * 4
        if shift == 0:
            pack_first_32(words, values, shift, mask)
        else:
            pack_more_32(words, values, shift, mask)
        if shift + width > 32:
            pack_rest_32(words + ROW, values, 32 - shift, mask)


@kernel
def pack_block_16(source: int, width: int, target: int) -> None:
    """Pack the values of one block; as ``pack_block``."""
    mask = low_bits(width)
    for row in range(16):
        bit = row * width
        shift = bit & 15
        words = target + (bit >> 4) * ROW
        values = source + row_start(row) * 2
        if shift == 0:
            pack_first_16(words, values, shift, mask)
        else:
            pack_more_16(words, values, shift, mask)
        if shift + width > 16:
            pack_rest_16(words + ROW, values, 16 - shift, mask)


@kernel
def pack_block_8(source: int, width: int, target: int) -> None:
    """Pack the values of one block; as ``pack_block``."""
    mask = low_bits(width)
    for row in range(8):
        bit = row * width
        shift = bit & 7
        words = target + (bit >> 3) * ROW
        values = source + row_start(row)
        if shift == 0:
            pack_first_8(words, values, shift, mask)
        else:
            pack_more_8(words, values, shift, mask)
        if shift + width > 8:
            pack_rest_8(words + ROW, values, 8 - shift, mask)
