"""Where rows went in rewrites: ranges of rows that moved together.

A few bytes may say where billions of rows went; memory follows from the number of ranges.

Specification: "Rows that moved" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from glaive.errors import UnsupportedFeatureError
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt64s

__all__ = ["MovedRanges", "Moves", "joined_moves", "moves_of"]

_SHIFT: Final = np.uint64(32)
_DELETED: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_OFFSET: Final = np.uint64(0xFFFF_FFFF)

_LISTED, _LISTED_PER_RANGE, _LISTED_PER_SEARCH = 1 << 24, 64, 64
"""Rows whose new addresses are listed one by one: so many, or so many for each range of them. Once
there are no more than so many for each address that was looked up: a few are found before.
"""

_FEW, _MOST_CUT = 1 << 22, 64
"""Ranges that rewrites one after the other may make: so many, or so many for each of theirs."""


class MovedRanges(NamedTuple):
    """Surviving rows as ranges that moved together; none leaves its old or its new fragment.

    Parameters
    ----------
    starts, stops
        Old addresses, half-open.
    targets
        New address of the first row of each.
    """

    starts: UInt64s
    stops: UInt64s
    targets: UInt64s

    @classmethod
    def joined(cls, parts: Sequence[MovedRanges]) -> MovedRanges:
        """Those of all parts, in this order."""
        if len(parts) == 1:
            return parts[0]
        starts, stops, targets = zip(_NONE, *parts, strict=True)
        return cls(np.concatenate(starts), np.concatenate(stops), np.concatenate(targets))

    def part(self, start: int, stop: int) -> MovedRanges:
        """Some of them."""
        return MovedRanges(
            self.starts[start:stop], self.stops[start:stop], self.targets[start:stop]
        )

    def moved_on(self, later: MovedRanges) -> MovedRanges:
        """Where a later rewrite, whose ranges are given, left the rows."""
        ends = self.targets + (self.stops - self.starts)
        first = np.searchsorted(later.stops, self.targets, side="right")
        counts = np.maximum(np.searchsorted(later.starts, ends, side="left") - first, 0)
        one = np.repeat(np.arange(len(counts)), counts)
        other = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts - first, counts)
        begin = np.maximum(self.targets[one], later.starts[other])
        end = np.minimum(ends[one], later.stops[other])
        starts = self.starts[one] + (begin - self.targets[one])
        targets = later.targets[other] + (begin - later.starts[other])
        return MovedRanges(starts, starts + (end - begin), targets)

    def every_target(self, bounds: Int64s) -> UInt64s:
        """New address of each row of fragments that begin at these places of a list.

        Parameters
        ----------
        bounds
            Where the list has the first row of the fragment of each range, and its length.
        """
        offsets = (self.starts & _OFFSET).astype(np.int64) + bounds[:-1]
        sizes = (self.stops - self.starts).astype(np.int64)
        at = np.ones(int(sizes.sum()), np.int64)
        lasts = np.concatenate(([0], (offsets + sizes)[:-1] - 1))
        at[np.cumsum(sizes) - sizes] = offsets - lasts  # from the last row of the range before
        np.cumsum(at, out=at)
        targets = np.full(int(bounds[-1]), _DELETED)
        moved = np.repeat(self.targets - offsets.astype(np.uint64), sizes)
        targets[at] = moved + at.astype(np.uint64)
        return targets


_NONE = MovedRanges(*[np.empty(0, np.uint64)] * 3)


class Moves:
    """One rewrite, or several that were joined.

    Parameters
    ----------
    ids
        Old fragments, ascending.
    bounds
        Where the ranges of each begin, and the end of the last.
    ranges
        Surviving rows, ascending by old address.
    """

    __slots__ = ("_bounds", "_listed", "_looked_up", "_ranges", "_starts", "ids")

    def __init__(self, ids: UInt64s, bounds: Int64s, ranges: MovedRanges) -> None:
        self.ids, self._bounds, self._ranges = ids, bounds, ranges
        # Rows of each old fragment up to the last surviving one.
        sizes = np.zeros(len(ids), np.int64)
        filled = np.flatnonzero(bounds[1:] > bounds[:-1])
        sizes[filled] = ranges.stops[bounds[filled + 1] - 1] - (ids[filled] << _SHIFT)
        self._starts: Int64s = np.concatenate(([0], np.cumsum(sizes)))
        self._listed: UInt64s | None = None
        self._looked_up = 0

    @property
    def count(self) -> int:
        """Ranges of rows."""
        return len(self._ranges.starts)

    def apply(self, addresses: UInt64s) -> UInt64s:
        """New addresses; all bits are set for deleted rows."""
        if not len(self.ids) or not len(addresses):
            return addresses
        fragments = addresses >> _SHIFT
        index = np.searchsorted(self.ids, fragments)
        index[index == len(self.ids)] = 0
        relocated = self.ids[index] == fragments
        new_addresses = addresses.copy()
        new_addresses[relocated] = _DELETED
        if not self._lists(len(addresses)):
            starts, stops, targets = self._ranges
            at = np.searchsorted(starts, addresses, side="right") - 1
            inside = np.flatnonzero(relocated & (at >= 0))
            inside = inside[addresses[inside] < stops[at[inside]]]
            at = at[inside]
            new_addresses[inside] = targets[at] + (addresses[inside] - starts[at])
            return new_addresses
        begin, end = self._starts[index], self._starts[index + 1]
        offsets = (addresses & _OFFSET).astype(np.int64)
        known = relocated & (offsets < end - begin)
        new_addresses[known] = self._targets()[(begin + offsets)[known]]
        return new_addresses

    def _lists(self, count: int) -> bool:
        """Whether new addresses are listed, now that so many more are looked up."""
        self._looked_up += count
        most = max(_LISTED, _LISTED_PER_RANGE * self.count)
        return int(self._starts[-1]) <= min(most, _LISTED_PER_SEARCH * self._looked_up)

    def _targets(self) -> UInt64s:
        """New address of each row of the old fragments: looked up without a search."""
        if self._listed is None:
            begins = np.repeat(self._starts[:-1], np.diff(self._bounds))
            self._listed = self._ranges.every_target(np.append(begins, self._starts[-1]))
        return self._listed

    def rows_of(self, fragment: int) -> int | None:
        """Rows up to the last surviving one; ``None`` if the fragment was not rewritten."""
        index = int(np.searchsorted(self.ids, np.uint64(fragment)))
        if index == len(self.ids) or int(self.ids[index]) != fragment:
            return None
        return int(self._starts[index + 1] - self._starts[index])

    def moved_on(self, tables: Mapping[int, MovedRanges]) -> dict[int, MovedRanges]:
        """The ranges of each old fragment, to where later rewrites left the rows."""
        fragments = self._ranges.targets >> _SHIFT
        edges = np.flatnonzero(fragments[1:] != fragments[:-1]) + 1
        begins = [0, *edges.tolist()] if len(fragments) else []
        parts = [_NONE]
        for start, stop in zip(begins, [*begins[1:], len(fragments)], strict=False):
            part, later = self._ranges.part(start, stop), tables.get(int(fragments[start]))
            parts.append(part if later is None else part.moved_on(later))
        ranges = MovedRanges.joined(parts)
        bounds = np.searchsorted(ranges.starts, np.append(self.ids << _SHIFT, _DELETED)).tolist()
        return {
            fragment: ranges.part(start, stop)
            for fragment, start, stop in zip(self.ids.tolist(), bounds, bounds[1:], strict=False)
        }


def joined_moves(steps: Sequence[Moves]) -> Moves:
    """What some rewrites, oldest first, do one after the other."""
    if len(steps) == 1:
        return steps[0]
    tables: dict[int, MovedRanges] = {}
    count, most = 0, max(_FEW, _MOST_CUT * sum(step.count for step in steps))
    for step in reversed(steps):  # so that each row is moved on once, to where it is in the end
        moved = step.moved_on(tables)
        count += sum(len(ranges.starts) for ranges in moved.values())
        if count > most:
            raise UnsupportedFeatureError(
                f"{len(steps)} compactions moved rows in more than {most} ranges; no more are "
                "followed. Build the indices again, or drop them."
            )
        tables.update(moved)
    return moves_of(tables)


def moves_of(tables: Mapping[int, MovedRanges]) -> Moves:
    """The rewrite of these fragments to these addresses of their rows."""
    ids = sorted(tables)
    counts = np.array([0, *(len(tables[fragment].starts) for fragment in ids)], np.int64)
    ranges = MovedRanges.joined([tables[fragment] for fragment in ids])
    return Moves(np.array(ids, np.uint64), np.cumsum(counts), ranges)
