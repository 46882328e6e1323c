"""Sets of rows as ranges of their numbers: what a search of an index answers with.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending
from glaive.dataclass import dataclass

FEW_ROWS = 1 << 22
"""Rows of a set that are listed at once, wherever a set may have any number of them."""

RowNumbers: TypeAlias = NDArray[np.uint64]
"""Row addresses, or stable row ids."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """Rows by number: addresses, or stable row ids. Immutable.

    Parameters
    ----------
    starts, stops
        Half-open ranges, ascending, disjoint, and not adjacent. A stop is the last number plus
        one, so that 2^64 - 1, which no row has, is not in any set.
    """

    starts: RowNumbers
    stops: RowNumbers

    @classmethod
    def of(cls, rows: RowNumbers) -> Self:
        """The set of these rows, in any order, with or without repetitions."""
        if len(rows) == 0:
            return cls(rows, rows)
        rows = ascending(rows)
        if rows.item(-1) == _NO_ROW:
            return cls.of(rows[:-1])
        ends = np.flatnonzero(np.diff(rows) != 1)
        starts = rows[np.concatenate(([0], ends + 1))]
        return cls(starts, rows[np.append(ends, len(rows) - 1)] + np.uint64(1))

    @classmethod
    def of_ranges(cls, starts: RowNumbers, stops: RowNumbers) -> Self:
        """The union of ranges, in any order; empty ones count for nothing."""
        return cls._swept([starts], [stops], 1)

    @classmethod
    def union(cls, sets: Sequence[RowSet]) -> RowSet:
        """Rows that are in any of the sets."""
        if len(sets) == 1:
            return sets[0]
        return cls._swept([rows.starts for rows in sets], [rows.stops for rows in sets], 1)

    @classmethod
    def intersection(cls, sets: Sequence[RowSet]) -> Self:
        """Rows that are in all of the sets, of which there is at least one."""
        starts, stops = [rows.starts for rows in sets], [rows.stops for rows in sets]
        return cls._swept(starts, stops, len(sets))

    @classmethod
    def _swept(cls, starts: Sequence[RowNumbers], stops: Sequence[RowNumbers], least: int) -> Self:
        """Rows that at least so many of the ranges contain."""
        begins = np.concatenate([np.empty(0, np.uint64), *starts])
        ends = np.concatenate([np.empty(0, np.uint64), *stops])
        kept = begins < ends
        if not bool(kept.all()):
            begins, ends = begins[kept], ends[kept]
        count = len(begins)
        points = np.concatenate((begins, ends))
        del begins, ends  # of tens of millions of ranges each array counts
        # Ranges that begin come before those that end there, so that neighbours become one.
        order = np.argsort(points, kind="stable")
        points = points[order]
        change = np.where(order < count, np.int8(1), np.int8(-1))
        del order
        inside = np.cumsum(change, dtype=np.int32) >= least
        before = np.concatenate(([False], inside[:-1])) if len(inside) else inside
        firsts, lasts = points[inside & ~before], points[before & ~inside]
        # Where one range ends and another begins, both are counted for a moment.
        real = firsts < lasts
        return cls(firsts, lasts) if bool(real.all()) else cls(firsts[real], lasts[real])

    def difference(self, other: RowSet) -> RowSet:
        """Rows that are in this set and not in the other."""
        if not len(other.starts):
            return self
        limit = np.array([np.iinfo(np.uint64).max], np.uint64)
        first = np.zeros(1, np.uint64)
        rest = RowSet.of_ranges(
            np.concatenate((first, other.stops)), np.concatenate((other.starts, limit))
        )
        return RowSet.intersection([self, rest])

    @property
    def count(self) -> int:
        """Number of rows."""
        if len(self.starts) == 1:
            return self.stops.item() - self.starts.item()
        return int((self.stops - self.starts).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.starts.nbytes + self.stops.nbytes)

    def rows(self) -> RowNumbers:
        """All rows, ascending. Takes 8 bytes of memory for each: see :attr:`count` first."""
        if self.count == len(self.starts):
            return self.starts
        sizes = (self.stops - self.starts).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        steps = np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(before, sizes)
        rows: RowNumbers = np.repeat(self.starts, sizes) + steps.astype(np.uint64)
        return rows

    def windows(self, most: int) -> Iterator[RowNumbers]:
        """All rows, ascending, so many at a time."""
        ends = np.cumsum(self.stops - self.starts)
        for start in range(0, self.count, most):
            stop = min(start + most, self.count)
            first = int(ends.searchsorted(np.uint64(start), side="right"))
            last = int(ends.searchsorted(np.uint64(stop), side="left")) + 1
            starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
            stops[-1] -= ends[last - 1] - np.uint64(stop)
            starts[0] = self.stops[first] - (ends[first] - np.uint64(start))
            yield RowSet(starts, stops).rows()

    def mapped(self, change: Callable[[RowNumbers], RowSet], known: Callable[[], RowSet]) -> RowSet:
        """What the rows become; of many rows those that are ``known``, some at a time.

        A set of a few bytes may have billions of rows.
        """
        if self.count <= FEW_ROWS:
            return change(self.rows())
        rows = RowSet.intersection([self, known()])
        return RowSet.union([_NONE, *map(change, rows.windows(FEW_ROWS))])

    def within(self, start: int, stop: int) -> RowSet:
        """The rows from ``start`` to ``stop``, which is excluded."""
        first = int(np.searchsorted(self.stops, np.uint64(start), side="right"))
        last = int(np.searchsorted(self.starts, np.uint64(stop), side="left"))
        if first >= last:
            return RowSet(self.starts[:0], self.stops[:0])
        starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
        starts[0] = max(int(starts[0]), start)
        stops[-1] = min(int(stops[-1]), stop)
        return RowSet(starts, stops)

    def within_ranges(self, ranges: RowSet) -> RowSet:
        """The rows that are in another set, of few ranges: each of this one is looked up there."""
        if len(self.starts) == len(ranges.starts) == 1:
            within = self.starts.item() >= ranges.starts.item()
            if within and self.stops.item() <= ranges.stops.item():
                return self
        first = ranges.stops.searchsorted(self.starts, side="right")
        touches = first < len(ranges.stops)
        inside = touches & (ranges.stops.searchsorted(self.stops, side="left") == first)
        begins = ranges.starts[first[touches]]
        inside[touches] &= begins <= self.starts[touches]
        if bool(inside.all()):
            return self
        touches[touches] = begins < self.stops[touches]
        cut = touches & ~inside
        whole = RowSet(self.starts[inside], self.stops[inside])
        if not bool(cut.any()):
            return whole
        crossing = RowSet(self.starts[cut], self.stops[cut])
        return RowSet.union([whole, RowSet.intersection([crossing, ranges])])

    def contains(self, rows: RowNumbers) -> NDArray[np.bool_]:
        """Which of these rows are in the set, one flag each."""
        at = np.searchsorted(self.stops, rows, side="right")
        known = at < len(self.starts)
        flags: NDArray[np.bool_] = known.copy()
        flags[known] = self.starts[at[known]] <= rows[known]
        return flags


_NO_ROW: Final = 2**64 - 1
"""What no row has as its number, but an index may say."""

_NONE = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
