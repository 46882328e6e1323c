"""Kernels that take rows out of pages outside of lists; wrapper: ``glaive.kernels.row_takes``.

The caches of the processor lack rows at random places. It would wait for the chunk of each row, for
its value, its text, and the symbols of the text. So rows are taken in groups, step by step. Each
step fetches the memory of the next step for all rows of the group.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import (
    BLOCK,
    ROW,
    fill_zero,
    inline_width,
    load_word,
    place_of_value,
    tail_is_packed,
    value_of_block,
)
from glaive.kernels.loops.chunks import load_size
from glaive.kernels.loops.fsst_blocks import ESCAPE
from glaive.kernels.loops.list_levels import BROKEN, FLAT, INLINE, PACKED, RUNS
from glaive.kernels.loops.memory import (
    copy,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    prefetch,
    set_bit,
    store_u8,
    store_u16,
    store_u64,
    store_word,
    wrapping_add,
    wrapping_sub,
)
from glaive.kernels.loops.offsets import arrow_offset, load_offset, store_offset
from glaive.kernels.loops.runs import find_run
from glaive.kernels.records import ChunkPlace, RowTable, TakenColumn, offsets_of

# --- Places of rows of pages outside of lists: their chunks, values and levels ----------

TABLE = offsets_of(RowTable)
CHUNK_PLACE = offsets_of(ChunkPlace)
TOO_LITTLE = -2
PLACE_BYTES = 64
CHUNK, INDEX, PAGE, VALUES, SIZE, WIDTH, LEVELS, LEVEL_SIZE = 0, 8, 16, 24, 32, 40, 48, 56
"""Members of a row of the group: first the number of a chunk, then the address of its place.

Later steps replace the address of values by the begin of the text, and their size by its bytes.
The width is the width of packed words, or where the lengths of runs begin.
"""

LINE = 64
MAX_VALUES = 1 << 40
MAX_RUNS = 256
"""Maximum runs of levels: each row reads all runs of its chunk. Other kernels decode more."""


@kernel
def find_page(table: int, row: int, page: int, place: int) -> np.int64:
    """Find the page of a row, and fetch the place of its chunk.

    ``page`` is -1, or already known. Return the page, or a negative number.
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
        # Its place if all chunks had as many values: mostly it is there, or next to it.
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
    """Find the chunk of a row in its page, and fetch its header; ``False`` if it is missing."""
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
    """Parse the header of a row's chunk, and fetch its value and level; ``False`` for damage."""
    data, data_size = load_i64(table + TABLE.data), load_i64(table + TABLE.data_size)
    chunk, index = load_i64(place + CHUNK), load_i64(place + INDEX)
    start = load_i64(chunk + CHUNK_PLACE.start)
    size = load_i64(chunk + CHUNK_PLACE.size)
    value_width, values = load_i64(table + TABLE.value_width), load_i64(table + TABLE.values)
    encoding = load_i64(table + TABLE.definition)
    sizes = value_width + value_width * np.int64(values == RUNS)
    head = 2 + sizes + 2 * np.int64(encoding != 0)
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
    bits, ahead = load_i64(table + TABLE.bits), np.int64(0)
    if values == INLINE:
        width = inline_width(data, data_size, start, values_size, bits)
        if width < 0 or index >= BLOCK:
            return False
        store_u64(place + WIDTH, width)
        if width > 0:
            ahead, _ = place_of_value(bits, width, index)
            ahead += bits >> 3
            prefetch(wrapping_add(data, start + ahead + ROW))
    elif values == RUNS:
        runs, width = load_size(at + 2 + value_width, value_width), bits >> 3
        # First both sizes are bounded: padding and products do not overflow.
        lengths = (values_size + 7) & ~7
        if lengths > size - position - runs or runs * width != values_size:
            return False
        store_u64(place + WIDTH, start + lengths)
        prefetch(wrapping_add(data, start + lengths))
    elif index < MAX_VALUES:
        ahead = (index * bits) >> 3
    prefetch(wrapping_add(data, start + ahead))
    return True


