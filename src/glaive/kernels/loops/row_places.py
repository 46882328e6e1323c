"""Where rows of pages without lists are: their chunks, values and levels; see ``row_takes``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import (
    BLOCK,
    ROW,
    inline_width,
    load_word,
    place_of_value,
    tail_is_packed,
    value_of_block,
)
from glaive.kernels.loops.chunks import load_size
from glaive.kernels.loops.list_levels import BROKEN, FLAT, INLINE, PACKED
from glaive.kernels.loops.memory import (
    kernel,
    load_i64,
    load_u8,
    load_u16,
    prefetch,
    store_u64,
    wrapping_add,
    wrapping_sub,
)
from glaive.kernels.records import offsets_of
from glaive.kernels.take_records import ChunkPlace, RowTable

TABLE = offsets_of(RowTable)
CHUNK_PLACE = offsets_of(ChunkPlace)
TOO_LITTLE = -2
PLACE_BYTES = 64
CHUNK, INDEX, PAGE, VALUES, SIZE, WIDTH, LEVELS, LEVEL_SIZE = 0, 8, 16, 24, 32, 40, 48, 56
"""What is known of a row of the group: first the number of a chunk, then the address of its place.
Later steps put the beginning of its text where its values were, and its bytes where their size was.
"""

LINE = 64
MOST_VALUES = 1 << 40
MOST_RUNS = 256
"""Of levels: each row looks at all of its chunk. Where there are more, others decode them."""


@kernel
def find_page(table: int, row: int, page: int, place: int) -> np.int64:
    """Find the page of a row, and ask for the place of its chunk.

    ``page`` is known already where it is not negative. Returns it; negative where there is none.
    """
    value = wrapping_sub(row, load_i64(table + TABLE.first_row))
    starts, pages = load_i64(table + TABLE.starts), load_i64(table + TABLE.pages)
    if value < 0 or value >= load_i64(starts + 8 * pages):
        return np.int64(BROKEN)
    if page < 0:
        # The last page that begins with a value of at most this one: no branch to mispredict.
        page, left = np.int64(0), np.int64(pages)
        while left > 1:
            half = left >> 1
            page += half * np.int64(load_i64(starts + 8 * (page + half)) <= value)
            left -= half
    first_chunks = load_i64(table + TABLE.first_chunks)
    chunk, after = load_i64(first_chunks + 8 * page), load_i64(first_chunks + 8 * page + 8)
    if chunk < 0 or chunk >= after or after > load_i64(table + TABLE.chunks):
        return np.int64(BROKEN)
    start, shift = load_i64(starts + 8 * page), load_i64(table + TABLE.shift)
    within = wrapping_sub(value, start)
    if within < 0:
        return np.int64(BROKEN)
    if shift >= 0:
        chunk += min(within >> min(shift, 62), after - chunk - 1)
    else:
        # Where it would be if all had as many values: mostly it is there, or beside.
        rows = wrapping_sub(load_i64(starts + 8 * page + 8), start)
        if within >= rows:
            return np.int64(BROKEN)
        share = np.float64(within) / np.float64(rows)
        chunk += min(np.int64(share * np.float64(after - chunk)), after - chunk - 1)
    where = load_i64(table + TABLE.chunk_places) + (chunk << load_i64(table + TABLE.place_shift))
    prefetch(where)
    if shift < 0:
        prefetch(wrapping_sub(where, 1))
        prefetch(where + LINE)
    store_u64(place + CHUNK, chunk)
    store_u64(place + INDEX, value)
    store_u64(place + PAGE, page)
    return np.int64(page)


@kernel
def find_chunk(table: int, place: int) -> bool:
    """Find the chunk of a row in its page, and ask for its header; False where there is none."""
    value, chunk = load_i64(place + INDEX), load_i64(place + CHUNK)
    shift = load_i64(table + TABLE.place_shift)
    first = load_i64(table + TABLE.chunk_places) + CHUNK_PLACE.first
    if load_i64(table + TABLE.shift) < 0:
        pages = load_i64(table + TABLE.first_chunks) + 8 * load_i64(place + PAGE)
        low, high = load_i64(pages), load_i64(pages + 8)
        near_low, near_high = max(low, chunk - 1), min(high, chunk + 2)
        if near_low == low or load_i64(first + (near_low << shift)) <= value:
            low = near_low
        if near_high < high and load_i64(first + (near_high << shift)) > value:
            high = near_high
        while high - low > 1:
            middle = (low + high) >> 1
            if load_i64(first + (middle << shift)) <= value:
                low = middle
            else:
                high = middle
        chunk = low
    where = load_i64(table + TABLE.chunk_places) + (chunk << shift)
    index = wrapping_sub(value, load_i64(where + CHUNK_PLACE.first))
    if index < 0 or index >= load_i64(where + CHUNK_PLACE.values):
        return False
    start = load_i64(where + CHUNK_PLACE.start)
    prefetch(wrapping_add(load_i64(table + TABLE.data), start))
    store_u64(place + CHUNK, where)
    store_u64(place + INDEX, index)
    return True


@kernel
def open_chunk(table: int, place: int) -> bool:
    """Parse the header of a row's chunk, and ask for its value and level; False for damage."""
    data, data_size = load_i64(table + TABLE.data), load_i64(table + TABLE.data_size)
    chunk, index = load_i64(place + CHUNK), load_i64(place + INDEX)
    start = load_i64(chunk + CHUNK_PLACE.start)
    size = load_i64(chunk + CHUNK_PLACE.size)
    value_width = load_i64(table + TABLE.value_width)
    encoding = load_i64(table + TABLE.definition)
    head = 2 + value_width + 2 * np.int64(encoding != 0)
    if start < 0 or size < head or start > data_size - size:
        return False
    at, position = data + start, (head + 7) & ~7
    if encoding != 0:
        if np.int64(load_u16(at)) != load_i64(chunk + CHUNK_PLACE.values):
            return False
        level_size = np.int64(load_u16(at + 2))
        store_u64(place + LEVELS, start + position)
        store_u64(place + LEVEL_SIZE, level_size)
        width = load_i64(table + TABLE.def_width)
        ahead = np.int64(0)
        if encoding == FLAT:
            ahead = 2 * index
        elif encoding == PACKED and width > 0:
            ahead, _ = place_of_value(16, width, index & (BLOCK - 1))
            ahead += (index >> 10) * width * ROW
        prefetch(wrapping_add(at, position + ahead))
        position += (level_size + 7) & ~7
        at += 2
    values_size = load_size(at + 2, value_width)
    if values_size > size - position:
        return False
    start += position
    store_u64(place + VALUES, start)
    store_u64(place + SIZE, values_size)
    values, bits = load_i64(table + TABLE.values), load_i64(table + TABLE.bits)
    ahead = np.int64(0)
    if values == INLINE:
        width = inline_width(data, data_size, start, values_size, bits)
        if width < 0 or index >= BLOCK:
            return False
        store_u64(place + WIDTH, width)
        if width > 0:
            ahead, _ = place_of_value(bits, width, index)
            ahead += bits >> 3
            prefetch(wrapping_add(data, start + ahead + ROW))
    elif index < MOST_VALUES:
        ahead = (index * bits) >> 3
    prefetch(wrapping_add(data, start + ahead))
    return True


