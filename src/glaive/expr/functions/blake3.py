"""The BLAKE3 hash, which Python's library lacks. Slow: about 10 µs per block of 64 bytes."""

from __future__ import annotations

import struct

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


def blake3(raw: bytes) -> bytes:
    """Return the hash, 32 bytes."""
    chunks = [raw[at : at + _CHUNK] for at in range(0, len(raw), _CHUNK)] or [b""]
    if len(chunks) == 1:
        return struct.pack("<8I", *_chunk(chunks[0], 0, _ROOT))
    return struct.pack("<8I", *_tree(chunks, 0, _ROOT))


def _tree(chunks: list[bytes], first: int, flags: int) -> list[int]:
    if len(chunks) == 1:
        return _chunk(chunks[0], first, 0)
    # The left subtree has the largest power of two of chunks that leaves at least one.
    half = 1 << (len(chunks) - 1).bit_length() - 1
    words = _tree(chunks[:half], first, 0) + _tree(chunks[half:], first + half, 0)
    return _compress(list(_START), words, 0, _BLOCK, _PARENT | flags)


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


def _compress(value: list[int], words: list[int], counter: int, size: int, flags: int) -> list[int]:
    state = [*value, *_START[:4], counter & _WORD, counter >> 32 & _WORD, size, flags]
    for _ in range(_ROUNDS):
        for number, positions in enumerate(_MIXED):
            _mix(state, positions, words[2 * number], words[2 * number + 1])
        words = [words[position] for position in _ORDER]
    return [state[n] ^ state[n + 8] for n in range(8)]


def _mix(state: list[int], positions: tuple[int, int, int, int], first: int, second: int) -> None:
    a, b, c, d = positions
    for word, rotation_d, rotation_b in ((first, 16, 12), (second, 8, 7)):
        state[a] = state[a] + state[b] + word & _WORD
        state[d] = _rotated(state[d] ^ state[a], rotation_d)
        state[c] = state[c] + state[d] & _WORD
        state[b] = _rotated(state[b] ^ state[c], rotation_b)


def _rotated(word: int, bits: int) -> int:
    return (word >> bits | word << 32 - bits) & _WORD