@kernel
def level_of_row(table: int, place: int) -> np.int64:
    """Return the definition level of a row; negative for damage, and for many runs."""
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
    if head < 0 or head > size - 8 or head != 2 * (size - 8 - head) or head > 2 * MAX_RUNS:
        return np.int64(BROKEN)
    before, level = np.int64(0), np.int64(BROKEN)
    for run in range(head >> 1):
        length = np.int64(load_u8(source + 8 + head + run))
        if before <= index < before + length:
            level = np.int64(load_u16(source + 8 + 2 * run))
        before += length
    return level if before == count else np.int64(BROKEN)


@kernel
def has_plain(table: int, place: int) -> bool:
    """Return whether the plain values of a row's chunk have the bytes that they need."""
    count = load_i64(load_i64(place + CHUNK) + CHUNK_PLACE.values)
    bits = load_i64(table + TABLE.bits)
    return count <= MAX_VALUES and load_i64(place + SIZE) == (count * bits + 7) >> 3


@kernel
def word_of_row(table: int, place: int) -> tuple[np.uint64, bool]:
    """Return the word of a row, and whether it is there."""
    zero, bits = np.uint64(0), load_i64(table + TABLE.bits)
    index, values = load_i64(place + INDEX), load_i64(table + TABLE.values)
    data = load_i64(table + TABLE.data)
    source = data + load_i64(place + VALUES)
    if values == INLINE:
        width = load_i64(place + WIDTH)
        if width == 0:
            return zero, True
        return value_of_block(bits, source + (bits >> 3), width, index), True
    if values == RUNS:
        runs = load_i64(place + SIZE) // (bits >> 3)
        run = find_run(data + load_i64(place + WIDTH), runs, index)
        if run == runs:
            return zero, False
        return load_word(bits, source + run * (bits >> 3)), True
    if not has_plain(table, place):
        return zero, False
    if bits == 1:
        byte = np.uint64(load_u8(source + (index >> 3)))
        return byte >> np.uint64(index & 7) & np.uint64(1), True
    return load_word(bits, source + index * (bits >> 3)), True


# --- Texts of rows that are taken: their places, and their bytes ------------------------

STRINGS, CODES = 5, 6
"""Encodings of values, in addition to the encodings of levels."""

LAST_BYTES_AT, SYMBOLS_BYTES = 2048, 2304
PACKED_BYTES, MAX_SYMBOL_BYTES = 7, 8
"""Maximum bytes of symbols that share a word with their length; bytes of the longest symbols."""

MAX_LINES = 8
"""Maximum lines of a text that are fetched at once."""

MAX_CODES = 128
"""Maximum codes of a text whose symbols are fetched at once."""


@kernel
def find_text(table: int, place: int) -> bool:
    """Find the bytes of a row's text, and fetch them; ``False`` for damage."""
    data, start = load_i64(table + TABLE.data), load_i64(place + VALUES)
    width, size = load_i64(table + TABLE.bits) >> 3, load_i64(place + SIZE)
    count = load_i64(load_i64(place + CHUNK) + CHUNK_PLACE.values)
    if count >= MAX_VALUES or (count + 1) * width > size:
        return False
    at = data + start + width * load_i64(place + INDEX)
    low, high = load_offset(at, width), load_offset(at + width, width)
    if low < (count + 1) * width or high < low or high > size:
        return False
    prefetch_text(data + start + low, high - low)
    store_u64(place + VALUES, data + start + low)
    store_u64(place + SIZE, high - low)
    return True


