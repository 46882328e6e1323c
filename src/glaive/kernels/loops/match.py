"""Compiled comparisons of words with ranges; their wrappers are in ``glaive.kernels.match``.

Packed blocks are compared while they are unpacked, or unpacked into ``scratch``, which has room
for 8 KiB and stays in the first-level cache; the whole column is never in memory.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width
from glaive.kernels.loops.blocks import low_bits, unpack_block
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.match_blocks import match_block
from glaive.kernels.loops.memory import (
    kernel,
    load_i64,
    load_partial,
    load_u64,
    popcount,
    store_u64,
    trailing_zeros,
)
from glaive.kernels.loops.words import TEST, beyond, none_up_to, pass_64, pass_some

WINDOW = 64
MOST_FUSED = 2
"""Up to so many ranges, a whole block is compared while it is unpacked."""


@kernel
def append_none(target: int, filled: int, count: int) -> None:
    """Append ``count`` bits that are 0."""
    done = 0
    while done < count:
        take = min(count - done, WINDOW)
        append_bits(target, filled + done, np.uint64(0), take)
        done += take


@kernel
def match_words(
    word_bits: int, source: int, count: int, test: int, limit: int, target: int, done: int
) -> bool:
    """Append one bit per word; False when a word is above ``limit`` ≥ 0."""
    word = word_bits >> 3
    at = 0
    while at < count:
        take = min(count - at, WINDOW)
        here = source + at * word
        if limit >= 0 and beyond(word_bits, here, take, limit):
            return False
        passing = np.uint64(0)
        if take == WINDOW:
            passing = pass_64(word_bits, here, test)
        else:
            passing = pass_some(word_bits, here, take, test)
        append_bits(target, done + at, passing, take)
        at += take
    return True


@kernel
def match_inline(
    data: int, data_size: int, starts: int, sizes: int, counts: int, chunks: int, test: int,
    target: int, values: int, scratch: int,
) -> int:  # fmt: skip
    """Append one bit per value of inline chunks; the bad chunk, plus ``chunks`` for a limit.

    A chunk whose width holds no word that passes is not unpacked.
    """
    word_bits = load_i64(test + TEST.bits)
    word = word_bits >> 3
    limit = load_i64(test + TEST.limit)
    ranges = load_i64(test + TEST.ranges)
    few = 1 <= ranges <= MOST_FUSED
    low, span, low2, span2 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    if few:
        lows, spans = load_i64(test + TEST.lows), load_i64(test + TEST.spans)
        low, span = load_u64(lows), load_u64(spans)
        low2, span2 = load_u64(lows + 8 * (ranges - 1)), load_u64(spans + 8 * (ranges - 1))
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
        if not checked and none_up_to(word_bits, top, test):
            append_none(target, done, count)
            done += count
            continue
        if few and not checked and width > 0 and count == BLOCK and done & 7 == 0:
            match_block(
                word_bits, data + start + word, width, target + (done >> 3), ranges, low, span,
                low2, span2,
            )  # fmt: skip
            done += count
            continue
        if width == 0:
            fill_zero(scratch, ((count + 63) & ~63) * word)
        else:
            unpack_block(word_bits, data + start + word, width, scratch)
        if not match_words(word_bits, scratch, count, test, limit if checked else -1, target, done):
            return chunks + i
        done += count
    return -1


@kernel
def match_plain(
    data: int, starts: int, counts: int, chunks: int, test: int, target: int,
) -> int:  # fmt: skip
    """Append one bit per word of chunks that the wrapper has checked; the bad chunk, or -1."""
    word_bits = load_i64(test + TEST.bits)
    limit = load_i64(test + TEST.limit)
    if limit >= 0 and low_bits(word_bits) <= np.uint64(limit):
        limit = np.int64(-1)
    done = 0
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        if not match_words(word_bits, source, count, test, limit, target, done):
            return i
        done += count
    return -1


@kernel
def set_bits(bits: int, begin: int, stop: int, at: int) -> np.uint64:
    """The 64 bits from byte ``at`` on, those outside of bits ``begin`` to ``stop`` cleared."""
    word = load_partial(bits + at, bits + ((stop + 7) >> 3))
    if at * 8 < begin:
        word &= ~np.uint64(0) << np.uint64(begin - at * 8)
    remaining = stop - at * 8
    if remaining < WINDOW:
        word &= low_bits(remaining)
    return word


@kernel
def count_set(bits: int, begin: int, stop: int) -> int:
    """Set bits among ``begin`` to ``stop``."""
    count = 0
    at = begin >> 3
    while at * 8 < stop:
        count += np.int64(popcount(set_bits(bits, begin, stop, at)))
        at += 8
    return count


@kernel
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
