"""Loop that finds FSST symbols. Checked wrapper: ``glaive.kernels.fsst_train``.

A *step* is what one piece of text is encoded as: below 256 a literal byte, from 256 on the
symbol of a code. All tables lie in one block of memory that begins as zeros.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.fsst_encode import next_word, slot_of
from glaive.kernels.loops.memory import (
    copy,
    load_i64,
    load_u16,
    load_u32,
    load_u64,
    loop,
    pick,
    store_u16,
    store_u32,
    store_u64,
)

__all__ = ["memory_size", "train"]

MOST = 255
"""Symbols of a table."""

STEPS = 512

STEP_MASK = 511
SIZE_SHIFT = 12
"""An entry has the step in its low bits, and its bytes above."""

WORDS = 0
"""Begin of the words of all steps, 8 bytes each; the other tables follow."""

SIZES = WORDS + 8 * STEPS
PAIRS = SIZES + 8 * STEPS
"""The entries for the next two bytes, 16 bits each; behind them those for a last byte."""

SINGLES = PAIRS + 2 * 65_536
SLOTS = SINGLES + 2 * 256
TIMES = SLOTS + 24 * 1024
PAIR_TIMES = TIMES + 4 * STEPS
HEAP = PAIR_TIMES + 4 * STEPS * STEPS
"""Begin of the heap; keys of pairs, candidates and cells, of varied size, follow."""

CANDIDATE = 24
"""Bytes of a candidate: word, size, gain."""


@loop
def _look_up(p: int, end: int, data_end: int, memory: int) -> int:
    """Return the entry of what ``p`` begins with. Branches would be guessed wrong often."""
    word = next_word(p, data_end)
    slot = memory + SLOTS + 24 * slot_of(word)
    long = np.int64(load_u64(slot + 16))
    differs = (word & load_u64(slot + 8)) ^ load_u64(slot)
    misfit = differs | np.uint64(long == 0) | np.uint64(p + (long >> SIZE_SHIFT) > end)
    two = np.int64(word & np.uint64(0xFFFF))
    one = 65_536 + np.int64(word & np.uint64(0xFF))
    short = load_u16(memory + PAIRS + 2 * pick(np.uint64(p + 1 < end), one, two))
    return pick(misfit, long, np.int64(short))


@loop
def _add(address: int, number: int) -> int:
    """Add to a count; returns what it was."""
    times = np.int64(load_u32(address))
    store_u32(address, times + number)
    return times


@loop
def _tally(entry: int, before: int, memory: int, keys: int, found: int) -> int:
    """Count a step and how it follows the one before; returns the number of keys.

    A long step counts as its first byte too: it might be better to stop there.
    """
    step = entry & STEP_MASK
    head = np.int64(load_u64(memory + WORDS + 8 * step) & np.uint64(0xFF))
    is_long = np.int64((entry >> SIZE_SHIFT) > 1)
    _add(memory + TIMES + 4 * step, 1)
    _add(memory + TIMES + 4 * head, is_long)
    if before >= 0:
        # Keys are written in any case, and stay where they are new.
        key = before << 9 | step
        store_u32(keys + 4 * found, key)
        found += _add(memory + PAIR_TIMES + 4 * key, 1) == 0
        key = before << 9 | head
        store_u32(keys + 4 * found, key)
        found += is_long & (_add(memory + PAIR_TIMES + 4 * key, is_long) == 0)
    return found


@loop
def _left(entry: int) -> int:
    """The step as the left one of a pair; -1 where nothing can be joined to it."""
    return entry & STEP_MASK if entry < 8 << SIZE_SHIFT else np.int64(-1)


@loop
def _walk(
    offsets: int, data: int, data_end: int, count: int, memory: int, keys: int
) -> tuple[int, int]:
    """Encode values and count their steps and pairs of steps.

    The values are walked in two halves that take turns: while one waits for the tables the
    other goes on. Returns the bytes written, and the number of ``keys``: pairs that occur.
    """
    found = np.int64(0)
    written = np.int64(0)
    n0, n1 = count // 2, count
    i0, i1 = np.int64(0), n0
    p0 = e0 = data + load_i64(offsets)
    p1 = e1 = data + load_i64(offsets + 8 * n0)
    b0 = b1 = np.int64(-1)
    while True:
        while p0 == e0 and i0 < n0:
            i0 += 1
            e0 = data + load_i64(offsets + 8 * i0)
            b0 = np.int64(-1)
        while p1 == e1 and i1 < n1:
            i1 += 1
            e1 = data + load_i64(offsets + 8 * i1)
            b1 = np.int64(-1)
        if p0 == e0 and p1 == e1:
            return written, found
        if p0 < e0 and p1 < e1:
            while p0 < e0 and p1 < e1:
                entry0 = _look_up(p0, e0, data_end, memory)
                entry1 = _look_up(p1, e1, data_end, memory)
                p0 += entry0 >> SIZE_SHIFT
                p1 += entry1 >> SIZE_SHIFT
                found = _tally(entry0, b0, memory, keys, found)
                found = _tally(entry1, b1, memory, keys, found)
                b0, b1 = _left(entry0), _left(entry1)
                written += 2 + ((entry0 & 256) == 0) + ((entry1 & 256) == 0)
        else:
            # One half is done: what is left goes on where the first was.
            if p0 == e0:
                p0, e0, b0, i0, n0 = p1, e1, b1, i1, n1
                p1, i1 = e1, n1
            while p0 < e0:
                entry0 = _look_up(p0, e0, data_end, memory)
                p0 += entry0 >> SIZE_SHIFT
                found = _tally(entry0, b0, memory, keys, found)
                b0 = _left(entry0)
                written += 1 + ((entry0 & 256) == 0)


@loop
def _enter(
    word: int, size: int, gain: int, made: int, candidates: int, cells: int, cell_count: int
) -> int:
    """Add the gain to the candidate with this word and size, a new one if there is none."""
    mixed = (word ^ np.uint64(size)) * np.uint64(0x9E3779B97F4A7C15)
    cell = np.int64((mixed >> np.uint64(32)) & np.uint64(cell_count - 1))
    while True:
        number = np.int64(load_u32(cells + 4 * cell)) - 1
        if number < 0:
            break
        place = candidates + CANDIDATE * number
        if load_u64(place) == word and load_i64(place + 8) == size:
            store_u64(place + 16, load_i64(place + 16) + gain)
            return made
        cell = (cell + 1) & (cell_count - 1)
    store_u32(cells + 4 * cell, made + 1)
    place = candidates + CANDIDATE * made
    store_u64(place, word)
    store_u64(place + 8, size)
    store_u64(place + 16, gain)
    return made + 1


@loop
def _gather(
    memory: int,
    keys: int,
    found: int,
    least: int,
    weight: int,
    candidates: int,
    cells: int,
) -> int:
    """Make candidates of steps and pairs that occur often enough; returns their number."""
    cell_count = np.int64(1024)
    while cell_count < 2 * (found + STEPS):
        cell_count *= 2
    for k in range(cell_count):
        store_u32(cells + 4 * k, 0)
    made = np.int64(0)
    for step in range(STEPS):
        times = np.int64(load_u32(memory + TIMES + 4 * step))
        store_u32(memory + TIMES + 4 * step, 0)
        if times >= least:
            size = load_i64(memory + SIZES + 8 * step)
            gain = times * (8 if size == 1 else size)
            word = load_u64(memory + WORDS + 8 * step)
            made = _enter(word, size, gain, made, candidates, cells, cell_count)
    for k in range(found):
        key = np.int64(load_u32(keys + 4 * k))
        times = np.int64(load_u32(memory + PAIR_TIMES + 4 * key))
        store_u32(memory + PAIR_TIMES + 4 * key, 0)
        if times >= least:
            left, right = key >> 9, key & 511
            size = load_i64(memory + SIZES + 8 * left)
            word = load_u64(memory + WORDS + 8 * right) << np.uint64(8 * size)
            word |= load_u64(memory + WORDS + 8 * left)
            size = min(size + load_i64(memory + SIZES + 8 * right), np.int64(8))
            gain = times * size * weight // 10
            made = _enter(word, size, gain, made, candidates, cells, cell_count)
    return made


@loop
def _before(candidates: int, a: int, b: int) -> bool:
    """Whether candidate ``a`` is better: more gain; else the smaller word, then size."""
    x = candidates + CANDIDATE * a
    y = candidates + CANDIDATE * b
    more = load_i64(x + 16) - load_i64(y + 16)
    if more != 0:
        return more > 0
    if load_u64(x) != load_u64(y):
        return load_u64(x) < load_u64(y)
    return load_i64(x + 8) < load_i64(y + 8)


@loop
def _sink(heap: int, at: int, count: int, candidates: int) -> None:
    """Let the candidate at this place of the heap sink below all that are better."""
    item = np.int64(load_u32(heap + 4 * at))
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        other = np.int64(load_u32(heap + 4 * child))
        if child + 1 < count:
            right = np.int64(load_u32(heap + 4 * child + 4))
            if _before(candidates, right, other):
                child += 1
                other = right
        if not _before(candidates, other, item):
            break
        store_u32(heap + 4 * at, other)
        at = child
    store_u32(heap + 4 * at, item)


@loop
def _forget(memory: int, count: int) -> None:
    """Take so many symbols out of the tables, except for those of two bytes."""
    for step in range(256, 256 + count):
        word = load_u64(memory + WORDS + 8 * step)
        size = load_i64(memory + SIZES + 8 * step)
        if size == 1:
            store_u16(memory + SINGLES + 2 * np.int64(word), np.int64(word) | 1 << SIZE_SHIFT)
        elif size > 2:
            store_u64(memory + SLOTS + 24 * slot_of(word) + 16, 0)


@loop
def _enter_pairs(memory: int, count: int) -> None:
    """Fill the steps for two bytes: symbols of two bytes, else what the first one is."""
    for row in range(256):
        copy(memory + PAIRS + 512 * row, memory + SINGLES, 512)
    for step in range(256, 256 + count):
        if load_i64(memory + SIZES + 8 * step) == 2:
            word = np.int64(load_u64(memory + WORDS + 8 * step))
            store_u16(memory + PAIRS + 2 * word, step | 2 << SIZE_SHIFT)


@loop
def _choose(memory: int, heap: int, made: int, candidates: int) -> int:
    """Enter the best candidates as symbols, one for each slot; returns their number."""
    for k in range(made):
        store_u32(heap + 4 * k, k)
    for k in range(made // 2 - 1, -1, -1):
        _sink(heap, k, made, candidates)
    count = np.int64(0)
    while made > 0 and count < MOST:
        place = candidates + CANDIDATE * np.int64(load_u32(heap))
        made -= 1
        store_u32(heap, np.int64(load_u32(heap + 4 * made)))
        _sink(heap, 0, made, candidates)
        word, size = load_u64(place), load_i64(place + 8)
        step = 256 + count
        if size == 1:
            store_u16(memory + SINGLES + 2 * np.int64(word), step | 1 << SIZE_SHIFT)
        elif size > 2:
            slot = memory + SLOTS + 24 * slot_of(word)
            if load_u64(slot + 16) != 0:
                continue
            store_u64(slot, word)
            store_u64(slot + 8, np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * size))
            store_u64(slot + 16, size << SIZE_SHIFT | step)
        store_u64(memory + WORDS + 8 * step, word)
        store_u64(memory + SIZES + 8 * step, size)
        count += 1
    _enter_pairs(memory, count)
    return count


@loop
def _most_candidates(data_size: int) -> int:
    """Every step, and two pairs for each byte."""
    return 2 * data_size + STEPS


@loop
def memory_size(data_size: int) -> int:
    """Bytes that ``train`` wants: heap and keys of 4 bytes, and up to four cells of those."""
    return HEAP + (CANDIDATE + 4 + 4 + 16) * _most_candidates(data_size) + 4096


@loop
def train(
    offsets: int,
    data: int,
    data_size: int,
    rounds: int,
    round_count: int,
    whole: int,
    memory: int,
    words: int,
    sizes: int,
) -> int:
    """Find symbols for values with 64-bit offsets; returns their number.

    A round is three numbers: values looked at, occurrences that count, and tenths that a
    pair weighs. Rounds of ``whole`` values are measured, and the best table is written to
    ``words`` and ``sizes``. ``memory`` are ``memory_size`` zeros.
    """
    most = _most_candidates(data_size)
    heap = memory + HEAP
    keys = heap + 4 * most
    candidates = keys + 4 * most
    cells = candidates + CANDIDATE * most
    for byte in range(256):
        store_u64(memory + WORDS + 8 * byte, byte)
        store_u64(memory + SIZES + 8 * byte, 1)
        store_u16(memory + SINGLES + 2 * byte, byte | 1 << SIZE_SHIFT)
    _enter_pairs(memory, 0)
    count = np.int64(0)
    best = np.int64(0)
    smallest = 2 * data_size
    for turn in range(round_count):
        values = load_i64(rounds + 24 * turn)
        least = load_i64(rounds + 24 * turn + 8)
        weight = load_i64(rounds + 24 * turn + 16)
        written, found = _walk(offsets, data, data + data_size, values, memory, keys)
        if values == whole and written < smallest:
            best, smallest = count, written
            copy(words, memory + WORDS + 8 * 256, 8 * count)
            copy(sizes, memory + SIZES + 8 * 256, 8 * count)
        if written == 0 or weight == 0:
            break
        made = _gather(memory, keys, found, least, weight, candidates, cells)
        _forget(memory, count)
        count = _choose(memory, heap, made, candidates)
    return best
