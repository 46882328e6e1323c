"""Compiled kernels over levels, 64 at a time; their wrappers are in ``glaive.kernels.levels``.

Vector comparisons give three bits per entry: it begins a list, has a slot, is visible. A loop then
visits only the entries that begin a list.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    levels_above,
    load_u16,
    load_u64,
    low_bits,
    popcount,
    store_u16,
    store_u32,
    store_u64,
    trailing_zeros,
)


@kernel
def append_bits(target: int, filled: int, bits: np.uint64, count: int) -> None:
    """Append ``count`` ≤ 64 bits at bit ``filled``; stores whole words.

    Bits of ``bits`` from ``count`` on must be 0. Writes at most 16 bytes from the word of
    bit ``filled`` on.
    """
    at = target + (filled >> 6) * 8
    used = filled & 63
    if used == 0:
        store_u64(at, bits)
        return
    store_u64(at, load_u64(at) | (bits << np.uint64(used)))
    if used + count > 64:
        store_u64(at + 8, bits >> np.uint64(64 - used))


@kernel
def copy_bits(source: int, first: int, count: int, target: int, filled: int) -> None:
    """Append bits of another bitmap, which has a word after its last bit."""
    while count > 0:
        part = min(count, 64)
        shift = first & 63
        at = source + 8 * (first >> 6)
        bits = load_u64(at) >> np.uint64(shift)
        if shift + part > 64:
            bits |= load_u64(at + 8) << np.uint64(64 - shift)
        append_bits(target, filled, bits & low_bits(part), part)
        first += part
        filled += part
        count -= part


WINDOW = 64
ANY_LEVEL = 65535


@kernel
def above(levels: int, count: int, limit: int) -> np.uint64:
    """Return bits: whether level ``i`` of ``count`` ≤ 64 is above ``limit``."""
    if count == WINDOW:
        return levels_above(levels, limit)
    bits = np.uint64(0)
    for i in range(count):
        if np.int64(load_u16(levels + 2 * i)) > limit:
            bits |= np.uint64(1) << np.uint64(i)
    return bits


@kernel
def equal(levels: int, count: int, level: int) -> np.uint64:
    """Return bits: whether level ``i`` of ``count`` ≤ 64 is ``level`` ≥ 1."""
    return above(levels, count, level - 1) & ~above(levels, count, level)


@kernel
def valid_slots(null: np.uint64, slot: np.uint64, slots: int) -> np.uint64:
    """Return adjacent bits for the entries with a bit in ``slot``: 0 where ``null`` has a bit."""
    if slots == 0:
        return np.uint64(0)
    bits = low_bits(slots)
    if slots == WINDOW:
        return ~null
    null &= slot
    while null != np.uint64(0):
        lowest = null & (~null + np.uint64(1))
        bits ^= np.uint64(1) << popcount(slot & (lowest - np.uint64(1)))
        null ^= lowest
    return bits


@kernel
def put_offsets(
    begin: np.uint64, visible: np.uint64, before: int, offsets: int, width: int
) -> None:
    """Store the visible entries before each entry that has a bit in ``begin``.

    Store four at a time, up to three too many: a loop with an unpredictable end costs more.
    """
    one = np.uint64(1)
    at = offsets
    while begin != np.uint64(0):
        for _ in range(4):
            below = ~begin & (begin - one)
            begin &= begin - one
            offset = before + np.int64(popcount(visible & below))
            if width == 4:
                store_u32(at, offset)
            else:
                store_u64(at, offset)
            at += width


@kernel
def resolve_lists(
    rep: int, definition: int, entries: int, visible_max: int, resolved_max: int, slot_max: int,
    null_level: int, offsets: int, width: int, valid: int, next_rep: int, next_def: int,
    capacity: int,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Resolve one list layer; return (slots, entries for outer layers, visible items, nulls).

    There is room for ``capacity`` slots. Return -1 slots if there are more, or if an entry without
    a slot continues a list or is continued.
    """
    slots = np.int64(0)
    outer = np.int64(0)
    seen = np.int64(0)
    nulls = np.int64(0)
    every = ~np.uint64(0)
    # Whether the entry before lacks a slot.
    closed = np.uint64(0)
    done = np.int64(0)
    while done < entries:
        count = np.int64(min(entries - done, WINDOW))
        here = low_bits(count)
        starts = above(rep + 2 * done, count, 0)
        slot = starts
        visible = every
        levels = definition + 2 * done
        if definition != 0:
            visible = ~above(levels, count, visible_max)
            if slot_max < ANY_LEVEL:
                without = above(levels, count, slot_max)
                if (without | (without << np.uint64(1)) | closed) & ~starts & here != np.uint64(0):
                    return np.int64(-1), outer, seen, nulls
                closed = without >> np.uint64(WINDOW - 1)
                slot &= ~without
        visible &= here
        new = np.int64(popcount(slot))
        if slots + new > capacity:
            return np.int64(-1), outer, seen, nulls
        put_offsets(slot, visible, seen, offsets + slots * width, width)
        if null_level != 0:
            null = slot & equal(levels, count, null_level)
            nulls += np.int64(popcount(null))
            if new > 0:
                append_bits(valid, slots, valid_slots(null, slot, new), new)
        while next_rep != 0 and starts != np.uint64(0):
            at = done + np.int64(trailing_zeros(starts))
            starts &= starts - np.uint64(1)
            d = np.int64(0)
            if definition != 0:
                d = np.int64(load_u16(definition + 2 * at))
            store_u16(next_rep + 2 * outer, np.int64(load_u16(rep + 2 * at)) - 1)
            store_u16(next_def + 2 * outer, d if d > resolved_max else 0)
            outer += 1
        slots += new
        seen += np.int64(popcount(visible))
        done += count
    if width == 4:
        store_u32(offsets + 4 * slots, seen)
    else:
        store_u64(offsets + 8 * slots, seen)
    return slots, outer, seen, nulls


@kernel
def validity(
    definition: int, entries: int, slot_max: int, null_level: int, valid: int
) -> tuple[int, int]:
    """Append one bit per entry that has a slot: 0 at ``null_level``; return (slots, nulls)."""
    slots = np.int64(0)
    nulls = np.int64(0)
    done = np.int64(0)
    while done < entries:
        count = np.int64(min(entries - done, WINDOW))
        levels = definition + 2 * done
        slot = low_bits(count)
        if slot_max < ANY_LEVEL:
            slot &= ~above(levels, count, slot_max)
        null = slot & equal(levels, count, null_level)
        new = np.int64(popcount(slot))
        if new > 0:
            nulls += np.int64(popcount(null))
            append_bits(valid, slots, valid_slots(null, slot, new), new)
        slots += new
        done += count
    return slots, nulls
