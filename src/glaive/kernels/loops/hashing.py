"""Kernels that number distinct values. Wrappers: ``glaive.kernels.hashing``.

Open addressing: a slot holds 1 + the number of an item, 0 when free. The table starts small,
so that few items stay in the first-level cache. It doubles when an eighth is taken, as long as it
fits that cache: most values are then found in the first slot, as the processor predicts. A larger
one doubles when half full.

Hashes have a secret factor (``glaive.entropy.hash_secret``): nobody can choose values that meet in
few slots, where each would be compared with all before.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_i64,
    load_partial,
    load_u32,
    load_u64,
    store_u32,
    store_u64,
)
from glaive.kernels.loops.offsets import load_offset
from glaive.kernels.string_records import NumberStrings

__all__ = [
    "enter_again",
    "hash_bytes",
    "home_slot",
    "load_word",
    "mixed",
    "number_strings",
    "number_words",
]

FIRST_SLOTS = 1024
SPARSE_SLOTS = 8192
SIZES = 0x9E3779B97F4A7C15
"""What tells sizes apart: texts of zero bytes."""


@kernel
def load_word(address: int, size: int, end: int) -> int:
    """Load ``size`` < 8 bytes as a number; reads nothing at or behind ``end``."""
    if address + 8 <= end:
        mask = (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
        return load_u64(address) & mask
    return load_partial(address, address + size)


@kernel
def mixed(state: int, word: int, secret: int) -> int:
    """Take eight more bytes into a hash.

    The first product may keep a difference of the highest bits as it is, the second does not.
    """
    state = (state ^ word) * np.uint64(secret)
    return (state ^ (state >> np.uint64(32))) * np.uint64(secret)


@kernel
def hash_bytes(address: int, size: int, end: int, secret: int) -> int:
    """Hash ``size`` bytes; reads nothing at or behind ``end``."""
    state = np.uint64(size) * np.uint64(SIZES)
    if size < 8:
        return mixed(state, load_word(address, size, end), secret)
    at = address
    last = address + size - 8
    while at < last:
        state = mixed(state, load_u64(at), secret)
        at += 8
    return mixed(state, load_u64(last), secret)


@kernel
def _equal(a: int, b: int, size: int, end: int) -> bool:
    if size < 8:
        return load_word(a, size, end) == load_word(b, size, end)
    last = size - 8
    at = 0
    while at < last:
        if load_u64(a + at) != load_u64(b + at):
            return False
        at += 8
    return load_u64(a + last) == load_u64(b + last)


@kernel
def home_slot(value: int, size: int) -> int:
    """Slot of a hash: its upper bits, which all bytes of the value have reached."""
    return np.int64((value >> np.uint64(32)) & np.uint64(size - 1))


@kernel
def _clear(slots: int, size: int) -> None:
    for i in range(size):
        store_u32(slots + 4 * i, 0)


@kernel
def enter_again(slots: int, size: int, hashes: int, items: int) -> None:
    """Enter all items again, in ``size`` slots."""
    _clear(slots, size)
    for item in range(items):
        slot = home_slot(load_u64(hashes + 8 * item), size)
        while load_u32(slots + 4 * slot) != 0:
            slot = (slot + 1) & (size - 1)
        store_u32(slots + 4 * slot, item + 1)


@kernel
def _enter(
    item: int, value: int, row: int, slots: int, slot: int, size: int, hashes: int, firsts: int
) -> int:
    """Enter a new item of hash ``value`` in a free slot; returns the number of slots."""
    store_u64(hashes + 8 * item, value)
    store_u64(firsts + 8 * item, row)
    store_u32(slots + 4 * slot, item + 1)
    if (8 if size < SPARSE_SLOTS else 2) * (item + 1) > size:
        size *= 2
        enter_again(slots, size, hashes, item + 1)
    return size


@kernel_of(NumberStrings)
def number_strings(
    offsets: int, width: int, data: int, data_size: int, strings: int, max_items: int,
    max_bytes: int, slots: int, hashes: int, firsts: int, indices: int, secret: int,
) -> int:  # fmt: skip
    """Number the distinct strings in order of appearance; how many, or -1 for too many.

    ``slots`` has room for the power of two that is at least twice ``max_items`` and 8192.
    """
    size = np.int64(FIRST_SLOTS)
    _clear(slots, size)
    items = np.int64(0)
    total = np.int64(0)
    end = data + data_size
    start = load_offset(offsets, width)
    for i in range(strings):
        stop = load_offset(offsets + width * (i + 1), width)
        length = stop - start
        value = hash_bytes(data + start, length, end, secret)
        slot = home_slot(value, size)
        while True:
            item = np.int64(load_u32(slots + 4 * slot)) - 1
            if item < 0:
                total += length
                if items == max_items or total > max_bytes:
                    return -1
                item = items
                size = _enter(item, value, i, slots, slot, size, hashes, firsts)
                items += 1
                break
            if load_u64(hashes + 8 * item) == value:
                first = load_i64(firsts + 8 * item)
                there = load_offset(offsets + width * first, width)
                there_end = load_offset(offsets + width * (first + 1), width)
                if there_end - there == length and _equal(data + there, data + start, length, end):
                    break
            slot = (slot + 1) & (size - 1)
        store_u32(indices + 4 * i, item)
        start = stop
    return items


@kernel
def number_words(
    values: int, words: int, count: int, max_items: int, slots: int, hashes: int, firsts: int,
    indices: int, secret: int,
) -> int:  # fmt: skip
    """Number the distinct values of ``words`` times 8 bytes; like ``number_strings``."""
    size = np.int64(FIRST_SLOTS)
    _clear(slots, size)
    items = np.int64(0)
    width = 8 * words
    for i in range(count):
        here = values + width * i
        value = mixed(np.uint64(SIZES), load_u64(here), secret)
        if words == 2:
            value = mixed(value, load_u64(here + 8), secret)
        slot = home_slot(value, size)
        while True:
            item = np.int64(load_u32(slots + 4 * slot)) - 1
            if item < 0:
                if items == max_items:
                    return -1
                item = items
                size = _enter(item, value, i, slots, slot, size, hashes, firsts)
                items += 1
                break
            there = values + width * load_i64(firsts + 8 * item)
            if load_u64(there) == load_u64(here) and (
                words == 1 or load_u64(there + 8) == load_u64(here + 8)
            ):
                break
            slot = (slot + 1) & (size - 1)
        store_u32(indices + 4 * i, item)
    return items
