"""Kernel that finds FSST symbols. Checked wrapper: ``glaive.kernels.fsst_train``.

A *step* is the number of what is encoded at once: below 256 a literal byte, from 256 on the
symbol of a code. All tables lie in one block of memory that begins as zeros.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.fsst_encode import slot_of
from glaive.kernels.loops.memory import (
    copy,
    kernel,
    load_i64,
    load_partial,
    load_u16,
    load_u32,
    load_u64,
    low_bits,
    pick,
    store_u16,
    store_u32,
    store_u64,
)
from glaive.kernels.records import Candidate, SymbolSlot, TrainRound, offsets_of

MAX_SYMBOLS = 255
"""Symbols of a table."""

STEPS = 512

STEP_MASK = 511
SIZE_SHIFT = 12
"""An entry has the step in its low bits, and its number of bytes above."""

CANDIDATE = offsets_of(Candidate)
CANDIDATE_BYTES = 8 * len(CANDIDATE)
SLOT = offsets_of(SymbolSlot)
SLOT_BYTES = 8 * len(SLOT)
ROUND = offsets_of(TrainRound)
ROUND_BYTES = 8 * len(ROUND)

WORDS = 0
"""Start of the words of all steps, 8 bytes each; the other tables follow."""

SIZES = WORDS + 8 * STEPS
PAIRS = SIZES + 8 * STEPS
"""The entries for the next two bytes, 16 bits each; behind them those for a last byte."""

SINGLES = PAIRS + 2 * 65_536
SLOTS = SINGLES + 2 * 256
TIMES = SLOTS + SLOT_BYTES * 1024
PAIR_TIMES = TIMES + 4 * STEPS
HEAP = PAIR_TIMES + 4 * STEPS * STEPS
"""Start of the heap; keys of pairs, candidates and a hash table of them follow."""


@kernel
def _look_up(p: int, end: int, data_end: int, memory: int) -> int:
    """Return the entry for the text at ``p``, without branches: they would be mispredicted."""
    word = load_partial(p, data_end)
    slot = memory + SLOTS + SLOT_BYTES * slot_of(word)
    long = np.int64(load_u64(slot + SLOT.entry))
    differs = (word & load_u64(slot + SLOT.mask)) ^ load_u64(slot + SLOT.word)
    misfit = differs | np.uint64(long == 0) | np.uint64(p + (long >> SIZE_SHIFT) > end)
    pair = np.int64(word & np.uint64(0xFFFF))
    single = 65_536 + np.int64(word & np.uint64(0xFF))
    short = load_u16(memory + PAIRS + 2 * pick(np.uint64(p + 1 < end), single, pair))
    return pick(misfit, long, np.int64(short))


@kernel
def _add(address: int, number: int) -> int:
    """Add to a count; returns what it was."""
    times = np.int64(load_u32(address))
    store_u32(address, times + number)
    return times


@kernel
def _tally(entry: int, before: int, memory: int, keys: int, key_count: int) -> int:
    """Count a step, and the pair of it and the step before; returns the number of keys.

    A long step counts as its first byte too: it might be better to stop there.
    """
    step = entry & STEP_MASK
    head = np.int64(load_u64(memory + WORDS + 8 * step) & np.uint64(0xFF))
    is_long = np.int64((entry >> SIZE_SHIFT) > 1)
    _add(memory + TIMES + 4 * step, 1)
    _add(memory + TIMES + 4 * head, is_long)
    if before >= 0:
        # Keys are written in any case; only new ones are counted and so kept.
        key = before << 9 | step
        store_u32(keys + 4 * key_count, key)
        key_count += _add(memory + PAIR_TIMES + 4 * key, 1) == 0
        key = before << 9 | head
        store_u32(keys + 4 * key_count, key)
        key_count += is_long & (_add(memory + PAIR_TIMES + 4 * key, is_long) == 0)
    return key_count


@kernel
def _left(entry: int) -> int:
    """The step as the first of a pair; -1 where nothing can be appended to it."""
    return entry & STEP_MASK if entry < 8 << SIZE_SHIFT else np.int64(-1)


@kernel
def _walk(
    offsets: int, data: int, data_end: int, count: int, memory: int, keys: int
) -> tuple[int, int]:
    """Encode values and count their steps and pairs of steps.

    The values are encoded in two halves that take turns: while one waits for the tables the
    other goes on. Returns the bytes written, and the number of ``keys``: pairs that occur.
    """
    key_count = np.int64(0)
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
            return written, key_count
        if p0 < e0 and p1 < e1:
            while p0 < e0 and p1 < e1:
                entry0 = _look_up(p0, e0, data_end, memory)
                entry1 = _look_up(p1, e1, data_end, memory)
                p0 += entry0 >> SIZE_SHIFT
                p1 += entry1 >> SIZE_SHIFT
                key_count = _tally(entry0, b0, memory, keys, key_count)
                key_count = _tally(entry1, b1, memory, keys, key_count)
                b0, b1 = _left(entry0), _left(entry1)
                written += 2 + ((entry0 & 256) == 0) + ((entry1 & 256) == 0)
        else:
            # One half is done: the other continues in the variables of the first.
            if p0 == e0:
                p0, e0, b0, i0, n0 = p1, e1, b1, i1, n1
                p1, i1 = e1, n1
            while p0 < e0:
                entry0 = _look_up(p0, e0, data_end, memory)
                p0 += entry0 >> SIZE_SHIFT
                key_count = _tally(entry0, b0, memory, keys, key_count)
                b0 = _left(entry0)
                written += 1 + ((entry0 & 256) == 0)


@kernel
def _enter(
    word: int, size: int, gain: int, count: int, candidates: int, buckets: int, bucket_count: int
) -> int:
    """Add the gain to the candidate with this word and size, a new one if there is none.

    Returns the number of candidates, ``count`` before.
    """
    mixed = (word ^ np.uint64(size)) * np.uint64(0x9E3779B97F4A7C15)
    bucket = np.int64((mixed >> np.uint64(32)) & np.uint64(bucket_count - 1))
    while True:
        number = np.int64(load_u32(buckets + 4 * bucket)) - 1
        if number < 0:
            break
        at = candidates + CANDIDATE_BYTES * number
        if load_u64(at + CANDIDATE.word) == word and load_i64(at + CANDIDATE.size) == size:
            store_u64(at + CANDIDATE.gain, load_i64(at + CANDIDATE.gain) + gain)
            return count
        bucket = (bucket + 1) & (bucket_count - 1)
    store_u32(buckets + 4 * bucket, count + 1)
    at = candidates + CANDIDATE_BYTES * count
    store_u64(at + CANDIDATE.word, word)
    store_u64(at + CANDIDATE.size, size)
    store_u64(at + CANDIDATE.gain, gain)
    return count + 1


@kernel
def _gather(
    memory: int, keys: int, key_count: int, min_count: int, pair_weight: int, candidates: int,
    buckets: int,
) -> int:  # fmt: skip
    """Make candidates of steps and pairs that occur often enough; returns their number."""
    bucket_count = np.int64(1024)
    while bucket_count < 2 * (key_count + STEPS):
        bucket_count *= 2
    for bucket in range(bucket_count):
        store_u32(buckets + 4 * bucket, 0)
    count = np.int64(0)
    for step in range(STEPS):
        times = np.int64(load_u32(memory + TIMES + 4 * step))
        store_u32(memory + TIMES + 4 * step, 0)
        if times >= min_count:
            size = load_i64(memory + SIZES + 8 * step)
            gain = times * (8 if size == 1 else size)
            word = load_u64(memory + WORDS + 8 * step)
            count = _enter(word, size, gain, count, candidates, buckets, bucket_count)
    for k in range(key_count):
        key = np.int64(load_u32(keys + 4 * k))
        times = np.int64(load_u32(memory + PAIR_TIMES + 4 * key))
        store_u32(memory + PAIR_TIMES + 4 * key, 0)
        if times >= min_count:
            left, right = key >> 9, key & STEP_MASK
            size = load_i64(memory + SIZES + 8 * left)
            word = load_u64(memory + WORDS + 8 * right) << np.uint64(8 * size)
            word |= load_u64(memory + WORDS + 8 * left)
            size = min(size + load_i64(memory + SIZES + 8 * right), np.int64(8))
            gain = times * size * pair_weight // 10
            count = _enter(word, size, gain, count, candidates, buckets, bucket_count)
    return count


@kernel
def _is_better(candidates: int, first: int, second: int) -> bool:
    """Whether the first candidate is better: more gain; else the smaller word, then size."""
    a = candidates + CANDIDATE_BYTES * first
    b = candidates + CANDIDATE_BYTES * second
    more = load_i64(a + CANDIDATE.gain) - load_i64(b + CANDIDATE.gain)
    if more != 0:
        return more > 0
    if load_u64(a + CANDIDATE.word) != load_u64(b + CANDIDATE.word):
        return load_u64(a + CANDIDATE.word) < load_u64(b + CANDIDATE.word)
    return load_i64(a + CANDIDATE.size) < load_i64(b + CANDIDATE.size)


@kernel
def _sift_down(heap: int, at: int, count: int, candidates: int) -> None:
    """Move the candidate at this index of the heap below all that are better."""
    item = np.int64(load_u32(heap + 4 * at))
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        other = np.int64(load_u32(heap + 4 * child))
        if child + 1 < count:
            right = np.int64(load_u32(heap + 4 * child + 4))
            if _is_better(candidates, right, other):
                child += 1
                other = right
        if not _is_better(candidates, other, item):
            break
        store_u32(heap + 4 * at, other)
        at = child
    store_u32(heap + 4 * at, item)


@kernel
def _remove_symbols(memory: int, count: int) -> None:
    """Remove ``count`` symbols from the tables, except for those of two bytes."""
    for step in range(256, 256 + count):
        word = load_u64(memory + WORDS + 8 * step)
        size = load_i64(memory + SIZES + 8 * step)
        if size == 1:
            store_u16(memory + SINGLES + 2 * np.int64(word), np.int64(word) | 1 << SIZE_SHIFT)
        elif size > 2:
            store_u64(memory + SLOTS + SLOT_BYTES * slot_of(word) + SLOT.entry, 0)


@kernel
def _enter_pairs(memory: int, count: int) -> None:
    """Fill the entries for two bytes: the symbol of both, else the entry of the first."""
    for row in range(256):
        copy(memory + PAIRS + 512 * row, memory + SINGLES, 512)
    for step in range(256, 256 + count):
        if load_i64(memory + SIZES + 8 * step) == 2:
            word = np.int64(load_u64(memory + WORDS + 8 * step))
            store_u16(memory + PAIRS + 2 * word, step | 2 << SIZE_SHIFT)


@kernel
def _choose(memory: int, heap: int, remaining: int, candidates: int) -> int:
    """Enter the best candidates as symbols, one for each slot; returns their number."""
    for k in range(remaining):
        store_u32(heap + 4 * k, k)
    for k in range(remaining // 2 - 1, -1, -1):
        _sift_down(heap, k, remaining, candidates)
    count = np.int64(0)
    while remaining > 0 and count < MAX_SYMBOLS:
        best = candidates + CANDIDATE_BYTES * np.int64(load_u32(heap))
        remaining -= 1
        store_u32(heap, np.int64(load_u32(heap + 4 * remaining)))
        _sift_down(heap, 0, remaining, candidates)
        word, size = load_u64(best + CANDIDATE.word), load_i64(best + CANDIDATE.size)
        step = 256 + count
        if size == 1:
            store_u16(memory + SINGLES + 2 * np.int64(word), step | 1 << SIZE_SHIFT)
        elif size > 2:
            slot = memory + SLOTS + SLOT_BYTES * slot_of(word)
            if load_u64(slot + SLOT.entry) != 0:
                continue
            store_u64(slot + SLOT.word, word)
            store_u64(slot + SLOT.mask, low_bits(8 * size))
            store_u64(slot + SLOT.entry, size << SIZE_SHIFT | step)
        store_u64(memory + WORDS + 8 * step, word)
        store_u64(memory + SIZES + 8 * step, size)
        count += 1
    _enter_pairs(memory, count)
    return count


@kernel
def _max_candidates(data_size: int) -> int:
    """Every step, and two pairs for each byte."""
    return 2 * data_size + STEPS


@kernel
def memory_size(data_size: int) -> int:
    """Bytes that ``train`` needs; heap, keys and up to four buckets take 4 bytes each."""
    return HEAP + (CANDIDATE_BYTES + 4 + 4 + 16) * _max_candidates(data_size) + 4096


@kernel
def train(
    offsets: int, data: int, data_size: int, rounds: int, round_count: int, sample_values: int,
    memory: int, words: int, sizes: int,
) -> int:  # fmt: skip
    """Find symbols for values with 64-bit offsets; returns their number.

    ``rounds`` are records of ``TrainRound``. Rounds over all ``sample_values`` are measured, and
    the best table is written to ``words`` and ``sizes``. ``memory`` are ``memory_size`` zeros.
    """
    max_candidates = _max_candidates(data_size)
    heap = memory + HEAP
    keys = heap + 4 * max_candidates
    candidates = keys + 4 * max_candidates
    buckets = candidates + CANDIDATE_BYTES * max_candidates
    for byte in range(256):
        store_u64(memory + WORDS + 8 * byte, byte)
        store_u64(memory + SIZES + 8 * byte, 1)
        store_u16(memory + SINGLES + 2 * byte, byte | 1 << SIZE_SHIFT)
    _enter_pairs(memory, 0)
    count = np.int64(0)
    best = np.int64(0)
    smallest = 2 * data_size
    for i in range(round_count):
        here = rounds + ROUND_BYTES * i
        values = load_i64(here + ROUND.values)
        min_count = load_i64(here + ROUND.min_count)
        weight = load_i64(here + ROUND.pair_weight)
        written, key_count = _walk(offsets, data, data + data_size, values, memory, keys)
        if values == sample_values and written < smallest:
            best, smallest = count, written
            copy(words, memory + WORDS + 8 * 256, 8 * count)
            copy(sizes, memory + SIZES + 8 * 256, 8 * count)
        if written == 0 or weight == 0:
            break
        made = _gather(memory, keys, key_count, min_count, weight, candidates, buckets)
        _remove_symbols(memory, count)
        count = _choose(memory, heap, made, candidates)
    return best
