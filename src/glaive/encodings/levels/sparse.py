"""Validity of slots and sizes of lists, kept as positions.

A column of a million empty lists and a few filled ones takes a few numbers this way. Positions
ascend; ranges and single slots are found by bisection, a batch at a time.

Specification: "Sparse structure" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Variable
from glaive.arrow.buffers import MAX_IMPLIED_POSITIONS, pack_flags, spread
from glaive.arrow.gather import take_block
from glaive.config import MOST_IMPLIED
from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError
from glaive.memory import as_buffer, items_of
from glaive.types import Flags, Int64s

__all__ = ["MAX_IMPLIED_LISTS", "ListSlots", "Validity", "bitmap_of", "place_values"]

MAX_IMPLIED_LISTS = MOST_IMPLIED // 8
"""Lists of an array at most: the file has no bytes for their offsets."""

_NONE = np.zeros(0, np.int64)
_NONE.setflags(write=False)


@dataclass(frozen=True, slots=True)
class Validity:
    """Which of ``count`` slots are valid: those at ``positions``, or all but those."""

    count: int
    positions: Int64s = field(default_factory=lambda: _NONE)
    are_valid: bool = False

    @property
    def valid_count(self) -> int:
        """Number of valid slots."""
        listed = len(self.positions)
        return listed if self.are_valid else self.count - listed

    @property
    def all_valid(self) -> bool:
        """Whether no slot is null."""
        return self.valid_count == self.count

    def flags(self, start: int, stop: int) -> Flags | None:
        """One flag per slot of a range; None when all of them are valid."""
        low, high = self.positions.searchsorted((start, stop)).tolist()
        if high - low == (stop - start if self.are_valid else 0):
            return None
        _check_count(stop - start, MOST_IMPLIED, "values, nearly all of them null,")
        flags = np.full(stop - start, not self.are_valid)
        flags[self.positions[low:high] - start] = self.are_valid
        return flags

    def flags_at(self, slots: Int64s) -> Flags | None:
        """One flag per slot given; None when all of them are valid."""
        if self.all_valid:
            return None
        at = self.positions.searchsorted(slots)
        listed = np.zeros(len(slots), np.bool_)
        if len(self.positions):
            listed = self.positions[np.minimum(at, len(self.positions) - 1)] == slots
        flags = listed if self.are_valid else ~listed
        return None if flags.all() else flags

    def rank(self, slots: Int64s) -> Int64s:
        """Number of valid slots in front of each slot given."""
        before: Int64s = self.positions.searchsorted(slots)
        return before if self.are_valid else slots - before

    def repeated(self, times: int) -> Self:
        """The same with each slot repeated ``times`` times."""
        positions = self.positions
        if len(positions):  # without any, nothing says that so many numbers are there
            positions = np.add.outer(positions * times, np.arange(times)).reshape(-1)
        return replace(self, count=self.count * times, positions=positions)

    @classmethod
    def of_all(cls, layers: Sequence[Self], count: int) -> Self:
        """Slots that are valid in every one of the layers, which have ``count`` slots each."""
        partial = [layer for layer in layers if not layer.all_valid]
        if not partial:
            return cls(count)
        if len(partial) == 1:
            return partial[0]
        if not any(layer.are_valid for layer in partial):
            return cls(count, np.unique(np.concatenate([layer.positions for layer in partial])))
        # Only positions are stored: a few bytes can describe billions of slots.
        first, *rest = sorted(partial, key=lambda layer: not layer.are_valid)
        positions = first.positions
        for layer in rest:
            listed = np.isin(positions, layer.positions)
            positions = positions[listed if layer.are_valid else ~listed]
        return cls(count, positions, are_valid=True)


@dataclass(frozen=True, slots=True)
class ListSlots:
    """Lists with items: slot ``positions[i]`` has items ``ends[i]`` to ``ends[i + 1]``."""

    positions: Int64s
    ends: Int64s

    def range_of(self, start: int, stop: int) -> tuple[Int64s, int, int]:
        """Offsets (from 0) of the lists in a range of slots, and the range of their items."""
        low, high = self.positions.searchsorted((start, stop)).tolist()
        ends = self.ends[low : high + 1]
        first, last = int(ends[0]), int(ends[-1])
        if high - low == stop - start:
            return ends - first, first, last
        _check_count(stop - start, MAX_IMPLIED_LISTS, "lists, nearly all of them empty,")
        offsets = np.zeros(stop - start + 1, np.int64)
        offsets[self.positions[low:high] - start + 1] = np.diff(ends)
        np.cumsum(offsets, out=offsets)
        return offsets, first, last

    def take(self, slots: Int64s) -> tuple[Int64s, Int64s]:
        """Offsets (from 0) of the lists in the slots given, and the positions of their items.

        Raises
        ------
        CapacityError
            Several lists have more items than are listed at once.
        """
        count = len(self.positions)
        offsets = np.zeros(len(slots) + 1, np.int64)
        if not count:
            return offsets, _NONE
        at = self.positions.searchsorted(slots)
        np.minimum(at, count - 1, out=at)
        begin = self.ends[at]
        sizes = np.where(self.positions[at] == slots, self.ends[at + 1] - begin, 0)
        np.cumsum(sizes, out=offsets[1:])
        return offsets, spread(begin, sizes, MAX_IMPLIED_POSITIONS)


def _check_count(count: int, most: int, items: str) -> None:
    if count > most:
        raise UnsupportedFeatureError(
            f"{count} {items} in one array, at most {most} are allowed. Read fewer rows at a "
            "time; if the file should not have as many, it is damaged."
        )


def bitmap_of(flags: Flags | None) -> tuple[pa.Buffer | None, int]:
    """The flags as a bitmap, and the number of nulls."""
    if flags is None:
        return None, 0
    return pack_flags(flags), len(flags) - int(np.count_nonzero(flags))


def place_values(block: Block, flags: Flags | None) -> Block:
    """Put the values into the flagged slots, in order; other slots hold a placeholder.

    Bytes of strings are not copied.
    """
    if flags is None:
        return block
    ranks = np.cumsum(flags)
    if isinstance(block, Variable):
        offsets = items_of(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1)
        placed = offsets[np.concatenate(([0], ranks))]
        return Variable(as_buffer(placed), block.offset_bits, block.data, len(flags))
    return take_block(block, np.maximum(ranks - 1, 0))
