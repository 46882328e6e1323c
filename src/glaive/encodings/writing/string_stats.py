"""What is known of a block of strings before an encoding is chosen, and dictionaries.

A dictionary is built when there are at least 100 values, when the distinct ones are at most
half as many and at most 100,000, and when the result is below 0.8 of the plain size. A
sample of a few thousand values decides beforehand whether it is worth trying.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Dictionary, FixedWidth, Variable
from glaive.encodings.writing.symbol_table import Coding, PageSymbols, train
from glaive.kernels.hashing import number_strings, number_words, pick_strings
from glaive.kernels.strings import Strings, as_offsets, value_lengths
from glaive.memory import as_array

__all__ = [
    "VariableStats",
    "build_dictionary",
    "dictionary_bytes",
    "likely_items",
]

MIN_VALUES = 100
"""Values below which a dictionary is not tried."""

MAX_ITEMS = 100_000
"""Items of a dictionary at most."""

SAMPLE = 4096
"""Values looked at before a dictionary is tried."""

MIN_SAMPLE = 1024
"""Values below which the sample says too little; the dictionary is simply tried."""

UNIQUE_SHARE = 0.98
"""Share of distinct values in the sample from which a dictionary is hopeless."""

FEW_SHARE = 0.9
"""Share of distinct values in a quarter of the sample below which all of it would have less."""


@dataclass(frozen=True)
class VariableStats:
    """Facts about the strings of a block; those that cost more are found when asked for."""

    block: Variable
    count: int
    data_bytes: int
    shortest: int
    longest: int
    symbols: PageSymbols | None = None
    _codings: list[Coding] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def of(cls, block: Variable, symbols: PageSymbols | None = None) -> VariableStats:
        """Gather the facts. Cost: one pass over the offsets.

        ``symbols`` are those of the column, where its pages may share them.
        """
        strings = Strings(block.offsets, block.offset_bits, block.data)
        shortest, longest = value_lengths(*strings, block.count)
        ends = as_offsets(block.offsets, block.offset_bits)
        size = int(ends[block.count]) - int(ends[0])
        return cls(block, block.count, size, shortest, longest, symbols)

    @property
    def plain_bytes(self) -> int:
        """Bytes of the values and their offsets."""
        return self.data_bytes + self.count * self.block.offset_bits // 8

    @cached_property
    def distinct(self) -> int:
        """Distinct values, from a sample: those seen once are scaled by a square root.

        Right within that root, ``sqrt(count / 4096)``, whatever the distribution.
        """
        return _scaled(self.block, *_sampled(self.block)) if self.count else 0

    @property
    def coding(self) -> Coding:
        """FSST symbols for these values. Cost: some milliseconds where they are not shared.

        Found once. Not a cached property: up to Python 3.11 these lock all objects of a class,
        and one that waits for the first page of its column would keep that from training.
        """
        if not self._codings:
            shared = self.symbols
            found = train(self.block) if shared is None else shared.coding(self.block)
            self._codings.append(found)
        return self._codings[0]

    @cached_property
    def all_equal(self) -> bool:
        """Whether there is one value, again and again. Cost: one comparison of all bytes."""
        if self.shortest != self.longest or self.data_bytes <= self.longest:
            return self.shortest == self.longest
        first = int(as_offsets(self.block.offsets, self.block.offset_bits)[0])
        data, size = self.block.data, self.longest
        # Cheap for most columns: the second value already differs.
        if not data.slice(first, size).equals(data.slice(first + size, size)):
            return False
        rest = self.data_bytes - size
        return data.slice(first, rest).equals(data.slice(first + size, rest))


def likely_items(block: Variable | FixedWidth) -> int | None:
    """Estimate the items of a dictionary from a sample; None where it is not worth trying."""
    if block.count < MIN_VALUES:
        return None
    seen, once = _sampled(block)
    if block.count >= MIN_SAMPLE and seen >= UNIQUE_SHARE * min(block.count, SAMPLE):
        return None
    items = _scaled(block, seen, once)
    return items if items <= min(MAX_ITEMS, block.count // 2) else None


def _is_hopeless(block: Variable | FixedWidth) -> bool:
    """Whether nearly all values of a sample differ; a quarter of it may say enough."""
    count = block.count
    if count < MIN_SAMPLE:
        return False
    rows = _spread_rows(count)
    if count > SAMPLE:
        some = rows[:: SAMPLE // MIN_SAMPLE]
        seen = len(_occurrences(block, some))
        if seen == len(some) or seen < FEW_SHARE * len(some):
            return seen == len(some)
    return len(_occurrences(block, rows)) >= UNIQUE_SHARE * len(rows)


def _scaled(block: Variable | FixedWidth, seen: int, once: int) -> int:
    """Distinct values of all: those that the sample has once are scaled by a square root."""
    if block.count <= SAMPLE:
        return seen
    return min(block.count, seen - once + int(once * (block.count / SAMPLE) ** 0.5))


def build_dictionary(
    block: Variable | FixedWidth,
    *,
    divisor: int = 2,
    most: int = MAX_ITEMS,
    size_ratio: float = 0.8,
) -> Dictionary | None:
    """Number the distinct values, or return None when a dictionary would not pay.

    ``block`` holds strings, or values of 64 or 128 bits. ``divisor``: there are at most
    ``count / divisor`` items; ``most``: nor more than this; ``size_ratio``: items and packed
    indices take less than this share of the plain bytes. Indices have 32 bits.
    """
    count = block.count
    if count < MIN_VALUES:
        return None
    if _is_hopeless(block):
        return None
    most = min(most, count // divisor)
    made: Dictionary | None = None
    if isinstance(block, FixedWidth):
        found = number_words(block.values, block.bits, count, most)
        if found is not None:
            items = FixedWidth(found.items, block.bits, found.number)
            made = Dictionary(FixedWidth(found.indices, 32, count), items, count)
        plain = count * block.bits // 8
    else:
        ends = as_offsets(block.offsets, block.offset_bits)
        data_bytes = int(ends[count]) - int(ends[0])
        plain = data_bytes + count * block.offset_bits // 8
        strings = Strings(block.offsets, block.offset_bits, block.data)
        numbered = number_strings(strings, count, most, int(plain * size_ratio))
        if numbered is not None:
            texts = Variable(*numbered.items, numbered.number)
            made = Dictionary(FixedWidth(numbered.indices, 32, count), texts, count)
    if made is None or dictionary_bytes(made) >= size_ratio * plain:
        return None
    return made


def dictionary_bytes(block: Dictionary) -> int:
    """Estimate what a dictionary takes on disk: packed indices, items as they are."""
    items = block.items
    bits = max(items.count - 1, 1).bit_length()
    indices = -(-block.count * bits // 8)
    if isinstance(items, Variable):
        ends = as_offsets(items.offsets, items.offset_bits)
        size = int(ends[items.count]) - int(ends[0])
        return indices + size + items.count * items.offset_bits // 8
    if isinstance(items, FixedWidth):
        return indices + items.count * items.bits // 8
    raise TypeError(f"dictionary items in a {type(items).__name__} block")


def _sampled(block: Variable | FixedWidth) -> tuple[int, int]:
    """Return how many distinct values a sample has, and how many of them once.

    Where a quarter of the sample has no value twice, all of it counts as distinct.
    """
    rows = _spread_rows(block.count)
    if block.count > SAMPLE:
        some = rows[:: SAMPLE // MIN_SAMPLE]
        if len(_occurrences(block, some)) == len(some):
            return len(rows), len(rows)
    times = _occurrences(block, rows)
    return len(times), int((times == 1).sum())


def _spread_rows(count: int) -> NDArray[np.int64]:
    """Rows of the sample of so many."""
    taken = min(count, SAMPLE)
    rows = np.arange(taken, dtype=np.int64) * count // taken
    # Even steps would see the same place of every period; the shifts are the same each run.
    if count > SAMPLE:
        rows += np.arange(taken) * 7919 % (count // taken)
    return rows


def _occurrences(block: Variable | FixedWidth, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of the values at these rows occurs among them."""
    taken = len(rows)
    if isinstance(block, Variable):
        strings = pick_strings(Strings(block.offsets, block.offset_bits, block.data), rows)
        found = number_strings(strings, taken, taken, strings.data.size)
        indices = found.indices if found else pa.py_buffer(b"")
    else:
        kind = np.dtype((np.void, block.bits // 8))
        words = pa.py_buffer(as_array(block.values, kind)[rows].tobytes())
        numbered = number_words(words, block.bits, taken, taken)
        indices = numbered.indices if numbered else pa.py_buffer(b"")
    return np.bincount(as_array(indices, np.uint32)[:taken])
