"""Kernels over a wavelet tree of a Burrows-Wheeler transform. Wrappers: ``glaive.kernels.wavelet``.

The wrapper has compared all numbers of the tree with each other. A rank of a row of a node is
therefore a row of its child. A row of a leaf is a row of the whole.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    copy,
    kernel,
    load_i32,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    store_u8,
    store_u32,
    store_u64,
)

# --- Kernels that sort the suffixes of a text by induction. Wrapper: ``glaive.kernels.wavelet``
#
# A suffix is smaller or larger than the next suffix, which begins one symbol later. The empty
# suffix after the last symbol is smaller than all. A minimum is a smaller suffix after a larger
# one. Once the suffixes at minima are in order, one pass over the order sorts the larger suffixes,
# and one pass back the smaller ones. Each pass puts the suffix that begins one symbol earlier into
# the next free place of its first symbol.


@kernel
def _symbol(text: int, width: int, at: int) -> int:
    return np.int64(load_u8(text + at)) if width == 1 else np.int64(load_i32(text + 4 * at))


@kernel
def _induce(
    text: int, width: int, size: int, symbols: int, starts: int, heads: int, order: int
) -> None:
    """Sort all suffixes or substrings; minima are already at the ends of their symbols."""
    copy(heads, starts, 8 * symbols)
    last = _symbol(text, width, size - 1)
    place = load_i64(heads + 8 * last)
    store_u32(order + 4 * place, size - 1)
    store_u64(heads + 8 * last, place + 1)
    for at in range(size):
        behind = np.int64(load_i32(order + 4 * at))
        if behind > 0:
            symbol = _symbol(text, width, behind - 1)
            if symbol >= _symbol(text, width, behind):
                place = load_i64(heads + 8 * symbol)
                store_u32(order + 4 * place, behind - 1)
                store_u64(heads + 8 * symbol, place + 1)
    copy(heads, starts + 8, 8 * symbols)
    at = size - 1
    while at >= 0:
        behind = np.int64(load_i32(order + 4 * at))
        if behind > 0:
            symbol = _symbol(text, width, behind - 1)
            following = _symbol(text, width, behind)
            place = load_i64(heads + 8 * symbol)
            if symbol < following or (symbol == following and place <= at):
                store_u32(order + 4 * (place - 1), behind - 1)
                store_u64(heads + 8 * symbol, place - 1)
        at -= 1


@kernel
def sort_substrings(
    text: int, width: int, size: int, symbols: int, starts: int, heads: int, minima: int,
    found_count: int, order: int, names: int,
) -> int:  # fmt: skip
    """Number the strings from one minimum to the next; equal strings get one number.

    Return how many numbers there are. ``order`` and ``names`` are all -1. The kernel stores where
    the suffixes of each symbol begin in ``starts``, with their end. It stores minima in ``minima``,
    in the order of the text, and their number at ``found_count``. ``minima`` and ``names`` have
    room for half of ``size``.
    """
    for symbol in range(symbols + 1):
        store_u64(starts + 8 * symbol, 0)
    for at in range(size):
        entry = starts + 8 * _symbol(text, width, at) + 8
        store_u64(entry, load_i64(entry) + 1)
    for symbol in range(symbols):
        entry = starts + 8 * symbol + 8
        store_u64(entry, load_i64(entry) + load_i64(entry - 8))
    # Minima, from the last one on; they are reversed afterwards.
    copy(heads, starts + 8, 8 * symbols)
    found = np.int64(0)
    is_smaller = False
    at = size - 2
    following = _symbol(text, width, size - 1)
    while at >= 0:
        symbol = _symbol(text, width, at)
        if symbol < following:
            is_smaller = True
        elif symbol > following:
            if is_smaller:
                store_u32(minima + 4 * found, at + 1)
                found += 1
                place = load_i64(heads + 8 * following) - 1
                store_u32(order + 4 * place, at + 1)
                store_u64(heads + 8 * following, place)
            is_smaller = False
        following = symbol
        at -= 1
    store_u64(found_count, found)
    low, high = np.int64(0), found - 1
    while low < high:
        first, last = load_i32(minima + 4 * low), load_i32(minima + 4 * high)
        store_u32(minima + 4 * low, last)
        store_u32(minima + 4 * high, first)
        low += 1
        high -= 1
    _induce(text, width, size, symbols, starts, heads, order)
    # Two minima are never adjacent: half a position identifies a minimum.
    for number in range(found):
        store_u32(names + 4 * (np.int64(load_i32(minima + 4 * number)) >> 1), number)
    # The order of the minima, as numbers of them, at the front: half of all places are enough.
    sorted_count = np.int64(0)
    for at in range(size):
        position = np.int64(load_i32(order + 4 * at))
        number = np.int64(load_i32(names + 4 * (position >> 1)))
        if number >= 0 and np.int64(load_i32(minima + 4 * number)) == position:
            store_u32(order + 4 * sorted_count, number)
            sorted_count += 1
    name = np.int64(-1)
    before = np.int64(-1)
    for at in range(sorted_count):
        number = np.int64(load_i32(order + 4 * at))
        if before < 0 or not _same(text, width, minima, found, before, number):
            name += 1
        store_u32(names + 4 * number, name)
        before = number
    return name + 1


@kernel
def _same(text: int, width: int, minima: int, count: int, one: int, other: int) -> bool:
    """Return whether the strings from two minima to the next ones are equal."""
    if one == count - 1 or other == count - 1:
        return False
    first, second = np.int64(load_i32(minima + 4 * one)), np.int64(load_i32(minima + 4 * other))
    length = np.int64(load_i32(minima + 4 * one + 4)) - first
    if np.int64(load_i32(minima + 4 * other + 4)) - second != length:
        return False
    for at in range(length + 1):
        if _symbol(text, width, first + at) != _symbol(text, width, second + at):
            return False
    return True


@kernel
def sort_suffixes(
    text: int, width: int, size: int, symbols: int, starts: int, heads: int, minima: int,
    found_count: int, order: int, names: int,
) -> None:  # fmt: skip
    """Sort all suffixes; ``names`` are the positions of all minima in the order of their suffixes.

    ``order`` is all -1, ``starts`` is the result of :func:`sort_substrings`.
    """
    copy(heads, starts + 8, 8 * symbols)
    number = load_i64(found_count) - 1
    while number >= 0:
        position = np.int64(load_i32(names + 4 * number))
        symbol = _symbol(text, width, position)
        place = load_i64(heads + 8 * symbol) - 1
        store_u32(order + 4 * place, position)
        store_u64(heads + 8 * symbol, place)
        number -= 1
    _induce(text, width, size, symbols, starts, heads, order)


@kernel
def _ones_before(words: int, ranks: int, bit: int) -> int:
    """Count the set bits of a node before a bit; ``ranks`` counts bits before each eight words."""
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


@kernel
def find_pattern(
    pattern: int, length: int, words: int, ranks: int, nodes: int, counts: int, path_starts: int,
    paths: int, rows: int, found: int,
) -> None:  # fmt: skip
    """Return the rows of the suffixes that begin with a pattern, as start and stop."""
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
    """Return the byte before the suffix of a row, and how many rows before it have this byte."""
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


@kernel
def locate_rows(
    first: int, stop: int, words: int, ranks: int, nodes: int, counts: int, rows: int,
    samples: int, shift: int, most_steps: int, positions: int,
) -> int:  # fmt: skip
    """Store the positions of rows in the text, by steps back to a row that has a sample.

    Return the number of steps, or -1 for too many steps, or if they miss all positions.
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
        if position >= rows:  # The steps crossed the beginning.
            position -= rows
        if position >= rows:
            return -1
        store_u64(positions + 8 * (start - first), position)
    return steps


@kernel
def read_text(
    words: int, ranks: int, nodes: int, counts: int, rows: int, text: int
) -> None:  # fmt: skip
    """Store all bytes up to the last one, exclusive, backwards; row 0 is the row of the last."""
    row = np.int64(0)
    at = rows - 2
    while at >= 0:
        symbol, rank = _byte_before(words, ranks, nodes, row)
        store_u8(text + at, symbol)
        row = load_i64(counts + 8 * symbol) + rank
        at -= 1
