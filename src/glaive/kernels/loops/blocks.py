"""One FastLanes block of 1,024 values, packed and unpacked, per word width.

The rows of a block follow one another in memory when packed; unpacked, row ``r`` begins at
value ``ORDER[r // 8] * 16 + (r % 8) * 128``, where ``ORDER`` (0 4 2 6 1 5 3 7) is the three
bits of its index read backwards. Specification: "FastLanes" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.kernels.loops.ahead import FETCHED, LINE
from glaive.kernels.loops.memory import claim, kernel, prefetch
from glaive.kernels.loops.rows import pack_row, unpack_row, unpack_straddling_row

__all__ = [
    "low_bits",
    "pack_block",
    "row_start",
    "unpack_block",
    "unpack_block_16",
    "unpack_in_turn",
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


def _unpack_block(bits: int, *, claims: bool = False) -> Any:
    """As ``unpack_block``, for one width of words; may claim memory as ``unpack_in_turn``."""
    unpack_plain, unpack_straddling = unpack_row(bits), unpack_straddling_row(bits)
    last, log, size = bits - 1, bits.bit_length() - 1, bits // 8

    @kernel
    def unpack_words(source: int, width: int, target: int) -> None:
        mask = low_bits(width)
        for row in range(bits):
            bit = row * width
            shift = bit & last
            words = source + (bit >> log) * ROW
            values = target + row_start(row) * size
            if bits == 64:
                prefetch(words + FETCHED)
                prefetch(words + FETCHED + LINE)
            if claims:
                claim(values + bits * ROW)
                claim(values + bits * ROW + LINE)
            if shift + width > bits:
                unpack_straddling(values, words, shift, mask)
            else:
                unpack_plain(values, words, shift, mask)

    return unpack_words


def _pack_block(bits: int) -> Any:
    """As ``pack_block``, for one width of words."""
    pack_first, pack_more, pack_rest = (pack_row(bits, part) for part in ("first", "more", "rest"))
    last, log, size = bits - 1, bits.bit_length() - 1, bits // 8

    @kernel
    def pack_words(source: int, width: int, target: int) -> None:
        mask = low_bits(width)
        for row in range(bits):
            bit = row * width
            shift = bit & last
            words = target + (bit >> log) * ROW
            values = source + row_start(row) * size
            if shift == 0:
                pack_first(words, values, shift, mask)
            else:
                pack_more(words, values, shift, mask)
            if shift + width > bits:
                pack_rest(words + ROW, values, bits - shift, mask)

    return pack_words


unpack_block_8, unpack_block_16 = _unpack_block(8), _unpack_block(16)
unpack_block_32, unpack_block_64 = _unpack_block(32), _unpack_block(64)
unpack_many_8, unpack_many_16 = _unpack_block(8, claims=True), _unpack_block(16, claims=True)
unpack_many_32, unpack_many_64 = _unpack_block(32, claims=True), _unpack_block(64, claims=True)
pack_block_8, pack_block_16 = _pack_block(8), _pack_block(16)
pack_block_32, pack_block_64 = _pack_block(32), _pack_block(64)


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
def unpack_in_turn(word_bits: int, source: int, width: int, target: int) -> None:
    """As ``unpack_block``, and claim the memory of the block that follows.

    A block that is written to memory which no cache holds waits for it: a sixth of its time.
    """
    if word_bits == 64:
        unpack_many_64(source, width, target)
    elif word_bits == 32:
        unpack_many_32(source, width, target)
    elif word_bits == 16:
        unpack_many_16(source, width, target)
    else:
        unpack_many_8(source, width, target)


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
