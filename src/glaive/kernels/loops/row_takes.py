"""Kernels that take rows out of pages without lists; wrapper: ``glaive.kernels.row_takes``.

Rows at random places are in no cache of the processor: it would wait for the chunk of each, for
its value, its text, the symbols of that. So rows are taken in groups, step by step: each step asks
for what the next one reads, of all rows of the group, before any is read.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import fill_zero, store_word
from glaive.kernels.loops.list_levels import BROKEN
from glaive.kernels.loops.memory import kernel, kernel_of, load_i64, set_bit, store_u16, store_u64
from glaive.kernels.loops.offsets import store_offset
from glaive.kernels.loops.row_places import (
    LINE,
    PLACE_BYTES,
    TABLE,
    TOO_LITTLE,
    find_chunk,
    find_page,
    level_of_row,
    open_chunk,
    word_of_row,
)
from glaive.kernels.loops.row_texts import (
    CODES,
    STRINGS,
    ask_for_symbols,
    find_item,
    find_text,
    put_text,
)
from glaive.kernels.records import offsets_of
from glaive.kernels.take_records import RowTable, TakenColumn, TakeRows

__all__ = ["take_rows"]

TAKEN = offsets_of(TakenColumn)
TAKEN_BYTES = 8 * len(TakenColumn._fields)
TABLE_BYTES = 8 * len(RowTable._fields)
GROUP = 32
"""Rows that are taken at a time: about as much as the processor fetches at once."""


@kernel
def _take_column(
    table: int, rows: int, wanted: int, memory: int, at: int, room: int, scratch: int, pages: int,
    are_known: int, taken: int,
) -> np.int64:  # fmt: skip
    """Take the rows of one column; returns where its memory ends, or what ``take_rows`` returns.

    The memory of the column begins at ``at``; there are ``room`` bytes in all. ``pages`` receives
    the page of each row, or has them already where they ``are_known``.
    """
    values, bits = load_i64(table + TABLE.values), load_i64(table + TABLE.bits)
    item_width, has_levels = load_i64(table + TABLE.item_width), load_i64(table + TABLE.definition)
    nullable, max_def = load_i64(table + TABLE.nullable), load_i64(table + TABLE.max_def)
    strings = item_width != 0 or values >= STRINGS
    validity = offsets = levels = np.int64(-1)
    width = item_width if item_width != 0 else bits >> 3
    # Memory of every part begins with a line.
    fixed = ((wanted + 1) * width if strings else (wanted * bits + 7) >> 3) + 2 * LINE & ~(LINE - 1)
    more = 2 * wanted + 2 * LINE & ~(LINE - 1)
    if fixed > room - at or (has_levels != 0 and more > room - at - fixed):
        return np.int64(TOO_LITTLE)
    if has_levels != 0:
        if nullable != 0:
            validity = np.int64(at)
            fill_zero(memory + validity, (wanted + 7) >> 3)
        else:
            levels = np.int64(at)
        at += more
    target = memory + at
    if strings:
        offsets = np.int64(at)
        store_offset(target, width, 0)
    elif bits == 1:
        fill_zero(target, (wanted + 7) >> 3)
    first = np.int64(at + fixed) if strings else np.int64(at)
    at += fixed
    nulls = np.int64(0)
    for group in range(0, wanted, GROUP):
        stop = min(wanted, group + GROUP)
        for i in range(group, stop):
            page = load_i64(pages + 8 * i) if are_known != 0 else np.int64(-1)
            page = find_page(
                table, load_i64(rows + 8 * i), page, scratch + PLACE_BYTES * (i - group)
            )
            if page < 0:
                return np.int64(BROKEN)
            store_u64(pages + 8 * i, page)
        for i in range(group, stop):
            if not find_chunk(table, scratch + PLACE_BYTES * (i - group)):
                return np.int64(BROKEN)
        for i in range(group, stop):
            if not open_chunk(table, scratch + PLACE_BYTES * (i - group)):
                return np.int64(BROKEN)
        for i in range(group, stop):
            place = scratch + PLACE_BYTES * (i - group)
            if has_levels != 0:
                level = level_of_row(table, place)
                if level < 0 or level > max_def:
                    return np.int64(BROKEN)
                if nullable == 0:
                    store_u16(memory + levels + 2 * i, level)
                elif level == 0:
                    set_bit(memory + validity, i)
                else:
                    nulls += 1
            if item_width != 0:
                if not find_item(table, place):
                    return np.int64(BROKEN)
            elif strings:
                if not find_text(table, place):
                    return np.int64(BROKEN)
            else:
                word, good = word_of_row(table, place)
                if not good:
                    return np.int64(BROKEN)
                if bits > 1:
                    store_word(bits, target + i * (bits >> 3), word)
                elif word != np.uint64(0):
                    set_bit(target, i)
        if values == CODES:
            for i in range(group, stop):
                ask_for_symbols(table, scratch + PLACE_BYTES * (i - group))
        if strings:
            for i in range(group, stop):
                place = scratch + PLACE_BYTES * (i - group)
                size = put_text(table, place, memory + at, room - at)
                if size < 0:
                    return size
                at += size
                store_offset(target + width * (i + 1), width, at - first)
    store_u64(taken + TAKEN.values, first)
    store_u64(taken + TAKEN.size, at - first if strings else (wanted * bits + 7) >> 3)
    store_u64(taken + TAKEN.offsets, offsets)
    store_u64(taken + TAKEN.validity, validity if nulls > 0 else np.int64(-1))
    store_u64(taken + TAKEN.nulls, nulls)
    store_u64(taken + TAKEN.levels, levels)
    return at


@kernel_of(TakeRows)
def take_rows(
    tables: int, columns: int, rows: int, wanted: int, memory: int, room: int, scratch: int,
    pages: int, taken: int,
) -> int:  # fmt: skip
    """Take rows of several columns, one after the other, into one piece of memory.

    ``scratch`` has room for ``GROUP`` places, ``taken`` receives a ``TakenColumn`` for each.
    Returns the bytes used; ``BROKEN`` where a chunk is damaged, or a row is none of a column;
    ``TOO_LITTLE`` where there is not enough room.
    """
    at = np.int64(0)
    for column in range(columns):
        table = tables + TABLE_BYTES * column
        before = table - TABLE_BYTES
        are_known = np.int64(0)
        if column > 0 and load_i64(table + TABLE.starts) == load_i64(before + TABLE.starts):
            same_row = load_i64(table + TABLE.first_row) == load_i64(before + TABLE.first_row)
            same_count = load_i64(table + TABLE.pages) == load_i64(before + TABLE.pages)
            are_known = np.int64(same_row and same_count)
        at = _take_column(
            table=table, rows=rows, wanted=wanted, memory=memory,
            at=(at + LINE - 1) & ~(LINE - 1), room=room, scratch=scratch, pages=pages,
            are_known=are_known, taken=taken + TAKEN_BYTES * column,
        )  # fmt: skip
        if at < 0:
            return at
    return at
