"""Row-address remapping: old addresses of relocated rows to new ones, many at a time.

Specification: "Rows that moved" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.bitmaps import is_of_runs, ranges_of
from glaive.index.row_set import FEW_ROWS, RowSet
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s, UInt64s

if TYPE_CHECKING:
    from pyroaring import BitMap64


Addresses = UInt64s
"""Row addresses: the fragment in the upper 32 bits, the physical row in the lower ones."""

Survivors = bytes | Addresses
"""Old addresses of the surviving rows: a 64-bit roaring bitmap, or ascending per fragment."""

_SHIFT = np.uint64(32)
_OFFSET = np.uint64(0xFFFF_FFFF)
_DELETED = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_LAST = 2**64 - 1


class FragmentRows(Protocol):
    """What address maps need to know of a fragment."""

    @property
    def id(self) -> int:
        """Its id."""

    @property
    def physical_rows(self) -> int:
        """Rows of its files, deleted ones included."""


Groups = Sequence[tuple[Survivors, Sequence[FragmentRows], Sequence[FragmentRows]]]
"""The surviving rows, the fragments they were in, and those they are in now."""


class AddressMap:
    """Old row addresses to new ones; made by :meth:`of`.

    Attributes
    ----------
    rewritten
        Ids of the fragments that were rewritten.
    whole
        All rewrites as one.

    Notes
    -----
    Memory: 24 bytes for each range of rows that stayed together, and once many rows are looked up
    eight for each physical row of the old fragments, if these are not many more than the ranges.
    Few bytes may stand for any number of rows.

    However many rewrites there were, addresses are looked up once: a few bytes may stand for
    thousands of rewrites, and a few more for millions of addresses.
    """

    __slots__ = ("rewritten", "whole")

    moves = True
    """Whether rows have other numbers afterwards; else some are dropped."""

    def __init__(self, steps: Sequence[Moves]) -> None:
        """Join some rewrites, oldest first."""
        self.whole = joined_moves(steps)
        self.rewritten = frozenset(self.whole.ids.tolist())

    @classmethod
    def of(cls, groups: Groups, where: object = "the rewrite") -> Self:
        """Make the map of groups that were rewritten at one time.

        The surviving rows, in the listed order of the old fragments and ascending within each,
        are the rows of the new fragments, one fragment after the other.

        Raises
        ------
        CorruptFileError
            The number of surviving rows is not that of the new fragments, or some are not in
            the old ones.
        """
        return cls([_step(groups, where)])

    @classmethod
    def of_all(cls, rewrites: Iterable[Groups], where: object) -> Self:
        """The map of several rewrites, oldest first; errors as for :meth:`of`.

        Made at once: a few bytes may stand for each of them, and joining maps copies all steps.
        """
        return cls([_step(groups, where) for groups in rewrites])

    def after(self, before: AddressMap) -> AddressMap:
        """The map for addresses from before an earlier rewrite: that one first, then this."""
        return AddressMap((before.whole, self.whole))

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        """New addresses, and which of the rows survive.

        Both are as long as ``addresses``; the new address of a deleted row is meaningless.
        Addresses in fragments that were not rewritten do not change.
        """
        new_addresses = self.whole.apply(addresses)
        # No row has this address: its fragment would be the last of 2^32.
        return new_addresses, new_addresses != _DELETED

    def follow(self, rows: RowSet) -> RowSet:
        """New addresses of the rows of a set that survive."""

        def change(some: Addresses) -> RowSet:
            moved, kept = self.apply(some)
            return RowSet.of(moved[kept])

        if rows.count <= FEW_ROWS:
            return change(rows.rows())
        ids = sorted(self.rewritten)
        starts = np.array(ids, np.uint64) << _SHIFT
        stops = starts + np.array([self.rows_of(fragment) for fragment in ids], np.uint64)
        moved = rows.mapped(change, lambda: RowSet.of_ranges(starts, stops))
        return RowSet.union([rows.difference(RowSet.of_ranges(starts, starts + _OFFSET)), moved])

    def rows_of(self, fragment: int) -> int:
        """Rows of a rewritten fragment, up to the last surviving one."""
        return self.whole.rows_of(fragment) or 0

    def remap_rows(self, rows: pa.Table, column: str) -> tuple[pa.Table, Flags]:
        """Rows of an index file without deleted rows, in their order; and which they are.

        Parameters
        ----------
        column
            Row addresses (uint64), none of them null; they are replaced by the new ones.
        """
        addresses = rows[column].to_numpy().astype(np.uint64, copy=False)
        new_addresses, kept = self.apply(addresses)
        surviving = rows if kept.all() else rows.take(np.flatnonzero(kept))
        at = surviving.schema.get_field_index(column)
        field = surviving.schema.field(at)
        return surviving.set_column(at, field, pa.array(new_addresses[kept])), kept


def _step(groups: Groups, where: object) -> Moves:

    tables: dict[int, MovedRanges] = {}
    filled = [fragment.id for _, _, new in groups for fragment in new if fragment.physical_rows]
    if len(set(filled)) < len(filled):
        raise CorruptFileError(
            "relocated rows", expected="new fragments that differ",
            found=f"{len(filled) - len(set(filled))} again", where=where,
        )  # fmt: skip
    for survivors, old, new in groups:
        rows = sum(fragment.physical_rows for fragment in new)
        starts, stops = _ranges(survivors, rows, where)
        parts = _in_fragments(starts, stops, old, rows, where)
        before = np.concatenate((np.zeros(1, np.uint64), np.cumsum(stops - starts)))
        runs = _onto(_listed(starts, parts), _listed(stops, parts), new)
        behind = np.cumsum(runs.stops - runs.starts)
        begin, count = 0, 0
        for fragment, (first, last) in zip(old, parts, strict=True):
            size = int(stops[last - 1]) - (fragment.id << 32) if last > first else 0
            if fragment.id in tables or size > fragment.physical_rows:
                raise CorruptFileError(
                    f"relocated rows of fragment {fragment.id}",
                    expected=f"rows below {fragment.physical_rows}, in one group",
                    found=f"row {size - 1}",
                    where=where,
                )
            count += int(before[last] - before[first])
            end = int(np.searchsorted(behind, np.uint64(count), side="right"))
            tables[fragment.id] = runs.part(begin, end)
            begin = end
    return moves_of(tables)


def _listed(addresses: Addresses, parts: Sequence[tuple[int, int]]) -> Addresses:
    """Those of the old fragments, one fragment after the other."""
    return np.concatenate([addresses[:0], *(addresses[first:last] for first, last in parts)])


def _onto(starts: Addresses, stops: Addresses, new: Sequence[FragmentRows]) -> MovedRanges:
    """Ranges of rows that are those of the new fragments, one after the other."""
    filled = [fragment for fragment in new if fragment.physical_rows]
    ids = np.array([fragment.id for fragment in filled], np.uint64)
    sizes = np.array([fragment.physical_rows for fragment in filled], np.uint64)
    points, begins = np.cumsum(stops - starts) - (stops - starts), np.cumsum(sizes) - sizes
    behind = np.searchsorted(points, begins)
    within = points.take(behind, mode="clip") != begins  # new fragments that begin in a range
    behind, cuts = behind[within], begins[within]
    first = np.insert(starts, behind, starts[behind - 1] + (cuts - points[behind - 1]))
    points = np.insert(points, behind, cuts)
    ends = np.append(points[1:], sizes.sum(dtype=np.uint64))[: len(points)]
    counts = np.diff(np.searchsorted(points, begins), append=len(points))
    return MovedRanges(
        first, first + (ends - points), points + np.repeat((ids << _SHIFT) - begins, counts)
    )


def _ranges(survivors: Survivors, rows: int, where: object) -> tuple[Addresses, Addresses]:
    """The surviving rows as half-open ranges: of few bytes, however many rows there are."""
    bitmap = _bitmap(survivors, where) if isinstance(survivors, bytes) else None
    surviving = len(survivors) if bitmap is None else len(bitmap)
    if rows != surviving or (bitmap and bitmap.max() == _LAST):
        raise CorruptFileError(
            "relocated rows", expected=f"{rows} rows", found=f"{surviving}", where=where
        )
    if bitmap is not None and is_of_runs(rows, len(survivors)):
        return ranges_of(bitmap, lambda _: None)
    listed: Any = survivors if bitmap is None else bitmap.to_array()
    addresses = np.asarray(listed, np.uint64)
    if not rows:
        return addresses, addresses
    ends = np.flatnonzero(np.diff(addresses) != 1)
    starts = addresses[np.concatenate(([0], ends + 1))]
    stops = addresses[np.append(ends, rows - 1)] + np.uint64(1)
    fragments = starts >> _SHIFT
    if (fragments[1:] >= fragments[:-1]).all():
        return starts, stops
    order = np.argsort(fragments, kind="stable")
    return starts[order], stops[order]


def _in_fragments(
    starts: Addresses, stops: Addresses, old: Sequence[FragmentRows], rows: int, where: object
) -> list[tuple[int, int]]:
    """Which of the ranges each old fragment has: the first, and the end."""
    fragments = starts >> _SHIFT
    ids = np.array([fragment.id for fragment in old], np.uint64)
    begins = np.searchsorted(fragments, ids).tolist()
    ends = np.searchsorted(fragments, ids, side="right").tolist()
    before = np.concatenate(([0], np.cumsum((stops - starts).astype(np.int64))))
    found = int((before[ends] - before[begins]).sum())
    if found != rows or ((stops - np.uint64(1)) >> _SHIFT != fragments).any():
        raise CorruptFileError(
            "relocated rows",
            expected=f"{rows} rows in the fragments {ids.tolist()}",
            found=f"{found}",
            where=where,
        )
    return list(zip(begins, ends, strict=True))


def _bitmap(data: bytes, where: object) -> BitMap64:
    from pyroaring import BitMap64

    if not data:
        return BitMap64()
    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            "relocated rows", expected="a 64-bit roaring bitmap", found=str(error), where=where
        ) from error


# --- Where rows went in rewrites: ranges of rows that moved together --------------------
# A few bytes may say where billions of rows went; memory follows from the number of ranges.
#
# Specification: "Rows that moved" in ``docs/format/refs.md``.

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


# --- The rows of a segment that it still answers for, as a map that drops all others ----
# A fragment leaves the coverage of a segment when one of its columns is replaced, and a row with a
# stable id when it is updated; their entries stay. Before segments are merged, these are dropped:
# the merged one may cover where such rows are now. Rows that a compaction moved without rebuilding
# the segment get their new addresses: the merged one needs no remapping table.
#
# Specification: "Building" in ``docs/format/indices.md``.

_MOST_HALVES: Final = 1 << 16
"""Upper halves of row ids that are looked at: no dataset has had so many rows."""


class RetainedRows(AddressMap):
    """Rows keep their numbers unless compactions moved them, and some are dropped.

    Parameters
    ----------
    limits
        For each upper half of the numbers, which for addresses is a fragment, how many numbers
        there are. Numbers with other upper halves belong to no row: they are left alone.
    locate
        The addresses of some rows, and which of them stay, one flag each.
    moves
        Whether rows get these addresses; else they keep their numbers.
    """

    __slots__ = ("_limits", "_locate", "moves")

    def __init__(
        self,
        limits: Mapping[int, int],
        locate: Callable[[Addresses], tuple[Addresses, Flags]],
        *,
        moves: bool = False,
    ) -> None:
        super().__init__(())
        self.rewritten = frozenset(limits)
        self._limits, self._locate = limits, locate
        self.moves = moves

    @classmethod
    def of_addresses(
        cls,
        physical_rows: Mapping[int, int],
        moved: AddressMap | None,
        locate: Callable[[Addresses], tuple[Addresses, Flags]],
    ) -> Self:
        """Rows by address: those of fragments, and those that were moved into them."""
        if moved is None:
            return cls(physical_rows, locate)
        before = {fragment: moved.rows_of(fragment) for fragment in moved.rewritten}
        return cls({**before, **physical_rows}, locate, moves=True)

    @classmethod
    def of_ids(
        cls, next_row_id: int, locate: Callable[[Addresses], tuple[Addresses, Flags]]
    ) -> Self:
        """Rows by stable id."""
        halves = range(min(next_row_id >> 32, _MOST_HALVES) + 1)
        return cls({half: min(next_row_id - (half << 32), 1 << 32) for half in halves}, locate)

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        """The numbers of the rows, and which of them stay."""
        if not len(addresses):
            return addresses, np.zeros(0, np.bool_)
        found, flags = self._locate(addresses)
        return found if self.moves else addresses, flags

    def rows_of(self, fragment: int) -> int:
        """How many numbers there are with an upper half."""
        return self._limits.get(fragment, 0)
