"""Statistics of strings for choosing their encoding, and building dictionaries.

A dictionary is built if the block has at least 100 values, and the distinct ones are at most
half as many and at most 100,000. The result must be below 0.8 of the plain size, too.
A sample of a few thousand values decides beforehand whether it is worth trying.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from dataclasses import field
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedWidth, Variable
from glaive.dataclass import dataclass
from glaive.encodings.writing.fixed_stats import SAMPLE_VALUES, spread_rows
from glaive.kernels.fsst import SymbolTable, encode_strings, sample_strings, train_symbols
from glaive.kernels.hashing import copy_ranges, number_strings, number_words
from glaive.kernels.strings import Strings, as_offsets, value_lengths
from glaive.types import Int64s, as_array

# --- One FSST symbol table for the pages of a column, where it fits later pages as well -
#
# Training takes about as long as encoding a megabyte. The first page of a column trains. Each page
# after it encodes a sample of its own values with that table. It trains only if the table
# compresses worse there than on the first page. The first page is determined before pages are
# encoded in parallel, so a file has the same bytes in every run.

MAX_SHARE_RATIO = 1.01
"""With the first page's table, a page may compress this factor worse than that page does."""


@dataclass(frozen=True, slots=True)
class Coding:
    """A symbol table, and the share of bytes that remains of values like its sample."""

    table: SymbolTable
    share: float


