"""XXH64 of byte strings, seed 0. Wrappers: ``glaive.kernels.xxh64``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import load_u8, load_u32, load_u64, loop, store_u64
from glaive.kernels.loops.offsets import load_offset

__all__ = ["hash_texts", "xxh64"]

ONE = np.uint64(0x9E3779B185EBCA87)
TWO = np.uint64(0xC2B2AE3D27D4EB4F)
THREE = np.uint64(0x165667B19E3779F9)
FOUR = np.uint64(0x85EBCA77C2B2AE63)
FIVE = np.uint64(0x27D4EB2F165667C5)
ZERO = np.uint64(0)


@loop
def _turned(word: np.uint64, bits: int) -> np.uint64:
    """The word rotated to the left."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@loop
def _stirred(lane: np.uint64, word: np.uint64) -> np.uint64:
    """A lane with one more word in it."""
    return _turned(lane + word * TWO, 31) * ONE


@loop
def xxh64(source: int, size: int) -> np.uint64:
    """The hash of ``size`` bytes."""
    at = source
    end = source + size
    found = FIVE
    if size >= 32:
        a = ONE + TWO
        b = TWO
        c = ZERO
        d = ZERO - ONE
        while at + 32 <= end:
            a = _stirred(a, load_u64(at))
            b = _stirred(b, load_u64(at + 8))
            c = _stirred(c, load_u64(at + 16))
            d = _stirred(d, load_u64(at + 24))
            at += 32
        found = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
        found = (found ^ _stirred(ZERO, a)) * ONE + FOUR
        found = (found ^ _stirred(ZERO, b)) * ONE + FOUR
        found = (found ^ _stirred(ZERO, c)) * ONE + FOUR
        found = (found ^ _stirred(ZERO, d)) * ONE + FOUR
    found += np.uint64(size)
    while at + 8 <= end:
        found = _turned(found ^ _stirred(ZERO, load_u64(at)), 27) * ONE + FOUR
        at += 8
    if at + 4 <= end:
        found = _turned(found ^ np.uint64(load_u32(at)) * ONE, 23) * TWO + THREE
        at += 4
    while at < end:
        found = _turned(found ^ np.uint64(load_u8(at)) * FIVE, 11) * ONE
        at += 1
    found = (found ^ (found >> np.uint64(33))) * TWO
    found = (found ^ (found >> np.uint64(29))) * THREE
    return found ^ (found >> np.uint64(32))


@loop
def hash_texts(offsets: int, width: int, data: int, count: int, target: int) -> None:
    """Store the hash of each of ``count`` byte strings."""
    start = load_offset(offsets, width)
    for i in range(count):
        stop = load_offset(offsets + width * (i + 1), width)
        store_u64(target + 8 * i, xxh64(data + start, stop - start))
        start = stop
