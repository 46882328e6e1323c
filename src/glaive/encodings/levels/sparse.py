"""Which slots are null, and which lists have how many items, kept as positions.

A column of a million empty lists and a few others takes a few numbers this way. Positions
ascend; ranges and single slots are found by bisection, all of a batch at once.

Specification: "Sparse structure" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Variable
from glaive.arrow.buffers import pack_flags
from glaive.arrow.build import MAX_IMPLIED
from glaive.arrow.gather import take_block
from glaive.errors import UnsupportedFeatureError
from glaive.memory import as_buffer, items_of

__all__ = ["MOST_LISTS", "Flags", "ListSlots", "Validity", "bitmap_of", "place_values"]

Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_LISTS = MAX_IMPLIED // 8
"""Lists of an array at most, whose offsets no bytes of the file stand for."""

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
        _check_count(stop - start, MAX_IMPLIED, "values, nearly all of them null or none,")
        found = np.full(stop - start, not self.are_valid)
        found[self.positions[low:high] - start] = self.are_valid
        return found

    def flags_at(self, slots: Int64s) -> Flags | None:
        """One flag per slot given; None when all of them are valid."""
        if self.all_valid:
            return None
        at = self.positions.searchsorted(slots)
        listed = np.zeros(len(slots), np.bool_)
        if len(self.positions):
            listed = self.positions[np.minimum(at, len(self.positions) - 1)] == slots
        found = listed if self.are_valid else ~listed
        return None if found.all() else found

    def rank(self, slots: Int64s) -> Int64s:
        """Number of valid slots in front of each slot given."""
        before: Int64s = self.positions.searchsorted(slots)
        return before if self.are_valid else slots - before

    def repeated(self, times: int) -> Self:
        """The same for slots that stand ``times`` in a row for each of these."""
        positions = np.add.outer(self.positions * times, np.arange(times)).reshape(-1)
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
        # Of lists of positions only: a few bytes can stand for billions of slots.
        found = np.empty(0, np.int64)
        for at, layer in enumerate(sorted(partial, key=lambda one: not one.are_valid)):
            if at == 0:
                found = layer.positions
            else:
                found = found[np.isin(found, layer.positions, invert=not layer.are_valid)]
        return cls(count, found, are_valid=True)


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
        _check_count(stop - start, MOST_LISTS, "lists, nearly all of them empty,")
        offsets = np.zeros(stop - start + 1, np.int64)
        offsets[self.positions[low:high] - start + 1] = np.diff(ends)
        np.cumsum(offsets, out=offsets)
        return offsets, first, last

    def pick(self, slots: Int64s) -> tuple[Int64s, Int64s]:
        """Offsets (from 0) of the lists in the slots given, and the positions of their items."""
        count = len(self.positions)
        offsets = np.zeros(len(slots) + 1, np.int64)
        if not count:
            return offsets, _NONE
        at = self.positions.searchsorted(slots)
        np.minimum(at, count - 1, out=at)
        begin = self.ends[at]
        sizes = np.where(self.positions[at] == slots, self.ends[at + 1] - begin, 0)
        np.cumsum(sizes, out=offsets[1:])
        total = int(offsets[-1])
        return offsets, np.repeat(begin - offsets[:-1], sizes) + np.arange(total)


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise UnsupportedFeatureError(
            f"{count} {what} in one array: at most {most} are made at a time. Read fewer rows at a "
            "time; if the file should not have as many, it is damaged."
        )


def bitmap_of(flags: Flags | None) -> tuple[pa.Buffer | None, int]:
    """The flags as a bitmap, and the number of nulls."""
    if flags is None:
        return None, 0
    return pack_flags(flags), len(flags) - int(np.count_nonzero(flags))


def place_values(block: Block, flags: Flags | None) -> Block:
    """Give each value one of the flagged slots, in order; the others hold a placeholder.

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
