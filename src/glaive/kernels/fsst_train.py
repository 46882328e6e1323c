"""Find the symbols with which FSST compresses a text best.

Training starts without symbols. Each round encodes a sample with the current symbols, counts
the steps taken and the pairs of neighbouring steps, and keeps those steps and joined pairs
that cover most bytes. The best table of the last rounds is returned.

The idea: Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression", VLDB 2020.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.kernels._addresses import address
from glaive.kernels.fsst import MAX_SYMBOL_BYTES, MAX_SYMBOLS, SymbolTable, slots_of, split_value
from glaive.kernels.hashing import copy_ranges
from glaive.kernels.native import fsst_train as fsst_train_loops
from glaive.kernels.native import use_compiled
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.types import Int64s, UInt16s, UInt64s

SAMPLE_BYTES: Final = 16_384
"""Largest sample."""

SAMPLE_SHARE: Final = 8
"""The sample of smaller inputs is this part of them, but at least ``MIN_SAMPLE`` bytes."""

MIN_SAMPLE: Final = 8192

WINDOW: Final = 512
"""Bytes taken from one value at most."""

ROUNDS: Final = ((0.03, 10), (0.1, 10), (0.3, 10), (0.5, 10), *((1.0, 8),) * 4, (1.0, 0))
"""Share of the sample used in each round, and weight of joined pairs in tenths.

