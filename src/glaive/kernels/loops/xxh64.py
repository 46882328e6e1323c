"""XXH64 of byte strings. Wrappers: ``glaive.kernels.xxh64``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_u64,
)
from glaive.kernels.loops.offsets import load_offset

__all__ = ["hash_ranges", "hash_strings", "xxh64"]

PRIME_1 = np.uint64(0x9E3779B185EBCA87)
PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = np.uint64(0x165667B19E3779F9)
PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = np.uint64(0x27D4EB2F165667C5)
ZERO = np.uint64(0)


@kernel
def _rotated(word: np.uint64, bits: int) -> np.uint64:
    """The word rotated to the left."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@kernel
def _mixed(lane: np.uint64, word: np.uint64) -> np.uint64:
    """A lane with one more word mixed in."""
    return _rotated(lane + word * PRIME_2, 31) * PRIME_1


@kernel
def _seeded(source: int, size: int, seed: np.uint64) -> np.uint64:
    """The hash of ``size`` bytes."""
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
def xxh64(source: int, size: int) -> np.uint64:
    """The hash of ``size`` bytes with seed 0."""
    return _seeded(source, size, ZERO)


@kernel
def hash_strings(offsets: int, width: int, data: int, count: int, target: int) -> None:
    """Store the hash of each of ``count`` byte strings."""
    start = load_offset(offsets, width)
    for i in range(count):
        stop = load_offset(offsets + width * (i + 1), width)
        store_u64(target + 8 * i, xxh64(data + start, stop - start))
        start = stop


@kernel
def hash_ranges(data: int, starts: int, sizes: int, count: int, seed: int, target: int) -> None:
    """Store the hash of each of ``count`` ranges of bytes."""
    for i in range(count):
        start = load_i64(starts + 8 * i)
        size = load_i64(sizes + 8 * i)
        store_u64(target + 8 * i, _seeded(data + start, size, np.uint64(seed)))
