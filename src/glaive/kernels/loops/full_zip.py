"""Kernels over full-zip entries: measure, unzip, zip, gather.

An entry is ``control word | length | value bytes``; the wrappers say which parts it has. Wrappers:
``glaive.kernels.full_zip``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import load_word
from glaive.kernels.loops.memory import copy, kernel, load_i64, store_u16, store_u64, store_word


@kernel
def _load_word(address: int, width: int) -> int:
    """Read a number of 0 to 8 bytes; zero bytes are 0."""
    return np.int64(load_word(8 * width, address)) if width > 0 else np.int64(0)


@kernel
def _store_word(address: int, width: int, value: int) -> None:
    """Write a number in 0 to 8 bytes."""
    if width > 0:
        store_word(8 * width, address, value)


@kernel
def measure(
    data: int, starts: int, stops: int, rows: int, control: int, bits_def: int, max_rep: int,
    max_def: int, visible_def: int, width: int, prefix: int, totals: int,
) -> int:  # fmt: skip
    """Visit and check all entries of some rows; return 0 or the kind of damage.

    ``totals`` receives entries, visible entries, value bytes, and the current row. The kinds of
    damage are:

    1. An entry is longer than its row.
    2. A repetition level is wrong.
    3. A definition level is wrong.
    4. A row of a column outside of lists has several entries.
    """
    mask = (np.int64(1) << np.int64(bits_def)) - np.int64(1)
    entries = np.int64(0)
    visible = np.int64(0)
    total = np.int64(0)
    wrong = np.int64(0)
    row = np.int64(0)
    while row < rows and wrong == 0:
        at = load_i64(starts + 8 * row)
        stop = load_i64(stops + 8 * row)
        first = True
        while wrong == 0 and (first or at < stop):
            if stop - at < control:
                wrong = np.int64(1)
                break
            word = _load_word(data + at, control)
            at += control
            rep = word >> bits_def
            level = word & mask
            if level > max_def:
                wrong = np.int64(3)
            elif max_rep == 0 and not first:
                wrong = np.int64(4)
            elif (first and rep != max_rep) or (not first and rep >= max_rep):
                wrong = np.int64(2)
            entries += 1
            if level <= visible_def:
                visible += 1
                size = np.int64(width)
                if prefix:
                    size = np.int64(0)
                    if level == 0:
                        if stop - at < prefix:
                            wrong = np.int64(1)
                            break
                        size = _load_word(data + at, prefix)
                        at += prefix
                if size < 0 or size > stop - at:
                    wrong = np.int64(1)
                    break
                at += size
                total += size
            first = False
        if wrong == 0:
            row += 1
    store_u64(totals, entries)
    store_u64(totals + 8, visible)
    store_u64(totals + 16, total)
    store_u64(totals + 24, row)
    return wrong


@kernel
def unzip(
    data: int, starts: int, stops: int, rows: int, control: int, bits_def: int, visible_def: int,
    width: int, prefix: int, reps: int, levels: int, offset_width: int, offsets: int, out: int,
) -> None:  # fmt: skip
    """Split the entries of rows that ``measure`` has accepted; the address 0 skips a part."""
    mask = (np.int64(1) << np.int64(bits_def)) - np.int64(1)
    done = np.int64(0)
    _store_word(offsets, offset_width, 0)
    offsets += offset_width
    for row in range(rows):
        at = load_i64(starts + 8 * row)
        stop = load_i64(stops + 8 * row)
        while at < stop:
            word = _load_word(data + at, control)
            at += control
            level = word & mask
            if reps:
                store_u16(reps, word >> bits_def)
                reps += 2
            if levels:
                store_u16(levels, level)
                levels += 2
            if level <= visible_def:
                size = np.int64(width)
                if prefix:
                    size = np.int64(0)
                    if level == 0:
                        size = _load_word(data + at, prefix)
                        at += prefix
                copy(out + done, data + at, size)
                at += size
                done += size
                _store_word(offsets, offset_width, done)
                offsets += offset_width


@kernel
def zip_entries(
    words: int, entries: int, control: int, bits_def: int, max_rep: int, visible_def: int,
    width: int, prefix: int, offsets: int, offset_width: int, values: int, out: int,
    row_starts: int,
) -> None:  # fmt: skip
    """Write entries one after the other, and where each row starts."""
    mask = (np.int64(1) << np.int64(bits_def)) - np.int64(1)
    at = np.int64(0)
    for i in range(entries):
        word = _load_word(words + 4 * i, 4)
        if word >> bits_def == max_rep:
            store_u64(row_starts, at)
            row_starts += 8
        _store_word(out + at, control, word)
        at += control
        level = word & mask
        if level <= visible_def:
            if prefix:
                first = _load_word(offsets, offset_width)
                size = _load_word(offsets + offset_width, offset_width) - first
                offsets += offset_width
                if level == 0:
                    _store_word(out + at, prefix, size)
                    at += prefix
                    copy(out + at, values + first, size)
                    at += size
            else:
                copy(out + at, values, width)
                values += width
                at += width
