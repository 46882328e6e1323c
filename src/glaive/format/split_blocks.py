"""Split-block Bloom filters: blocks of eight 32-bit words, a value sets a bit in each word of one.

Specification: "BLOOMFILTER" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.types import Int64s, UInt64s

__all__ = ["BLOCK_BYTES", "BLOCK_WORDS", "bit_numbers", "block_numbers", "word_masks"]

BLOCK_BYTES: Final = 32
BLOCK_WORDS: Final = 8
_SALT: Final = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)
_SHIFT: Final = np.uint32(27)
"""Of the product of a hash and a salt, the upper five bits count: a word has 32."""


def block_numbers(hashes: UInt64s, count: int) -> Int64s:
    """The block of each hash, in a filter of ``count`` blocks."""
    scaled = (hashes >> np.uint64(32)) * np.uint64(count)
    return (scaled >> np.uint64(32)).astype(np.int64)


def bit_numbers(hashes: UInt64s, word: int) -> NDArray[np.uint32]:
    """The bit that each hash sets in a word of its block."""
    bits: NDArray[np.uint32] = (hashes.astype(np.uint32) * _SALT[word]) >> _SHIFT
    return bits


def word_masks(hashes: UInt64s) -> NDArray[np.uint32]:
    """Words in which the bit of each hash is set. Shape ``(hashes, BLOCK_WORDS)``."""
    return np.uint32(1) << ((hashes.astype(np.uint32)[:, None] * _SALT) >> _SHIFT)
