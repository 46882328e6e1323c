"""Sets of many words, for testing 64 words at once.

Words that are close together are bits of a bitset, from the first one on. Otherwise their
hashes are bits of a prefilter that few other words pass; those are looked up in a hash table.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.kernels.lookup import WordTable
from glaive.named_tuple import NamedTuple
from glaive.types import UInt8s, UInt64s

__all__ = ["Bitset", "HashedWords", "bitset_of", "words_of"]

_HASH: Final = np.uint64(0x9E3779B97F4A7C15)

_SMALL_BITSET: Final = 1 << 23
"""Bits of a bitset that is as quick as a prefilter whatever the words: 1 MB."""

_BITS_PER_WORD: Final = 64
"""Bits of a larger bitset per word, at most."""

_MAX_BITS: Final = 1 << 31
"""Bits of a bitset at most: positions are numbers of 32 bits."""

_PREFILTER_BITS: Final = 16, 24
"""Bits of a prefilter, as powers of two: at least and at most."""

_PREFILTER_BITS_PER_WORD: Final = 16
"""Bits of a prefilter per word: one in sixteen other words passes."""

_ALWAYS_LISTED: Final = 1 << 20
"""Words of ranges that are listed, however few ranges there are."""


class Bitset(NamedTuple):
    """Word ``base + i`` is in the set if bit i is set; bit ``top`` stands for all other words."""

    bits: UInt8s
    base: int
    top: int


class HashedWords:
    """A prefilter by hashes shifted right by ``shift``, and a hash table of the words."""

    __slots__ = ("prefilter", "shift", "table")

    def __init__(self, words: UInt64s) -> None:
        low, high = _PREFILTER_BITS
        bits = min(max(low, (_PREFILTER_BITS_PER_WORD * len(words) - 1).bit_length()), high)
        self.shift = 64 - bits
        flags = np.zeros(1 << bits, np.bool_)
        flags[(words * _HASH) >> np.uint64(self.shift)] = True
        self.prefilter = np.packbits(flags, bitorder="little")
        self.table = WordTable(words)


def words_of(bits: int, lows: UInt64s, spans: UInt64s) -> UInt64s | None:
    """List the words of some ranges; None where there are many more words than ranges."""
    sizes = spans + np.uint64(1)
    # The size of a range of all words wraps to 0: compare the spans first.
    if not len(lows) or int(spans.max()) >= _ALWAYS_LISTED:
        return None
    total = int(sizes.sum())
    if total > max(_ALWAYS_LISTED, 4 * len(lows)):
        return None
    sizes = sizes.astype(np.int64)
    within = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    words = np.repeat(lows, sizes) + within.astype(np.uint64)
    masked: UInt64s = words & np.uint64((1 << bits) - 1)
    return masked


def bitset_of(bits: int, lows: UInt64s, spans: UInt64s) -> Bitset | None:
    """The bitset of two or more ranges of words of ``bits`` bits; None where they are far apart.

    The ranges ascend modulo ``2 ** bits``: 0 follows the largest word. They do not touch, and
    the bitset omits the widest gap between them.
    """
    full = np.uint64((1 << bits) - 1)
    gaps = (np.roll(lows, -1) - lows - spans - np.uint64(1)) & full
    first = (int(gaps.argmax()) + 1) % len(lows)
    base = int(lows[first])
    top = (1 << bits) - int(gaps.max())
    if top > max(_SMALL_BITSET, _BITS_PER_WORD * len(lows)) or top >= _MAX_BITS:
        return None
    size = (top // 32 + 1) * 32  # kernels read 32 bits at a time
    words = words_of(bits, np.roll(lows, -first), np.roll(spans, -first))
    if words is None:
        starts = ((lows - np.uint64(base)) & full).astype(np.int64)
        steps = np.zeros(size + 1, np.int8)
        steps[starts] = 1
        steps[starts + spans.astype(np.int64) + 1] -= 1
        flags = np.cumsum(steps[:size], dtype=np.int8).view(np.bool_)
        return Bitset(np.packbits(flags, bitorder="little"), base, top)
    positions = ((words - np.uint64(base)) & full).astype(np.int64)
    byte = positions >> 3
    values = np.left_shift(1, (positions & 7).astype(np.uint8), dtype=np.uint8)
    edges = np.flatnonzero(np.diff(byte, prepend=-1))
    bitmap = np.zeros(size // 8, np.uint8)
    bitmap[byte[edges]] = np.bitwise_or.reduceat(values, edges)
    return Bitset(bitmap, base, top)
