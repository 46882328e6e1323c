"""Compiled run-length kernels; their wrappers are in ``glaive.kernels.runs``.

A run of equal values is stored as one or more pairs of a value and a length up to 255. Runs
are found 64 values at a time: bit ``i`` of a mask says that a run ends at value ``i``. A run
inside such a window is shorter than 255 and needs one pair, so a popcount gives the pairs.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import load_word
from glaive.kernels.loops.memory import (
    changes,
    fill,
    kernel,
    leading_zeros,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    store_u8,
    store_u64,
    store_word,
    trailing_zeros,
)

MAX_RUN = 255
WINDOW = 64


@kernel
def run_ends(word_bits: int, source: int, count: int, follow: int) -> np.uint64:
    """Return bits: whether value ``i`` of ``count`` ≤ 64 precedes a different value.

    ``follow`` is the number of values from ``source`` on; the bit of the very last one is 0.
    """
    if count == WINDOW and follow > WINDOW:
        return changes(word_bits, source)
    word = word_bits >> 3
    ends = np.uint64(0)
    for i in range(min(count, follow - 1)):
        at = source + i * word
        if load_word(word_bits, at) != load_word(word_bits, at + word):
            ends |= np.uint64(1) << np.uint64(i)
    return ends


@kernel
def pairs_of(length: int) -> int:
    """Return the pairs that a run of this length needs."""
    return (length + MAX_RUN - 1) // MAX_RUN


@kernel
def add_window(ends: np.uint64, size: int, closed: int, run: int) -> tuple[int, int]:
    """Add a window of ``size`` values to the pairs of closed runs and the open run's length."""
    if ends == np.uint64(0):
        return closed, run + size
    first = run + np.int64(trailing_zeros(ends)) + 1
    closed += pairs_of(first) + np.int64(popcount(ends)) - 1
    return closed, size - WINDOW + np.int64(leading_zeros(ends))


@kernel
def plan_runs(
    source: int, count: int, word_bits: int, max_values: int, max_bytes: int, limit: int,
    counts: int, pairs: int,
) -> int:  # fmt: skip
    """Store values and pairs of each chunk; return the chunks, -1 above ``limit`` pairs."""
    word = word_bits >> 3
    max_pairs = max_bytes // (word + 1)
    chunks = 0
    start = 0
    total = 0
    while start < count:
        remaining = count - start
        closed = np.int64(0)
        run = np.int64(0)
        best_values = 0
        best_pairs = 0
        at = 0
        while at < remaining and at < max_values:
            step = min(remaining - at, WINDOW)
            ends = run_ends(word_bits, source + (start + at) * word, step, remaining - at)
            closed, run = add_window(ends, step, closed, run)
            at += step
            if at == remaining or (at & (at - 1)) == 0:
                needed = closed + pairs_of(run)
                if needed > max_pairs:
                    break
                best_values = at
                best_pairs = needed
        total += best_pairs
        if total > limit:
            return -1
        store_u64(counts + chunks * 8, best_values)
        store_u64(pairs + chunks * 8, best_pairs)
        chunks += 1
        start += best_values
    return chunks


@kernel
def count_pairs(source: int, counts: int, chunks: int, word_bits: int, pairs: int) -> None:
    """Store the pairs that each chunk of ``counts[i]`` values needs."""
    word = word_bits >> 3
    here = source
    for i in range(chunks):
        remaining = load_i64(counts + i * 8)
        closed = np.int64(0)
        run = np.int64(0)
        while remaining > 0:
            step = min(remaining, WINDOW)
            ends = run_ends(word_bits, here, step, remaining)
            closed, run = add_window(ends, step, closed, run)
            here += step * word
            remaining -= step
        store_u64(pairs + i * 8, closed + pairs_of(run))


@kernel
def put_run(word_bits: int, value: np.uint64, length: int, values: int, lengths: int) -> int:
    """Store the pairs of one run; return how many."""
    word = word_bits >> 3
    done = 0
    while length > 0:
        part = min(length, MAX_RUN)
        store_word(word_bits, values + done * word, value)
        store_u8(lengths + done, part)
        length -= part
        done += 1
    return done


