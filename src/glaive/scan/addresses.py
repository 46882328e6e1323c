"""Rows by position, id or address, as physical rows of fragments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import ascending
from glaive.errors import DeletedRowError, NotFoundError, RowIndexError
from glaive.file.positions import positions
from glaive.format.flags import Feature
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection
from glaive.types import Flags, Int64s

__all__ = ["RowLocations", "find_rows", "locate_ids", "take_ids"]


class RowLocations:
    """Rows in the order requested: position of the fragment in the list, and physical row."""

    __slots__ = ("fragment", "row", "snapshot")

    def __init__(self, snapshot: Snapshot, fragment: Int64s, row: Int64s) -> None:
        self.snapshot, self.fragment, self.row = snapshot, fragment, row

    def __len__(self) -> int:
        return len(self.row)

    @property
    def addresses(self) -> NDArray[np.uint64]:
        """Row addresses."""
        ids = self.snapshot.manifest.fragment_ids.astype(np.uint64)[self.fragment]
        return (ids << np.uint64(32)) | self.row.astype(np.uint64)

    def by_fragment(self) -> list[tuple[int, Int64s]]:
        """Each fragment with the numbers, in this order, of its rows."""
        positions = ascending(self.fragment).tolist()
        return [(position, np.flatnonzero(self.fragment == position)) for position in positions]


def find_rows(snapshot: Snapshot, kind: str, given: object) -> RowLocations:
    """Find rows given by ``indices``, ``ids`` or ``addresses``; repeats allowed.

    Raises
    ------
    RowIndexError
        There is no such row, or it was deleted.
    OptionError
        Something given is no integer.
    """
    wanted = positions(given, int(snapshot.row_starts[-1]) if kind == "indices" else None)
    return _FINDERS[kind](snapshot, wanted)


def _by_index(snapshot: Snapshot, wanted: Int64s) -> RowLocations:
    starts = snapshot.row_starts
    wrong = (wanted < 0) | (wanted >= starts[-1])
    if wrong.any():
        raise RowIndexError(
            f"row position {wanted[wrong][0]} is out of range: the dataset has {starts[-1]} rows, "
            "counted from 0"
        )
    fragment = np.searchsorted(starts, wanted, side="right") - 1
    row = wanted - starts[fragment]
    for position in ascending(fragment).tolist():
        live = snapshot.live_rows(snapshot.manifest.fragment(position))
        if live is not None:
            here = fragment == position
            row[here] = live.physical(row[here])
    return RowLocations(snapshot, fragment, row)


def _by_address(snapshot: Snapshot, wanted: Int64s) -> RowLocations:
    manifest = snapshot.manifest
    fragment = np.zeros(len(wanted), np.int64)
    row = wanted & 0xFFFFFFFF
    for fragment_id in ascending(wanted >> 32).tolist():
        here = (wanted >> 32) == fragment_id
        try:
            position = manifest.position_of(fragment_id)
        except NotFoundError:
            raise _no_row("address", int(wanted[here][0]), "there is no such fragment") from None
        entry = manifest.fragment(position)
        beyond = row[here] >= entry.physical_rows
        if beyond.any():
            wrong = int(wanted[here][beyond][0])
            raise _no_row("address", wrong, f"its fragment has {entry.physical_rows} rows")
        live = snapshot.live_rows(entry)
        if live is not None:
            deleted = live.is_deleted(row[here])
            if deleted.any():
                raise DeletedRowError(
                    "Not supported: A take operation that includes row addresses must not target "
                    f"deleted rows: row address {wanted[here][deleted][0]}: the row is deleted"
                )
        fragment[here] = position
    return RowLocations(snapshot, fragment, row)


def _by_id(snapshot: Snapshot, wanted: Int64s) -> RowLocations:
    if not snapshot.manifest.uses(Feature.STABLE_ROW_IDS):
        return _by_address(snapshot, wanted)
    fragment, row = locate_ids(snapshot, wanted, deleted=False)
    if (fragment < 0).any():
        raise _no_row("id", int(wanted[fragment < 0][0]), "no live row has it")
    return RowLocations(snapshot, fragment, row)


def locate_ids(
    snapshot: Snapshot, wanted: Int64s, *, deleted: bool = False
) -> tuple[Int64s, Int64s]:
    """Fragment and row of stable row ids; fragment -1 for ids that no row has.

    With ``deleted``, deleted rows are found too, where no live row has the id.
    """
    manifest = snapshot.manifest

    def is_deleted(position: int, rows: Int64s) -> Flags | None:
        live = snapshot.live_rows(manifest.fragment(position))
        return None if live is None else live.is_deleted(rows)

    known = wanted >= 0
    fragment, row = snapshot.row_id_index.locate(
        np.where(known, wanted, 0).astype(np.uint64), is_deleted, keep_deleted=deleted
    )
    return np.where(known, fragment, -1), row


def take_ids(view: BoundProjection, given: object, *, deleted: bool = False) -> pa.Table:
    """Rows by row id, in this order, repeats allowed; ids that no live row has are left out.

    Parameters
    ----------
    deleted
        Return deleted rows as well, as long as they are there.

    Raises
    ------
    RowIndexError
        An address is beyond the rows of its fragment.
    OptionError
        Something given is no integer.
    """
    snapshot, wanted = view.snapshot, positions(given)
    if snapshot.manifest.uses(Feature.STABLE_ROW_IDS):
        fragment, row = locate_ids(snapshot, wanted, deleted=deleted)
    else:
        fragment, row = _locate_addresses(snapshot, wanted, deleted=deleted)
    known = fragment >= 0
    return take_physical(view, fragment[known], row[known])


def _locate_addresses(
    snapshot: Snapshot, wanted: Int64s, *, deleted: bool
) -> tuple[Int64s, Int64s]:
    """Fragment and row of addresses; fragment -1 for deleted rows."""
    manifest = snapshot.manifest
    fragment, row = np.full(len(wanted), -1, np.int64), wanted & 0xFFFFFFFF
    for fragment_id in ascending(wanted >> 32).tolist():
        here = (wanted >> 32) == fragment_id
        try:
            position = manifest.position_of(fragment_id)
        except NotFoundError:
            continue
        entry = manifest.fragment(position)
        beyond = here & (row >= entry.physical_rows)
        if beyond.any():
            reason = f"its fragment has {entry.physical_rows} rows"
            raise _no_row("address", int(wanted[beyond][0]), reason)
        live = None if deleted else snapshot.live_rows(entry)
        if live is not None:
            here &= ~live.is_deleted(row)
        fragment[here] = position
    return fragment, row


def _no_row(what: str, number: int, reason: str) -> RowIndexError:
    return RowIndexError(f"row {what} {number}: {reason}")


_FINDERS: dict[str, Callable[[Snapshot, Int64s], RowLocations]] = {
    "indices": _by_index,
    "addresses": _by_address,
    "ids": _by_id,
}