Early rounds only find short symbols. Later a pair must gain more than a symbol in use: otherwise
good symbols are replaced by many that each gain little, and every second table is bad. The last
round only measures.
"""

MIN_COUNT: Final = 3
"""Occurrences in the whole sample below which a symbol does not pay."""

BYTE_BOOST: Final = 8
"""Weight of one-byte symbols: without one, the byte costs an escape."""


def sample_strings(strings: Strings, count: int, turn: int = 0) -> Strings:
    """Return evenly spaced values, or windows of long ones, of at most about 16 KiB.

    With another ``turn`` other values are taken, if there are enough.
    """
    ends = as_offsets(strings.offsets, strings.offset_bits)
    total = int(ends[count]) - int(ends[0])
    budget = min(max(total // SAMPLE_SHARE, MIN_SAMPLE), SAMPLE_BYTES)
    mean = min(max(1, total // max(count, 1)), WINDOW)
    taken = min(count, -(-budget // mean))
    # In random order, so that early rounds see all of the column; the same in every run.
    wanted = np.random.default_rng(taken).permutation(taken) * count // max(1, taken)
    wanted += min(turn, count // max(1, taken) - 1)
    starts, stops = ends[wanted].astype(np.int64), ends[wanted + 1].astype(np.int64)
    spare = np.maximum(stops - starts - WINDOW, 0)
    # Windows start at varied positions.
    starts += np.where(spare > 0, np.arange(len(spare)) * 7919 % np.maximum(spare, 1), 0)
    stops = np.minimum(stops, starts + WINDOW)
    return copy_ranges(strings.data, starts, stops - starts, 64)


def train_symbols(sample: Strings, text_bytes: int = 0) -> SymbolTable:
    """Return a table for text like ``sample`` (64-bit offsets from 0).

    ``text_bytes`` will be encoded with it: if that uses the compiled kernel, so does training.

    Raises
    ------
    SchemaError
        The offsets of the sample descend or leave its data.
    """
    count = len(as_offsets(sample.offsets, 64)) - 1
    check_offsets(sample.offsets, 64, sample.data, count)
    if count < 1:
        return SymbolTable(())
    rounds = [
        (min(count, max(1, round(count * share))), max(1, round(MIN_COUNT * share)), weight)
        for share, weight in ROUNDS
    ]
    if use_compiled(max(sample.data.size, text_bytes) // 8):
        return _train_compiled(sample, np.array(rounds, np.int64))
    table = best = SymbolTable(())
    smallest = 2 * sample.data.size
    for values, min_count, weight in rounds:
        steps, firsts = _split(table, sample, values)
        if values == count:
            # A step is one byte, a literal two. Later tables are mostly, not always, better.
            size = len(steps) + int(np.count_nonzero(steps < 256))
            if size < smallest:
                best, smallest = table, size
        if len(steps) == 0 or not weight:
            break
        table = _choose(table, steps, firsts, min_count, weight)
    return best


def _train_compiled(sample: Strings, rounds: Int64s) -> SymbolTable:
    size = sample.data.size
    memory = np.zeros(fsst_train_loops.memory_size(size), np.uint8)
    words, sizes = np.empty(MAX_SYMBOLS, np.uint64), np.empty(MAX_SYMBOLS, np.int64)
    source = [address(sample.offsets), address(sample.data), size]
    count = len(as_offsets(sample.offsets, 64)) - 1
    plan = [address(rounds), len(rounds), count]
    number = fsst_train_loops.train(
        *source, *plan, *[address(array) for array in (memory, words, sizes)]
    )
    return SymbolTable.of(words[:number], sizes[:number])


def _split(table: SymbolTable, sample: Strings, count: int) -> tuple[UInt16s, Int64s]:
    """Encode the first ``count`` values into steps, with the first step of each value."""
    firsts = np.empty(count, np.int64)
    memory = memoryview(sample.data)
    bounds = as_offsets(sample.offsets, 64)[: count + 1].tolist()
    steps: list[int] = []
    for i in range(count):
        firsts[i] = len(steps)
        steps += split_value(table, bytes(memory[bounds[i] : bounds[i + 1]]))
    return np.array(steps, np.uint16), firsts


def _choose(
    table: SymbolTable, steps: UInt16s, firsts: Int64s, min_count: int, weight: int
) -> SymbolTable:
    """Make a table of the steps and joined pairs that gain most, the pairs weighted."""
    words, sizes = np.zeros(512, np.uint64), np.ones(512, np.int64)
    words[:256] = np.arange(256)
    words[256:] = table.words
    sizes[256:] = table.lengths
    head = (words & np.uint64(0xFF)).astype(np.int64)
    taken = steps.astype(np.int64)
    # A symbol's first byte counts too: it might be better to stop there.
    times = np.bincount(taken, minlength=512)
    times += np.bincount(head[taken[sizes[taken] > 1]], minlength=512)
    frequent = np.flatnonzero(times >= min_count)
    all_words, all_sizes = [words[frequent]], [sizes[frequent]]
    gains = [times[frequent] * sizes[frequent] * np.where(sizes[frequent] == 1, BYTE_BOOST, 1)]
    left, right = taken[:-1], taken[1:]
    follows = np.ones(len(taken), np.bool_)
    follows[firsts[firsts < len(taken)]] = False
    follows = follows[1:] & (sizes[left] < MAX_SYMBOL_BYTES)
    left, right = left[follows], right[follows]
    wide = sizes[right] > 1
    keys = np.concatenate((left << 9 | right, left[wide] << 9 | head[right[wide]]))
    pairs, occurs = np.unique(keys, return_counts=True)
    pairs, occurs = pairs[occurs >= min_count], occurs[occurs >= min_count]
    left, right = pairs >> 9, pairs & 511
    all_words.append(words[left] | words[right] << (8 * sizes[left]).astype(np.uint64))
    all_sizes.append(np.minimum(sizes[left] + sizes[right], MAX_SYMBOL_BYTES))
    gains.append(occurs * all_sizes[1] * weight // 10)
    return _best(np.concatenate(all_words), np.concatenate(all_sizes), np.concatenate(gains))


def _best(words: UInt64s, sizes: Int64s, gains: Int64s) -> SymbolTable:
    """Make a table of the symbols that gain most; one for each slot of the encoder."""
    order = np.lexsort((sizes, words))
    words, sizes, gains = words[order], sizes[order], gains[order]
    new = np.ones(len(words), np.bool_)
    new[1:] = (words[1:] != words[:-1]) | (sizes[1:] != sizes[:-1])
    starts = np.flatnonzero(new)
    best = np.argsort(-np.add.reduceat(gains, starts), kind="stable")
    words, sizes = words[starts][best], sizes[starts][best]
    # Short symbols do not take slots: they get distinct numbers that no slot has.
    slots = np.where(sizes > 2, slots_of(words), -1 - np.arange(len(words)))
    _, first = np.unique(slots, return_index=True)
    first = np.sort(first)[:MAX_SYMBOLS]
    return SymbolTable.of(words[first], sizes[first])
