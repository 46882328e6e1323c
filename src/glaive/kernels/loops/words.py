"""Compiled tests of words, 64 at a time. They are called by ``glaive.kernels.loops.match``.

A test is the address of a :class:`glaive.kernels.records.WordRanges`.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import load_word
from glaive.kernels.loops.bitset import in_bitset_32, in_bitset_64, in_prefilter_32, in_prefilter_64
from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.compare import in_range_8, in_range_16, in_range_32, in_range_64
from glaive.kernels.loops.lookup import number_of
from glaive.kernels.loops.memory import kernel, load_i64, load_u8, load_u64, trailing_zeros
from glaive.kernels.records import WordRanges, offsets_of

__all__ = ["beyond", "none_up_to", "pass_64", "pass_some"]

TEST = offsets_of(WordRanges)
WINDOW = 64
MAX_COMPARED_RANGES = 16
"""Up to so many ranges, each is compared with all words; above, each word searches its range."""


@kernel
def _in_range(word_bits: int, source: int, low: np.uint64, span: np.uint64) -> np.uint64:
    """Bit ``i``: whether word ``i`` of 64 lies in the range."""
    if word_bits == 64:
        return in_range_64(source, low, span)
    if word_bits == 32:
        return in_range_32(source, low, span)
    if word_bits == 16:
        return in_range_16(source, low, span)
    return in_range_8(source, low, span)


@kernel
def _in_bitset(
    word_bits: int, source: int, bitset: int, base: np.uint64, top: np.uint64
) -> np.uint64:
    """Bit ``i``: whether word ``i`` of 64, of 32 or 64 bits, is in the bitset."""
    if word_bits == 64:
        return in_bitset_64(source, bitset, base, top)
    return in_bitset_32(source, bitset, base, top)


@kernel
def _in_prefilter(word_bits: int, source: int, prefilter: int, shift: np.uint64) -> np.uint64:
    """Bit ``i``: whether word ``i`` of 64, of 32 or 64 bits, passes the prefilter."""
    if word_bits == 64:
        return in_prefilter_64(source, prefilter, shift)
    return in_prefilter_32(source, prefilter, shift)


@kernel
def _passes(word_bits: int, word: np.uint64, test: int) -> bool:
    """Whether one word lies in one of the ranges."""
    slots = load_i64(test + TEST.slots)
    if slots != 0:
        words, bits = load_i64(test + TEST.words), load_i64(test + TEST.slot_bits)
        return number_of(words, slots, bits, word, load_i64(test + TEST.secret)) >= 0
    lows = load_i64(test + TEST.lows)
    spans = load_i64(test + TEST.spans)
    ranges = load_i64(test + TEST.ranges)
    if ranges == 0:
        return False
    below = 0
    above = ranges
    while below < above:
        middle = (below + above) >> 1
        if load_u64(lows + middle * 8) <= word:
            below = middle + 1
        else:
            above = middle
    at = below - 1 if below > 0 else ranges - 1
    moved = (word - load_u64(lows + at * 8)) & low_bits(word_bits)
    return moved <= load_u64(spans + at * 8)


@kernel
def pass_64(word_bits: int, source: int, test: int) -> np.uint64:
    """Bit ``i``: whether word ``i`` of 64 passes."""
    word = word_bits >> 3
    passing = np.uint64(0)
    table = load_i64(test + TEST.table)
    if table != 0:
        for i in range(WINDOW):
            flag = np.uint64(load_u8(table + np.int64(load_word(word_bits, source + i * word))))
            passing |= flag << np.uint64(i)
        return passing
    bitset = load_i64(test + TEST.bitset)
    if bitset != 0:
        return _in_bitset(
            word_bits, source, bitset, load_u64(test + TEST.base), load_u64(test + TEST.top)
        )
    lows = load_i64(test + TEST.lows)
    spans = load_i64(test + TEST.spans)
    ranges = load_i64(test + TEST.ranges)
    if ranges <= MAX_COMPARED_RANGES:
        for i in range(ranges):
            low = load_u64(lows + i * 8)
            passing |= _in_range(word_bits, source, low, load_u64(spans + i * 8))
        return passing
    near = np.uint64(0)
    prefilter = load_i64(test + TEST.prefilter)
    if prefilter != 0:
        near = _in_prefilter(word_bits, source, prefilter, load_u64(test + TEST.shift))
    else:
        first = load_u64(lows)
        last = load_u64(lows + ranges * 8 - 8) + load_u64(spans + ranges * 8 - 8)
        near = _in_range(word_bits, source, first, (last - first) & low_bits(word_bits))
    while near != np.uint64(0):
        i = np.int64(trailing_zeros(near))
        near &= near - np.uint64(1)
        if _passes(word_bits, load_word(word_bits, source + i * word), test):
            passing |= np.uint64(1) << np.uint64(i)
    return passing


@kernel
def pass_some(word_bits: int, source: int, count: int, test: int) -> np.uint64:
    """As ``pass_64`` for less than 64 words."""
    word = word_bits >> 3
    table = load_i64(test + TEST.table)
    passing = np.uint64(0)
    for i in range(count):
        value = load_word(word_bits, source + i * word)
        flag = np.uint64(0)
        if table != 0:
            flag = np.uint64(load_u8(table + np.int64(value)))
        elif _passes(word_bits, value, test):
            flag = np.uint64(1)
        passing |= flag << np.uint64(i)
    return passing


@kernel
def beyond(word_bits: int, source: int, count: int, limit: int) -> bool:
    """Whether one of ``count`` ≤ 64 words is above ``limit``."""
    if count == WINDOW:
        low = np.uint64(limit) + np.uint64(1)
        return _in_range(word_bits, source, low, low_bits(word_bits) - low) != np.uint64(0)
    word = word_bits >> 3
    top = np.uint64(0)
    for i in range(count):
        top = max(top, load_word(word_bits, source + i * word))
    return top > np.uint64(limit)


@kernel
def none_up_to(word_bits: int, top: np.uint64, test: int) -> bool:
    """Whether no word up to ``top`` can pass."""
    ranges = load_i64(test + TEST.ranges)
    if ranges == 0:
        return True
    lows = load_i64(test + TEST.lows)
    last = load_u64(lows + ranges * 8 - 8)
    wraps = load_u64(load_i64(test + TEST.spans) + ranges * 8 - 8) > low_bits(word_bits) - last
    return load_u64(lows) > top and not wraps
