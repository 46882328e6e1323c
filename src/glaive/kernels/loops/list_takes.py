"""Kernels that take single lists out of chunks; wrappers: ``glaive.kernels.list_takes``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, tail_is_packed, take_inline
from glaive.kernels.loops.flat import take_items
from glaive.kernels.loops.levels import above, append_bits, copy_bits, valid_slots
from glaive.kernels.loops.list_levels import (
    AHEAD,
    BROKEN,
    FLAT,
    HEAD,
    INLINE,
    LINE,
    PACKED,
    PAGE,
    RUNS,
    TOO_MANY,
    chunk_buffers,
    decode_levels,
    first_chunk_of_row,
    last_chunk_of_row,
)
from glaive.kernels.loops.memory import (
    bit_of_row,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    low_bits,
    popcount,
    prefetch,
    set_bit,
    store_u32,
    store_u64,
    trailing_zeros,
    wrapping_add,
    wrapping_sub,
)
from glaive.kernels.records import ChunkRows, offsets_of

# --- Levels of a chunk as sets of bits: 64 entries to a word, for pages with one layer of lists
#
# There are four sets, ``SET`` bytes each: entries that begin a row, invisible entries, null lists
# and null items. Memory for levels that are compared one by one follows.

SET = 8 * 1024 + 64
"""Bytes of a set: a chunk has 65,535 levels at most."""

HIDDEN, NULL_LISTS, NULL_ITEMS, LEVELS = SET, 2 * SET, 3 * SET, 4 * SET
WINDOW = 64
PARTS = BLOCK // WINDOW


@kernel
def set_word(set_of_entries: int, word: int) -> np.uint64:
    """Return 64 bits of a set, all 0 where its address is 0."""
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
    """Store bits: whether plain level ``i`` is 1; return ``False`` when one is above."""
    for done in range(0, count, WINDOW):
        part = np.int64(min(count - done, WINDOW))
        if above(levels + 2 * done, part, 1) != np.uint64(0):
            return False
        store_u64(target + (done >> 3), above(levels + 2 * done, part, 0))
    return True


@kernel
def ones_of_blocks(source: int, size: int, count: int, width: int, target: int) -> bool:
    """Store bits as ``ones_of_words``, for packed levels of width 0 or 1, which stay packed."""
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
    """Store bits as ``ones_of_words``, for runs: a run of 0 of any length takes one step."""
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
    """Decode levels of 0 and 1 to bits; ``False`` when they are damaged, or above 1."""
    if encoding == PACKED and width <= 1:
        return ones_of_blocks(data + start, size, count, width, target)
    if encoding == RUNS:
        return ones_of_runs(data + start, size, count, target)
    if not decode_levels(data, start, size, count, encoding, width, scratch):
        return False
    return ones_of_words(scratch, count, target)


@kernel
def sets_of_levels(levels: int, count: int, page: int, sets: int) -> bool:
    """Compare definition levels of 0 to 3; ``False`` when one is above the page's maximum."""
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
    """Return the addresses of the sets of invisible entries, null lists and null items, or 0.

    Levels of 0 and 1 have a single set, for any meaning of 1.
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
    """Parse one chunk's header and decode its levels to sets; return how many there are.

    Return a negative number when the chunk is broken. Other arguments are as for
    ``list_levels.chunk_levels``.
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
    """Return the entry from ``first`` on that begins list ``nth``, counted from 0, or -1."""
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
    """Count the entries of a set from ``first`` up to ``stop``; 0 where its address is 0."""
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


TABLE = offsets_of(ChunkRows)


@kernel
def locate_ascending(
    rows: int, wanted: int, table: int, begin: int, last: int, ids: int, capacity: int
) -> int:
    """Find the chunks of ascending rows; return how many there are, -1 for other rows.

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
def put_places(
    table: int, ids: int, slot: int, last: int, place: int, count: int, slots: int, positions: int
) -> bool:
    """Store the place of each value of one row, for values that other kernels read."""
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


@kernel
def take_item_lists(
    data: int, data_size: int, starts: int, table: int, page: int, rows: int, order: int,
    wanted: int, begin: int, last: int, places: int, lengths: int, firsts: int, nulls: int,
    back: int, ids: int, buffer_starts: int, buffer_sizes: int, chunk_capacity: int, sets: int,
    taken_valid: int, value_capacity: int, offsets: int, width: int, list_valid: int,
    item_valid: int, slots: int, positions: int, values: int, result: int,
) -> int:  # fmt: skip
    """Collect ascending rows; row ``i`` becomes row ``order[i]`` if an order is given.

    Return the number of items, or a negative number: a chunk is broken, or a row is outside the
    page. ``TOO_MANY``: there are more chunks or items than the memory has room for. Store chunks,
    items, null lists and null items at ``result``.
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
    stride = 8 * chunk_capacity
    current, levels, words = np.int64(-1), np.int64(0), np.int64(0)
    first_row = np.int64(0)
    # The last row found in this chunk: its begin, and the items and rows before it.
    found, found_place, found_nth = np.int64(0), np.int64(0), np.int64(0)
    done, lists_null, items_null = np.int64(0), np.int64(0), np.int64(0)
    for i in range(wanted):
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
        if order != 0 and null_items != 0:
            copy_bits(taken_valid, load_i64(firsts + 8 * i), count, item_valid, seen)
        if not put_places(
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
    form, bits = load_i64(page + PAGE.values), load_i64(page + PAGE.value_bits)
    bad = np.int64(-1)
    if form == INLINE:
        bad = take_inline(
            data=data, data_size=data_size, starts=buffer_starts, sizes=buffer_sizes, chunks=used,
            chunk=slots, index=positions, values=done, word_bits=bits, target=values,
        )  # fmt: skip
    elif form == FLAT:
        bad = take_items(
            data=data, data_size=data_size, starts=buffer_starts, sizes=buffer_sizes, chunks=used,
            chunk=slots, index=positions, wanted=done, bits=bits, target=values,
        )  # fmt: skip
    return done if bad < 0 else BROKEN
