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

__all__ = ["HashedWords", "Marks", "marks_of", "words_of"]

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

_FEW_WORDS: Final = 1 << 20
"""Words of ranges that are few, however few ranges there are."""


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


def words_of(bits: int, lows: UInt64s, spans: UInt64s) -> UInt64s | None:
    """All words of some ranges; None where they are many more than the ranges."""
    sizes = spans + np.uint64(1)
    # Of ranges without end sizes may go beyond all numbers.
    if not len(lows) or int(spans.max()) >= _FEW_WORDS:
        return None
    total = int(sizes.sum())
    if total > max(_FEW_WORDS, 4 * len(lows)):
        return None
    sizes = sizes.astype(np.int64)
    within = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    words = np.repeat(lows, sizes) + within.astype(np.uint64)
    kept: UInt64s = words & np.uint64((1 << bits) - 1)
    return kept


def marks_of(bits: int, lows: UInt64s, spans: UInt64s) -> Marks | None:
    """The bitmap of some ranges of words of ``bits`` bits; None where they are far apart.

    Ranges are two or more and on a circle, behind the largest word comes 0, on which they
    ascend and do not touch. The bitmap leaves the widest gap out.
    """
    full = np.uint64((1 << bits) - 1)
    gaps = (np.roll(lows, -1) - lows - spans - np.uint64(1)) & full
    first = (int(gaps.argmax()) + 1) % len(lows)
    base = int(lows[first])
    top = (1 << bits) - int(gaps.max())
    if top > max(_NEAR, _SHARE * len(lows)) or top >= _MOST:
        return None
    room = (top // 32 + 1) * 32  # loops read 32 bits at a time
    words = words_of(bits, np.roll(lows, -first), np.roll(spans, -first))
    if words is None:
        starts = ((lows - np.uint64(base)) & full).astype(np.int64)
        steps = np.zeros(room + 1, np.int8)
        steps[starts] = 1
        steps[starts + spans.astype(np.int64) + 1] -= 1
        flags = np.cumsum(steps[:room], dtype=np.int8).view(np.bool_)
        return Marks(np.packbits(flags, bitorder="little"), base, top)
    places = ((words - np.uint64(base)) & full).astype(np.int64)
    owner = places >> 3
    values = np.left_shift(1, (places & 7).astype(np.uint8), dtype=np.uint8)
    edges = np.flatnonzero(np.diff(owner, prepend=-1))
    found = np.zeros(room // 8, np.uint8)
    found[owner[edges]] = np.bitwise_or.reduceat(values, edges)
    return Marks(found, base, top)
