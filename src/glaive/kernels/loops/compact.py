"""Compiled kernels that drop deleted rows; their wrappers are in ``glaive.kernels.compact``.

``deleted`` is the address of ascending row numbers; ``base`` is the number of the first row.
Kernels copy the rows between two deleted ones as one run, 64 bytes at a time. The next run
overwrites bytes that were copied beyond a run. Kernels return the index of the first row number
that repeats, descends or lies beyond the rows, or -1.

A bitmap of the live rows selects words of 8 to 64 bits, 64 rows at a time. This is cheap on
processors with a compress instruction.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import load_word
from glaive.kernels.loops.levels import append_bits
from glaive.kernels.loops.memory import (
    FAST_NARROW,
    FAST_WIDE,
    compress,
    copy,
    copy_row,
    kernel,
    load_i64,
    load_partial,
    load_u8,
    load_u64,
    low_bits,
    popcount,
    store_word,
    trailing_zeros,
)

WINDOW = 64
ROW = 64
"""Bytes of one copy, and of slack after the target."""


@kernel
def run_end(deleted: int, count: int, i: int, base: int, rows: int) -> int:
    """Return the row at which run ``i`` ends."""
    if i == count:
        return rows
    return load_i64(deleted + i * 8) - base


@kernel
def copy_run(target: int, source: int, size: int, available: int) -> None:
    """Copy ``size`` bytes, and more if the source has ``available`` bytes."""
    at = 0
    while at < size and at + ROW <= available:
        copy_row(target + at, source + at)
        at += ROW
    if at < size:
        copy(target + at, source + at, size - at)


@kernel
def compact_wide(
    source: int, width: int, rows: int, deleted: int, count: int, base: int, target: int
) -> int:
    """Copy the live values of ``width`` bytes, of any width."""
    at = 0
    to = target
    for i in range(count + 1):
        end = run_end(deleted, count, i, base, rows)
        if end < at or end > rows:
            return i
        size = (end - at) * width
        copy_run(to, source + at * width, size, (rows - at) * width)
        to += size
        at = end + 1
    return -1


@kernel
def compact_64(word_bits: int, target: int, source: int, live: np.uint64) -> None:
    """Store the live words among 64; write and read 64 bytes at a time."""
    lanes = 512 // word_bits
    size = word_bits >> 3
    every = low_bits(lanes)
    fast = FAST_WIDE if word_bits >= 32 else FAST_NARROW
    to = target
    for _ in range(word_bits >> 3):
        mask = live & every
        if fast:
            compress(word_bits, to, source, mask)
        elif mask == every:
            copy_row(to, source)
        else:
            compact_some(word_bits, to, source, mask)
        to += np.int64(popcount(mask)) * size
        source += ROW
        live = live >> np.uint64(lanes) if lanes < WINDOW else np.uint64(0)


@kernel
def compact_some(word_bits: int, target: int, source: int, live: np.uint64) -> None:
    """Store the live words; write their bytes only."""
    word = word_bits >> 3
    to = target
    while live != np.uint64(0):
        at = source + np.int64(trailing_zeros(live)) * word
        store_word(word_bits, to, load_word(word_bits, at))
        live &= live - np.uint64(1)
        to += word


@kernel
def live_bits(bits: int, at: int, count: int) -> np.uint64:
    """Return ``count`` ≤ 64 bits from bit ``at`` on; read 9 bytes."""
    shift = at & 7
    word = load_u64(bits + (at >> 3)) >> np.uint64(shift)
    if shift > 0:
        word |= np.uint64(load_u8(bits + (at >> 3) + 8)) << np.uint64(64 - shift)
    return word & low_bits(count)


@kernel
def compact_words(
    word_bits: int, source: int, rows: int, safe: int, bits: int, begin: int, target: int,
    capacity: int,
) -> int:  # fmt: skip
    """Store the live words; return how many, -1 when there are more than ``capacity``.

    Bit ``begin`` of ``bits`` is for row 0. ``safe`` ≥ ``rows`` words of the source may be read.
    """
    word = word_bits >> 3
    count_live = 0
    at = 0
    while at < rows:
        take = min(rows - at, WINDOW)
        live = live_bits(bits, begin + at, take)
        added = np.int64(popcount(live))
        if count_live + added > capacity:
            return -1
        if at + WINDOW <= safe:
            compact_64(word_bits, target + count_live * word, source + at * word, live)
        else:
            compact_some(word_bits, target + count_live * word, source + at * word, live)
        count_live += added
        at += take
    return count_live


@kernel
def compact_bits(
    bits: int, begin: int, rows: int, deleted: int, count: int, base: int, target: int
) -> int:
    """Append the live bits; row 0 is bit ``begin``."""
    at = 0
    filled = 0
    limit = (begin + rows + 7) >> 3
    for i in range(count + 1):
        end = run_end(deleted, count, i, base, rows)
        if end < at or end > rows:
            return i
        while at < end:
            take = min(end - at, 64)
            first = (begin + at) >> 3
            shift = (begin + at) & 7
            word = load_partial(bits + first, bits + limit) >> np.uint64(shift)
            if shift + take > 64:
                word |= np.uint64(load_u8(bits + first + 8)) << np.uint64(64 - shift)
            append_bits(target, filled, word & low_bits(take), take)
            filled += take
            at += take
        at = end + 1
    return -1