class SharedSymbols:
    """The symbol table of the first page of a column; later pages wait for it."""

    def __init__(self) -> None:
        self._finished = Event()
        self._coding: Coding | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the first page has trained a table, or has ended."""
        return self._finished.is_set()

    def finish(self, coding: Coding | None = None) -> None:
        """Let other pages continue, with or without a table. Only the first call counts."""
        if not self._finished.is_set():
            self._coding = coding
            self._finished.set()

    def wait(self) -> Coding | None:
        """Wait for the first page; return its table, if it has one."""
        self._finished.wait()
        return self._coding


@dataclass(frozen=True, slots=True)
class PageSymbols:
    """Access of one page to the symbols of its column.

    ``first`` is true for one page of the column only. The code that encodes it must call
    ``finish`` of ``shared`` in all cases, or the other pages wait for ever.
    """

    shared: SharedSymbols
    first: bool

    def coding(self, block: Variable) -> Coding:
        """Return the shared table if it fits ``block``, else a new one."""
        if self.first and not self.shared.is_finished:
            sample, fresh = _sample(block, 0), _sample(block, 1)
            table = train_symbols(sample)
            coding = Coding(table, _share(table, sample))
            # Text outside of the sample predicts better what to expect of other pages.
            self.shared.finish(Coding(table, max(coding.share, _share(table, fresh))))
            return coding
        shared = self.shared.wait()
        if shared is not None:
            share = _share(shared.table, _sample(block, 0))
            if share <= MAX_SHARE_RATIO * shared.share:
                return Coding(shared.table, share)
        return train(block)


def train(block: Variable) -> Coding:
    """Train a table on a sample of the values, about 16 KiB."""
    sample = _sample(block, 0)
    table = train_symbols(sample)
    return Coding(table, _share(table, sample))


def _sample(block: Variable, turn: int) -> Strings:
    return sample_strings(Strings(block.offsets, block.offset_bits, block.data), block.count, turn)


def _share(table: SymbolTable, sample: Strings) -> float:
    count = sample.offsets.size // 8 - 1
    return encode_strings(table, sample, count).data.size / max(sample.data.size, 1)


MIN_VALUES = 100
"""Minimum values for trying a dictionary."""

MIN_BYTES = 2048
"""Minimum bytes for trying a dictionary: in fewer bytes choosing costs more than it saves."""

MAX_ITEMS = 100_000
"""Maximum items of a dictionary."""

SAMPLED_BYTES = 1024
"""Bytes to compare of a sampled value, which avoids copying files that lie in a column."""

MIN_SAMPLE_VALUES = 1024
"""Minimum values for a reliable sample; with fewer the dictionary is simply tried."""

UNIQUE_SHARE = 0.98
"""Minimum share of distinct values in the sample for ruling out a dictionary."""

QUARTER_SHARE = 0.9
"""With a lower share in a quarter of the sample, the share of the sample is below the limit."""


@dataclass(frozen=True)
class VariableStats:
    """Statistics of the strings of a block; expensive ones are computed on first use."""

    block: Variable
    count: int
    data_bytes: int
    longest: int
    symbols: PageSymbols | None = None
    _codings: list[Coding] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of(cls, block: Variable, symbols: PageSymbols | None = None) -> VariableStats:
        """Compute the cheap statistics. Cost: one pass over the offsets.

        ``symbols`` are the FSST symbols that the pages of the column share.
        """
        strings = Strings(block.offsets, block.offset_bits, block.data)
        _, longest = value_lengths(*strings, block.count)
        offsets = as_offsets(block.offsets, block.offset_bits)
        size = int(offsets[block.count]) - int(offsets[0])
        return cls(block, block.count, size, longest, symbols)

    @property
    def plain_bytes(self) -> int:
        """Bytes of the values and their offsets."""
        return self.data_bytes + self.count * self.block.offset_bits // 8

    @property
    def coding(self) -> Coding:
        """FSST symbols for these values. Cost: some milliseconds unless they are shared.

        Computed once. ``cached_property`` would lock all objects of a class up to Python 3.11: an
        object that waits for the first page would keep that page from training.
        """
        if not self._codings:
            shared = self.symbols
            coding = train(self.block) if shared is None else shared.coding(self.block)
            self._codings.append(coding)
        return self._codings[0]


def likely_items(block: Variable | FixedWidth) -> int | None:
    """Estimate the items of a dictionary from a sample; ``None`` where trying it is useless."""
    if block.count < MIN_VALUES:
        return None
    seen, once = _sampled(block)
    if block.count >= MIN_SAMPLE_VALUES and seen >= UNIQUE_SHARE * min(block.count, SAMPLE_VALUES):
        return None
    items = _scaled(block, seen, once)
    return items if items <= min(MAX_ITEMS, block.count // 2) else None


def sample_distinct(block: Variable | FixedWidth) -> tuple[int, int]:
    """Return a sample's rows and distinct values; of a quarter of it if that decides."""
    rows = spread_rows(block.count)
    if block.count > SAMPLE_VALUES:
        quarter = rows[:: SAMPLE_VALUES // MIN_SAMPLE_VALUES]
        seen = len(_occurrences(block, quarter))
        if seen == len(quarter) or seen < QUARTER_SHARE * len(quarter):
            return len(quarter), seen
    return len(rows), len(_occurrences(block, rows))


def _scaled(block: Variable | FixedWidth, seen: int, once: int) -> int:
    """Estimate a block's distinct values from ``seen`` in a sample, ``once`` of them once."""
    if block.count <= SAMPLE_VALUES:
        return seen
    return min(block.count, seen - once + int(once * (block.count / SAMPLE_VALUES) ** 0.5))


def build_dictionary(
    block: Variable | FixedWidth,
    *,
    divisor: int = 2,
    max_items: int = MAX_ITEMS,
    size_ratio: float = 0.8,
) -> Dictionary | None:
    """Build a dictionary of the distinct values, or return ``None`` when it would not save bytes.

    ``block`` holds strings, or values of 16, 32, 64 or 128 bits. ``divisor``: there are at most
    ``count / divisor`` items, and at most ``max_items``; ``size_ratio``: items and packed indices
    take less than this share of the plain bytes. Indices have 32 bits.
    """
    count = block.count
    if count < MIN_VALUES:
        return None
    if count >= MIN_SAMPLE_VALUES:
        sampled, seen = sample_distinct(block)
        if seen >= UNIQUE_SHARE * sampled:
            return None
    max_items = min(max_items, count // divisor)
    if isinstance(block, FixedWidth):
        plain = count * block.bits // 8
        if plain < MIN_BYTES:
            return None
        words = number_words(block.values, block.bits, count, max_items)
        if words is None:
            return None
        indices = words.indices
        items: Block = FixedWidth(words.items, block.bits, words.number)
    else:
        offsets = as_offsets(block.offsets, block.offset_bits)
        data_bytes = int(offsets[count]) - int(offsets[0])
        plain = data_bytes + count * block.offset_bits // 8
        if plain < MIN_BYTES:
            return None
        strings = Strings(block.offsets, block.offset_bits, block.data)
        numbered = number_strings(strings, count, max_items, int(plain * size_ratio))
        if numbered is None:
            return None
        indices = numbered.indices
        items = Variable(*numbered.items, numbered.number)
    dictionary = Dictionary(FixedWidth(indices, 32, count), items, count)
    return dictionary if dictionary_bytes(dictionary) < size_ratio * plain else None


def dictionary_bytes(block: Dictionary) -> int:
    """Estimate the bytes of a dictionary on disk: packed indices and plain items."""
    items = block.items
    bits = max(items.count - 1, 1).bit_length()
    indices = -(-block.count * bits // 8)
    if isinstance(items, Variable):
        offsets = as_offsets(items.offsets, items.offset_bits)
        size = int(offsets[items.count]) - int(offsets[0])
        return indices + size + items.count * items.offset_bits // 8
    if isinstance(items, FixedWidth):
        return indices + items.count * items.bits // 8
    raise TypeError(f"dictionary items in a {type(items).__name__} block")


def _sampled(block: Variable | FixedWidth) -> tuple[int, int]:
    """Return how many distinct values a sample has, and how many of them occur once.

    Where all values of a quarter of the sample are distinct, the whole sample counts as distinct.
    """
    rows = spread_rows(block.count)
    if block.count > SAMPLE_VALUES:
        sampled = rows[:: SAMPLE_VALUES // MIN_SAMPLE_VALUES]
        if len(_occurrences(block, sampled)) == len(sampled):
            return len(rows), len(rows)
    times = _occurrences(block, rows)
    return len(times), int((times == 1).sum())


def _sample_strings(block: Variable, rows: Int64s) -> Strings:
    """Return the strings at these rows; of long ones some bytes in the middle."""
    ends = as_offsets(block.offsets, block.offset_bits)
    starts = ends[rows].astype(np.int64)
    sizes = ends[rows + 1] - starts
    shown = np.minimum(sizes, SAMPLED_BYTES)
    return copy_ranges(block.data, starts + (sizes - shown) // 2, shown, block.offset_bits)


def _occurrences(block: Variable | FixedWidth, rows: Int64s) -> Int64s:
    """Return how often each distinct value occurs at these rows."""
    taken = len(rows)
    if isinstance(block, Variable):
        strings = _sample_strings(block, rows)
        numbered: Any = number_strings(strings, taken, taken, strings.data.size)
    else:
        dtype = np.dtype((np.void, block.bits // 8))
        words = pa.py_buffer(as_array(block.values, dtype)[rows].tobytes())
        numbered = number_words(words, block.bits, taken, taken)
    indices = numbered.indices if numbered else pa.py_buffer(b"")
    return np.bincount(as_array(indices, np.uint32)[:taken])
