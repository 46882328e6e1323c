"""Kernels that number distinct values. Wrappers: ``glaive.kernels.hashing``.

Open addressing: a slot holds 1 + the number of an item, 0 when free. The table starts small,
so that few items stay in the first-level cache. While it fits that cache, it doubles when an
eighth is taken. Most values are then found in the first slot, as the processor predicts. A larger
table doubles when half full.

Hashes have a secret factor (``glaive.process.hash_secret``). It prevents that hostile values meet
in few slots, where each value would be compared with all before.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    copy,
    kernel,
    load_i64,
    load_partial,
    load_u8,
    load_u32,
    load_u64,
    same_bytes,
    set_bit,
    store_u16,
    store_u32,
    store_u64,
)
from glaive.kernels.loops.offsets import load_offset

# --- XXH64 of byte strings. Wrappers: ``glaive.kernels.hashing`` --------------------------

PRIME_1 = np.uint64(0x9E3779B185EBCA87)
PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = np.uint64(0x165667B19E3779F9)
PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = np.uint64(0x27D4EB2F165667C5)
ZERO = np.uint64(0)


@kernel
def _rotated(word: np.uint64, bits: int) -> np.uint64:
    """Rotate a word to the left."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@kernel
def _mixed(lane: np.uint64, word: np.uint64) -> np.uint64:
    """Mix one more word into a lane."""
    return _rotated(lane + word * PRIME_2, 31) * PRIME_1


@kernel
def xxh64(source: int, size: int, seed: np.uint64) -> np.uint64:
    """Return the hash of ``size`` bytes."""
    at = source
    end = source + size
    state = seed + PRIME_5
    if size >= 32:
        a = seed + PRIME_1 + PRIME_2
        b = seed + PRIME_2
        c = seed
        d = seed - PRIME_1
        while at + 32 <= end:
            a = _mixed(a, load_u64(at))
            b = _mixed(b, load_u64(at + 8))
            c = _mixed(c, load_u64(at + 16))
            d = _mixed(d, load_u64(at + 24))
            at += 32
        state = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
        state = (state ^ _mixed(ZERO, a)) * PRIME_1 + PRIME_4
        state = (state ^ _mixed(ZERO, b)) * PRIME_1 + PRIME_4
        state = (state ^ _mixed(ZERO, c)) * PRIME_1 + PRIME_4
        state = (state ^ _mixed(ZERO, d)) * PRIME_1 + PRIME_4
    state += np.uint64(size)
    while at + 8 <= end:
        state = _rotated(state ^ _mixed(ZERO, load_u64(at)), 27) * PRIME_1 + PRIME_4
        at += 8
    if at + 4 <= end:
        state = _rotated(state ^ np.uint64(load_u32(at)) * PRIME_1, 23) * PRIME_2 + PRIME_3
        at += 4
    while at < end:
        state = _rotated(state ^ np.uint64(load_u8(at)) * PRIME_5, 11) * PRIME_1
        at += 1
    state = (state ^ (state >> np.uint64(33))) * PRIME_2
    state = (state ^ (state >> np.uint64(29))) * PRIME_3
    return state ^ (state >> np.uint64(32))


@kernel
def hash_ranges(data: int, starts: int, sizes: int, count: int, seed: int, target: int) -> None:
    """Store the hash of each of ``count`` ranges of bytes."""
    for i in range(count):
        start = load_i64(starts + 8 * i)
        size = load_i64(sizes + 8 * i)
        store_u64(target + 8 * i, xxh64(data + start, size, np.uint64(seed)))


FIRST_SLOTS = 1024
SPARSE_SLOTS = 8192
SIZES = 0x9E3779B97F4A7C15
"""Factor of the size in a hash: it distinguishes texts of zero bytes."""


