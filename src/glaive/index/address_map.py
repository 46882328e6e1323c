"""Row-address remapping: old addresses of relocated rows to new ones, many at a time.

Specification: "Rows that moved" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.index.row_set import FEW_ROWS, RowSet
from glaive.types import Flags, Int64s, UInt64s

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["AddressMap", "Addresses", "FragmentRows", "Survivors"]

Addresses = UInt64s
"""Row addresses: the fragment in the upper 32 bits, the physical row in the lower ones."""

Survivors = bytes | Addresses
"""Old addresses of the surviving rows: a 64-bit roaring bitmap, or ascending per fragment."""

_SHIFT = np.uint64(32)
_OFFSET = np.uint64(0xFFFF_FFFF)
_DELETED = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


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
    Memory: eight bytes per physical row of the old fragments.

    However many rewrites there were, addresses are looked up once: a few bytes may stand for
    thousands of rewrites, and a few more for millions of addresses.
    """

    __slots__ = ("rewritten", "whole")

    moves = True
    """Whether rows have other numbers afterwards; else some are dropped."""

    def __init__(self, steps: Sequence[_Step]) -> None:
        """Join some rewrites, oldest first."""
        self.whole = _joined(steps)
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


class _Step:
    """One rewrite, or several that were joined.

    Parameters
    ----------
    ids
        Old fragments, ascending.
    starts
        Where the rows of each old fragment begin in ``targets``, and the end of the last.
    targets
        New address of each physical row up to the last surviving one; all bits are set for
        deleted rows.
    """

    __slots__ = ("_starts", "ids", "targets")

    def __init__(self, ids: Addresses, starts: Int64s, targets: Addresses) -> None:
        self.ids, self._starts, self.targets = ids, starts, targets

    def apply(self, addresses: Addresses) -> Addresses:
        """New addresses; all bits are set for deleted rows."""
        if not len(self.ids) or not len(addresses):
            return addresses
        fragments = addresses >> _SHIFT
        index = np.searchsorted(self.ids, fragments)
        index[index == len(self.ids)] = 0
        relocated = self.ids[index] == fragments
        begin, end = self._starts[index], self._starts[index + 1]
        offsets = (addresses & _OFFSET).astype(np.int64)
        known = relocated & (offsets < end - begin)
        new_addresses = addresses.copy()
        new_addresses[relocated] = _DELETED
        new_addresses[known] = self.targets[(begin + offsets)[known]]
        return new_addresses

    def rows_of(self, fragment: int) -> int | None:
        """Rows up to the last surviving one; ``None`` if the fragment was not rewritten."""
        index = int(np.searchsorted(self.ids, np.uint64(fragment)))
        if index == len(self.ids) or int(self.ids[index]) != fragment:
            return None
        return int(self._starts[index + 1] - self._starts[index])

    def tables(self, targets: Addresses) -> Iterator[tuple[int, Addresses]]:
        """Each old fragment, with its part of as many values as there are targets."""
        starts = self._starts.tolist()
        for fragment, start, stop in zip(self.ids.tolist(), starts, starts[1:], strict=False):
            yield fragment, targets[start:stop]


def _joined(steps: Sequence[_Step]) -> _Step:
    """What some rewrites, oldest first, do one after the other."""
    if len(steps) == 1:
        return steps[0]
    tables: dict[int, Addresses] = {}
    for step in reversed(steps):  # so that each row is moved on once, to where it is in the end
        tables.update(step.tables(_moved_on(step.targets, tables)))
    return _step_of(tables)


def _moved_on(targets: Addresses, tables: Mapping[int, Addresses]) -> Addresses:
    """Where later rewrites left the rows with these addresses."""
    at = np.flatnonzero(targets != _DELETED)
    present = targets[at]
    fragments = present >> _SHIFT
    edges = np.flatnonzero(fragments[1:] != fragments[:-1]) + 1
    starts = [0, *edges.tolist()] if len(at) else []
    moved = targets
    for start, stop in zip(starts, [*starts[1:], len(at)], strict=False):
        table = tables.get(int(fragments[start]))
        if table is None:
            continue
        if moved is targets:
            moved = targets.copy()
        offsets = (present[start:stop] & _OFFSET).astype(np.int64)
        known = offsets < len(table)
        found = np.full(stop - start, _DELETED)
        found[known] = table[offsets[known]]
        moved[at[start:stop]] = found
    return moved


def _step(groups: Groups, where: object) -> _Step:
    tables: dict[int, Addresses] = {}
    for survivors, old, new in groups:
        new_addresses = _new_addresses(survivors, new, where)
        surviving = _in_fragments(survivors, old, len(new_addresses), where)
        start = 0
        for fragment, offsets in zip(old, surviving, strict=True):
            size = int(offsets[-1]) + 1 if len(offsets) else 0
            if fragment.id in tables or size > fragment.physical_rows:
                raise CorruptFileError(
                    f"relocated rows of fragment {fragment.id}",
                    expected=f"rows below {fragment.physical_rows}, in one group",
                    found=f"row {size - 1}",
                    where=where,
                )
            table = np.full(size, _DELETED)
            table[offsets] = new_addresses[start : start + len(offsets)]
            start += len(offsets)
            tables[fragment.id] = table
    return _step_of(tables)


def _step_of(tables: Mapping[int, Addresses]) -> _Step:
    """The rewrite of these fragments to these addresses of their rows."""
    ids = sorted(tables)
    sizes = np.array([0, *(len(tables[fragment_id]) for fragment_id in ids)], np.int64)
    targets = (
        np.concatenate([tables[fragment] for fragment in ids]) if ids else np.empty(0, np.uint64)
    )
    return _Step(np.array(ids, np.uint64), np.cumsum(sizes), targets)


def _new_addresses(survivors: Survivors, new: Sequence[FragmentRows], where: object) -> Addresses:
    """Addresses of all rows of the new fragments, one fragment after the other."""
    rows = sum(fragment.physical_rows for fragment in new)
    surviving = (
        len(survivors) if not isinstance(survivors, bytes) else len(_bitmap(survivors, where))
    )
    if rows != surviving:
        raise CorruptFileError(
            "relocated rows", expected=f"{rows} rows", found=f"{surviving}", where=where
        )
    parts = [
        np.arange(fragment.physical_rows, dtype=np.uint64) | (np.uint64(fragment.id) << _SHIFT)
        for fragment in new
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _in_fragments(
    survivors: Survivors, old: Sequence[FragmentRows], rows: int, where: object
) -> list[Int64s]:
    """Surviving physical rows of each old fragment."""
    addresses = survivors
    if isinstance(addresses, bytes):
        addresses = np.asarray(_bitmap(addresses, where).to_array(), dtype=np.uint64)
    fragments = addresses >> _SHIFT
    offsets = (addresses & _OFFSET).astype(np.int64)
    if len(fragments) and (fragments[1:] < fragments[:-1]).any():
        order = np.argsort(fragments, kind="stable")
        fragments, offsets = fragments[order], offsets[order]
    ids = np.array([fragment.id for fragment in old], np.uint64)
    begins = np.searchsorted(fragments, ids)
    ends = np.searchsorted(fragments, ids, side="right")
    if int((ends - begins).sum()) != rows:
        raise CorruptFileError(
            "relocated rows",
            expected=f"{rows} rows in the fragments {ids.tolist()}",
            found=f"{int((ends - begins).sum())}",
            where=where,
        )
    return [offsets[begin:end] for begin, end in zip(begins, ends, strict=True)]


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