@kernel
def find_item(table: int, place: int) -> bool:
    """Find the dictionary item of a row, and fetch it; ``False`` for damage."""
    chunk = load_i64(place + CHUNK)
    word, good = word_of_row(table, place)
    if not good or word >= load_u64(chunk + CHUNK_PLACE.limit):
        return False
    number = wrapping_add(np.int64(word), load_i64(chunk + CHUNK_PLACE.base))
    if number < 0 or number >= load_i64(table + TABLE.items):
        return False
    offsets, width = load_i64(table + TABLE.item_offsets), load_i64(table + TABLE.item_width)
    low, high = number * width, number * width + width
    if offsets != 0:
        low, high = arrow_offset(offsets, width, number), arrow_offset(offsets, width, number + 1)
        if low < 0 or high < low or high > load_i64(table + TABLE.item_data_size):
            return False
    text = load_i64(table + TABLE.item_data) + low
    prefetch_text(text, high - low)
    store_u64(place + VALUES, text)
    store_u64(place + SIZE, high - low)
    return True


@kernel
def prefetch_text(text: int, size: int) -> None:
    """Fetch the lines of a text, or the first lines of a long text."""
    for line in range(min(size >> 6, MAX_LINES - 1) + 1):
        prefetch(text + LINE * line)
    prefetch(text + max(min(size, MAX_LINES * LINE), 1) - 1)


@kernel
def prefetch_symbols(table: int, place: int) -> None:
    """Fetch the symbols of a text in codes."""
    symbols = load_i64(table + TABLE.symbols) + SYMBOLS_BYTES * load_i64(place + PAGE)
    text = load_i64(place + VALUES)
    for i in range(min(load_i64(place + SIZE), MAX_CODES)):
        prefetch(symbols + 8 * np.int64(load_u8(text + i)))


@kernel
def decode_text(symbols: int, p: int, size: int, out: int) -> np.int64:
    """Decode codes to ``out``, up to eight bytes each and eight more; negative for damage."""
    stop, at = p + size, np.int64(0)
    while p < stop:
        code = np.int64(load_u8(p))
        p += 1
        word = load_u64(symbols + 8 * code)
        length = np.int64(word >> np.uint64(56))
        if length <= PACKED_BYTES:
            store_u64(out + at, word)
            at += length
        elif length == MAX_SYMBOL_BYTES:
            store_u64(out + at, word)
            store_u8(out + at + PACKED_BYTES, load_u8(symbols + LAST_BYTES_AT + code))
            at += MAX_SYMBOL_BYTES
        elif code == ESCAPE and p < stop:
            store_u8(out + at, load_u8(p))
            p += 1
            at += 1
        else:
            return np.int64(BROKEN)
    return at


@kernel
def put_text(table: int, place: int, out: int, room: int) -> np.int64:
    """Copy or decode the text of a row; return its bytes, negative for damage or little room."""
    text, size = load_i64(place + VALUES), load_i64(place + SIZE)
    if load_i64(table + TABLE.values) == CODES:
        if size > (room >> 3) - 1:
            return np.int64(TOO_LITTLE)
        symbols = load_i64(table + TABLE.symbols) + SYMBOLS_BYTES * load_i64(place + PAGE)
        return decode_text(symbols, text, size, out)
    if size > room:
        return np.int64(TOO_LITTLE)
    copy(out, text, size)
    return size


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
    """Take the rows of one column; return the end of its memory, or an error of ``take_rows``.

    The memory of the column begins at ``at``; there are ``room`` bytes in all. ``pages`` receives
    the page of each row, or has the pages already if they ``are_known``.
    """
    values, bits = load_i64(table + TABLE.values), load_i64(table + TABLE.bits)
    item_width, has_levels = load_i64(table + TABLE.item_width), load_i64(table + TABLE.definition)
    items = np.uint64(load_i64(table + TABLE.items))
    nullable, max_def = load_i64(table + TABLE.nullable), load_i64(table + TABLE.max_def)
    strings = load_i64(table + TABLE.item_offsets) != 0 or values >= STRINGS
    validity = offsets = levels = np.int64(-1)
    width = item_width if item_width != 0 else bits >> 3
    bits = 8 * item_width if item_width != 0 else bits
    # Words of 1 to 64 bits are loaded and stored; wider values and items are copied.
    are_words = item_width == 0 and bits <= 64 and bits & (bits - 1) == 0
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
                if not strings:
                    copy(target + i * width, load_i64(place + VALUES), width)
            elif strings:
                if not find_text(table, place):
                    return np.int64(BROKEN)
            elif not are_words:
                if not has_plain(table, place):
                    return np.int64(BROKEN)
                start = load_i64(place + VALUES) + load_i64(place + INDEX) * width
                copy(target + i * width, load_i64(table + TABLE.data) + start, width)
            else:
                word, good = word_of_row(table, place)
                if not good or np.uint64(0) < items <= word:
                    return np.int64(BROKEN)
                if bits > 1:
                    store_word(bits, target + i * (bits >> 3), word)
                elif word != np.uint64(0):
                    set_bit(target, i)
        if values == CODES:
            for i in range(group, stop):
                prefetch_symbols(table, scratch + PLACE_BYTES * (i - group))
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


