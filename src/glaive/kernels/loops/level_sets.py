"""Levels of a chunk as sets of bits: 64 entries to a word, for pages with one layer of lists.

There are four sets, ``SET`` bytes each: entries that begin a row, entries that are not visible,
null lists and null items. Memory for levels that are compared one by one follows.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, tail_is_packed
from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.levels import above, valid_slots
from glaive.kernels.loops.list_levels import (
    BROKEN,
    PACKED,
    PAGE,
    RUNS,
    chunk_buffers,
    decode_levels,
)
from glaive.kernels.loops.memory import (
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    popcount,
    store_u64,
    trailing_zeros,
)
from glaive.kernels.loops.rows import bit_of_row

SET = 8 * 1024 + 64
"""Bytes of a set: a chunk has 65,535 levels at most."""

HIDDEN, NULL_LISTS, NULL_ITEMS, LEVELS = SET, 2 * SET, 3 * SET, 4 * SET
WINDOW = 64
PARTS = BLOCK // WINDOW


@kernel
def set_word(set_of_entries: int, word: int) -> np.uint64:
    """64 bits of a set; none where its address is 0."""
    return load_u64(set_of_entries + 8 * word) if set_of_entries != 0 else np.uint64(0)


@kernel
def set_range(target: int, first: int, length: int) -> None:
    """Set some bits."""
    while length > 0:
        at = target + 8 * (first >> 6)
        shift = first & 63
        part = min(length, WINDOW - shift)
        store_u64(at, load_u64(at) | low_bits(part) << np.uint64(shift))
        first += part
        length -= part


@kernel
def ones_of_words(levels: int, count: int, target: int) -> bool:
    """Bit ``i``: whether plain level ``i`` is 1; False when one is above."""
    for done in range(0, count, WINDOW):
        part = np.int64(min(count - done, WINDOW))
        if above(levels + 2 * done, part, 1) != np.uint64(0):
            return False
        store_u64(target + (done >> 3), above(levels + 2 * done, part, 0))
    return True


@kernel
def ones_of_blocks(source: int, size: int, count: int, width: int, target: int) -> bool:
    """As ``ones_of_words``, for packed levels of width 0 or 1: no level is unpacked."""
    blocks = count >> 10
    tail = count & (BLOCK - 1)
    packed = tail_is_packed(tail, 16, width)
    if size != (blocks + packed) * width * 128 + (0 if packed else 2 * tail):
        return False
    if width == 0:
        fill_zero(target, (count + WINDOW - 1) >> 6 << 3)
        return True
    for _ in range(blocks + packed):
        for part in range(PARTS):
            ones = bit_of_row(source, (part >> 1) + ((part & 1) << 3))
            store_u64(target + 8 * part, ones)
        source += BLOCK // 8
        target += BLOCK // 8
    if not packed:
        return ones_of_words(source, tail, target)
    if count & (WINDOW - 1):
        last = target - BLOCK // 8 + 8 * (tail >> 6)
        store_u64(last, load_u64(last) & low_bits(count & (WINDOW - 1)))
    return True


@kernel
def ones_of_runs(source: int, size: int, count: int, target: int) -> bool:
    """As ``ones_of_words``, for runs: those of 0 cost a step, however long they are."""
    if size < 8:
        return False
    head = load_i64(source)
    if head < 0 or head > size - 8 or head != 2 * (size - 8 - head):
        return False
    fill_zero(target, (count + WINDOW - 1) >> 6 << 3)
    lengths = source + 8 + head
    at = np.int64(0)
    for run in range(head >> 1):
        length = np.int64(load_u8(lengths + run))
        level = np.int64(load_u16(source + 8 + 2 * run))
        if length > count - at or level > 1:
            return False
        if level != 0:
            set_range(target, at, length)
        at += length
    return at == count


@kernel
def level_ones(
    data: int, start: int, size: int, count: int, encoding: int, width: int, scratch: int,
    target: int,
) -> bool:  # fmt: skip
    """Decode levels of 0 and 1 to bits; False when they are damaged, or others."""
    if encoding == PACKED and width <= 1:
        return ones_of_blocks(data + start, size, count, width, target)
    if encoding == RUNS:
        return ones_of_runs(data + start, size, count, target)
    if not decode_levels(data, start, size, count, encoding, width, scratch):
        return False
    return ones_of_words(scratch, count, target)


@kernel
def sets_of_levels(levels: int, count: int, page: int, sets: int) -> bool:
    """Compare definition levels of 0 to 3; False when one is above what the page allows."""
    visible_max, max_def = load_i64(page + PAGE.visible_max), load_i64(page + PAGE.max_def)
    null_list, null_item = load_i64(page + PAGE.null_list), load_i64(page + PAGE.null_item)
    for done in range(0, count, WINDOW):
        part = np.int64(min(count - done, WINDOW))
        here, at = levels + 2 * done, sets + (done >> 3)
        if above(here, part, max_def) != np.uint64(0):
            return False
        store_u64(at + HIDDEN, above(here, part, visible_max))
        if null_list != 0:
            store_u64(
                at + NULL_LISTS, above(here, part, null_list - 1) & ~above(here, part, null_list)
            )
        if null_item != 0:
            store_u64(
                at + NULL_ITEMS, above(here, part, null_item - 1) & ~above(here, part, null_item)
            )
    return True


@kernel
def places_of_sets(page: int, sets: int) -> tuple[np.int64, np.int64, np.int64]:
    """Where entries that are not visible, null lists and null items are; 0 for none.

    Where levels are 0 and 1 there is a single set, whatever 1 stands for.
    """
    visible_max, max_def = load_i64(page + PAGE.visible_max), load_i64(page + PAGE.max_def)
    null_list, null_item = load_i64(page + PAGE.null_list), load_i64(page + PAGE.null_item)
    single = np.int64(max_def == 1)
    hidden, lists, items = np.int64(0), np.int64(0), np.int64(0)
    if load_i64(page + PAGE.definition) == 0:
        return hidden, lists, items
    if visible_max < max_def:
        hidden = np.int64(sets + HIDDEN)
    if null_list != 0:
        lists = np.int64(sets + (HIDDEN if single else NULL_LISTS))
    if null_item != 0:
        items = np.int64(sets + (HIDDEN if single else NULL_ITEMS))
    return hidden, lists, items


@kernel
def chunk_sets(
    data: int, data_size: int, start: int, chunk_size: int, page: int, count: int, rows: int,
    enters: int, buffer_starts: int, buffer_sizes: int, stride: int, sets: int,
) -> int:  # fmt: skip
    """Parse one chunk's header and decode its levels to sets; returns how many there are.

    Negative when it is broken. The other arguments are those of ``list_levels.chunk_levels``.
    """
    levels, rep_at, rep_size, def_at, def_size = chunk_buffers(
        data=data, data_size=data_size, start=start, chunk_size=chunk_size, page=page,
        buffer_starts=buffer_starts, buffer_sizes=buffer_sizes, stride=stride,
    )  # fmt: skip
    if levels < 1:
        return BROKEN
    scratch = sets + LEVELS
    encoding, width = load_i64(page + PAGE.rep), load_i64(page + PAGE.rep_width)
    if not level_ones(data, rep_at, rep_size, levels, encoding, width, scratch, sets):
        return BROKEN
    encoding, width = load_i64(page + PAGE.definition), load_i64(page + PAGE.def_width)
    if load_i64(page + PAGE.max_def) == 1 and encoding != 0:
        if not level_ones(data, def_at, def_size, levels, encoding, width, scratch, sets + HIDDEN):
            return BROKEN
    elif encoding != 0:
        if not decode_levels(data, def_at, def_size, levels, encoding, width, scratch):
            return BROKEN
        if not sets_of_levels(scratch, levels, page, sets):
            return BROKEN
    hidden, _, _ = places_of_sets(page, sets)
    found, visible = np.int64(0), levels
    for word in range((levels + WINDOW - 1) >> 6):
        found += np.int64(popcount(load_u64(sets + 8 * word)))
        visible -= np.int64(popcount(set_word(hidden, word)))
    if found != rows or visible != count:
        return BROKEN
    if (load_u64(sets) & np.uint64(1) == np.uint64(0)) != (enters != 0):
        return BROKEN
    return levels


@kernel
def find_begin(sets: int, words: int, first: int, nth: int) -> np.int64:
    """The entry from ``first`` on that begins the list number ``nth``, from 0; -1 for none."""
    remaining = np.int64(nth)
    word = first >> 6
    begin = np.uint64(0)
    if word < words:
        begin = load_u64(sets + 8 * word) & (~np.uint64(0) << np.uint64(first & 63))
    while word < words:
        here = np.int64(popcount(begin))
        if remaining < here:
            while remaining > 0:
                begin &= begin - np.uint64(1)
                remaining -= 1
            return np.int64((word << 6) + np.int64(trailing_zeros(begin)))
        remaining -= here
        word += 1
        if word < words:
            begin = load_u64(sets + 8 * word)
    return np.int64(-1)


@kernel
def count_set(entries: int, first: int, stop: int) -> np.int64:
    """Entries of a set from ``first`` up to ``stop``; 0 where its address is 0."""
    total = np.int64(0)
    if entries == 0:
        return total
    while first < stop:
        part = min(stop - first, WINDOW - (first & 63))
        bits = load_u64(entries + 8 * (first >> 6)) >> np.uint64(first & 63)
        total += np.int64(popcount(bits & low_bits(part)))
        first += part
    return total


@kernel
def put_validity(nulls: int, hidden: int, first: int, stop: int, valid: int, seen: int) -> None:
    """Append one bit for each visible entry from ``first`` up to ``stop``: 0 for null items."""
    while first < stop:
        shift = np.uint64(first & 63)
        part = min(stop - first, WINDOW - (first & 63))
        word = first >> 6
        visible = (~set_word(hidden, word) >> shift) & low_bits(part)
        null = (set_word(nulls, word) >> shift) & visible
        shown = np.int64(popcount(visible))
        if shown > 0:
            append_bits(valid, seen, valid_slots(null, visible, shown), shown)
        seen += shown
        first += part
