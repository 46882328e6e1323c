"""Read rows by position, in any order. There are three ways:

1. **One row** is taken from its fragment, with minimal overhead.
2. **Joined fragments**: takes from mapped files join the columns of the fragments to page runs
   (:mod:`glaive.scan.joined`). All rows are then taken with one call per column.
3. **Fragment by fragment**, everything else: fetched files (on the I/O threads), mapped files that
   are not joined, and deleted rows. The first takes from small files read them whole and in bulk
   (:mod:`glaive.scan.small`) instead of opening each.

Positions count live rows over the whole dataset. A take first maps them to physical rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, distinct, inverse_permutation
from glaive.arrow.chunked import in_parts, take_rows
from glaive.config import settings
from glaive.errors import DeletedRowError, RowIndexError
from glaive.file.protocol import check_range, position_error, positions
from glaive.format.manifest import Feature
from glaive.io.pool import gather, ordered_map
from glaive.scan.bound import THREADED_ROWS, BoundFragment
from glaive.scan.options import UNREAD_METER, Meter
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import MIN_SMALL_FILES, BoundProjection
from glaive.types import Flags, Int64s

_Chunk = list[pa.Array]
"""One array per column."""

_SLICED_ROWS: Final = 16
"""Rows that a take reorders by slices: ``pyarrow.compute`` takes 20 ms to load."""


def take(source: BoundProjection, given: object, meter: Meter | None = None) -> pa.Table:
    """Take rows by position, in the order given; positions may repeat.

    Raises
    ------
    RowIndexError
        A position is negative or not below the number of live rows.

    Notes
    -----
    A take joins ranges less than 64 KiB apart. It then makes at most two requests per data file,
    where the rows of a column lie in one page.
    """
    source.takes += 1
    is_single = bool(source.schema.names) and not source.keeps_files
    if is_single and type(given) is list and len(given) == 1 and type(given[0]) is int:
        return _take_one(source, given[0])
    starts = source.snapshot.row_starts
    wanted = positions(given, int(starts[-1]))
    if len(wanted) == 0:
        return source.empty()
    if is_single and len(wanted) == 1:
        return _take_one(source, wanted.item())
    check_range(int(wanted.min()), int(wanted.max()), starts)
    if not source.projection.outputs:
        return source.rows_alone(len(wanted))
    joined = source.joined_before()
    if joined is not None and joined.is_all and not source.keeps_files:
        arrays = joined.take_numbers(wanted, meter or UNREAD_METER)
        if arrays is not None:
            return pa.Table.from_arrays(arrays, schema=source.schema)
    fragment = starts.searchsorted(wanted, side="right") - 1
    rows = _physical(source.snapshot, fragment, wanted - starts[fragment])
    return take_physical(source, fragment, rows, meter=meter)


def _physical(snapshot: Snapshot, fragment: Int64s, rows: Int64s) -> Int64s:
    """Map live rows of fragments to physical rows."""
    manifest = snapshot.manifest
    touched = distinct(fragment)
    touched = touched[manifest.deleted_rows[touched] != 0]
    if len(touched):
        load = partial(ordered_map, workers=settings.io_concurrency)
        lives = (gather if snapshot.store.is_local else load)(
            lambda position: snapshot.live_rows(manifest.fragment(position)), touched.tolist()
        )
        for position, live in zip(touched.tolist(), lives, strict=True):
            selected = fragment == position
            rows[selected] = rows[selected] if live is None else live.physical(rows[selected])
    return rows


def take_from(table: pa.Table, given: object) -> pa.Table:
    """Take rows of a table in memory by position; see :func:`take`."""
    wanted = positions(given, table.num_rows)
    if len(wanted):
        check_range(int(wanted.min()), int(wanted.max()), np.array([0, table.num_rows]))
    return take_rows(table, wanted)


def _take_one(source: BoundProjection, row: int) -> pa.Table:
    """Take one row with minimal overhead."""
    starts = source.snapshot.row_start_list
    if not 0 <= row < starts[-1]:
        raise position_error(row, starts[-1])
    position = bisect_right(starts, row) - 1
    rows = np.array([row - starts[position]])
    bound = source.for_taking(position, rows)
    arrays = bound.take(rows if bound.live is None else bound.live.physical(rows))
    return pa.Table.from_arrays(arrays, schema=source.schema)


def take_physical(
    source: BoundProjection,
    fragments: Int64s,
    rows: Int64s,
    *,
    deleted: bool = False,
    meter: Meter | None = None,
) -> pa.Table:
    """Take physical rows, in the order given; rows may repeat.

    Parameters
    ----------
    fragments, rows
        Position of the fragment in the manifest, and physical row in it, of each row.
    deleted
        Allow deleted rows.
    """
    if not source.projection.outputs:
        return source.rows_alone(len(rows))
    if len(rows) == 0:
        return source.empty()
    if len(rows) == 1 and not deleted and not source.keeps_files:
        bound = source.for_taking(int(fragments[0]), rows)
        return pa.Table.from_arrays(bound.take(rows), schema=source.schema)
    meter = meter or UNREAD_METER
    small: list[tuple[Int64s, _Chunk]] = []
    if not deleted:
        joined, positions = source.joined_before(), fragments
        keeps = source.keeps_files
        if keeps or joined is None or not joined.holds(fragments):
            positions = distinct(fragments)
            if keeps or len(positions) >= MIN_SMALL_FILES:
                from glaive.scan.small import take_small  # loaded only when needed

                small = take_small(source, positions, fragments, rows, meter)
                if len(small) == 1 and len(small[0][0]) == len(rows):
                    return pa.Table.from_arrays(small[0][1], schema=source.schema)
                for taken, _ in small:
                    positions = np.setdiff1d(positions, fragments[taken])
            joined = source.joined(positions) if len(positions) else None
            joined = None if small else joined  # the join then serves the next take
        if joined is not None:
            arrays = joined.take(fragments, rows, meter)
            if arrays is not None:
                return pa.Table.from_arrays(arrays, schema=source.schema)
    remaining = np.ones(len(rows), np.bool_)
    for numbers, _ in small:
        remaining[numbers] = False
    numbers = remaining.nonzero()[0]
    numbers = numbers[np.argsort(fragments[numbers], kind="stable")]
    order, chunks = [numbers for numbers, _ in small], [arrays for _, arrays in small]
    if len(numbers):
        order.append(numbers)
        chunks += _by_fragment(source, fragments[numbers], rows[numbers], deleted=deleted)
    table = _as_table(source, chunks)
    is_ascending = len(order) == 1 and bool((order[0][1:] > order[0][:-1]).all())
    return table if is_ascending else _in_order(table, np.concatenate(order))


def _by_fragment(
    source: BoundProjection, fragments: Int64s, rows: Int64s, *, deleted: bool
) -> Iterable[_Chunk]:
    """Take rows of one fragment after the other."""
    cuts = np.diff(fragments).nonzero()[0] + 1
    firsts = [0, *cuts.tolist()]
    jobs = list(zip(fragments[firsts].tolist(), np.split(rows, cuts), strict=True))

    def work(bound: BoundFragment, own: Int64s) -> Iterable[_Chunk]:
        take = partial(_take_deleted, bound) if deleted else bound.take
        # Split takes that would overflow one array.
        return in_parts(lambda start, stop: take(own[start:stop]), 0, len(own))

    parts: Iterable[Iterable[_Chunk]]
    if not source.fragment(jobs[0][0]).mapped:
        workers = settings.io_concurrency
        parts = ordered_map(
            lambda job: work(source.for_taking(*job), job[1]), jobs, workers=workers
        )
    else:  # start all reads before decoding anything
        bound = [(source.for_taking(*job), job[1]) for job in jobs]
        many = len(jobs) > 1 and len(rows) >= THREADED_ROWS
        parts = (gather if many else map)(lambda job: work(*job), bound)
    return (chunk for part in parts for chunk in part)


def _in_order(table: pa.Table, order: Int64s) -> pa.Table:
    """Invert ``order``: move row ``i`` of the table to row ``order[i]``."""
    back = inverse_permutation(order)
    if len(order) <= _SLICED_ROWS:
        with suppress(pa.ArrowException):  # such as dictionaries too large for one array
            return pa.concat_tables([table.slice(at, 1) for at in back.tolist()]).combine_chunks()
    return take_rows(table, back, distinct=True)


def _take_deleted(bound: BoundFragment, rows: Int64s) -> _Chunk:
    """Take rows of a fragment; some rows may be deleted."""
    columns = bound.lazy_columns(rows, lambda at: bound.stored[at].take(rows), deleted=True)
    return [columns.output(output) for output in bound.projection.outputs]


def _as_table(source: BoundProjection, parts: Iterable[_Chunk]) -> pa.Table:
    chunks = list(parts)
    if len(chunks) == 1:
        return pa.Table.from_arrays(chunks[0], schema=source.schema)
    columns = [
        pa.chunked_array([arrays[at] for arrays in chunks], field.type)
        for at, field in enumerate(source.schema)
    ]
    return pa.Table.from_arrays(columns, schema=source.schema)


# --- Rows by position, id or address, as physical rows of fragments ---------------------


class RowLocations:
    """Rows in the order requested: position of the fragment in the manifest, and physical row."""

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
        """Return each fragment with the indices of its rows in this order."""
        positions = ascending(self.fragment).tolist()
        return [(position, (self.fragment == position).nonzero()[0]) for position in positions]


def find_rows(snapshot: Snapshot, kind: str, given: object) -> RowLocations:
    """Find rows by position, id or address; rows may repeat.

    Parameters
    ----------
    kind
        ``indices``, ``ids`` or ``addresses``.
    given
        Integers of that kind.

    Raises
    ------
    RowIndexError
        A row is missing, or was deleted.
    OptionError
        A value given is not an integer.
    """
    starts, manifest = snapshot.row_starts, snapshot.manifest
    wanted = positions(given, int(starts[-1]) if kind == "indices" else None)
    if kind == "indices":
        if len(wanted):
            check_range(int(wanted.min()), int(wanted.max()), starts)
        fragment = starts.searchsorted(wanted, side="right") - 1
        row = _physical(snapshot, fragment, wanted - starts[fragment])
    elif kind == "ids" and manifest.uses(Feature.STABLE_ROW_IDS):
        fragment, row = locate_ids(snapshot, wanted, deleted=False)
        if (fragment < 0).any():
            raise _no_row("id", int(wanted[fragment < 0][0]), "no live row has it")
    else:
        fragment, row = _locate_addresses(snapshot, wanted, deleted=False)
        for address in wanted[fragment < 0][:1].tolist():
            if address >> 32 not in manifest.fragment_ids:
                raise _no_row("address", address, "its fragment does not exist")
            raise DeletedRowError(
                "Not supported: A take operation that includes row addresses must not target "
                f"deleted rows: row address {address}: the row is deleted"
            )
    return RowLocations(snapshot, fragment, row)


def locate_ids(
    snapshot: Snapshot, wanted: Int64s, *, deleted: bool = False
) -> tuple[Int64s, Int64s]:
    """Return fragment and row of stable row ids; fragment -1 for unknown ids.

    Parameters
    ----------
    deleted
        Find a deleted row if all rows with the id are deleted.
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
    """Take rows by row id, in the order given; skip ids of missing or deleted rows.

    Parameters
    ----------
    deleted
        Return deleted rows as well, while their data exists.

    Raises
    ------
    RowIndexError
        An address is beyond the rows of its fragment.
    OptionError
        A value given is not an integer.
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
    """Return fragment and row of addresses; fragment -1 for deleted rows."""
    fragment, row = snapshot.positions_by_id(wanted >> 32), wanted & 0xFFFFFFFF
    known = (fragment >= 0).nonzero()[0]
    physical = snapshot.manifest.physical_rows
    for at in known[row[known] >= physical[fragment[known]]][:1]:
        reason = f"its fragment has {physical[fragment[at]]} rows"
        raise _no_row("address", int(wanted[at]), reason)
    live = None if deleted else snapshot.are_live(fragment[known], row[known])
    if live is not None:
        fragment[known[~live]] = -1
    return fragment, row


def _no_row(what: str, number: int, reason: str) -> RowIndexError:
    return RowIndexError(f"row {what} {number}: {reason}")
