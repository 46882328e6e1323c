"""Compiled loops that leave rows out; their wrappers are in ``glaive.kernels.keep``.

``gone`` is the address of ascending row numbers of which ``base`` is the first row here. What
lies between two of them is copied as one run, 64 bytes at a time: what is copied too much is
overwritten by the next run. Loops return the number of the first row number that does not
ascend or lies beyond the rows, -1 when there is none.

Words of 8 to 64 bits go by a bitmap of the rows that stay, 64 rows at a time: where the
processor puts words side by side by itself, that costs next to nothing.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width, load_word, store_word
from glaive.kernels.loops.blocks import low_bits, unpack_block
from glaive.kernels.loops.compare import (
    FAST_NARROW,
    FAST_WIDE,
    compress_8,
    compress_16,
    compress_32,
    compress_64,
)
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.match import bits_at
from glaive.kernels.loops.memory import (
    copy,
    load_i32,
    load_i64,
    load_u8,
    load_u64,
    loop,
    loop_of,
    popcount,
    store_u32,
    store_u64,
    trailing_zeros,
    wrapping_add,
)
from glaive.kernels.loops.rows import copy_row
from glaive.kernels.records import KeepInline
from glaive.kernels.string_records import KeepVariable

WINDOW = 64
ROW = 64
"""Bytes of one copy, and that much room behind the target."""


@loop
def run_end(gone: int, count: int, i: int, base: int, rows: int) -> int:
    """The row at which run ``i`` ends."""
    if i == count:
        return rows
    return load_i64(gone + i * 8) - base


@loop
def copy_run(target: int, source: int, size: int, left: int) -> None:
    """Copy ``size`` bytes, and some more where ``left`` bytes of the source allow it."""
    at = 0
    while at < size and at + ROW <= left:
        copy_row(target + at, source + at)
        at += ROW
    if at < size:
        copy(target + at, source + at, size - at)


@loop
def keep_wide(
    source: int, width: int, rows: int, gone: int, count: int, base: int, target: int
) -> int:
    """Copy the values of ``width`` bytes that stay, of any width."""
    at = 0
    to = target
    for i in range(count + 1):
        end = run_end(gone, count, i, base, rows)
        if end < at or end > rows:
            return i
        size = (end - at) * width
        copy_run(to, source + at * width, size, (rows - at) * width)
        to += size
        at = end + 1
    return -1


@loop
def compress(word_bits: int, target: int, source: int, mask: np.uint64) -> None:
    """Store those words of 64 bytes that have a bit in ``mask`` side by side."""
    if word_bits == 64:
        compress_64(target, source, mask)
    elif word_bits == 32:
        compress_32(target, source, mask)
    elif word_bits == 16:
        compress_16(target, source, mask)
    else:
        compress_8(target, source, mask)


@loop
def keep_64(word_bits: int, target: int, source: int, stay: np.uint64) -> None:
    """Store those of 64 words that stay; writes and reads 64 bytes at a time."""
    lanes = 512 // word_bits
    size = word_bits >> 3
    every = low_bits(lanes)
    fast = FAST_WIDE if word_bits >= 32 else FAST_NARROW
    to = target
    for _ in range(word_bits >> 3):
        mask = stay & every
        if fast:
            compress(word_bits, to, source, mask)
        elif mask == every:
            copy_row(to, source)
        else:
            keep_some(word_bits, to, source, mask)
        to += np.int64(popcount(mask)) * size
        source += ROW
        stay = stay >> np.uint64(lanes) if lanes < WINDOW else np.uint64(0)


@loop
def keep_some(word_bits: int, target: int, source: int, stay: np.uint64) -> None:
    """Store words that stay, and touch no others."""
    word = word_bits >> 3
    to = target
    while stay != np.uint64(0):
        at = source + np.int64(trailing_zeros(stay)) * word
        store_word(word_bits, to, load_word(word_bits, at))
        stay &= stay - np.uint64(1)
        to += word


@loop
def stay_bits(bits: int, at: int, count: int) -> np.uint64:
    """``count`` ≤ 64 bits from bit ``at`` on; reads 9 bytes."""
    shift = at & 7
    word = load_u64(bits + (at >> 3)) >> np.uint64(shift)
    if shift > 0:
        word |= np.uint64(load_u8(bits + (at >> 3) + 8)) << np.uint64(64 - shift)
    return word & low_bits(count)


@loop
def keep_words(
    word_bits: int,
    source: int,
    rows: int,
    safe: int,
    bits: int,
    begin: int,
    target: int,
    room: int,
) -> int:
    """Store the words that stay; how many, -1 when there are more than ``room``.

    Bit ``begin`` of ``bits`` is for row 0. Of the source ``safe`` ≥ ``rows`` words may be read.
    """
    word = word_bits >> 3
    kept = 0
    at = 0
    while at < rows:
        take = min(rows - at, WINDOW)
        stay = stay_bits(bits, begin + at, take)
        more = np.int64(popcount(stay))
        if kept + more > room:
            return -1
        if at + WINDOW <= safe:
            keep_64(word_bits, target + kept * word, source + at * word, stay)
        else:
            keep_some(word_bits, target + kept * word, source + at * word, stay)
        kept += more
        at += take
    return kept


@loop_of(KeepInline)
def keep_inline(
    data: int,
    data_size: int,
    starts: int,
    sizes: int,
    counts: int,
    chunks: int,
    word_bits: int,
    low: int,
    rows: int,
    bits: int,
    begin: int,
    target: int,
    room: int,
    scratch: int,
) -> int:
    """Unpack inline chunks and store the words that stay, chunk by chunk in the cache.

    Row 0 is value ``low`` of the chunks, and bit ``begin`` of ``bits``. Returns the number of
    the first bad chunk, ``chunks`` when there are not ``room`` words that stay, -1 else.
    """
    word = word_bits >> 3
    kept = 0
    first = -low
    for i in range(chunks):
        start = load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        width = inline_width(data, data_size, start, load_i64(sizes + i * 8), word_bits)
        if width < 0 or count < 0 or count > BLOCK:
            return i
        if width == 0:
            fill_zero(scratch, BLOCK * word)
        else:
            unpack_block(word_bits, data + start + word, width, scratch)
        skip = max(0, -first)
        stop = min(count, rows - first)
        if skip < stop:
            more = keep_words(
                word_bits, scratch + skip * word, stop - skip, BLOCK - skip, bits,
                begin + first + skip, target + kept * word, room - kept,
            )  # fmt: skip
            if more < 0:
                return chunks
            kept += more
        first += count
    return -1 if kept == room and first >= rows else chunks


@loop
def keep_bits(
    bits: int, begin: int, rows: int, gone: int, count: int, base: int, target: int
) -> int:
    """Append the bits that stay, where row 0 is bit ``begin``."""
    at = 0
    filled = 0
    limit = (begin + rows + 7) >> 3
    for i in range(count + 1):
        end = run_end(gone, count, i, base, rows)
        if end < at or end > rows:
            return i
        while at < end:
            take = min(end - at, 64)
            first = (begin + at) >> 3
            shift = (begin + at) & 7
            word = bits_at(bits + first, limit - first) >> np.uint64(shift)
            if shift + take > 64:
                word |= np.uint64(load_u8(bits + first + 8)) << np.uint64(64 - shift)
            append_bits(target, filled, word & low_bits(take), take)
            filled += take
            at += take
        at = end + 1
    return -1


@loop
def load_offset(offsets: int, width: int, i: int) -> int:
    """Offset ``i`` of 4 or 8 bytes."""
    if width == 4:
        return np.int64(load_i32(offsets + i * 4))
    return load_i64(offsets + i * 8)


@loop_of(KeepVariable)
def keep_variable(
    offsets: int,
    width: int,
    data: int,
    data_size: int,
    rows: int,
    gone: int,
    gone_count: int,
    base: int,
    out_offsets: int,
    out: int,
    room: int,
) -> int:
    """Copy the strings that stay; ``room`` is how many bytes ``out`` has for them."""
    at = 0
    to = out_offsets
    filled = 0
    for i in range(gone_count + 1):
        end = run_end(gone, gone_count, i, base, rows)
        if end < at or end > rows:
            return i
        first = load_offset(offsets, width, at)
        last = load_offset(offsets, width, end)
        if first < 0 or last < first or last > data_size or last - first > room - filled:
            return i
        size = last - first
        moved = filled - first
        if width == 4:
            for row in range(at, end):
                store_u32(to, np.int64(load_i32(offsets + row * 4)) + moved)
                to += 4
        else:
            for row in range(at, end):
                store_u64(to, wrapping_add(load_i64(offsets + row * 8), moved))
                to += 8
        copy_run(out + filled, data + first, size, data_size - first)
        filled += size
        at = end + 1
    if width == 4:
        store_u32(to, filled)
    else:
        store_u64(to, filled)
    return -1