@kernel
def take_rows(
    tables: int, columns: int, rows: int, wanted: int, memory: int, room: int, scratch: int,
    pages: int, taken: int,
) -> int:  # fmt: skip
    """Take rows of several columns, one after the other, into one piece of memory.

    ``scratch`` has room for ``GROUP`` places, ``taken`` receives a ``TakenColumn`` for each column.
    Return the bytes used; ``BROKEN`` if a chunk is damaged, or a column lacks a row; ``TOO_LITTLE``
    if the memory is too small.
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


# --- Find the chunks of values; wrapper: ``glaive.kernels.row_takes`` -------------------


@kernel
def locate_values(
    values: int, wanted: int, starts: int, first_chunks: int, pages: int, shift: int, firsts: int,
    chunks: int, numbers: int, slots: int, places: int, ids: int,
) -> int:  # fmt: skip
    """Find the chunk of each value; return how many chunks hold any, -1 if a value is beyond all.

    Page p begins with value ``starts[p]`` and chunk ``first_chunks[p]``; its chunks have
    ``1 << shift`` values each, or more in the last. ``numbers`` has room for a word per chunk.
    ``ids`` receives the numbers of the chunks. For each value, ``slots`` receives the index of its
    chunk in ``ids``, and ``places`` its number within the chunk.
    """
    for chunk in range(chunks):
        store_u64(numbers + 8 * chunk, 0)
    end = load_i64(firsts + 8 * chunks)
    for i in range(wanted):
        value = load_i64(values + 8 * i)
        if value < 0 or value >= end:
            return np.int64(-1)
        # The last page that begins with a value of at most this one: no branch to mispredict.
        page = np.int64(0)
        left = np.int64(pages)
        while left > 1:
            half = left >> 1
            page += half * np.int64(load_i64(starts + 8 * (page + half)) <= value)
            left -= half
        chunk = load_i64(first_chunks + 8 * page)
        last = load_i64(first_chunks + 8 * page + 8)
        within = wrapping_sub(value, load_i64(starts + 8 * page)) >> shift
        # Compared before they are added: numbers of a page may be any.
        chunk = chunk + within if within < wrapping_sub(last, chunk) else wrapping_sub(last, 1)
        chunk = min(max(chunk, np.int64(0)), np.int64(chunks - 1))
        store_u64(slots + 8 * i, chunk)
        store_u64(places + 8 * i, wrapping_sub(value, load_i64(firsts + 8 * chunk)))
        store_u64(numbers + 8 * chunk, 1)
    used = np.int64(0)
    for chunk in range(chunks):
        is_used = load_i64(numbers + 8 * chunk)
        store_u64(numbers + 8 * chunk, used)
        store_u64(ids + 8 * used, chunk)
        used += is_used
    for i in range(wanted):
        store_u64(slots + 8 * i, load_i64(numbers + 8 * load_i64(slots + 8 * i)))
    return used
