"""XXH64 of many byte strings at once, as filters of inserted keys and signatures hash them.

The function of Yann Collet: four lanes of 64 bits take 32 bytes at a time and are merged; strings
below 32 bytes have no lanes. The remaining bytes follow as words of 8 bytes, a word of 4 and
single bytes, and a final mix.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.errors import SchemaError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import outside
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import xxh64 as compiled
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.memory import as_array, as_buffer
from glaive.types import Int64s, UInt8s, UInt64s

__all__ = ["exercise", "hash_ranges", "hash_strings", "hash_words"]

_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_STRIPE: Final = 32

_LANES: Final = (int(_PRIME_1) + int(_PRIME_2), int(_PRIME_2), 0, -int(_PRIME_1))
"""Start values of the four lanes, to which the seed is added, modulo 2^64."""


def hash_strings(strings: Strings, count: int) -> UInt64s:
    """The hash of each of ``count`` byte strings, with seed 0.

    Raises
    ------
    SchemaError
        The offsets descend, or leave the data.
    """
    offsets, bits, data = strings
    check_offsets(offsets, bits, data, count)
    if not use_compiled(count):
        ends = as_offsets(offsets, bits)[: count + 1].astype(np.int64)
        return _hash_numpy(as_array(data), ends[:-1], np.diff(ends), 0)
    hashes = np.empty(count, np.uint64)
    if count:
        compiled.hash_strings(address(offsets), bits // 8, address(data), count, address(hashes))
    return hashes


def hash_ranges(data: pa.Buffer, starts: Int64s, sizes: Int64s, seed: int) -> UInt64s:
    """The hash of each range of bytes; ranges may overlap.

    Parameters
    ----------
    data
        Memory of all ranges.
    starts, sizes
        ``int64`` of shape ``(ranges,)``: first byte and number of bytes of each.
    seed
        From 0 to 2^63 - 1.

    Raises
    ------
    SchemaError
        A range leaves the data.
    """
    wrong = outside(starts, sizes, data.size)
    if wrong.any():
        bad = int(wrong.argmax())
        raise SchemaError(
            f"{sizes[bad]} bytes at {starts[bad]} to be hashed leave their {data.size} bytes"
        )
    count = min(len(starts), len(sizes))
    if not use_compiled(count):
        return _hash_numpy(as_array(data), starts, sizes, seed)
    starts, sizes = (np.ascontiguousarray(part, np.int64) for part in (starts, sizes))
    hashes = np.empty(count, np.uint64)
    if count:
        places = address(data), address(starts), address(sizes)
        compiled.hash_ranges(*places, count, seed, address(hashes))
    return hashes


def hash_words(words: UInt64s) -> UInt64s:
    """The hash of the eight bytes of each word."""
    return _finished(_word(np.full(len(words), _PRIME_5 + np.uint64(8)), words))


def _hash_numpy(data: UInt8s, starts: Int64s, sizes: Int64s, seed: int) -> UInt64s:
    """All strings of one length at a time."""
    hashes = np.empty(len(starts), np.uint64)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        hashes[rows] = _hash_matrix(data[starts[rows, None] + np.arange(size)], seed)
    return hashes


def _hash_matrix(rows: UInt8s, seed: int) -> UInt64s:
    """The hashes of strings of one length, one per row."""
    count, size = rows.shape
    at = size // _STRIPE * _STRIPE
    state = np.full(count, (int(_PRIME_5) + seed) % 2**64, np.uint64)
    if at:
        stripes = np.ascontiguousarray(rows[:, :at]).view("<u8").reshape(count, -1, 4)
        lanes = [np.full(count, (first + seed) % 2**64, np.uint64) for first in _LANES]
        for stripe in range(stripes.shape[1]):
            lanes = [_mixed(lane, stripes[:, stripe, k]) for k, lane in enumerate(lanes)]
        rotations = zip(lanes, (1, 7, 12, 18), strict=True)
        state = np.sum([_rotated(lane, bits) for lane, bits in rotations], axis=0, dtype=np.uint64)
        for lane in lanes:
            state = (state ^ _mixed(np.zeros_like(lane), lane)) * _PRIME_1 + _PRIME_4
    state = state + np.uint64(size)
    for _ in range((size - at) // 8):
        state = _word(state, np.ascontiguousarray(rows[:, at : at + 8]).view("<u8")[:, 0])
        at += 8
    if at + 4 <= size:
        half = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        state = _rotated(state ^ half * _PRIME_1, 23) * _PRIME_2 + _PRIME_3
        at += 4
    for byte in range(at, size):
        state = _rotated(state ^ rows[:, byte].astype(np.uint64) * _PRIME_5, 11) * _PRIME_1
    return _finished(state)


def _word(state: UInt64s, word: UInt64s) -> UInt64s:
    return _rotated(state ^ _mixed(np.zeros_like(state), word), 27) * _PRIME_1 + _PRIME_4


def _mixed(lane: UInt64s, word: UInt64s) -> UInt64s:
    return _rotated(lane + word * _PRIME_2, 31) * _PRIME_1


def _rotated(words: UInt64s, bits: int) -> UInt64s:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _finished(state: UInt64s) -> UInt64s:
    state = (state ^ (state >> np.uint64(33))) * _PRIME_2
    state = (state ^ (state >> np.uint64(29))) * _PRIME_3
    return state ^ (state >> np.uint64(32))


def exercise() -> None:
    """Call every wrapper once with little data."""
    data = pa.py_buffer(b"abc")
    hash_strings(Strings(as_buffer(np.array([0, 3], np.int32)), 32, data), 1)
    hash_ranges(data, np.zeros(1, np.int64), np.full(1, 3), 42)
