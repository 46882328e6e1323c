"""Compiled compares of words with ranges; their wrappers are in ``glaive.kernels.match``.

Packed blocks are unpacked into ``scratch``, which has room for 8 KiB and stays in the
first-level cache; the column is never in memory as such.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width
from glaive.kernels.loops.blocks import low_bits, unpack_block
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
from glaive.kernels.loops.words import TEST, beyond, none_up_to, pass_64, pass_some

WINDOW = 64


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
    test: int,
    target: int,
    values: int,
    scratch: int,
) -> int:
    """Append one bit per value of inline chunks; the bad chunk, plus ``chunks`` for a limit.

    A chunk whose width holds no word that passes is not unpacked.
    """
    word_bits = load_i64(test + TEST.bits)
    word = word_bits >> 3
    limit = load_i64(test + TEST.limit)
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
                found = pass_64(word_bits, here, test)
            else:
                found = pass_some(word_bits, here, take, test)
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
    test: int,
    target: int,
) -> int:
    """Append one bit per word of pieces that the wrapper has checked; the bad piece, or -1."""
    word_bits = load_i64(test + TEST.bits)
    word = word_bits >> 3
    limit = load_i64(test + TEST.limit)
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
                found = pass_64(word_bits, here, test)
            else:
                found = pass_some(word_bits, here, take, test)
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
