"""Kernels that number byte strings across calls. Wrappers: ``glaive.kernels.vocabulary``.

Open addressing: a slot holds 1 + the number of an item, 0 when free.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.hashing import enter_again, hash_bytes, home_slot, load_word
from glaive.kernels.loops.memory import (
    copy,
    kernel,
    kernel_of,
    load_i64,
    load_u32,
    load_u64,
    store_u32,
    store_u64,
)
from glaive.kernels.string_records import NumberRanges

__all__ = ["enter_items", "number_ranges"]


@kernel
def _equal(first: int, first_end: int, second: int, second_end: int, size: int) -> bool:
    """Whether ``size`` bytes are equal; reads nothing at or behind the ends."""
    if size < 8:
        return load_word(first, size, first_end) == load_word(second, size, second_end)
    last = size - 8
    at = 0
    while at < last:
        if load_u64(first + at) != load_u64(second + at):
            return False
        at += 8
    return load_u64(first + last) == load_u64(second + last)


@kernel
def enter_items(slots: int, size: int, hashes: int, items: int) -> None:
    """Enter items in ``size`` slots, more than there are items."""
    enter_again(slots, size, hashes, items)


@kernel_of(NumberRanges)
def number_ranges(
    data: int, data_size: int, starts: int, sizes: int, first: int, stop: int, slots: int,
    slot_count: int, hashes: int, ends: int, max_items: int, pool: int, pool_size: int, items: int,
    numbers: int, secret: int,
) -> int:  # fmt: skip
    """Number ranges from ``first`` on, until one needs more room; the range that was reached.

    ``ends`` has where each item ends in the pool, after a 0; ``max_items`` is less than the slots.
    """
    data_end = data + data_size
    pool_end = pool + pool_size
    known = np.int64(load_u64(items))
    for i in range(first, stop):
        size = np.int64(load_u32(sizes + 4 * i))
        here = data + load_i64(starts + 8 * i)
        value = hash_bytes(here, size, data_end, secret)
        slot = home_slot(value, slot_count)
        while True:
            item = np.int64(load_u32(slots + 4 * slot)) - 1
            if item < 0:
                start = load_i64(ends + 8 * known)
                if known == max_items or size > pool_size - start:
                    store_u64(items, known)
                    return i
                copy(pool + start, here, size)
                item = known
                known += 1
                store_u64(ends + 8 * known, start + size)
                store_u64(hashes + 8 * item, value)
                store_u32(slots + 4 * slot, known)
                break
            if load_u64(hashes + 8 * item) == value:
                start = load_i64(ends + 8 * item)
                if load_i64(ends + 8 * item + 8) - start == size and _equal(
                    pool + start, pool_end, here, data_end, size
                ):
                    break
            slot = (slot + 1) & (slot_count - 1)
        store_u32(numbers + 4 * i, item)
    store_u64(items, known)
    return stop
