"""Kernels that take single lists out of chunks; wrappers: ``glaive.kernels.list_takes``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import (
    BLOCK,
    fill_zero,
    inline_width,
    load_word,
    place_of_value,
    store_word,
    value_of_block,
)
from glaive.kernels.loops.level_bits import copy_bits
from glaive.kernels.loops.level_sets import (
    WINDOW,
    chunk_sets,
    count_set,
    find_begin,
    places_of_sets,
    put_validity,
)
from glaive.kernels.loops.list_levels import BROKEN, FLAT, INLINE, PAGE, TOO_MANY
from glaive.kernels.loops.list_rows import (
    AHEAD,
    HEAD,
    LINE,
    first_chunk_of_row,
    last_chunk_of_row,
)
from glaive.kernels.loops.memory import (
    copy,
    kernel,
    kernel_of,
    load_i64,
    load_u8,
    load_u64,
    prefetch,
    set_bit,
    store_u32,
    store_u64,
    wrapping_add,
    wrapping_sub,
)
from glaive.kernels.records import ChunkRows, TakeItemLists, offsets_of

TABLE = offsets_of(ChunkRows)
GROUP = 16
"""Rows whose values are asked for before any is read."""


@kernel
def locate_ascending(
    rows: int, wanted: int, table: int, begin: int, last: int, ids: int, capacity: int
) -> int:
    """Find the chunks of ascending rows; returns how many there are, -1 for other rows.

    ``ids`` receives up to ``capacity`` of them; ``begin`` and ``last`` receive the first and the
    last chunk of each row, as indices into all.
    """
    row_starts, enters = load_i64(table + TABLE.row_starts), load_i64(table + TABLE.enters)
    chunks = load_i64(table + TABLE.chunks)
    used, top, low = np.int64(0), np.int64(-1), np.int64(0)
    before = np.int64(0)
    for i in range(wanted):
        row = load_i64(rows + 8 * i)
        if row < before or row >= load_i64(row_starts + 8 * chunks):
            return BROKEN
        before = row
        low = first_chunk_of_row(row_starts, chunks, row, low)
        end = last_chunk_of_row(row_starts, enters, chunks, row, low)
        for chunk in range(max(low, top + 1), end + 1):
            if used < capacity:
                store_u64(ids + 8 * used, chunk)
            used += 1
        top = max(top, end)
        store_u64(begin + 8 * i, used - 1 - (top - low))
        store_u64(last + 8 * i, used - 1 - (top - end))
    return used


@kernel
def ask_for_run(data: int, start: int, size: int, page: int, index: int, data_size: int) -> None:
    """Have the processor fetch where a run of values begins."""
    bits = load_i64(page + PAGE.value_bits)
    byte = np.int64(0)
    if load_i64(page + PAGE.values) == INLINE and index < BLOCK:
        width = inline_width(data, data_size, start, size, bits)
        if width > 0:
            byte, _ = place_of_value(bits, width, index)
            byte += bits >> 3
            prefetch(wrapping_add(data, start + byte + 128))
    prefetch(wrapping_add(data, start + byte))


@kernel
def take_run(
    data: int, data_size: int, start: int, size: int, page: int, index: int, count: int,
    target: int,
) -> bool:  # fmt: skip
    """Read neighbouring values of one chunk; False where it does not hold them."""
    bits = load_i64(page + PAGE.value_bits)
    word = bits >> 3
    if load_i64(page + PAGE.values) == FLAT:
        if start < 0 or start > data_size or size > data_size - start:
            return False
        if index + count > size // word:
            return False
        copy(target, data + start + index * word, count * word)
        return True
    width = inline_width(data, data_size, start, size, bits)
    if width < 0 or index + count > BLOCK:
        return False
    if width == 0:
        fill_zero(target, count * word)
        return True
    block = data + start + word
    for i in range(count):
        store_word(bits, target + i * word, value_of_block(bits, block, width, index + i))
    return True


@kernel
def move_values(table: int, page: int, chunk: int, count: int, values: int) -> bool:
    """Add the base of their chunk to values; False where one is beyond its limit."""
    bases, limits = load_i64(table + TABLE.bases), load_i64(table + TABLE.limits)
    if limits == 0:
        return True
    bits = load_i64(page + PAGE.value_bits)
    base, limit = load_u64(bases + 8 * chunk), load_u64(limits + 8 * chunk)
    for i in range(count):
        at = values + i * (bits >> 3)
        value = load_word(bits, at)
        if value >= limit:
            return False
        store_word(bits, at, value + base)
    return True


@kernel
def take_values(
    data: int, data_size: int, table: int, page: int, ids: int, slot: int, last: int, place: int,
    count: int, buffer_starts: int, buffer_sizes: int, target: int,
) -> bool:  # fmt: skip
    """Read the values of one row, which may go on in the chunks that follow."""
    counts, word = load_i64(table + TABLE.counts), load_i64(page + PAGE.value_bits) >> 3
    while count > 0:
        if slot > last:
            return False
        here = min(load_i64(counts + 8 * load_i64(ids + 8 * slot)) - place, count)
        if here > 0:
            start, size = load_i64(buffer_starts + 8 * slot), load_i64(buffer_sizes + 8 * slot)
            if not take_run(data, data_size, start, size, page, place, here, target):
                return False
            if not move_values(table, page, load_i64(ids + 8 * slot), here, target):
                return False
            target += here * word
            count -= here
        slot += 1
        place = np.int64(0)
    return True


@kernel
def put_places(
    table: int, ids: int, slot: int, last: int, place: int, count: int, slots: int, positions: int
) -> bool:
    """Store where each value of one row lies, for values that other kernels read."""
    counts = load_i64(table + TABLE.counts)
    while count > 0:
        if slot > last:
            return False
        here = min(load_i64(counts + 8 * load_i64(ids + 8 * slot)) - place, count)
        for i in range(here):
            store_u64(slots + 8 * i, slot)
            store_u64(positions + 8 * i, place + i)
        if here > 0:
            slots += 8 * here
            positions += 8 * here
            count -= here
        slot += 1
        place = np.int64(0)
    return True


@kernel_of(TakeItemLists)
def take_item_lists(
    data: int, data_size: int, starts: int, table: int, page: int, rows: int, order: int,
    wanted: int, begin: int, last: int, places: int, lengths: int, firsts: int, nulls: int,
    back: int, ids: int, buffer_starts: int, buffer_sizes: int, chunk_capacity: int, sets: int,
    taken: int, taken_valid: int, value_capacity: int, offsets: int, width: int,
    list_valid: int, item_valid: int, values: int, slots: int, positions: int, result: int,
) -> int:  # fmt: skip
    """Collect ascending rows; row ``i`` becomes row ``order[i]`` where there is an order.

    Returns the number of items; negative where a chunk is broken, or a row is none of the page.
    ``TOO_MANY``: there are more chunks or items than there is room for. At ``result``: chunks,
    items, null lists, null items.
    """
    used = locate_ascending(rows, wanted, table, begin, last, ids, chunk_capacity)
    store_u64(result, used)
    store_u64(result + 8, value_capacity)
    if used < 0:
        return BROKEN
    if used > chunk_capacity:
        return TOO_MANY
    row_starts, enters = load_i64(table + TABLE.row_starts), load_i64(table + TABLE.enters)
    sizes, counts = load_i64(table + TABLE.sizes), load_i64(table + TABLE.counts)
    hidden, null_lists, null_items = places_of_sets(page, sets)
    reads_values = load_i64(page + PAGE.values) != 0
    word = load_i64(page + PAGE.value_bits) >> 3
    stride = 8 * chunk_capacity
    current, levels, words = np.int64(-1), np.int64(0), np.int64(0)
    first_row = np.int64(0)
    # Of the row found last in this chunk: where it begins, items and rows before it.
    found, found_place, found_nth = np.int64(0), np.int64(0), np.int64(0)
    done, lists_null, items_null = np.int64(0), np.int64(0), np.int64(0)
    for group in range(0, wanted, GROUP):
        group_end = min(group + GROUP, wanted)
        for i in range(group, group_end):
            slot, end = load_i64(begin + 8 * i), load_i64(last + 8 * i)
            store_u64(firsts + 8 * i, done)
            count = np.int64(0)
            low = np.int64(-1)
            while True:
                if slot != current:
                    number = load_i64(ids + 8 * slot)
                    if slot < used - AHEAD:
                        coming = load_i64(starts + 8 * load_i64(ids + 8 * (slot + AHEAD)))
                        for line in range(0, HEAD, LINE):
                            prefetch(wrapping_add(wrapping_add(data, coming), line))
                    first_row = load_i64(row_starts + 8 * number)
                    levels = chunk_sets(
                        data=data, data_size=data_size, start=load_i64(starts + 8 * number),
                        chunk_size=load_i64(sizes + 8 * number), page=page,
                        count=load_i64(counts + 8 * number),
                        rows=wrapping_sub(load_i64(row_starts + 8 * number + 8), first_row),
                        enters=np.int64(load_u8(enters + number)),
                        buffer_starts=buffer_starts + 8 * slot,
                        buffer_sizes=buffer_sizes + 8 * slot, stride=stride, sets=sets,
                    )  # fmt: skip
                    if levels < 0:
                        return levels
                    current = slot
                    words = (levels + WINDOW - 1) >> 6
                    found, found_place, found_nth = np.int64(0), np.int64(0), np.int64(0)
                fresh = low < 0
                high = np.int64(0)
                if fresh:
                    nth = wrapping_sub(load_i64(rows + 8 * i), first_row)
                    if nth < found_nth:
                        return BROKEN
                    low = find_begin(sets, words, found, nth - found_nth)
                    if low < 0:
                        return BROKEN
                    place = found_place + low - found - count_set(hidden, found, low)
                    found, found_place, found_nth = low, place, nth
                    store_u64(places + 8 * i, place)
                    null = np.int64(0)
                    if null_lists != 0:
                        null = count_set(null_lists, low, low + 1)
                    store_u64(nulls + 8 * i, null)
                    lists_null += null
                    high = low + 1
                else:
                    low = np.int64(0)
                high = find_begin(sets, words, high, 0)
                if high < 0:
                    high = levels
                shown = high - low - count_set(hidden, low, high)
                if null_items != 0 and shown <= value_capacity - done - count:
                    items_null += count_set(null_items, low, high)
                    put_validity(null_items, hidden, low, high, taken_valid, done + count)
                count += shown
                if slot == end:
                    break
                if high < levels:
                    return BROKEN
                slot += 1
            store_u64(lengths + 8 * i, count)
            done += count
            if reads_values and done <= value_capacity:
                slot = load_i64(begin + 8 * i)
                ask_for_run(
                    data, load_i64(buffer_starts + 8 * slot), load_i64(buffer_sizes + 8 * slot),
                    page, load_i64(places + 8 * i), data_size,
                )  # fmt: skip
        if reads_values and done <= value_capacity:
            for i in range(group, group_end):
                good = take_values(
                    data=data, data_size=data_size, table=table, page=page, ids=ids,
                    slot=load_i64(begin + 8 * i), last=load_i64(last + 8 * i),
                    place=load_i64(places + 8 * i), count=load_i64(lengths + 8 * i),
                    buffer_starts=buffer_starts, buffer_sizes=buffer_sizes,
                    target=taken + load_i64(firsts + 8 * i) * word,
                )  # fmt: skip
                if not good:
                    return BROKEN
    store_u64(result + 8, done)
    if done > value_capacity:
        return TOO_MANY
    if order != 0:
        for i in range(wanted):
            store_u64(back + 8 * i, -1)
        for i in range(wanted):
            place = load_i64(order + 8 * i)
            if place < 0 or place >= wanted or load_i64(back + 8 * place) != -1:
                return BROKEN
            store_u64(back + 8 * place, i)
    if null_lists != 0:
        fill_zero(list_valid, (wanted + 7) >> 3)
    seen = np.int64(0)
    for at in range(wanted):
        i = np.int64(at)
        if order != 0:
            i = load_i64(back + 8 * at)
        if width == 4:
            store_u32(offsets + 4 * at, seen)
        else:
            store_u64(offsets + 8 * at, seen)
        count = load_i64(lengths + 8 * i)
        if null_lists != 0 and load_i64(nulls + 8 * i) == 0:
            set_bit(list_valid, at)
        if order != 0 and reads_values:
            copy(values + seen * word, taken + load_i64(firsts + 8 * i) * word, count * word)
        if order != 0 and null_items != 0:
            copy_bits(taken_valid, load_i64(firsts + 8 * i), count, item_valid, seen)
        if not reads_values and not put_places(
            table, ids, load_i64(begin + 8 * i), load_i64(last + 8 * i), load_i64(places + 8 * i),
            count, slots + 8 * seen, positions + 8 * seen,
        ):  # fmt: skip
            return BROKEN
        seen += count
    if width == 4:
        store_u32(offsets + 4 * wanted, seen)
    else:
        store_u64(offsets + 8 * wanted, seen)
    store_u64(result + 16, lists_null)
    store_u64(result + 24, items_null)
    return done
