"""Texts of rows that are taken: where they are, and their bytes; see ``row_takes``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.fsst import ESCAPE
from glaive.kernels.loops.list_levels import BROKEN
from glaive.kernels.loops.memory import (
    copy,
    kernel,
    load_i64,
    load_u8,
    load_u64,
    prefetch,
    store_u8,
    store_u64,
    wrapping_add,
)
from glaive.kernels.loops.offsets import arrow_offset, load_offset
from glaive.kernels.loops.row_places import (
    CHUNK,
    CHUNK_PLACE,
    INDEX,
    LINE,
    MOST_VALUES,
    PAGE,
    SIZE,
    TABLE,
    TOO_LITTLE,
    VALUES,
    word_of_row,
)

STRINGS, CODES = 5, 6
"""Encodings of values, beside those of levels."""

LAST_BYTES_AT, SYMBOLS_BYTES = 2048, 2304
IN_WORD, LONGEST = 7, 8
"""Bytes of symbols that are in their word, behind which is their length; and of the longest."""

MOST_LINES = 8
"""Lines of a text that are asked for at once."""

MOST_CODES = 128
"""Codes of a text whose symbols are asked for at once."""


@kernel
def find_text(table: int, place: int) -> bool:
    """Find the bytes of a row's text, and ask for them; False for damage."""
    data, start = load_i64(table + TABLE.data), load_i64(place + VALUES)
    width, size = load_i64(table + TABLE.bits) >> 3, load_i64(place + SIZE)
    count = load_i64(load_i64(place + CHUNK) + CHUNK_PLACE.values)
    if count >= MOST_VALUES or (count + 1) * width > size:
        return False
    at = data + start + width * load_i64(place + INDEX)
    low, high = load_offset(at, width), load_offset(at + width, width)
    if low < (count + 1) * width or high < low or high > size:
        return False
    ask_for(data + start + low, high - low)
    store_u64(place + VALUES, data + start + low)
    store_u64(place + SIZE, high - low)
    return True


@kernel
def find_item(table: int, place: int) -> bool:
    """Find the dictionary item of a row, and ask for it; False for damage."""
    chunk = load_i64(place + CHUNK)
    word, good = word_of_row(table, place)
    if not good or word >= load_u64(chunk + CHUNK_PLACE.limit):
        return False
    number = wrapping_add(np.int64(word), load_i64(chunk + CHUNK_PLACE.base))
    if number < 0 or number >= load_i64(table + TABLE.items):
        return False
    offsets, width = load_i64(table + TABLE.item_offsets), load_i64(table + TABLE.item_width)
    low, high = arrow_offset(offsets, width, number), arrow_offset(offsets, width, number + 1)
    if low < 0 or high < low or high > load_i64(table + TABLE.item_data_size):
        return False
    text = load_i64(table + TABLE.item_data) + low
    ask_for(text, high - low)
    store_u64(place + VALUES, text)
    store_u64(place + SIZE, high - low)
    return True


@kernel
def ask_for(text: int, size: int) -> None:
    """Have the processor fetch the lines of a text, the first of long ones."""
    for line in range(min(size >> 6, MOST_LINES - 1) + 1):
        prefetch(text + LINE * line)
    prefetch(text + max(min(size, MOST_LINES * LINE), 1) - 1)


@kernel
def ask_for_symbols(table: int, place: int) -> None:
    """Have the processor fetch the symbols of a text in codes."""
    symbols = load_i64(table + TABLE.symbols) + SYMBOLS_BYTES * load_i64(place + PAGE)
    text = load_i64(place + VALUES)
    for i in range(min(load_i64(place + SIZE), MOST_CODES)):
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
        if length <= IN_WORD:
            store_u64(out + at, word)
            at += length
        elif length == LONGEST:
            store_u64(out + at, word)
            store_u8(out + at + IN_WORD, load_u8(symbols + LAST_BYTES_AT + code))
            at += LONGEST
        elif code == ESCAPE and p < stop:
            store_u8(out + at, load_u8(p))
            p += 1
            at += 1
        else:
            return np.int64(BROKEN)
    return at


@kernel
def put_text(table: int, place: int, out: int, room: int) -> np.int64:
    """Copy or decode the text of a row; returns its bytes, negative for damage or little room."""
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
