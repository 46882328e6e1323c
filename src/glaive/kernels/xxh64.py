"""XXH64 with seed 0 of many byte strings at once, as filters of inserted keys hash them.

The function of Yann Collet, with eight steps: four lanes of 64 bits take 32 bytes at a time
and are joined, or are left out below 32 bytes; then come whole words, half a word, single
bytes, and a last stir.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_loops
from glaive.kernels.native import xxh64 as loops
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.memory import as_array, as_buffer

__all__ = ["exercise", "hash_texts", "hash_words"]

UInt64s = NDArray[np.uint64]

_ONE, _TWO, _THREE, _FOUR, _FIVE = (
    np.uint64(one)
    for one in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE: Final = 32

_SEEDS: Final = (int(_ONE) + int(_TWO) - 2**64, int(_TWO), 0, 2**64 - int(_ONE))
"""Of the four lanes, modulo 2^64."""


def hash_texts(strings: Strings, count: int) -> UInt64s:
    """The hash of each of ``count`` byte strings.

    Raises
    ------
    SchemaError
        The offsets descend, or leave the data.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    if not use_loops(count):
        return _hash_numpy(strings, count)
    found = np.empty(count, np.uint64)
    if count:
        loops.hash_texts(address(offsets), bits // 8, address(data), count, address(found))
    return found


def hash_words(words: UInt64s) -> UInt64s:
    """The hash of the eight bytes of each word."""
    return _finished(_word(np.full(len(words), _FIVE + np.uint64(8)), words))


def _hash_numpy(strings: Strings, count: int) -> UInt64s:
    """All strings of one length at a time."""
    ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1].astype(np.int64)
    sizes = np.diff(ends)
    data = as_array(strings.data)
    found = np.empty(count, np.uint64)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        found[rows] = _hash_alike(data[ends[rows, None] + np.arange(size)])
    return found


def _hash_alike(rows: NDArray[np.uint8]) -> UInt64s:
    """The hashes of strings of one length, one per row."""
    count, size = rows.shape
    at = size // _STRIPE * _STRIPE
    found = np.full(count, _FIVE)
    if at:
        stripes = np.ascontiguousarray(rows[:, :at]).view("<u8").reshape(count, -1, 4)
        lanes = [np.full(count, seed, np.uint64) for seed in _SEEDS]
        for stripe in range(stripes.shape[1]):
            lanes = [_stirred(one, stripes[:, stripe, k]) for k, one in enumerate(lanes)]
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        found = np.sum([_turned(one, bits) for one, bits in turns], axis=0, dtype=np.uint64)
        for one in lanes:
            found = (found ^ _stirred(np.zeros_like(one), one)) * _ONE + _FOUR
    found = found + np.uint64(size)
    for _ in range((size - at) // 8):
        found = _word(found, np.ascontiguousarray(rows[:, at : at + 8]).view("<u8")[:, 0])
        at += 8
    if at + 4 <= size:
        half = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        found = _turned(found ^ half * _ONE, 23) * _TWO + _THREE
        at += 4
    for byte in range(at, size):
        found = _turned(found ^ rows[:, byte].astype(np.uint64) * _FIVE, 11) * _ONE
    return _finished(found)


def _word(found: UInt64s, word: UInt64s) -> UInt64s:
    return _turned(found ^ _stirred(np.zeros_like(found), word), 27) * _ONE + _FOUR


def _stirred(lane: UInt64s, word: UInt64s) -> UInt64s:
    return _turned(lane + word * _TWO, 31) * _ONE


def _turned(words: UInt64s, bits: int) -> UInt64s:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _finished(found: UInt64s) -> UInt64s:
    found = (found ^ (found >> np.uint64(33))) * _TWO
    found = (found ^ (found >> np.uint64(29))) * _THREE
    return found ^ (found >> np.uint64(32))


def exercise() -> None:
    """Call every wrapper once with little data."""
    hash_texts(Strings(as_buffer(np.array([0, 3], np.int32)), 32, pa.py_buffer(b"abc")), 1)
