"""Kernels over a wavelet tree of a Burrows-Wheeler transform. Wrappers: ``glaive.kernels.wavelet``.

All numbers of the tree were compared with each other before: every rank of a row of a node is
a row of its child, and every row of a leaf one of the whole.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    store_u8,
    store_u64,
)
from glaive.kernels.string_records import FindPattern, LocateRows, ReadText

__all__ = ["find_pattern", "locate_rows", "read_text"]


@kernel
def _ones_before(words: int, ranks: int, bit: int) -> int:
    """Set bits of a node before one: those before its eight words are counted in ``ranks``."""
    last = bit >> 6
    word = last & ~7
    ones = load_i64(ranks + (last & ~7))
    while word < last:
        ones += np.int64(popcount(load_u64(words + 8 * word)))
        word += 1
    rest = bit & 63
    if rest != 0:
        mask = (np.uint64(1) << np.uint64(rest)) - np.uint64(1)
        ones += np.int64(popcount(load_u64(words + 8 * last) & mask))
    return ones


@kernel_of(FindPattern)
def find_pattern(
    pattern: int, length: int, words: int, ranks: int, nodes: int, counts: int, path_starts: int,
    paths: int, rows: int, found: int,
) -> None:  # fmt: skip
    """Rows of the suffixes that begin with a pattern: the first, and the one after the last."""
    low, high = np.int64(0), rows
    at = length - 1
    while at >= 0 and low < high:
        symbol = np.int64(load_u8(pattern + at))
        step = load_i64(path_starts + 8 * symbol)
        stop = load_i64(path_starts + 8 * symbol + 8)
        if step == stop:
            high = low
        while step < stop and low < high:
            taken = load_i64(paths + 8 * step)
            node = nodes + 32 * (taken >> 1)
            bits, blocks = words + 8 * load_i64(node), ranks + 8 * load_i64(node + 8)
            first = _ones_before(bits, blocks, low)
            last = _ones_before(bits, blocks, high)
            if taken & 1:
                low, high = first, last
            else:
                low, high = low - first, high - last
            step += 1
        before = load_i64(counts + 8 * symbol)
        low, high = before + low, before + high
        at -= 1
    if low >= high:
        low, high = np.int64(0), np.int64(0)
    store_u64(found, low)
    store_u64(found + 8, high)


@kernel
def _byte_before(words: int, ranks: int, nodes: int, row: int) -> tuple[int, int]:
    """The byte before the suffix of a row, and how many rows before it have the same."""
    node = np.int64(0)
    while node >= 0:
        entry = nodes + 32 * node
        bits = words + 8 * load_i64(entry)
        ones = _ones_before(bits, ranks + 8 * load_i64(entry + 8), row)
        word = load_u64(bits + 8 * (row >> 6))
        if (word >> np.uint64(row & 63)) & np.uint64(1):
            row = ones
            node = load_i64(entry + 24)
        else:
            row -= ones
            node = load_i64(entry + 16)
    return ~node, row


@kernel_of(LocateRows)
def locate_rows(
    first: int, stop: int, words: int, ranks: int, nodes: int, counts: int, rows: int,
    samples: int, shift: int, most_steps: int, positions: int,
) -> int:  # fmt: skip
    """Positions of rows in the text, by steps back to a row that has a sample; steps made.

    -1 if these are too many, or lead to no position.
    """
    mask = (np.int64(1) << shift) - 1
    steps = np.int64(0)
    for start in range(first, stop):
        row = np.int64(start)
        before = steps
        while row & mask != 0:
            if steps >= most_steps:
                return -1
            symbol, rank = _byte_before(words, ranks, nodes, row)
            row = load_i64(counts + 8 * symbol) + rank
            steps += 1
        position = load_i64(samples + 8 * (row >> shift)) + (steps - before)
        if position >= rows:  # It went back over the beginning.
            position -= rows
        if position >= rows:
            return -1
        store_u64(positions + 8 * (start - first), position)
    return steps


@kernel_of(ReadText)
def read_text(
    words: int, ranks: int, nodes: int, counts: int, rows: int, text: int
) -> None:  # fmt: skip
    """All bytes but the last, from the last of them to the first; row 0 is that of the last."""
    row = np.int64(0)
    at = rows - 2
    while at >= 0:
        symbol, rank = _byte_before(words, ranks, nodes, row)
        store_u8(text + at, symbol)
        row = load_i64(counts + 8 * symbol) + rank
        at -= 1
