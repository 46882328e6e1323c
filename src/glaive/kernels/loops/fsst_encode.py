"""Kernels that encode FSST text. Checked wrapper: ``glaive.kernels.fsst``.

The tables of an encoder are 1024 words, then 1024 slots of 64 bits, then entries of 32 bits:
65536 by the next two bytes, 256 by the last byte of a value.

========== =======================================================
bits       of an entry, and of the lower half of a slot
========== =======================================================
0 to 15    the code to write, and behind an escape the byte
16 to 19   bytes to write: 1, 2, or 0 for the stop byte
20 to 23   bytes to read
24 to 31   4 for the stop byte, else 0
========== =======================================================

The upper half of a slot is the number of upper bits of its word that do not count.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    copy,
    copy16,
    kernel,
    load_i64,
    load_partial,
    load_u32,
    load_u64,
    pick,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from glaive.kernels.loops.offsets import load_offset, store_offset

SLOTS = 8192
"""Bytes in front of the slots."""

PAIRS = 16_384
"""Bytes in front of the entries."""

LAST = 65_536
"""Entries in front of those for a last byte."""

BLOCK = 64
"""Bytes that are copied of every value, however short."""


@kernel
def slot_of(word: int) -> int:
    """Number of the slot for symbols that begin with the three low bytes of ``word``."""
    mixed = np.uint32(np.uint32(word) << np.uint32(8)) * np.uint32(0x9E3779B1)
    return np.int64(np.uint32(mixed) >> np.uint32(22))


@kernel
def _step(p: int, at: int, mark: int, tables: int) -> tuple[int, int, int]:
    """Write the code of the symbol at ``p``; returns where to read, write and mark next.

    There is no branch to mispredict: both candidates are looked up, and the end of the value is
    marked at every step, but kept only at the stop byte.
    """
    word = load_u64(p)
    slot = tables + 8 * slot_of(word)
    long = load_u64(slot + SLOTS)
    differs = (word ^ load_u64(slot)) << ((long >> np.uint64(32)) & np.uint64(63))
    short = load_u32(tables + PAIRS + 4 * np.int64(word & np.uint64(0xFFFF)))
    entry = np.int64(pick(differs, np.uint32(long), short))
    store_u16(at, entry)
    store_u32(mark, at)
    return p + ((entry >> 20) & 15), at + ((entry >> 16) & 3), mark + (entry >> 24)


@kernel
def _encode_plain(
    offsets: int, width: int, data: int, data_end: int, first: int, last: int, tables: int,
    ends: int, out: int, base: int,
) -> int:  # fmt: skip
    """Encode values one after the other; returns where in ``out`` they end, from ``base`` on."""
    at = out + base
    p = data + load_offset(offsets + width * first, width)
    for i in range(first, last):
        end = data + load_offset(offsets + width * (i + 1), width)
        while p < end:
            word = load_partial(p, data_end)
            slot = tables + 8 * slot_of(word)
            long = load_u64(slot + SLOTS)
            differs = (word ^ load_u64(slot)) << ((long >> np.uint64(32)) & np.uint64(63))
            entry = np.int64(long & np.uint64(0xFFFFFFFF))
            if differs != 0 or p + (entry >> 20) > end:
                index = np.int64(word & np.uint64(0xFFFF))
                if p + 1 == end:
                    index = LAST + (index & 255)
                entry = np.int64(load_u32(tables + PAIRS + 4 * index))
            store_u16(at, entry)
            # Here the stop byte is an ordinary byte, which is escaped.
            at += ((entry >> 16) & 3) + (entry >> 25)
            p += (entry >> 20) & 15
        store_offset(ends + width * (i + 1), width, at - out)
    return at - out


@kernel
def _copy_with_stops(
    offsets: int, width: int, data: int, data_end: int, first: int, last: int, target: int,
    limit: int, stop: int,
) -> tuple[int, int]:  # fmt: skip
    """Copy values up to ``limit``, each with the stop byte behind; next value, end of the copy."""
    start = load_offset(offsets + width * first, width)
    i = first
    while i < last and target < limit:
        end = load_offset(offsets + width * (i + 1), width)
        size = end - start
        p = data + start
        if p + BLOCK <= data_end:
            for k in range(0, BLOCK, 16):
                copy16(target + k, p + k)
            if size > BLOCK:
                copy(target + BLOCK, p + BLOCK, size - BLOCK)
        else:
            copy(target, p, size)
        target += size
        store_u8(target, stop)
        target += 1
        start = end
        i += 1
    return i, target


@kernel
def _store_ends(marks: int, count: int, start: int, base: int, ends: int, width: int) -> None:
    """Store the ends that marks stand for: the lower halves of addresses behind ``start``."""
    less = np.uint32(start)
    for k in range(count):
        end = base + np.int64(np.uint32(load_u32(marks + 4 * k) - less))
        store_offset(ends + width * (k + 1), width, end)


@kernel
def _encode_lanes(
    offsets: int, width: int, data: int, data_end: int, first: int, last: int, size: int,
    tables: int, stop: int, scratch: int, batch: int, ends: int, out: int, base: int,
) -> int:  # fmt: skip
    """Encode values of ``size`` bytes in all, in four lanes that take turns.

    While one lane waits for its table, the others continue. Returns where in ``out`` they end,
    from ``base`` on, or -1 where a value has the stop byte.
    """
    capacity = 2 * batch + 2 * BLOCK
    marks = scratch + 4 * capacity
    total = size + last - first
    i1, t1 = _copy_with_stops(
        offsets, width, data, data_end, first, last, scratch, scratch + total // 4, stop
    )
    i2, t2 = _copy_with_stops(
        offsets, width, data, data_end, i1, last, t1, scratch + total // 2, stop
    )
    i3, t3 = _copy_with_stops(
        offsets, width, data, data_end, i2, last, t2, scratch + total * 3 // 4, stop
    )
    _, t4 = _copy_with_stops(offsets, width, data, data_end, i3, last, t3, t3 + total, stop)
    p0, p1, p2, p3 = scratch, t1, t2, t3
    s0, s1, s2, s3 = out + base, scratch + capacity, scratch + 2 * capacity, scratch + 3 * capacity
    o0, o1, o2, o3 = s0, s1, s2, s3
    m0, m1 = marks, marks + 4 * (i1 - first)
    m2, m3 = marks + 4 * (i2 - first), marks + 4 * (i3 - first)
    k0, k1, k2, k3 = m0, m1, m2, m3
    while True:
        # A step reads 8 bytes at most: so many steps do not pass the end of a lane.
        steps = min(t1 - p0, t2 - p1, t3 - p2, t4 - p3) >> 3
        if steps <= 0:
            break
        for _ in range(steps):
            p0, o0, k0 = _step(p0, o0, k0, tables)
            p1, o1, k1 = _step(p1, o1, k1, tables)
            p2, o2, k2 = _step(p2, o2, k2, tables)
            p3, o3, k3 = _step(p3, o3, k3, tables)
    for _ in range(4):
        # Each remaining lane is finished alone; the lanes rotate through the same variables.
        while p0 < t1:
            p0, o0, k0 = _step(p0, o0, k0, tables)
        p0, p1, p2, p3 = p1, p2, p3, p0
        t1, t2, t3, t4 = t2, t3, t4, t1
        o0, o1, o2, o3 = o1, o2, o3, o0
        k0, k1, k2, k3 = k1, k2, k3, k0
    if (
        (k0 - m0 != 4 * (i1 - first))
        | (k1 - m1 != 4 * (i2 - i1))
        | (k2 - m2 != 4 * (i3 - i2))
        | (k3 - m3 != 4 * (last - i3))
    ):
        return -1
    # Put the output of the lanes back to back.
    _store_ends(m0, i1 - first, s0, base, ends + width * first, width)
    at = base + o0 - s0
    copy(out + at, s1, o1 - s1)
    _store_ends(m1, i2 - i1, s1, at, ends + width * i1, width)
    at += o1 - s1
    copy(out + at, s2, o2 - s2)
    _store_ends(m2, i3 - i2, s2, at, ends + width * i2, width)
    at += o2 - s2
    copy(out + at, s3, o3 - s3)
    _store_ends(m3, last - i3, s3, at, ends + width * i3, width)
    return at + o3 - s3


@kernel
def encode(
    offsets: int, width: int, data: int, data_end: int, first: int, values: int, tables: int,
    stop: int, scratch: int, batch: int, ends: int, out: int, capacity: int, state: int,
) -> int:  # fmt: skip
    """Encode values from ``first`` on; returns ``values``, or where ``capacity`` may not suffice.

    ``state`` holds the bytes written. ``ends`` are as wide as ``offsets``. Values are encoded
    in batches of at most ``batch`` bytes, a stop byte counted with each; a value that is longer,
    or that has the stop byte, is encoded in place. ``scratch`` has room for sixteen times the
    batch and 1024 bytes.
    """
    at = load_i64(state)
    i = first
    while i < values:
        start = load_offset(offsets + width * i, width)
        j = i + 1
        while j < values and load_offset(offsets + width * (j + 1), width) - start + j - i < batch:
            j += 1
        size = load_offset(offsets + width * j, width) - start
        if 2 * size + 8 > capacity - at:
            store_u64(state, at)
            return i
        done = np.int64(-1)
        if stop >= 0 and size + j - i <= batch:
            done = _encode_lanes(
                offsets=offsets, width=width, data=data, data_end=data_end, first=i, last=j,
                size=size, tables=tables, stop=stop, scratch=scratch, batch=batch, ends=ends,
                out=out, base=at,
            )  # fmt: skip
        if done < 0:
            done = _encode_plain(offsets, width, data, data_end, i, j, tables, ends, out, at)
        at = done
        i = j
    store_u64(state, at)
    return values
