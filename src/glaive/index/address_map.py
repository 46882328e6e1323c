"""Where rows went that a rewrite moved: old row addresses to new ones, many at a time.

Specification: "Rows that moved" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["AddressMap", "Addresses", "FragmentRows", "Survivors"]

Addresses = NDArray[np.uint64]
"""Row addresses: the fragment in the upper 32 bits, the physical row in the lower ones."""

Survivors = bytes | Addresses
"""Old addresses of the rows that are left: a 64-bit roaring bitmap, or ascending per fragment."""

_SHIFT = np.uint64(32)
_OFFSET = np.uint64(0xFFFF_FFFF)
_GONE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class FragmentRows(Protocol):
    """As much of a fragment as counts here."""

    @property
    def id(self) -> int:
        """Its id."""

    @property
    def physical_rows(self) -> int:
        """Rows of its files, deleted ones included."""


Groups = Sequence[tuple[Survivors, Sequence[FragmentRows], Sequence[FragmentRows]]]
"""The rows left, the fragments they were in, and those they are in now."""


class AddressMap:
    """Old row addresses to new ones; made by :meth:`of`.

    Attributes
    ----------
    touched
        Fragments that were rewritten.
    steps
        Its moves, oldest first.

    Notes
    -----
    Memory: eight bytes per physical row of the old fragments.
    """

    __slots__ = ("steps", "touched")

    def __init__(self, steps: Sequence[_Step]) -> None:
        self.steps = tuple(steps)
        self.touched = frozenset(touched for step in steps for touched in step.ids.tolist())

    @classmethod
    def of(cls, groups: Groups, where: object = "the rewrite") -> Self:
        """Make the map of groups that moved at one time.

        The rows left, one old fragment after the other as they are listed and ascending in
        each, are the rows of the new fragments, one after the other.

        Raises
        ------
        CorruptFileError
            The rows left are not as many as the new fragments have, or lie elsewhere than
            in the old ones.
        """
        return cls([_step(groups, where)])

    def after(self, before: AddressMap) -> AddressMap:
        """The map for addresses from the time ahead of an earlier move, which comes first."""
        return AddressMap((*before.steps, *self.steps))

    def apply(self, addresses: Addresses) -> tuple[Addresses, NDArray[np.bool_]]:
        """New addresses, and which of the rows are left.

        Both are as long as ``addresses``; where a row is gone, its new address means nothing.
        Addresses in fragments that were not rewritten stay.
        """
        found = addresses
        kept = np.ones(len(addresses), np.bool_)
        for step in self.steps:
            found = step.apply(found)
            # No row has this address: its fragment would be the last of 2^32.
            kept &= found != _GONE
        return found, kept

    def rows_of(self, fragment: int) -> int:
        """Rows of a fragment that was rewritten, up to the last one that is left."""
        for step in self.steps:
            rows = step.rows_of(fragment)
            if rows is not None:
                return rows
        return 0

    def left(self, addresses: Addresses) -> Addresses:
        """New addresses of the rows that are left, in the order of ``addresses``."""
        found, kept = self.apply(addresses)
        return found if kept.all() else found[kept]


class _Step:
    """One move.

    Parameters
    ----------
    ids
        Old fragments, ascending.
    starts
        Where the rows of each old fragment stand in ``targets``, and the end.
    targets
        New address of each physical row up to the last one that is left; all bits are set
        for those that are gone.
    """

    __slots__ = ("_starts", "_targets", "ids")

    def __init__(self, ids: Addresses, starts: NDArray[np.int64], targets: Addresses) -> None:
        self.ids, self._starts, self._targets = ids, starts, targets

    def apply(self, addresses: Addresses) -> Addresses:
        """New addresses; all bits are set for rows that are gone."""
        if not len(self.ids) or not len(addresses):
            return addresses
        fragments = addresses >> _SHIFT
        place = np.searchsorted(self.ids, fragments)
        place[place == len(self.ids)] = 0
        moved = self.ids[place] == fragments
        begin, end = self._starts[place], self._starts[place + 1]
        offsets = (addresses & _OFFSET).astype(np.int64)
        known = moved & (offsets < end - begin)
        found = addresses.copy()
        found[moved] = _GONE
        found[known] = self._targets[(begin + offsets)[known]]
        return found

    def rows_of(self, fragment: int) -> int | None:
        """Rows up to the last one that is left; ``None`` if the fragment did not move."""
        place = int(np.searchsorted(self.ids, np.uint64(fragment)))
        if place == len(self.ids) or int(self.ids[place]) != fragment:
            return None
        return int(self._starts[place + 1] - self._starts[place])


def _step(groups: Groups, where: object) -> _Step:
    tables: dict[int, Addresses] = {}
    for survivors, old, new in groups:
        following = _new_addresses(survivors, new, where)
        left = _in_fragments(survivors, old, len(following), where)
        start = 0
        for fragment, offsets in zip(old, left, strict=True):
            size = int(offsets[-1]) + 1 if len(offsets) else 0
            if fragment.id in tables or size > fragment.physical_rows:
                raise CorruptFileError(
                    f"rows that moved out of fragment {fragment.id}",
                    expected=f"rows below {fragment.physical_rows}, in one group",
                    found=f"row {size - 1}",
                    where=where,
                )
            table = np.full(size, _GONE)
            table[offsets] = following[start : start + len(offsets)]
            start += len(offsets)
            tables[fragment.id] = table
    ids = sorted(tables)
    sizes = np.array([0, *(len(tables[fragment_id]) for fragment_id in ids)], np.int64)
    targets = (
        np.concatenate([tables[fragment] for fragment in ids]) if ids else np.empty(0, np.uint64)
    )
    return _Step(np.array(ids, np.uint64), np.cumsum(sizes), targets)


def _new_addresses(survivors: Survivors, new: Sequence[FragmentRows], where: object) -> Addresses:
    """Addresses of all rows of fragments, one fragment after the other."""
    rows = sum(one.physical_rows for one in new)
    left = len(survivors) if not isinstance(survivors, bytes) else len(_bitmap(survivors, where))
    if rows != left:
        raise CorruptFileError(
            "rows that moved", expected=f"{rows} rows", found=f"{left}", where=where
        )
    parts = [
        np.arange(one.physical_rows, dtype=np.uint64) | (np.uint64(one.id) << _SHIFT) for one in new
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _in_fragments(
    survivors: Survivors, old: Sequence[FragmentRows], rows: int, where: object
) -> list[NDArray[np.int64]]:
    """Physical rows that are left in each old fragment."""
    addresses = survivors
    if isinstance(addresses, bytes):
        addresses = np.asarray(_bitmap(addresses, where).to_array(), dtype=np.uint64)
    fragments = addresses >> _SHIFT
    offsets = (addresses & _OFFSET).astype(np.int64)
    if len(fragments) and (fragments[1:] < fragments[:-1]).any():
        order = np.argsort(fragments, kind="stable")
        fragments, offsets = fragments[order], offsets[order]
    ids = np.array([one.id for one in old], np.uint64)
    begins = np.searchsorted(fragments, ids)
    ends = np.searchsorted(fragments, ids, side="right")
    if int((ends - begins).sum()) != rows:
        raise CorruptFileError(
            "rows that moved",
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
            "rows that moved", expected="a 64-bit roaring bitmap", found=str(error), where=where
        ) from error