@kernel
def level_of_row(table: int, place: int) -> np.int64:
    """The definition level of a row; negative for damage, and for many runs."""
    encoding, width = load_i64(table + TABLE.definition), load_i64(table + TABLE.def_width)
    data, start = load_i64(table + TABLE.data), load_i64(place + LEVELS)
    size, index = load_i64(place + LEVEL_SIZE), load_i64(place + INDEX)
    # The header says how many levels there are, in 16 bits.
    count = load_i64(load_i64(place + CHUNK) + CHUNK_PLACE.values)
    source = data + start
    if encoding == FLAT:
        return np.int64(load_u16(source + 2 * index)) if size == 2 * count else np.int64(BROKEN)
    if encoding == INLINE:
        width = inline_width(data, start + size, start, size, 16)
        if width < 0 or count > BLOCK:
            return np.int64(BROKEN)
        return np.int64(value_of_block(16, source + 2, width, index)) if width > 0 else np.int64(0)
    if encoding == PACKED:
        blocks, tail = count >> 10, count & (BLOCK - 1)
        packed = blocks + tail_is_packed(tail, 16, width)
        raw = 0 if packed > blocks else 2 * tail
        if size != packed * width * ROW + raw:
            return np.int64(BROKEN)
        if index >> 10 >= packed:
            at = source + packed * width * ROW
            return np.int64(load_u16(at + 2 * (index & (BLOCK - 1))))
        if width == 0:
            return np.int64(0)
        block = source + (index >> 10) * width * ROW
        return np.int64(value_of_block(16, block, width, index & (BLOCK - 1)))
    # Runs: 16-bit levels, then a byte each for how often.
    if size < 8:
        return np.int64(BROKEN)
    head = load_i64(source)
    if head < 0 or head > size - 8 or head != 2 * (size - 8 - head) or head > 2 * MOST_RUNS:
        return np.int64(BROKEN)
    before, level = np.int64(0), np.int64(BROKEN)
    for run in range(head >> 1):
        length = np.int64(load_u8(source + 8 + head + run))
        if before <= index < before + length:
            level = np.int64(load_u16(source + 8 + 2 * run))
        before += length
    return level if before == count else np.int64(BROKEN)


@kernel
def word_of_row(table: int, place: int) -> tuple[np.uint64, bool]:
    """The plain or packed value of a row, and whether it is there."""
    zero, bits = np.uint64(0), load_i64(table + TABLE.bits)
    index, size = load_i64(place + INDEX), load_i64(place + SIZE)
    source = load_i64(table + TABLE.data) + load_i64(place + VALUES)
    if load_i64(table + TABLE.values) == INLINE:
        width = load_i64(place + WIDTH)
        if width == 0:
            return zero, True
        return value_of_block(bits, source + (bits >> 3), width, index), True
    count = load_i64(load_i64(place + CHUNK) + CHUNK_PLACE.values)
    if count > MOST_VALUES or size != (count * bits + 7) >> 3:
        return zero, False
    if bits == 1:
        byte = np.uint64(load_u8(source + (index >> 3)))
        return byte >> np.uint64(index & 7) & np.uint64(1), True
    return load_word(bits, source + index * (bits >> 3)), True
