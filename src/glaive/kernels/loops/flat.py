"""Compiled kernels over plain values; their wrappers are in ``glaive.kernels.flat``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.levels import append_bits
from glaive.kernels.loops.memory import (
    copy,
    copy8,
    copy16,
    kernel,
    load_i64,
    load_partial,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    low_bits,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)


@kernel
def join_bits(
    data: int, data_size: int, starts: int, counts: int, chunks: int, target: int
) -> None:
    """Append ``counts[i]`` bits from byte ``starts[i]`` on; may write 16 bytes too many."""
    filled = 0
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        remaining = load_i64(counts + i * 8)
        while remaining > 0:
            part = min(remaining, 64)
            bits = load_partial(source, data + data_size) & low_bits(part)
            append_bits(target, filled, bits, part)
            filled += part
            remaining -= part
            source += 8


@kernel
def take_items(
    data: int, data_size: int, starts: int, sizes: int, chunks: int, chunk: int, index: int,
    wanted: int, size: int, target: int,
) -> int:  # fmt: skip
    """Return the first position that lies outside its chunk, -1 when there is none."""
    for i in range(wanted):
        c = load_i64(chunk + i * 8)
        at = load_i64(index + i * 8)
        if c < 0 or c >= chunks or at < 0:
            return i
        start = load_i64(starts + c * 8)
        end = load_i64(sizes + c * 8)
        if start < 0 or end > data_size - start or at >= end // size:
            return i
        source = data + start + at * size
        to = target + i * size
        if size == 8:
            copy8(to, source)
        elif size == 4:
            store_u32(to, load_u32(source))
        elif size == 16:
            copy16(to, source)
        elif size == 2:
            store_u16(to, load_u16(source))
        elif size == 1:
            store_u8(to, load_u8(source))
        else:
            copy(to, source, size)
    return -1


# --- Compiled kernels over byte streams; their wrappers are in ``glaive.kernels.flat``
# Eight values at a time: their bytes are a matrix of 8 × 8 (or two of 4 × 4), which is transposed
# in registers by exchanging ever larger corners. The same transposition splits and joins.

BYTES = np.uint64(0x00FF00FF00FF00FF)
PAIRS = np.uint64(0x0000FFFF0000FFFF)
FOURS = np.uint64(0x00000000FFFFFFFF)
STEP_1 = np.uint64(8)
STEP_2 = np.uint64(16)
STEP_4 = np.uint64(32)


@kernel
def swap(a: np.uint64, b: np.uint64, step: np.uint64, mask: np.uint64) -> tuple[int, int]:
    """Exchange the upper corner of ``a`` with the lower corner of ``b``."""
    moved = ((a >> step) ^ b) & mask
    return a ^ (moved << step), b ^ moved


@kernel
def transpose_8(source: int, from_step: int, target: int, to_step: int) -> None:
    """Transpose 8 rows of 8 bytes, a step apart: byte c of row r becomes byte r of row c."""
    a = load_u64(source)
    b = load_u64(source + from_step)
    c = load_u64(source + 2 * from_step)
    d = load_u64(source + 3 * from_step)
    e = load_u64(source + 4 * from_step)
    f = load_u64(source + 5 * from_step)
    g = load_u64(source + 6 * from_step)
    h = load_u64(source + 7 * from_step)
    a, b = swap(a, b, STEP_1, BYTES)
    c, d = swap(c, d, STEP_1, BYTES)
    e, f = swap(e, f, STEP_1, BYTES)
    g, h = swap(g, h, STEP_1, BYTES)
    a, c = swap(a, c, STEP_2, PAIRS)
    b, d = swap(b, d, STEP_2, PAIRS)
    e, g = swap(e, g, STEP_2, PAIRS)
    f, h = swap(f, h, STEP_2, PAIRS)
    a, e = swap(a, e, STEP_4, FOURS)
    b, f = swap(b, f, STEP_4, FOURS)
    c, g = swap(c, g, STEP_4, FOURS)
    d, h = swap(d, h, STEP_4, FOURS)
    store_u64(target, a)
    store_u64(target + to_step, b)
    store_u64(target + 2 * to_step, c)
    store_u64(target + 3 * to_step, d)
    store_u64(target + 4 * to_step, e)
    store_u64(target + 5 * to_step, f)
    store_u64(target + 6 * to_step, g)
    store_u64(target + 7 * to_step, h)


@kernel
def join_4(source: int, stream: int, target: int) -> None:
    """Eight values of 4 bytes, out of 4 streams that are ``stream`` bytes apart."""
    a = load_u64(source)
    b = load_u64(source + stream)
    c = load_u64(source + 2 * stream)
    d = load_u64(source + 3 * stream)
    a, b = swap(a, b, STEP_1, BYTES)
    c, d = swap(c, d, STEP_1, BYTES)
    a, c = swap(a, c, STEP_2, PAIRS)
    b, d = swap(b, d, STEP_2, PAIRS)
    # The lower halves are values 0 to 3, the upper ones 4 to 7.
    store_u64(target, (a & FOURS) | (b << STEP_4))
    store_u64(target + 8, (c & FOURS) | (d << STEP_4))
    store_u64(target + 16, (a >> STEP_4) | (b & ~FOURS))
    store_u64(target + 24, (c >> STEP_4) | (d & ~FOURS))


@kernel
def split_4(source: int, target: int, stream: int) -> None:
    """Eight values of 4 bytes, into 4 streams that are ``stream`` bytes apart."""
    a = np.uint64(load_u32(source)) | (np.uint64(load_u32(source + 16)) << STEP_4)
    b = np.uint64(load_u32(source + 4)) | (np.uint64(load_u32(source + 20)) << STEP_4)
    c = np.uint64(load_u32(source + 8)) | (np.uint64(load_u32(source + 24)) << STEP_4)
    d = np.uint64(load_u32(source + 12)) | (np.uint64(load_u32(source + 28)) << STEP_4)
    a, b = swap(a, b, STEP_1, BYTES)
    c, d = swap(c, d, STEP_1, BYTES)
    a, c = swap(a, c, STEP_2, PAIRS)
    b, d = swap(b, d, STEP_2, PAIRS)
    store_u64(target, a)
    store_u64(target + stream, b)
    store_u64(target + 2 * stream, c)
    store_u64(target + 3 * stream, d)


@kernel
def join_value(source: int, stream: int, width: int) -> np.uint64:
    """One value out of ``width`` streams."""
    word = np.uint64(0)
    for byte in range(width):
        part = np.uint64(load_u8(source + byte * stream))
        word |= part << np.uint64(8 * byte)
    return word


@kernel
def join(data: int, starts: int, counts: int, chunks: int, width: int, target: int) -> None:
    """Join chunk after chunk ``counts[i]`` values out of streams of as many bytes each."""
    for chunk in range(chunks):
        source = data + load_i64(starts + chunk * 8)
        count = load_i64(counts + chunk * 8)
        done = 0
        if width == 8:
            while done + 8 <= count:
                transpose_8(source + done, count, target + done * 8, 8)
                done += 8
        else:
            while done + 8 <= count:
                join_4(source + done, count, target + done * 4)
                done += 8
        while done < count:
            word = join_value(source + done, count, width)
            if width == 8:
                store_u64(target + done * 8, word)
            else:
                store_u32(target + done * 4, word)
            done += 1
        target += count * width


@kernel
def split(values: int, counts: int, chunks: int, width: int, target: int) -> None:
    """Split the values of chunk after chunk into streams: the inverse of ``join``."""
    for chunk in range(chunks):
        count = load_i64(counts + chunk * 8)
        done = 0
        if width == 8:
            while done + 8 <= count:
                transpose_8(values + done * 8, 8, target + done, count)
                done += 8
        else:
            while done + 8 <= count:
                split_4(values + done * 4, target + done, count)
                done += 8
        while done < count:
            for byte in range(width):
                store_u8(target + byte * count + done, load_u8(values + done * width + byte))
            done += 1
        values += count * width
        target += count * width


# --- Compiled copies of ranges with space between them; wrapper: ``glaive.kernels.flat``


# --- The kernel that measures blocks of LZ4. Wrapper: ``glaive.kernels.flat`` ------------

FULL = 15
"""A length of so much goes on in the bytes that follow."""

SHORTEST = 4
"""Bytes of the shortest copy."""


@kernel
def _rest_of_length(data: int, at: int, end: int) -> tuple[int, int]:
    """What a length has in the bytes from ``at`` on, and the place behind them; 0 if they end."""
    count = np.int64(0)
    while at < end:
        byte = np.int64(load_u8(data + at))
        at += 1
        count += byte
        if byte != 255:
            return count, at
    return count, np.int64(0)


@kernel
def _size_of(data: int, at: int, end: int, limit: int) -> int:
    """Bytes that a block decompresses to; -1 if it is none, or they are more than ``limit``."""
    made = np.int64(0)
    while at < end:
        token = np.int64(load_u8(data + at))
        at += 1
        count = token >> 4
        if count == FULL:
            more, at = _rest_of_length(data, at, end)
            count += more
            if at == 0:
                return -1
        if count > end - at or count > limit - made:
            return -1
        at += count
        made += count
        if at == end:
            return made
        if end - at < 2:
            return -1
        back = np.int64(load_u16(data + at))
        at += 2
        if back == 0 or back > made:
            return -1
        count = (token & FULL) + SHORTEST
        if token & FULL == FULL:
            more, at = _rest_of_length(data, at, end)
            count += more
            if at == 0:
                return -1
        if count > limit - made:
            return -1
        made += count
    return -1


@kernel
def measure(
    data: int, starts: int, sizes: int, limits: int, blocks: int, found: int
) -> None:  # fmt: skip
    """Store what each block decompresses to, or -1: see the wrapper, which checked the ranges."""
    for block in range(blocks):
        start = load_i64(starts + 8 * block)
        end = start + load_i64(sizes + 8 * block)
        limit = load_i64(limits + 8 * block)
        store_u64(found + 8 * block, _size_of(data, start, end, limit))
