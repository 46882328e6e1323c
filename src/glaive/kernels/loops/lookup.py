"""Hash tables of words and strings. Wrappers: ``glaive.kernels.lookup``.

Open addressing: a slot holds 1 + the number of a key, 0 when free. There are ``1 << bits``
slots, at least twice as many as keys. Strings have a prefilter of eight bits per slot as well:
where the bit of a hash is not set, no key has it, and no slot is read.

Hashes have a secret factor, as those of ``glaive.kernels.loops.hashing``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.hashing import SIZES, mixed
from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_u8,
    load_u32,
    load_u64,
    same_bytes,
    set_bit,
    store_u32,
    store_u64,
)
from glaive.kernels.loops.offsets import load_offset
from glaive.kernels.string_records import FindStrings

__all__ = ["build_strings", "build_words", "find_strings", "find_words", "number_of"]


@kernel
def _home_of(word: np.uint64, bits: int, secret: int) -> int:
    """The slot at which the search for a word or a hash begins."""
    product = (word ^ (word >> np.uint64(32))) * np.uint64(secret)
    return np.int64(product >> np.uint64(64 - bits))


@kernel
def number_of(words: int, slots: int, bits: int, word: np.uint64, secret: int) -> int:
    """The number of a word, -1 if it is not there."""
    last = (np.int64(1) << bits) - 1
    slot = _home_of(word, bits, secret)
    while True:
        number = np.int64(load_u32(slots + 4 * slot)) - 1
        if number < 0 or load_u64(words + 8 * number) == word:
            return number
        slot = (slot + 1) & last


@kernel
def build_words(words: int, count: int, slots: int, bits: int, firsts: int, secret: int) -> None:
    """Enter words in free slots; ``firsts`` gets the number of the first equal one."""
    last = (np.int64(1) << bits) - 1
    for i in range(count):
        word = load_u64(words + 8 * i)
        slot = _home_of(word, bits, secret)
        number = np.int64(load_u32(slots + 4 * slot)) - 1
        while number >= 0 and load_u64(words + 8 * number) != word:
            slot = (slot + 1) & last
            number = np.int64(load_u32(slots + 4 * slot)) - 1
        if number < 0:
            store_u32(slots + 4 * slot, i + 1)
            number = i
        store_u64(firsts + 8 * i, np.uint64(number))


@kernel
def find_words(
    words: int, slots: int, bits: int, queries: int, count: int, target: int, secret: int
) -> None:
    """Store the number of each word of ``queries``, -1 for none."""
    for i in range(count):
        number = number_of(words, slots, bits, load_u64(queries + 8 * i), secret)
        store_u64(target + 8 * i, np.uint64(number))


@kernel
def _string_hash(text: int, size: int, secret: int) -> np.uint64:
    """A hash of ``size`` bytes; reads no others."""
    state = np.uint64(size) * np.uint64(SIZES)
    if size >= 8:
        at = text
        last = text + size - 8
        while at < last:
            state = mixed(state, load_u64(at), secret)
            at += 8
        state ^= load_u64(last)
    elif size >= 4:
        high = np.uint64(load_u32(text + size - 4)) << np.uint64(32)
        state ^= high | np.uint64(load_u32(text))
    elif size > 0:
        middle = np.uint64(load_u8(text + (size >> 1))) << np.uint64(8)
        final = np.uint64(load_u8(text + size - 1)) << np.uint64(16)
        state ^= final | middle | np.uint64(load_u8(text))
    return mixed(state, np.uint64(0), secret)


@kernel
def _prefilter_bit(value: np.uint64, bits: int) -> int:
    """Which bit of the prefilter a hash has."""
    return np.int64((value >> np.uint64(16)) & np.uint64((np.int64(8) << bits) - 1))


@kernel
def _slot_of(
    offsets: int, width: int, data: int, hashes: int, slots: int, bits: int, text: int, size: int,
    value: np.uint64, secret: int,
) -> int:  # fmt: skip
    """The slot of a string of hash ``value``, or the free slot where it would be."""
    last = (np.int64(1) << bits) - 1
    slot = _home_of(value, bits, secret)
    while True:
        number = np.int64(load_u32(slots + 4 * slot)) - 1
        if number < 0:
            return slot
        if load_u64(hashes + 8 * number) == value:
            start = load_offset(offsets + width * number, width)
            stop = load_offset(offsets + width * (number + 1), width)
            if stop - start == size and same_bytes(data + start, text, size):
                return slot
        slot = (slot + 1) & last


@kernel
def build_strings(
    offsets: int, width: int, data: int, count: int, hashes: int, slots: int, bits: int,
    prefilter: int, firsts: int, secret: int,
) -> None:  # fmt: skip
    """Enter strings and their hashes; ``firsts`` gets the number of the first equal one."""
    for i in range(count):
        start = load_offset(offsets + width * i, width)
        size = load_offset(offsets + width * (i + 1), width) - start
        value = _string_hash(data + start, size, secret)
        store_u64(hashes + 8 * i, value)
        set_bit(prefilter, _prefilter_bit(value, bits))
        slot = _slot_of(
            offsets, width, data, hashes, slots, bits, data + start, size, value, secret
        )
        number = np.int64(load_u32(slots + 4 * slot)) - 1
        if number < 0:
            store_u32(slots + 4 * slot, i + 1)
            number = i
        store_u64(firsts + 8 * i, np.uint64(number))


@kernel_of(FindStrings)
def find_strings(
    offsets: int, width: int, data: int, hashes: int, slots: int, bits: int, prefilter: int,
    queries: int, query_width: int, query_data: int, query_count: int, target: int,
    secret: int,
) -> None:  # fmt: skip
    """Store the number of each string of ``queries``, -1 for none."""
    start = load_offset(queries, query_width)
    for i in range(query_count):
        stop = load_offset(queries + query_width * (i + 1), query_width)
        text = query_data + start
        size = stop - start
        value = _string_hash(text, size, secret)
        bit = _prefilter_bit(value, bits)
        number = np.int64(-1)
        if (load_u8(prefilter + (bit >> 3)) >> (bit & 7)) & 1:
            slot = _slot_of(offsets, width, data, hashes, slots, bits, text, size, value, secret)
            number = np.int64(load_u32(slots + 4 * slot)) - 1
        store_u64(target + 8 * i, np.uint64(number))
        start = stop
