"""Compiled compares of words with ranges; their doors are in ``glaive.kernels.match``.

A test is ``ranges`` pairs of ``lows`` and ``spans`` (addresses of ``uint64`` arrays), ascending;
the last may go on at 0. ``table``, if not 0, is the address of one byte per word from 0 to
``limit`` that says the same. A word above ``limit`` ≥ 0 is damage; -1 is no limit.

Packed blocks are unpacked into ``scratch``, which has room for 8 KiB and stays in the
first-level cache; the column is never in memory as such.

``sieve``, if not 0, is the address of 65,536 bits: where the bit of a word's hash is not set,
the word does not pass.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width, load_word
from glaive.kernels.loops.blocks import low_bits, unpack_block
from glaive.kernels.loops.compare import in_range_8, in_range_16, in_range_32, in_range_64
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.memory import (
    load_i64,
    load_u8,
    load_u64,
    loop,
    popcount,
    store_u64,
    trailing_zeros,
)

WINDOW = 64
FEW = 16
"""Ranges up to which each is compared with all words; above, words look for theirs."""
HASH = np.uint64(0x9E3779B97F4A7C15)


@loop
def in_range(word_bits: int, source: int, low: np.uint64, span: np.uint64) -> np.uint64:
    """Bit ``i``: whether word ``i`` of 64 lies in the range."""
    if word_bits == 64:
        return in_range_64(source, low, span)
    if word_bits == 32:
        return in_range_32(source, low, span)
    if word_bits == 16:
        return in_range_16(source, low, span)
    return in_range_8(source, low, span)


@loop
def passes(word_bits: int, word: np.uint64, lows: int, spans: int, ranges: int) -> bool:
    """Whether one word lies in one of the ranges."""
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


@loop
def sieve_bit(sieve: int, word: np.uint64) -> np.uint64:
    """1 for a word that may pass."""
    at = np.int64((word * HASH) >> np.uint64(48))
    return np.uint64(load_u8(sieve + (at >> 3)) >> (at & 7)) & np.uint64(1)


@loop
def pass_64(
    word_bits: int, source: int, lows: int, spans: int, ranges: int, table: int, sieve: int
) -> np.uint64:
    """Bit ``i``: whether word ``i`` of 64 passes."""
    word = word_bits >> 3
    found = np.uint64(0)
    if table != 0:
        for i in range(WINDOW):
            flag = np.uint64(load_u8(table + np.int64(load_word(word_bits, source + i * word))))
            found |= flag << np.uint64(i)
        return found
    if ranges <= FEW:
        for i in range(ranges):
            low = load_u64(lows + i * 8)
            found |= in_range(word_bits, source, low, load_u64(spans + i * 8))
        return found
    near = np.uint64(0)
    if sieve != 0:
        for i in range(WINDOW):
            bit = sieve_bit(sieve, load_word(word_bits, source + i * word))
            near |= bit << np.uint64(i)
    else:
        first = load_u64(lows)
        last = load_u64(lows + ranges * 8 - 8) + load_u64(spans + ranges * 8 - 8)
        near = in_range(word_bits, source, first, (last - first) & low_bits(word_bits))
    while near != np.uint64(0):
        i = np.int64(trailing_zeros(near))
        near &= near - np.uint64(1)
        if passes(word_bits, load_word(word_bits, source + i * word), lows, spans, ranges):
            found |= np.uint64(1) << np.uint64(i)
    return found


@loop
def pass_some(
    word_bits: int, source: int, count: int, lows: int, spans: int, ranges: int, table: int
) -> np.uint64:
    """As ``pass_64`` for less than 64 words."""
    word = word_bits >> 3
    found = np.uint64(0)
    for i in range(count):
        value = load_word(word_bits, source + i * word)
        flag = np.uint64(0)
        if table != 0:
            flag = np.uint64(load_u8(table + np.int64(value)))
        elif passes(word_bits, value, lows, spans, ranges):
            flag = np.uint64(1)
        found |= flag << np.uint64(i)
    return found


@loop
def beyond(word_bits: int, source: int, count: int, limit: int) -> bool:
    """Whether one of ``count`` ≤ 64 words is above ``limit``."""
    if count == WINDOW:
        low = np.uint64(limit) + np.uint64(1)
        return in_range(word_bits, source, low, low_bits(word_bits) - low) != np.uint64(0)
    word = word_bits >> 3
    top = np.uint64(0)
    for i in range(count):
        top = max(top, load_word(word_bits, source + i * word))
    return top > np.uint64(limit)


@loop
def append_none(target: int, filled: int, count: int) -> None:
    """Append ``count`` bits that are 0."""
    done = 0
    while done < count:
        take = min(count - done, WINDOW)
        append_bits(target, filled + done, np.uint64(0), take)
        done += take


@loop
def match_inline(
    data: int,
    data_size: int,
    starts: int,
    sizes: int,
    counts: int,
    chunks: int,
    word_bits: int,
    lows: int,
    spans: int,
    ranges: int,
    table: int,
    sieve: int,
    limit: int,
    target: int,
    values: int,
    scratch: int,
) -> int:
    """Append one bit per value of inline chunks; the bad chunk, plus ``chunks`` for a limit.

    A chunk whose width holds no word that passes is not unpacked.
    """
    word = word_bits >> 3
    full = low_bits(word_bits)
    first = np.uint64(0)
    wraps = False
    if ranges > 0:
        first = load_u64(lows)
        last = load_u64(lows + ranges * 8 - 8)
        wraps = load_u64(spans + ranges * 8 - 8) > full - last
    done = 0
    for i in range(chunks):
        start = load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        width = inline_width(data, data_size, start, load_i64(sizes + i * 8), word_bits)
        if width < 0 or count < 0 or count > BLOCK or count > values - done:
            return i
        top = np.uint64(0)
        if width > 0:
            top = low_bits(width)
        checked = limit >= 0 and top > np.uint64(limit)
        none = ranges == 0 or (first > top and not wraps)
        if none and not checked:
            append_none(target, done, count)
            done += count
            continue
        if width == 0:
            fill_zero(scratch, ((count + 63) & ~63) * word)
        else:
            unpack_block(word_bits, data + start + word, width, scratch)
        at = 0
        while at < count:
            take = min(count - at, WINDOW)
            here = scratch + at * word
            if checked and beyond(word_bits, here, take, limit):
                return chunks + i
            found = np.uint64(0)
            if take == WINDOW:
                found = pass_64(word_bits, here, lows, spans, ranges, table, sieve)
            else:
                found = pass_some(word_bits, here, take, lows, spans, ranges, table)
            append_bits(target, done + at, found, take)
            at += take
        done += count
    return -1


@loop
def match_pieces(
    data: int,
    starts: int,
    counts: int,
    pieces: int,
    word_bits: int,
    lows: int,
    spans: int,
    ranges: int,
    table: int,
    sieve: int,
    limit: int,
    target: int,
) -> int:
    """Append one bit per word of pieces that the door has checked; the bad piece, or -1."""
    word = word_bits >> 3
    checked = limit >= 0 and low_bits(word_bits) > np.uint64(limit)
    done = 0
    for i in range(pieces):
        source = data + load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        at = 0
        while at < count:
            take = min(count - at, WINDOW)
            here = source + at * word
            if checked and beyond(word_bits, here, take, limit):
                return i
            found = np.uint64(0)
            if take == WINDOW:
                found = pass_64(word_bits, here, lows, spans, ranges, table, sieve)
            else:
                found = pass_some(word_bits, here, take, lows, spans, ranges, table)
            append_bits(target, done + at, found, take)
            at += take
        done += count
    return -1


@loop
def bits_at(source: int, size: int) -> np.uint64:
    """Up to 8 bytes as a word; the bytes beyond ``size`` are 0."""
    if size >= 8:
        return load_u64(source)
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(load_u8(source + i)) << np.uint64(8 * i)
    return word


@loop
def set_bits(bits: int, begin: int, stop: int, at: int) -> np.uint64:
    """The 64 bits from byte ``at`` on, those outside of bits ``begin`` to ``stop`` cleared."""
    word = bits_at(bits + at, ((stop + 7) >> 3) - at)
    if at * 8 < begin:
        word &= ~np.uint64(0) << np.uint64(begin - at * 8)
    left = stop - at * 8
    if left < WINDOW:
        word &= low_bits(left)
    return word


@loop
def count_set(bits: int, begin: int, stop: int) -> int:
    """Set bits among ``begin`` to ``stop``."""
    found = 0
    at = begin >> 3
    while at * 8 < stop:
        found += np.int64(popcount(set_bits(bits, begin, stop, at)))
        at += 8
    return found


@loop
def list_set(bits: int, begin: int, stop: int, first: int, target: int) -> None:
    """Store ``first`` plus the distance from ``begin`` of every set bit, ascending."""
    to = target
    at = begin >> 3
    base = first - begin
    while at * 8 < stop:
        word = set_bits(bits, begin, stop, at)
        row = base + at * 8
        if word == ~np.uint64(0):
            for i in range(WINDOW):
                store_u64(to + i * 8, np.uint64(row + i))
            to += WINDOW * 8
        else:
            while word != np.uint64(0):
                store_u64(to, np.uint64(row + np.int64(trailing_zeros(word))))
                word &= word - np.uint64(1)
                to += 8
        at += 8
