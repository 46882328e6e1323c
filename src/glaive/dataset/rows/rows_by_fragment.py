"""Sets of rows, by fragment: few as numbers, many as bitmaps of at most about a bit per row."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.named_tuple import NamedTuple
from glaive.table.protocol import Offsets

__all__ = ["RowsByFragment"]

_WAITING_ROWS: Final = 1 << 18
"""Rows that are kept as they came until they are added to the sets of their fragments."""

_LISTED_ROWS: Final = 1 << 14
"""Rows of a fragment up to which a list of them is small enough."""


class _Packed(NamedTuple):
    """The fragments with lists of rows, their numbers and rows, and those with bitmaps."""

    ids: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    offsets: Offsets
    many: dict[int, Any]


class RowsByFragment(Mapping[int, Offsets]):
    """Rows of a dataset: physical offsets, ascending, by fragment id.

    Offsets are made when a fragment is asked for. Not to be changed by several threads. A set from
    another process stays packed until rows are asked for.
    """

    def __init__(self) -> None:
        self._waiting: list[NDArray[np.uint64]] = []
        self._waiting_rows = 0
        self._parts: dict[int, Any] = {}  # an array of offsets, or a roaring bitmap
        self._packed: list[_Packed] = []  # of other processes, not in the parts yet

    def __getstate__(self) -> _Packed:
        self._settle()
        few = {number: at for number, at in self._parts.items() if isinstance(at, np.ndarray)}
        return _Packed(
            np.fromiter(few, np.uint32, len(few)),
            np.fromiter(map(len, few.values()), np.uint32, len(few)),
            np.concatenate([np.empty(0, np.uint32), *few.values()]).astype(np.uint32, copy=False),
            {number: part for number, part in self._parts.items() if number not in few},
        )

    def __setstate__(self, packed: _Packed) -> None:
        self.__init__()  # type: ignore[misc]  # of the same class
        self._packed.append(packed)

    def add(self, addresses: NDArray[np.uint64]) -> None:
        """Add rows, in any order, also some that were added before."""
        if not len(addresses):
            return
        self._waiting.append(addresses)
        self._waiting_rows += len(addresses)
        if self._waiting_rows >= _WAITING_ROWS:
            self._settle()

    def add_offsets(self, fragment_id: int, offsets: Offsets) -> None:
        """Add rows of one fragment, ascending."""
        if not len(offsets):
            return
        known = self._parts.get(fragment_id)
        if known is None:
            many = len(offsets) > _LISTED_ROWS
            self._parts[fragment_id] = _bitmap(offsets) if many else offsets
        else:
            self._parts[fragment_id] = _as_bitmap(known) | _bitmap(offsets)

    def add_all(self, others: RowsByFragment) -> None:
        """Add the rows of another set; offsets of fragments that only it has are not made."""
        self._add_waiting()
        others._add_waiting()  # of this class
        self._packed += others._packed  # same
        for fragment_id, part in others._parts.items():  # same
            known = self._parts.get(fragment_id)
            self._parts[fragment_id] = (
                part if known is None else _as_bitmap(known) | _as_bitmap(part)
            )

    def divided(self, fragments: int) -> Iterator[RowsByFragment]:
        """The same rows in sets of so many fragments each."""
        ids = list(self)
        for start in range(0, len(ids), fragments):
            part = RowsByFragment()
            part._parts = {number: self._parts[number] for number in ids[start : start + fragments]}
            yield part

    def overlap(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of these rows are in the set."""
        self._settle()
        found = np.zeros(len(addresses), np.bool_)
        fragments = addresses >> np.uint64(32)
        for fragment_id in np.unique(fragments).tolist():
            if fragment_id in self._parts:
                here = np.flatnonzero(fragments == fragment_id)
                found[here] = np.isin(addresses[here].astype(np.uint32), self[fragment_id])
        return found

    def first_common(self, others: RowsByFragment) -> int | None:
        """Address of a row that is in both sets; ``None`` if there is none."""
        for fragment_id in others:
            if self.count_of(fragment_id):
                common = np.intersect1d(self[fragment_id], others[fragment_id], assume_unique=True)
                if len(common):
                    return (fragment_id << 32) | int(common[0])
        return None

    @property
    def count(self) -> int:
        """Rows."""
        self._settle()
        return sum(map(len, self._parts.values()))

    def count_of(self, fragment_id: int) -> int:
        """Rows of a fragment; no offsets are made."""
        self._settle()
        return len(self._parts.get(fragment_id, ()))

    def __getitem__(self, fragment_id: int) -> Offsets:
        self._settle()
        part = self._parts[fragment_id]
        if isinstance(part, np.ndarray):
            return part
        return np.asarray(part.to_array(), np.uint32)

    def __iter__(self) -> Iterator[int]:
        self._settle()
        return iter(sorted(self._parts))

    def __len__(self) -> int:
        self._settle()
        return len(self._parts)

    def _settle(self) -> None:
        self._add_waiting()
        packed, self._packed = self._packed, []
        for part in packed:
            at = np.split(part.offsets, np.cumsum(part.counts)[:-1]) if len(part.counts) else []
            for number, offsets in (*zip(part.ids.tolist(), at, strict=True), *part.many.items()):
                known = self._parts.get(number)
                joined = offsets if known is None else _as_bitmap(known) | _as_bitmap(offsets)
                self._parts[number] = joined

    def _add_waiting(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        rows = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
        for fragment_id, offsets in _by_fragment(rows).items():
            self.add_offsets(fragment_id, offsets)


def _bitmap(offsets: Offsets) -> Any:
    from pyroaring import BitMap

    # An array is by far the fastest input of pyroaring.
    bitmap = BitMap(array("I", offsets.astype(np.uint32, copy=False).tobytes()))
    bitmap.run_optimize()
    return bitmap


def _as_bitmap(part: Any) -> Any:
    return _bitmap(part) if isinstance(part, np.ndarray) else part


def _by_fragment(addresses: NDArray[np.uint64]) -> dict[int, Offsets]:
    """Physical offsets by fragment id, ascending, from row addresses in any order; each once."""
    if not (addresses[1:] > addresses[:-1]).all():
        addresses = np.sort(addresses)  # np.unique makes a hash table: a hundred times as slow
        first = np.ones(len(addresses), np.bool_)
        np.not_equal(addresses[1:], addresses[:-1], out=first[1:])
        addresses = addresses[first]
    fragments = (addresses >> np.uint64(32)).astype(np.int64)
    offsets = addresses.astype(np.uint32)  # the low half
    cuts = np.flatnonzero(np.diff(fragments)) + 1
    starts = [0, *cuts.tolist()] if len(addresses) else []
    parts = np.split(offsets, cuts)
    return {int(fragments[start]): part for start, part in zip(starts, parts, strict=False)}
