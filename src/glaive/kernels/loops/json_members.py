"""The compiled search for members of JSONB; its wrapper is in ``glaive.kernels.json_members``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, load_i64, load_u32, same_bytes, store_u64

SIZE = 0x0FFF_FFFF


@kernel
def big_word(at: int) -> int:
    """The big-endian word of 4 bytes."""
    word = np.int64(load_u32(at))
    return (
        ((word & 0xFF) << 24)
        | ((word & 0xFF00) << 8)
        | ((word >> 8) & 0xFF00)
        | ((word >> 24) & 0xFF)
    )


@kernel
def find_members(
    raw: int, begins: int, ends: int, count: int, key: int, size: int, words: int, positions: int
) -> int:
    """Write the entry and the position of the member, for each object that has it.

    The wrapper has checked that each object has 4 bytes, inside the memory. Returns the number of
    the first object that ends too soon, or -1.
    """
    for i in range(count):
        begin = load_i64(begins + 8 * i)
        end = load_i64(ends + 8 * i)
        members = big_word(raw + begin) & SIZE
        entry = raw + begin + 4
        at = begin + 4 + 8 * members
        if at > end:
            return i
        matching = np.int64(-1)
        for k in range(members):
            length = big_word(entry) & SIZE
            if at + length > end:
                return i
            if length == size and matching < 0 and same_bytes(raw + at, key, size):
                matching = k
            at += length
            entry += 4
        for k in range(members):
            word = big_word(entry)
            length = word & SIZE
            if at + length > end:
                return i
            if k == matching:
                store_u64(words + 8 * i, np.uint64(word))
                store_u64(positions + 8 * i, np.uint64(at))
            at += length
            entry += 4
    return -1