@kernel
def load_word(address: int, size: int, end: int) -> int:
    """Load ``size`` < 8 bytes as a number; read bytes before ``end`` only."""
    if address + 8 <= end:
        mask = (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
        return load_u64(address) & mask
    return load_partial(address, address + size)


@kernel
def mixed(state: int, word: int, secret: int) -> int:
    """Take eight more bytes into a hash.

    The first product may keep a difference of the highest bits as it is; the second spreads it.
    """
    state = (state ^ word) * np.uint64(secret)
    return (state ^ (state >> np.uint64(32))) * np.uint64(secret)


@kernel
def hash_bytes(address: int, size: int, end: int, secret: int) -> int:
    """Hash ``size`` bytes; read bytes before ``end`` only."""
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
def _equal(first: int, first_end: int, second: int, second_end: int, size: int) -> bool:
    """Return whether ``size`` bytes are equal; read bytes before the ends only."""
    if size < 8:
        return load_word(first, size, first_end) == load_word(second, size, second_end)
    last = size - 8
    same = same_bytes(first, second, (last + 7) & ~7)
    return same and load_u64(first + last) == load_u64(second + last)


@kernel
def home_slot(value: int, size: int) -> int:
    """Return the slot of a hash: its upper bits, which depend on all bytes of the value."""
    return np.int64((value >> np.uint64(32)) & np.uint64(size - 1))


@kernel
def _clear(slots: int, size: int) -> None:
    for i in range(size):
        store_u32(slots + 4 * i, 0)


@kernel
def rehash(slots: int, size: int, hashes: int, items: int) -> None:
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
    """Enter a new item of hash ``value`` in a free slot; return the number of slots."""
    store_u64(hashes + 8 * item, value)
    store_u64(firsts + 8 * item, row)
    store_u32(slots + 4 * slot, item + 1)
    if (8 if size < SPARSE_SLOTS else 2) * (item + 1) > size:
        size *= 2
        rehash(slots, size, hashes, item + 1)
    return size


@kernel
def number_strings(
    offsets: int, width: int, data: int, data_size: int, strings: int, max_items: int,
    max_bytes: int, slots: int, hashes: int, firsts: int, indices: int, secret: int,
) -> int:  # fmt: skip
    """Number the distinct strings in order of appearance; return how many, -1 for too many.

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
                if there_end - there == length and _equal(
                    data + there, end, data + start, end, length
                ):
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


# --- Hash tables of words and strings. Wrappers: ``glaive.kernels.hashing`` --------------
#
# Open addressing: a slot holds 1 + the number of a key, 0 when free. There are ``1 << bits``
# slots, at least twice as many as keys. Strings have a prefilter of eight bits per slot, too. If
# the bit of a hash is clear, all keys have other hashes, and the search skips the slots.
#
# Hashes have a secret factor, as above.


@kernel
def _home_of(word: np.uint64, bits: int, secret: int) -> int:
    """Return the slot at which the search for a word or a hash begins."""
    product = (word ^ (word >> np.uint64(32))) * np.uint64(secret)
    return np.int64(product >> np.uint64(64 - bits))


@kernel
def number_of(words: int, slots: int, bits: int, word: np.uint64, secret: int) -> int:
    """Return the number of a word, or -1."""
    last = (np.int64(1) << bits) - 1
    slot = _home_of(word, bits, secret)
    while True:
        number = np.int64(load_u32(slots + 4 * slot)) - 1
        if number < 0 or load_u64(words + 8 * number) == word:
            return number
        slot = (slot + 1) & last


@kernel
def build_words(words: int, count: int, slots: int, bits: int, firsts: int, secret: int) -> None:
    """Enter words in free slots; ``firsts`` gets the number of the first equal word."""
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
    """Store the number of each word of ``queries``, -1 for unknown words."""
    for i in range(count):
        number = number_of(words, slots, bits, load_u64(queries + 8 * i), secret)
        store_u64(target + 8 * i, np.uint64(number))


@kernel
def _prefilter_bit(value: np.uint64, bits: int) -> int:
    """Return the bit of the prefilter for a hash."""
    return np.int64((value >> np.uint64(16)) & np.uint64((np.int64(8) << bits) - 1))


@kernel
def _slot_of(
    offsets: int, width: int, data: int, hashes: int, slots: int, bits: int, text: int, size: int,
    value: np.uint64, secret: int,
) -> int:  # fmt: skip
    """Return the slot of a string of hash ``value``, or the free slot for it."""
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
    offsets: int, width: int, data: int, data_end: int, count: int, hashes: int, slots: int,
    bits: int, prefilter: int, firsts: int, secret: int,
) -> None:  # fmt: skip
    """Enter strings and their hashes; ``firsts`` gets the number of the first equal string."""
    for i in range(count):
        start = load_offset(offsets + width * i, width)
        size = load_offset(offsets + width * (i + 1), width) - start
        value = hash_bytes(data + start, size, data_end, secret)
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


@kernel
def find_strings(
    offsets: int, width: int, data: int, hashes: int, slots: int, bits: int, prefilter: int,
    queries: int, query_width: int, query_data: int, query_end: int, query_count: int,
    target: int, secret: int,
) -> None:  # fmt: skip
    """Store the number of each string of ``queries``, -1 for unknown strings."""
    start = load_offset(queries, query_width)
    for i in range(query_count):
        stop = load_offset(queries + query_width * (i + 1), query_width)
        text = query_data + start
        size = stop - start
        value = hash_bytes(text, size, query_end, secret)
        bit = _prefilter_bit(value, bits)
        number = np.int64(-1)
        if (load_u8(prefilter + (bit >> 3)) >> (bit & 7)) & 1:
            slot = _slot_of(offsets, width, data, hashes, slots, bits, text, size, value, secret)
            number = np.int64(load_u32(slots + 4 * slot)) - 1
        store_u64(target + 8 * i, np.uint64(number))
        start = stop


# --- Kernels that number byte strings across calls. Wrappers: ``glaive.kernels.hashing``
#
# Open addressing: a slot holds 1 + the number of an item, 0 when free.


@kernel
def number_ranges(
    data: int, data_size: int, starts: int, sizes: int, first: int, stop: int, slots: int,
    slot_count: int, hashes: int, ends: int, max_items: int, pool: int, pool_size: int, items: int,
    numbers: int, secret: int,
) -> int:  # fmt: skip
    """Number ranges from ``first`` on, until one needs more room; return its number.

    ``ends`` has the end of each item in the pool, after a 0; ``max_items`` is less than the slots.
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


# --- Kernels that sort the tokens of documents by token. Wrappers: ``glaive.kernels.hashing``


@kernel
def count_documents(numbers: int, counts: int, documents: int, last: int, totals: int) -> None:
    """Count the documents of each token; all of ``last`` and ``totals`` is 0."""
    at = np.int64(0)
    for document in range(documents):
        stop = at + load_i64(counts + 8 * document)
        while at < stop:
            token = np.int64(load_u32(numbers + 4 * at))
            if np.int64(load_u32(last + 4 * token)) != document + 1:
                store_u32(last + 4 * token, document + 1)
                total = totals + 8 * token
                store_u64(total, load_i64(total) + 1)
            at += 1


@kernel
def invert_tokens(
    numbers: int, counts: int, documents: int, last: int, ends: int, ids: int, frequencies: int,
    positions: int, position_ends: int, sorted_positions: int,
) -> None:  # fmt: skip
    """Append each document to the lists of its tokens, and its positions, if stored.

    ``ends`` has the begin of each list, and becomes its end; ``position_ends`` likewise for
    positions. All of ``last`` is 0.
    """
    at = np.int64(0)
    for document in range(documents):
        stop = at + load_i64(counts + 8 * document)
        while at < stop:
            token = np.int64(load_u32(numbers + 4 * at))
            place = load_i64(ends + 8 * token)
            if np.int64(load_u32(last + 4 * token)) != document + 1:
                store_u32(last + 4 * token, document + 1)
                store_u32(ids + 4 * place, document)
                store_u32(frequencies + 4 * place, 1)
                store_u64(ends + 8 * token, place + 1)
            else:
                before = frequencies + 4 * (place - 1)
                store_u32(before, np.int64(load_u32(before)) + 1)
            if positions != 0:
                place = load_i64(position_ends + 8 * token)
                store_u32(sorted_positions + 4 * place, load_u32(positions + 4 * at))
                store_u64(position_ends + 8 * token, place + 1)
            at += 1


# --- MinHash signatures: the minimum of permuted hashes. Wrappers: ``glaive.kernels.hashing``

MAX_HASH = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@kernel
def sign(
    hashes: int, bounds: int, texts: int, factors: int, terms: int, mixers: int, values: int,
    target: int,
) -> None:  # fmt: skip
    """Store ``values`` numbers of 16 bits for each text."""
    for text in range(texts):
        first = load_i64(bounds + 8 * text)
        last = load_i64(bounds + 8 * text + 8)
        for value in range(values):
            factor = load_u64(factors + 8 * value)
            term = load_u64(terms + 8 * value)
            minimum = MAX_HASH
            for at in range(first, last):
                permuted = load_u64(hashes + 8 * at) * factor + term
                minimum = min(minimum, permuted)
            mixed = load_u64(mixers + 8 * value) * minimum
            store_u16(target + 2 * (text * values + value), mixed >> np.uint64(48))
