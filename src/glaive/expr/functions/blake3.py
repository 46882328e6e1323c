"""The BLAKE3 hash, which Python's library lacks: some 25 ms per MB.

All full chunks are compressed at once, by the same code with arrays of numbers in place of each.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["blake3"]

_START = (
    0x6A09E667,
    0xBB67AE85,
    0x3C6EF372,
    0xA54FF53A,
    0x510E527F,
    0x9B05688C,
    0x1F83D9AB,
    0x5BE0CD19,
)
_ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_MIXED = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = 1, 2, 4, 8
_BLOCK, _CHUNK, _ROUNDS = 64, 1024, 7
_WORD = 0xFFFF_FFFF
_AT_ONCE, _FEW = 4096, 16
"""Chunks that are compressed in one step of arrays, and how few take less time one by one."""


def blake3(raw: bytes) -> bytes:
    """Return the hash, 32 bytes."""
    full = max(len(raw) - 1, 0) // _CHUNK
    last = raw[full * _CHUNK :]
    if not full:
        return struct.pack("<8I", *_chunk(last, 0, _ROOT))
    parts = [_full_chunks(raw, at, min(_AT_ONCE, full - at)) for at in range(0, full, _AT_ONCE)]
    # Neighbours become one, and the last one stays if it has none, until two are left.
    nodes = np.concatenate([*parts, np.array([_chunk(last, full, 0)], np.uint32)])
    while len(nodes) > 2:
        pairs = len(nodes) // 2
        joined = _parents(nodes[: 2 * pairs].reshape(pairs, 16))
        nodes = np.concatenate([joined, nodes[2 * pairs :]])
    root = _compress(list(_START), nodes.ravel().tolist(), 0, _BLOCK, _PARENT | _ROOT)
    return struct.pack("<8I", *root)


def _starts(count: int) -> list[Any]:
    return [np.full(count, word, np.uint32) for word in _START]


def _parents(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    if len(words) < _FEW:
        each = (_compress(list(_START), row, 0, _BLOCK, _PARENT) for row in words.tolist())
        return np.array([*each], np.uint32)
    return np.stack(_compress(_starts(len(words)), [*words.T], 0, _BLOCK, _PARENT), axis=1)


def _full_chunks(raw: bytes, first: int, count: int) -> NDArray[np.uint32]:
    """The values of some chunks. Shape ``(count, 8)``."""
    if count < _FEW:
        each = (
            _chunk(raw[at * _CHUNK : (at + 1) * _CHUNK], at, 0)
            for at in range(first, first + count)
        )
        return np.array([*each], np.uint32)
    blocks = np.frombuffer(raw, "<u4", count * _CHUNK // 4, first * _CHUNK).reshape(count, -1, 16)
    numbers = np.arange(first, first + count)
    value = _starts(count)
    for index in range(_CHUNK // _BLOCK):
        words = [*np.ascontiguousarray(blocks[:, index].T, np.uint32)]
        ends = _CHUNK_END if index == _CHUNK // _BLOCK - 1 else 0
        flags = ends | (_CHUNK_START if index == 0 else 0)
        value = _compress(value, words, numbers, _BLOCK, flags)
    return np.stack(value, axis=1)


def _chunk(raw: bytes, number: int, flags: int) -> list[int]:
    value = list(_START)
    blocks = [raw[at : at + _BLOCK] for at in range(0, len(raw), _BLOCK)] or [b""]
    for index, block in enumerate(blocks):
        words = list(struct.unpack("<16I", block.ljust(_BLOCK, b"\0")))
        block_flags = _CHUNK_START if index == 0 else 0
        if index == len(blocks) - 1:
            block_flags |= _CHUNK_END | flags
        value = _compress(value, words, number, len(block), block_flags)
    return value


def _compress(value: list[Any], words: list[Any], counter: Any, size: int, flags: int) -> list[Any]:
    """The next value: of integers, or of arrays, which have one for each chunk."""
    low, high = counter & _WORD, counter >> 32 & _WORD
    if isinstance(counter, np.ndarray):
        low, high = low.astype(np.uint32), high.astype(np.uint32)
    state = [*value, *_START[:4], low, high, size, flags]
    for _ in range(_ROUNDS):
        for number, positions in enumerate(_MIXED):
            _mix(state, positions, words[2 * number], words[2 * number + 1])
        words = [words[position] for position in _ORDER]
    return [state[n] ^ state[n + 8] for n in range(8)]


def _mix(state: list[Any], positions: tuple[int, int, int, int], first: Any, second: Any) -> None:
    a, b, c, d = positions
    for word, rotation_d, rotation_b in ((first, 16, 12), (second, 8, 7)):
        state[a] = state[a] + state[b] + word & _WORD
        state[d] = _rotated(state[d] ^ state[a], rotation_d)
        state[c] = state[c] + state[d] & _WORD
        state[b] = _rotated(state[b] ^ state[c], rotation_b)


def _rotated(word: Any, bits: int) -> Any:
    return (word >> bits | word << 32 - bits) & _WORD
