"""Compiled loops that leave rows out; their doors are in ``glaive.kernels.keep``.

``gone`` is the address of ascending row numbers of which ``base`` is the first row here. What
lies between two of them is copied as one run, 64 bytes at a time: what is copied too much is
overwritten by the next run. Loops return the number of the first row number that does not
ascend or lies beyond the rows, -1 when there is none.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.match import bits_at
from glaive.kernels.loops.memory import (
    copy,
    load_i32,
    load_i64,
    load_u8,
    loop,
    store_u32,
    store_u64,
)
from glaive.kernels.loops.rows import copy_row

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
def keep_fixed(
    source: int, width: int, rows: int, gone: int, count: int, base: int, target: int
) -> int:
    """Copy the values of ``width`` bytes that stay."""
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


@loop
def keep_variable(
    offsets: int,
    width: int,
    data: int,
    data_size: int,
    rows: int,
    gone: int,
    count: int,
    base: int,
    out_offsets: int,
    out: int,
    room: int,
) -> int:
    """Copy the strings that stay; ``room`` is how many bytes ``out`` has for them."""
    at = 0
    to = out_offsets
    filled = 0
    for i in range(count + 1):
        end = run_end(gone, count, i, base, rows)
        if end < at or end > rows:
            return i
        first = load_offset(offsets, width, at)
        size = load_offset(offsets, width, end) - first
        if first < 0 or size < 0 or first > data_size - size or size > room - filled:
            return i
        moved = filled - first
        if width == 4:
            for row in range(at, end):
                store_u32(to, np.int64(load_i32(offsets + row * 4)) + moved)
                to += 4
        else:
            for row in range(at, end):
                store_u64(to, load_i64(offsets + row * 8) + moved)
                to += 8
        copy_run(out + filled, data + first, size, data_size - first)
        filled += size
        at = end + 1
    if width == 4:
        store_u32(to, filled)
    else:
        store_u64(to, filled)
    return -1