@kernel
def collapse_runs(
    source: int, counts: int, chunks: int, word_bits: int, values: int, lengths: int, capacity: int
) -> int:
    """Store values and lengths of all pairs of chunks of ``counts[i]`` values.

    Return their number, or -1 when they are more than ``capacity``.
    """
    word = word_bits >> 3
    here = source
    done = 0
    for i in range(chunks):
        remaining = load_i64(counts + i * 8)
        run = 0
        while remaining > 0:
            step = min(remaining, WINDOW)
            ends = run_ends(word_bits, here, step, remaining)
            begin = 0
            while ends != np.uint64(0):
                end = np.int64(trailing_zeros(ends)) + 1
                ends &= ends - np.uint64(1)
                value = load_word(word_bits, here + (end - 1) * word)
                length = run + end - begin
                if pairs_of(length) > capacity - done:
                    return -1
                done += put_run(word_bits, value, length, values + done * word, lengths + done)
                begin = end
                run = 0
            run += step - begin
            here += step * word
            remaining -= step
        if run > 0:
            if pairs_of(run) > capacity - done:
                return -1
            value = load_word(word_bits, here - word)
            done += put_run(word_bits, value, run, values + done * word, lengths + done)
    return done


@kernel
def repeat_word(word_bits: int, value: np.uint64) -> np.uint64:
    """Repeat the value in every part of a 64-bit word."""
    if word_bits == 8:
        value |= value << np.uint64(8)
    if word_bits <= 16:
        value |= value << np.uint64(16)
    if word_bits <= 32:
        value |= value << np.uint64(32)
    return value


@kernel
def expand_runs(
    data: int, values: int, lengths: int, runs: int, counts: int, chunks: int, word_bits: int,
    target: int, total: int,
) -> int:  # fmt: skip
    """Expand all runs; return the first chunk whose lengths contradict its count, or -1."""
    word = word_bits >> 3
    at = target
    stop = target + total * word
    for i in range(chunks):
        value_at = data + load_i64(values + i * 8)
        length_at = data + load_i64(lengths + i * 8)
        remaining = load_i64(counts + i * 8)
        for j in range(load_i64(runs + i * 8)):
            length = np.int64(load_u8(length_at + j))
            remaining -= length
            if remaining < 0:
                return i
            value = load_word(word_bits, value_at + j * word)
            end = at + length * word
            if end + WINDOW <= stop:
                # Writes up to 64 bytes too many; the next run overwrites them.
                value = repeat_word(word_bits, value)
                while at < end:
                    fill(at, value)
                    at += WINDOW
                at = end
            else:
                while at < end:
                    store_word(word_bits, at, value)
                    at += word
        if remaining != 0:
            return i
    return -1


@kernel
def sum_of_bytes(source: int) -> int:
    """Sum eight bytes."""
    word = load_u64(source)
    even = word & np.uint64(0x00FF00FF00FF00FF)
    odd = (word >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    return np.int64(((even + odd) * np.uint64(0x0001000100010001)) >> np.uint64(48))


@kernel
def find_run(lengths: int, runs: int, index: int) -> int:
    """Return the number of the run of a value by its index, or ``runs`` for a value beyond."""
    before, j = index, 0
    while j + 8 <= runs:
        length = sum_of_bytes(lengths + j)
        if length > before:
            break
        before -= length
        j += 8
    while j < runs:
        length = np.int64(load_u8(lengths + j))
        if length > before:
            break
        before -= length
        j += 1
    return j


@kernel
def take_runs(
    data: int, values: int, lengths: int, runs: int, chunk: int, index: int, wanted: int,
    word_bits: int, target: int,
) -> int:  # fmt: skip
    """Read values by position; return the first position beyond its chunk, or -1."""
    word = word_bits >> 3
    for i in range(wanted):
        c = load_i64(chunk + i * 8)
        count = load_i64(runs + c * 8)
        j = find_run(data + load_i64(lengths + c * 8), count, load_i64(index + i * 8))
        if j == count:
            return i
        value = load_word(word_bits, data + load_i64(values + c * 8) + j * word)
        store_word(word_bits, target + i * word, value)
    return -1
