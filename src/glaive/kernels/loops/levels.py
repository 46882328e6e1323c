"""Compiled kernels over levels, 64 at a time; their wrappers are in ``glaive.kernels.levels``.

Vector comparisons give three bits per entry: it begins a list, has a slot, is visible. A loop then
visits only the entries that begin a list.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, inline_width, tail_is_packed
from glaive.kernels.loops.memory import (
    bit_of_row,
    kernel,
    levels_above,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    low_bits,
    popcount,
    store_u16,
    store_u32,
    store_u64,
    trailing_zeros,
)

# --- Decode levels of 0 and 1 to validity bits; wrappers: ``glaive.kernels.levels`` -----
#
# Bit ``r`` of the 64 words of a one-bit block is 64 neighbouring levels: sixteen stores make the
# bitmap of 1,024 levels.


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


@kernel
def level_bits_of_block(source: int, width: int, count: int, target: int, filled: int) -> int:
    """Append the validity of one packed level block; return the number of levels above 0."""
    nulls = 0
    done = 0
    while done < count:
        take = min(count - done, 64)
        levels = np.uint64(0)
        if width == 1:
            part = done >> 6
            levels = bit_of_row(source, (part >> 1) + ((part & 1) << 3)) & low_bits(take)
        nulls += np.int64(popcount(levels))
        append_bits(target, filled + done, levels ^ low_bits(take), take)
        done += take
    return nulls


@kernel
def level_bits_of_words(source: int, count: int, target: int, filled: int) -> int:
    """Append the validity of plain levels; return the number of 1, or -1 if any is above 1."""
    nulls = 0
    done = 0
    while done < count:
        take = min(count - done, 64)
        levels = np.uint64(0)
        if take == 64:
            if levels_above(source + done * 2, 1) != np.uint64(0):
                return -1
            levels = levels_above(source + done * 2, 0)
        else:
            for i in range(take):
                level = np.uint64(load_u16(source + (done + i) * 2))
                if level > np.uint64(1):
                    return -1
                levels |= level << np.uint64(i)
        nulls += np.int64(popcount(levels))
        append_bits(target, filled + done, levels ^ low_bits(take), take)
        done += take
    return nulls


@kernel
def validity_inline(
    data: int, data_size: int, starts: int, sizes: int, counts: int, chunks: int, target: int,
    values: int, result: int,
) -> int:  # fmt: skip
    """Append the validity of chunks; store the null count at ``result``, -1 for wider levels."""
    done = 0
    nulls = 0
    for i in range(chunks):
        start = load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        width = inline_width(data, data_size, start, load_i64(sizes + i * 8), 16)
        if width < 0 or count < 0 or count > BLOCK or count > values - done:
            return i
        if width > 1:
            store_u64(result, -1)
            return -1
        nulls += level_bits_of_block(data + start + 2, width, count, target, done)
        done += count
    store_u64(result, nulls)
    return -1


@kernel
def validity_out_of_line(
    data: int, starts: int, counts: int, chunks: int, width: int, target: int, result: int
) -> None:
    """As ``validity_inline`` for blocks of width 0 or 1, or of plain levels (width 16)."""
    done = 0
    nulls = 0
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        remaining = load_i64(counts + i * 8)
        while width < 16 and (remaining >= BLOCK or tail_is_packed(remaining, 16, width)):
            part = min(remaining, BLOCK)
            nulls += level_bits_of_block(source, width, part, target, done)
            source += width * 128
            done += part
            remaining -= part
        chunk_nulls = level_bits_of_words(source, remaining, target, done)
        if chunk_nulls < 0:
            store_u64(result, -1)
            return
        nulls += chunk_nulls
        done += remaining
    store_u64(result, nulls)


@kernel
def validity_of_runs(
    data: int, values: int, lengths: int, runs: int, counts: int, chunks: int, target: int,
    result: int,
) -> int:  # fmt: skip
    """Append the validity of runs of levels; return the first chunk with a wrong sum.

    Store the null count at ``result``, -1 when there are levels above 1.
    """
    done = np.int64(0)
    nulls = np.int64(0)
    for i in range(chunks):
        value_at = data + load_i64(values + i * 8)
        length_at = data + load_i64(lengths + i * 8)
        remaining = load_i64(counts + i * 8)
        for j in range(load_i64(runs + i * 8)):
            length = np.int64(load_u8(length_at + j))
            level = np.int64(load_u16(value_at + 2 * j))
            remaining -= length
            if remaining < 0:
                return i
            if level > 1:
                store_u64(result, -1)
                return -1
            nulls += level * length
            while length > 0:
                part = np.int64(min(length, 64))
                bits = np.uint64(0)
                if level == 0:
                    bits = low_bits(part)
                append_bits(target, done, bits, part)
                done += part
                length -= part
        if remaining != 0:
            return i
    store_u64(result, nulls)
    return -1


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


# --- Compiled kernels that walk levels chunk by chunk; wrappers: ``glaive.kernels.levels``
#
# Levels are compared 64 at a time; bit ``i`` of a mask stands for level ``i``.
