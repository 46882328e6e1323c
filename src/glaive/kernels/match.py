"""Test words in their encoded form; the result is a bitmap, or row numbers.

A test of words of 8 to 64 bits is a set of ranges. ``glaive.encodings.predicate`` turns tests of
signed numbers, floats, dates and single values into a few ranges. Tests of dictionary-encoded
values become ranges too: the indices of the entries that pass.

Specification of the packed chunks: "Bit-packing" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError
from glaive.kernels import _bitpack as checks
from glaive.kernels._addresses import address, allocate_bits
from glaive.kernels._bitpack import BLOCK
from glaive.kernels.hashing import WordTable
from glaive.kernels.native import match as match_loops
from glaive.kernels.records import WordRanges, packed
from glaive.types import Flags, Int64s, UInt8s, UInt64s

# --- Sets of many words, for testing 64 words at once -----------------------------------
#
# Words that are close together are bits of a bitset, from the first word on. Otherwise their hashes
# are bits of a prefilter. Few other words pass it, and kernels find these in a hash table.

_HASH: Final = np.uint64(0x9E3779B97F4A7C15)

_SMALL_BITSET: Final = 1 << 23
"""Bits of a bitset that is as fast as a prefilter for all words: 1 MB."""

_BITS_PER_WORD: Final = 64
"""Largest number of bits per word in a larger bitset."""

_MAX_BITS: Final = 1 << 31
"""Largest number of bits in a bitset: positions are numbers of 32 bits."""

_PREFILTER_BITS: Final = 16, 24
"""Least and largest number of bits in a prefilter, as powers of two."""

_PREFILTER_BITS_PER_WORD: Final = 16
"""Bits of a prefilter per word: one in sixteen other words passes."""

_ALWAYS_LISTED: Final = 1 << 20
"""Number of words in ranges that are always listed, even for few ranges."""


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
    """List the words of some ranges; return ``None`` if they are many more than the ranges."""
    sizes = spans + np.uint64(1)
    # The size of a range of all words wraps to 0: compare the spans first.
    if not len(lows) or int(spans.max()) >= _ALWAYS_LISTED:
        return None
    total = int(sizes.sum())
    if total > max(_ALWAYS_LISTED, 4 * len(lows)):
        return None
    steps = np.ones(total, np.uint64)
    steps[0] = lows[0]
    steps[sizes[:-1].cumsum().astype(np.int64)] = lows[1:] - lows[:-1] - spans[:-1]
    masked: UInt64s = steps.cumsum() & np.uint64((1 << bits) - 1)
    return masked


def bitset_of(bits: int, lows: UInt64s, spans: UInt64s, words: UInt64s | None) -> Bitset | None:
    """Return a bitset of two or more ranges of words; ``None`` if they are far apart.

    The words have ``bits`` bits; ``words`` are ``None`` if they are not listed. Ranges ascend
    modulo ``2 ** bits``: 0 follows the largest word. There are gaps between them, and the bitset
    omits the widest one.
    """
    full = np.uint64((1 << bits) - 1)
    gaps = np.roll(lows, -1)
    gaps -= lows + spans + np.uint64(1)
    gaps &= full
    first = (int(gaps.argmax()) + 1) % len(lows)
    base = int(lows[first])
    top = (1 << bits) - int(gaps.max())
    count = len(lows) if words is None else len(words)
    if top > max(_SMALL_BITSET, _BITS_PER_WORD * count) or top >= _MAX_BITS:
        return None
    size = (top // 32 + 1) * 32  # kernels read 32 bits at a time
    if words is None:
        starts = ((lows - np.uint64(base)) & full).astype(np.int64)
        steps = np.zeros(size + 1, np.int8)
        steps[starts] = 1
        steps[starts + spans.astype(np.int64) + 1] -= 1
        flags = steps[:size].cumsum(dtype=np.int8).view(np.bool_)
        return Bitset(np.packbits(flags, bitorder="little"), base, top)
    positions = words - np.uint64(base)
    positions &= full
    bit = np.left_shift(1, positions.astype(np.uint8) & 7, dtype=np.uint8)
    positions >>= np.uint64(3)
    bitmap = np.zeros(size // 8, np.uint8)
    np.bitwise_or.at(bitmap, positions.view(np.int64), bit)
    return Bitset(bitmap, base, top)


_MAX_COMPARED_RANGES = 16
"""Largest number of ranges for which kernels compare words with each range."""

_TABLE_BITS = 16
"""Largest width of words with a table: 64 KiB."""


@dataclass(frozen=True, slots=True)
class IntegerRanges:
    """The words ``lows[i]`` to ``lows[i] + spans[i]`` of ``bits`` bits pass.

    Ranges ascend, with gaps between them; the last may wrap around from the largest word to 0. With
    a ``limit`` (≥ 0) words above it are damage. The other members represent the same set. ``table``
    has a 0 or 1 for each word up to the limit. ``bitset`` and ``hashed`` hold many words,
    ``bitset`` if they are close together.
    """

    bits: int
    lows: UInt64s
    spans: UInt64s
    limit: int = -1
    table: UInt8s | None = None
    bitset: Bitset | None = None
    hashed: HashedWords | None = None

    @classmethod
    def of(
        cls, bits: int, lows: UInt64s, spans: UInt64s, words: UInt64s | None = None
    ) -> IntegerRanges:
        """Return a test of all words; for many ranges with a table, a bitset or hashes.

        ``words`` are the words of the ranges, if they are listed already.
        """
        lows, spans = np.ascontiguousarray(lows, np.uint64), np.ascontiguousarray(spans, np.uint64)
        test = cls(bits, lows, spans)
        if len(lows) <= _MAX_COMPARED_RANGES:
            return test
        if bits <= _TABLE_BITS:
            words = np.arange(1 << bits, dtype=np.uint64)
            return replace(test, table=test.flags(words).view(np.uint8))
        if words is None:
            words = words_of(bits, lows, spans)
        bitset = bitset_of(bits, lows, spans, words)
        if bitset is not None:
            return replace(test, bitset=bitset)
        if words is None or len(words) > max(_ALWAYS_LISTED, 4 * len(lows)):
            return test
        return replace(test, hashed=HashedWords(words))

    def flags(self, words: NDArray[np.unsignedinteger]) -> Flags:
        """Return which of some words pass."""
        if not len(self.lows):
            return np.zeros(len(words), np.bool_)
        words = words.astype(np.uint64)
        # Words before all ranges can only be in the last range, which may wrap around to 0.
        at = self.lows.searchsorted(words, side="right") - 1
        moved = (words - self.lows[at]) & np.uint64((1 << self.bits) - 1)
        passing: Flags = moved <= self.spans[at]
        return passing


def test_of_flags(bits: int, flags: Flags) -> IntegerRanges:
    """Return the test that passes the numbers of the set flags; higher numbers are damage."""
    padded = np.zeros(len(flags) + 2, np.int8)
    padded[1:-1] = flags
    edges = np.diff(padded).nonzero()[0]
    lows, stops = edges[::2].astype(np.uint64), edges[1::2].astype(np.uint64)
    table = None
    if len(lows) > _MAX_COMPARED_RANGES:
        table = np.ascontiguousarray(flags, np.bool_).view(np.uint8)
    return IntegerRanges(bits, lows, stops - lows - np.uint64(1), len(flags) - 1, table)


def match_inline(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    test: IntegerRanges,
    where: object,
) -> pa.Buffer:
    """Test the first ``counts[i]`` ≤ 1,024 values of every inline chunk.

    Parameters
    ----------
    data, starts, sizes, counts, where
        Chunks as for :func:`glaive.kernels.bitpack.unpack_inline`.
    test
        The ranges of words that pass.

    Returns
    -------
    pyarrow.Buffer
        One bit per value, chunk after chunk.

    Raises
    ------
    CorruptFileError
        A chunk lies outside ``data``, its width is above the width of words, or its size
        contradicts its width. Or a word is above the limit of the test.
    """
    bits = test.bits
    starts, sizes, counts = checks.aligned(bits, starts, sizes, counts)
    total = checks.total_values(counts, BLOCK * len(counts), where)
    chunks = len(starts)
    target = allocate_bits(total)
    scratch = pa.allocate_buffer(BLOCK * 8)
    record = packed(_ranges(test))
    bad = match_loops.match_inline(
        address(data), data.size, address(starts), address(sizes), address(counts), chunks,
        address(record), address(target), total, address(scratch),
    )  # fmt: skip
    if bad >= chunks:
        raise _range_error(test, where)
    if bad >= 0:
        raise checks.damaged_inline(data, starts[bad], sizes[bad], counts[bad], bits, where)
    return target


def match_plain(
    data: pa.Buffer, starts: Int64s, counts: Int64s, test: IntegerRanges, where: object
) -> pa.Buffer:
    """Test plain words; return one bit per word, chunk after chunk.

    Parameters
    ----------
    data
        Memory of all chunks; words may have any alignment.
    starts, counts
        ``int64`` of shape ``(chunks,)``: first byte and number of words of each chunk.
    test
        The ranges of words that pass.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk lies outside ``data``, or a word is above the limit of the test.
    """
    bits = test.bits
    starts, counts = checks.aligned(bits, starts, counts)
    word = bits // 8
    bad = (starts < 0) | (counts < 0) | (starts > data.size)
    bad |= counts > (data.size - starts) // word
    if bad.any():
        at = int(bad.argmax())
        raise CorruptFileError(
            "plain values",
            expected=f"{counts[at]} values of {bits} bits within {data.size} bytes",
            found=f"they begin at byte {starts[at]}",
            where=where,
        )
    total = int(counts.sum())
    target, record = allocate_bits(total), packed(_ranges(test))
    damaged = match_loops.match_plain(
        address(data), address(starts), address(counts), len(starts), address(record),
        address(target),
    )  # fmt: skip
    if damaged >= 0:
        raise _range_error(test, where)
    return target


def count_rows(bits: pa.Buffer, begin: int, count: int) -> int:
    """Return the number of set bits among ``count`` bits from bit ``begin`` on."""
    _check_bits(bits, begin, count)
    return int(match_loops.count_set(address(bits), begin, begin + count))


def list_rows(bits: pa.Buffer, begin: int, count: int, first: int) -> Int64s:
    """Return the row numbers of the set bits, ascending.

    Parameters
    ----------
    bits
        A bitmap.
    begin, count
        The range of bits.
    first
        The row number of bit ``begin``.
    """
    _check_bits(bits, begin, count)
    rows = np.empty(match_loops.count_set(address(bits), begin, begin + count), np.int64)
    if len(rows):
        match_loops.list_set(address(bits), begin, begin + count, first, address(rows))
    return rows


def _ranges(test: IntegerRanges) -> WordRanges:
    """Return the record of a test, for kernels."""
    lows, spans = test.lows, test.spans
    record = WordRanges(test.bits)
    if len(lows):
        record = WordRanges(test.bits, address(lows), address(spans), ranges=len(lows))
    if test.limit >= 0:
        record = record._replace(limit=test.limit)
    if test.table is not None:
        record = record._replace(table=address(test.table))
    if test.bitset is not None:
        bitset = test.bitset
        record = record._replace(
            bitset=address(bitset.bits), base=_signed(bitset.base), top=_signed(bitset.top)
        )
    if test.hashed is not None:
        hashed = test.hashed
        slots = hashed.table.slots
        record = record._replace(
            prefilter=address(hashed.prefilter),
            shift=hashed.shift,
            slots=address(slots),
            words=address(hashed.table.words),
            slot_bits=len(slots).bit_length() - 1,
            secret=hashed.table.secret,
        )
    return record


def _signed(word: int) -> int:
    """Return the bits of an ``uint64`` as an ``int64``."""
    return int(word) - ((int(word) >> 63) << 64)


def _check_bits(bits: pa.Buffer, begin: int, count: int) -> None:
    if begin < 0 or count < 0 or begin + count > 8 * bits.size:
        raise ValueError(f"{count} bits from bit {begin} on of {bits.size} bytes")


def _range_error(test: IntegerRanges, where: object) -> CorruptFileError:
    return CorruptFileError(
        "dictionary indices",
        expected=f"unsigned numbers up to {test.limit}",
        found="a larger number",
        where=where,
    )
