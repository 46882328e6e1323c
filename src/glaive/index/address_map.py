"""Row-address remapping: old addresses of relocated rows to new ones, many at a time.

Specification: "Rows that moved" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.format.bitmaps import is_of_runs, ranges_of
from glaive.index.row_set import FEW_ROWS, RowSet
from glaive.types import Flags, UInt64s

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from glaive.index.moved_ranges import MovedRanges, Moves

__all__ = ["AddressMap", "Addresses", "FragmentRows", "Survivors"]

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
        from glaive.index.moved_ranges import joined_moves

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
    from glaive.index.moved_ranges import moves_of

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
    from glaive.index.moved_ranges import MovedRanges

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
