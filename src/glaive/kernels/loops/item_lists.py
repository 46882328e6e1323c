"""Kernels that decode all lists of chunks; wrappers: ``glaive.kernels.item_lists``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.level_sets import WINDOW, chunk_sets, places_of_sets, set_word
from glaive.kernels.loops.levels import put_offsets, valid_slots
from glaive.kernels.loops.list_levels import BROKEN
from glaive.kernels.loops.memory import (
    kernel_of,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    store_u32,
    store_u64,
    wrapping_sub,
)
from glaive.kernels.records import ReadItemLists


@kernel_of(ReadItemLists)
def read_item_lists(
    data: int, data_size: int, starts: int, sizes: int, counts: int, row_starts: int, enters: int,
    chunks: int, page: int, buffer_starts: int, buffer_sizes: int, sets: int, offsets: int,
    width: int, rows: int, list_valid: int, item_valid: int, values: int, result: int,
) -> int:  # fmt: skip
    """Decode the lists that begin in some chunks; returns how many, negative when one is broken.

    There is room for ``rows`` lists, three offsets more, and ``values`` items. Numbers of null
    lists, null items and items are stored at ``result``.
    """
    hidden, null_lists, null_items = places_of_sets(page, sets)
    done = np.int64(0)
    seen = np.int64(0)
    lists_null = np.int64(0)
    items_null = np.int64(0)
    for chunk in range(chunks):
        at = 8 * chunk
        levels = chunk_sets(
            data=data, data_size=data_size, start=load_i64(starts + at),
            chunk_size=load_i64(sizes + at), page=page, count=load_i64(counts + at),
            rows=wrapping_sub(load_i64(row_starts + at + 8), load_i64(row_starts + at)),
            enters=np.int64(load_u8(enters + chunk)), buffer_starts=buffer_starts + at,
            buffer_sizes=buffer_sizes + at, stride=8 * chunks, sets=sets,
        )  # fmt: skip
        if levels < 0:
            return levels
        for word in range((levels + WINDOW - 1) >> 6):
            begin = load_u64(sets + 8 * word)
            here = low_bits(np.int64(min(levels - (word << 6), WINDOW)))
            visible = ~set_word(hidden, word) & here
            new, shown = np.int64(popcount(begin)), np.int64(popcount(visible))
            if new > rows - done or shown > values - seen:
                return BROKEN
            put_offsets(begin, visible, seen, offsets + done * width, width)
            if null_lists != 0 and new > 0:
                null = set_word(null_lists, word) & begin
                lists_null += np.int64(popcount(null))
                append_bits(list_valid, done, valid_slots(null, begin, new), new)
            if null_items != 0 and shown > 0:
                null = set_word(null_items, word) & visible
                items_null += np.int64(popcount(null))
                append_bits(item_valid, seen, valid_slots(null, visible, shown), shown)
            done += new
            seen += shown
    if width == 4:
        store_u32(offsets + 4 * done, seen)
    else:
        store_u64(offsets + 8 * done, seen)
    store_u64(result, lists_null)
    store_u64(result + 8, items_null)
    store_u64(result + 16, seen)
    return done
