"""Loops that encode FSST text. Doors: ``glaive.kernels.fsst``, ``glaive.kernels.fsst_train``.

An encoder table is passed as 1024 slots of 24 bytes (symbol, mask, length << 8 | code) and
16-bit entries (length << 8 | code), 65536 by the next two bytes, then 256 by the last byte
of a value.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    copy,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    loop,
    store_u16,
    store_u64,
)
from glaive.kernels.loops.offsets import load_offset, store_offset

__all__ = ["encode", "split"]

ESCAPE = 255


@loop
def _slot(word: int) -> int:
    """Number of the slot for symbols that begin with the three low bytes of ``word``."""
    return np.int64(((word & np.uint64(0xFFFFFF)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(54))


@loop
def _next(address: int, end: int) -> int:
    """Load up to 8 bytes; zeros stand in for what lies behind ``end``."""
    if address + 8 <= end:
        return load_u64(address)
    word = np.uint64(0)
    shift = np.uint64(0)
    while address < end:
        word |= np.uint64(load_u8(address)) << shift
        shift += np.uint64(8)
        address += 1
    return word


@loop
def _step(p: int, end: int, at: int, word: int, slots: int, pairs: int) -> tuple[int, int]:
    """Write the code of the symbol at ``p``; where to read and where to write on.

    All candidates are looked up and one is selected: a branch would be guessed wrong often.
    """
    slot = slots + 24 * _slot(word)
    meta = np.int64(load_u64(slot + 16))
    byte = np.int64(word & np.uint64(0xFF))
    index = np.int64(word & np.uint64(0xFFFF)) if p + 1 < end else 65536 + byte
    short = np.int64(load_u16(pairs + 2 * index))
    fits = ((word & load_u64(slot + 8)) == load_u64(slot)) & (p + (meta >> 8) <= end)
    meta = meta if fits else short
    code = meta & 255
    store_u16(at, code | (byte << 8))
    return p + (meta >> 8), at + 1 + (code == ESCAPE)


@loop
def _encode_plain(
    offsets: int,
    width: int,
    data: int,
    data_end: int,
    first: int,
    last: int,
    slots: int,
    pairs: int,
    ends: int,
    out: int,
    base: int,
) -> int:
    """Encode values one after the other; the bytes written to ``out + base`` and on."""
    at = out + base
    p = data + load_offset(offsets + width * first, width)
    for i in range(first, last):
        end = data + load_offset(offsets + width * (i + 1), width)
        while p < end:
            p, at = _step(p, end, at, _next(p, data_end), slots, pairs)
        store_offset(ends + width * (i + 1), width, at - out)
    return at - out


@loop
def encode(
    offsets: int,
    width: int,
    data: int,
    data_end: int,
    first: int,
    count: int,
    slots: int,
    pairs: int,
    scratch: int,
    batch: int,
    ends: int,
    out: int,
    room: int,
    state: int,
) -> int:
    """Encode values ``first`` on; the number of values done when ``room`` may not suffice.

    ``state`` holds the bytes written. ``ends`` are as wide as ``offsets``. Up to ``batch``
    bytes of values are encoded at a time, in three lanes that take turns: while one waits
    for its table the others go on. ``scratch`` has room for two lanes of twice the batch.
    """
    at = load_i64(state)
    i = first
    while i < count:
        start = load_offset(offsets + width * i, width)
        j = i + 1
        while j < count and load_offset(offsets + width * (j + 1), width) - start <= batch:
            j += 1
        stop = load_offset(offsets + width * j, width)
        if 2 * (stop - start) + 8 > room - at:
            store_u64(state, at)
            return i
        third = (j - i) // 3
        if third == 0 or data + stop + 8 > data_end:
            at = _encode_plain(offsets, width, data, data_end, i, j, slots, pairs, ends, out, at)
            i = j
            continue
        i0, i1, i2 = i, i + third, i + 2 * third
        n0, n1, n2 = i1, i2, j
        p0 = data + start
        p1 = data + load_offset(offsets + width * i1, width)
        p2 = data + load_offset(offsets + width * i2, width)
        o0 = out + at
        base1 = scratch
        base2 = scratch + 2 * batch + 16
        o1, o2 = base1, base2
        e0 = data + load_offset(offsets + width * (i0 + 1), width)
        e1 = data + load_offset(offsets + width * (i1 + 1), width)
        e2 = data + load_offset(offsets + width * (i2 + 1), width)
        while True:
            while p0 == e0 and i0 < n0:
                i0 += 1
                store_offset(ends + width * i0, width, o0 - out)
                e0 = data + load_offset(offsets + width * (i0 + 1), width)
            while p1 == e1 and i1 < n1:
                i1 += 1
                store_offset(ends + width * i1, width, o1 - base1)
                e1 = data + load_offset(offsets + width * (i1 + 1), width)
            while p2 == e2 and i2 < n2:
                i2 += 1
                store_offset(ends + width * i2, width, o2 - base2)
                if i2 < n2:
                    e2 = data + load_offset(offsets + width * (i2 + 1), width)
            if i0 == n0 or i1 == n1 or i2 == n2:
                break
            while (p0 != e0) & (p1 != e1) & (p2 != e2):
                w0, w1, w2 = load_u64(p0), load_u64(p1), load_u64(p2)
                p0, o0 = _step(p0, e0, o0, w0, slots, pairs)
                p1, o1 = _step(p1, e1, o1, w1, slots, pairs)
                p2, o2 = _step(p2, e2, o2, w2, slots, pairs)
        # Whichever lanes are left finish alone; then all are put behind each other.
        while i0 < n0:
            while p0 < e0:
                p0, o0 = _step(p0, e0, o0, load_u64(p0), slots, pairs)
            i0 += 1
            store_offset(ends + width * i0, width, o0 - out)
            e0 = data + load_offset(offsets + width * (i0 + 1), width)
        while i1 < n1:
            while p1 < e1:
                p1, o1 = _step(p1, e1, o1, load_u64(p1), slots, pairs)
            i1 += 1
            store_offset(ends + width * i1, width, o1 - base1)
            e1 = data + load_offset(offsets + width * (i1 + 1), width)
        while i2 < n2:
            while p2 < e2:
                p2, o2 = _step(p2, e2, o2, load_u64(p2), slots, pairs)
            i2 += 1
            store_offset(ends + width * i2, width, o2 - base2)
            if i2 < n2:
                e2 = data + load_offset(offsets + width * (i2 + 1), width)
        at = o0 - out
        copy(out + at, base1, o1 - base1)
        for k in range(n0 + 1, n1 + 1):
            place = ends + width * k
            store_offset(place, width, load_offset(place, width) + at)
        at += o1 - base1
        copy(out + at, base2, o2 - base2)
        for k in range(n1 + 1, n2 + 1):
            place = ends + width * k
            store_offset(place, width, load_offset(place, width) + at)
        at += o2 - base2
        i = j
    store_u64(state, at)
    return count


@loop
def split(
    offsets: int,
    width: int,
    data: int,
    count: int,
    slots: int,
    pairs: int,
    tokens: int,
    firsts: int,
) -> int:
    """Write what each value is encoded as, 16 bits a step: 256 + code, or a literal byte.

    ``firsts`` receives the number of the first step of each value. Returns the steps.
    """
    steps = np.int64(0)
    for i in range(count):
        store_u64(firsts + 8 * i, steps)
        p = data + load_offset(offsets + width * i, width)
        end = data + load_offset(offsets + width * (i + 1), width)
        while p < end:
            word = _next(p, end)
            slot = slots + 24 * _slot(word)
            meta = np.int64(load_u64(slot + 16))
            size = meta >> 8
            if (word & load_u64(slot + 8)) != load_u64(slot) or p + size > end:
                index = np.int64(word & np.uint64(0xFFFF))
                if p + 1 == end:
                    index = 65536 + (index & 255)
                meta = np.int64(load_u16(pairs + 2 * index))
            token = np.int64(meta & 255)
            if token == ESCAPE:
                token = np.int64(word & np.uint64(0xFF))
            else:
                token += 256
            store_u16(tokens + 2 * steps, token)
            steps += 1
            p += meta >> 8
    return steps
