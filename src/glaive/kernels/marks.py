"""Sets of many words, made ready for a look at 64 words at once.

Where words are close together they are bits of a bitmap, from the first one on. Elsewhere
the hashes of words are bits of a bitmap, a sieve that few others pass, and what passes is
looked for in a table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glaive.kernels.lookup import WordTable

__all__ = ["HashedWords", "Marks", "marks_of"]

UInt64s = NDArray[np.uint64]

_HASH: Final = np.uint64(0x9E3779B97F4A7C15)

_NEAR: Final = 1 << 23
"""Bits of a bitmap that are as quick as a sieve whatever the words: 1 MB."""

_SHARE: Final = 64
"""Bits of a longer bitmap per word, at most."""

_MOST: Final = 1 << 31
"""Bits of any bitmap: places are numbers of 32 bits."""

_SIEVE: Final = 16, 24
"""Bits of a sieve, as powers of two: at least and at most."""

_SIEVED: Final = 16
"""Bits of a sieve per word: one in sixteen others passes."""


class Marks(NamedTuple):
    """Word ``base + i`` is in the set if bit i is set; bit ``top`` is that of all others."""

    bits: NDArray[np.uint8]
    base: int
    top: int


class HashedWords:
    """A sieve by the upper bits of hashes, those above ``shift``, and a table of the words."""

    __slots__ = ("shift", "sieve", "table")

    def __init__(self, words: UInt64s) -> None:
        least, most = _SIEVE
        bits = min(max(least, (_SIEVED * len(words) - 1).bit_length()), most)
        self.shift = 64 - bits
        flags = np.zeros(1 << bits, np.bool_)
        flags[(words * _HASH) >> np.uint64(self.shift)] = True
        self.sieve = np.packbits(flags, bitorder="little")
        self.table = WordTable(words)


def marks_of(bits: int, words: UInt64s) -> Marks | None:
    """The bitmap of some words of ``bits`` bits; None where they are far apart.

    Words are two or more and on a circle, behind the largest comes 0, on which they ascend.
    The bitmap leaves the widest gap out.
    """
    gaps = np.diff(words, append=words[:1])  # the last one goes around
    if bits < 64:
        gaps &= np.uint64((1 << bits) - 1)
    widest = int(gaps.argmax())
    base = int(words[(widest + 1) % len(words)])
    top = (1 << bits) - int(gaps[widest]) + 1
    if top > max(_NEAR, _SHARE * len(words)) or top >= _MOST:
        return None
    places = np.roll(words, -widest - 1) - np.uint64(base)
    if bits < 64:
        places &= np.uint64((1 << bits) - 1)
    owner = (places >> np.uint64(3)).astype(np.int64)
    flags = np.left_shift(1, (places & np.uint64(7)).astype(np.uint8), dtype=np.uint8)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    found = np.zeros((top // 32 + 1) * 4, np.uint8)  # loops read 32 bits at a time
    found[owner[starts]] = np.bitwise_or.reduceat(flags, starts)
    return Marks(found, base, top)
