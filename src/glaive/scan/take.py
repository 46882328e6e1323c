"""Read rows by position, in any order.

Positions count live rows over the whole dataset. They are mapped to fragments by one binary
search, read per fragment, and put back in the order asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, distinct, integer_array, inverse_permutation
from glaive.arrow.chunked import concat_arrays, in_parts, take_rows, without_views
from glaive.config import settings
from glaive.dataclass import dataclass
from glaive.errors import (
    CapacityError,
    CorruptFileError,
    DeletedRowError,
    NotFoundError,
    RowIndexError,
)
from glaive.file.protocol import beyond, check_range, positions, run_fetches
from glaive.format.manifest import Feature
from glaive.io.pool import gather, ordered_map
from glaive.scan.bound import BoundFragment
from glaive.scan.options import NOBODY, Meter
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import BoundProjection
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.file.v2.bound import ColumnTakes
    from glaive.scan.joined import JoinedFragments


_Chunk = list[pa.Array]
"""One array per column."""

_Job = tuple[int, Int64s]
"""Some rows of the fragment at a position."""

_THREADED_ROWS: Final = 16 * 1024
"""Rows below which a take is more interpreted than compiled: threads would only wait."""

_SLICED_ROWS: Final = 16
"""Rows that are put in order without ``pyarrow.compute``, which takes 20 ms to load."""


def take(source: BoundProjection, given: object, meter: Meter | None = None) -> pa.Table:
    """Rows at these positions, in this order, repeats allowed.

    Raises
    ------
    RowIndexError
        A position is negative or not below the number of live rows.

    Notes
    -----
    At most two requests per data file, after joining ranges less than 64 KiB apart, where
    the rows of a column lie in one page.
    """
    if type(given) is list and len(given) == 1 and type(given[0]) is int and source.schema.names:
        return _take_one(source, given[0])
    starts = source.snapshot.row_starts
    wanted = positions(given, int(starts[-1]))
    if len(wanted) == 0:
        return source.empty()
    low, high = int(wanted.min()), int(wanted.max())
    check_range(low, high, starts)
    if not source.projection.outputs:
        return source.rows_alone(len(wanted))
    driver = _Take(source, meter or NOBODY, are_live=True)
    all_of_it = source.joined_before()
    if all_of_it is not None and all_of_it.is_all and meter is None:
        arrays = driver.joined_columns(all_of_it, None, wanted, all_of_it.together)
        if arrays is not None:
            return _as_table(source, [arrays])
    first = int(np.searchsorted(starts, low, side="right")) - 1
    if high < starts[first + 1]:
        return driver.of_fragment(first, wanted - starts[first])
    fragment = np.searchsorted(starts, wanted, side="right") - 1
    return driver.table(fragment, wanted - starts[fragment])


def take_from(table: pa.Table, given: object) -> pa.Table:
    """Rows of a table in memory at these positions; see :func:`take`."""
    wanted = positions(given, table.num_rows)
    if len(wanted):
        check_range(int(wanted.min()), int(wanted.max()), np.array([0, table.num_rows]))
    return take_rows(table, wanted)


def _take_one(source: BoundProjection, row: int) -> pa.Table:
    """One row, with as little around the decoding as possible."""
    starts = source.snapshot.row_start_list
    if not 0 <= row < starts[-1]:
        raise beyond(row, starts[-1])
    position = bisect_right(starts, row) - 1
    bound = source.fragment(position)
    bound.expect("random")
    rows = np.array([row - starts[position]])
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
    """Physical rows of fragments given by position, in this order, repeats allowed.

    With ``deleted``, deleted rows may be among them.
    """
    if not source.projection.outputs:
        return source.rows_alone(len(rows))
    if len(rows) == 0:
        return source.empty()
    if len(rows) == 1 and not deleted:
        bound = source.for_taking(int(fragments[0]), rows)
        return pa.Table.from_arrays(bound.take(rows), schema=source.schema)
    driver = _Take(source, meter or NOBODY, deleted=deleted)
    first = int(fragments[0])
    if bool((fragments == first).all()):
        return driver.of_fragment(first, rows)
    return driver.table(fragments, rows)


@dataclass(frozen=True, slots=True)
class _Take:
    """A take: which way it is done depends on how many rows there are, and where.

    Parameters
    ----------
    are_live
        Rows are given by their number among the live rows of their fragment, not as physical.
    deleted
        Deleted rows may be among them.
    """

    source: BoundProjection
    meter: Meter
    are_live: bool = False
    deleted: bool = False

    def of_fragment(self, position: int, rows: Int64s) -> pa.Table:
        """Rows of one fragment."""
        jobs = [(position, rows)]
        joined = self.joined([position]) if len(rows) > 1 else None
        joins = joined is not None and position in joined.fragments
        arrays = self.take_joined(joined, jobs, None) if joined is not None and joins else None
        return _as_table(self.source, self.by_fragment(jobs) if arrays is None else [arrays])

    def table(self, fragment: Int64s, rows: Int64s) -> pa.Table:
        """Rows out of many fragments: in bulk where these are small, else one by one."""
        positions = distinct(fragment)
        joined = None if self.deleted else self.source.joined_before()
        small = []
        has_all = joined is not None and joined.holds(positions)
        if not has_all:
            from glaive.scan.small import take_small  # not loaded where all are joined

            # Where rows are deleted, nothing is taken in bulk: live rows are physical ones.
            small = take_small(self.source, fragment, rows, self.meter)
            joined = None if small else self.joined(positions.tolist())
            has_all = joined is not None and joined.holds(positions)
        if joined is not None and has_all:
            together = self.taken_together(joined, positions)
            if together is not None:
                among_all = joined.numbers(fragment, rows)
                arrays = self.joined_columns(joined, positions, among_all, together)
                if arrays is not None:
                    return _as_table(self.source, [arrays])
                joined = None  # it would fail again
        order = [numbers for numbers, _ in small]
        chunks = [arrays for _, arrays in small]
        remaining = np.ones(len(rows), np.bool_)
        for numbers in order:
            remaining[numbers] = False
        if not small or remaining.any():
            numbers = np.flatnonzero(remaining)
            fragment, rows = fragment[numbers], rows[numbers]
            if not bool((fragment[1:] >= fragment[:-1]).all()):
                sort = np.argsort(fragment, kind="stable")
                numbers, fragment, rows = numbers[sort], fragment[sort], rows[sort]
            edges = [0, *(np.flatnonzero(np.diff(fragment)) + 1).tolist(), len(rows)]
            jobs = [(int(fragment[begin]), rows[begin:end]) for begin, end in pairwise(edges)]
            if small:
                joined = self.joined([position for position, _ in jobs])
            if joined is not None:
                inside = [position in joined.fragments for position, _ in jobs]
                ours = np.repeat(inside, np.diff(edges))
                done = list(compress(jobs, inside))
                if not small and len(done) == len(jobs):
                    arrays = self.take_joined(joined, done, numbers)
                    if arrays is not None:
                        return _as_table(self.source, [arrays])
                elif done and (arrays := self.take_joined(joined, done, None)) is not None:
                    order.append(numbers[ours])
                    chunks.append(arrays)
                    numbers = numbers[~ours]
                    jobs = [
                        job for job, is_inside in zip(jobs, inside, strict=True) if not is_inside
                    ]
            if jobs:
                order.append(numbers)
                chunks += self.by_fragment(jobs)
        table = _as_table(self.source, chunks)
        return table if _is_ascending(order) else self._in_order(table, np.concatenate(order))

    def joined(self, positions: list[int]) -> JoinedFragments | None:
        """The joined columns of some fragments, if rows lie in many pages and these can be."""
        source, first = self.source, self.source.fragment(positions[0])
        if self.deleted or not first.mapped or (len(positions) == 1 and not first.has_many_pages):
            return None
        return source.joined(positions)

    def taken_together(self, joined: JoinedFragments, positions: Int64s) -> ColumnTakes | None:
        """All columns; None if rows of these fragments, which are joined, need one itself."""
        if self.are_live and not bool(joined.are_whole[positions].all()):
            return None
        return joined.together

    def take_joined(
        self, joined: JoinedFragments, jobs: list[_Job], numbers: Int64s | None
    ) -> _Chunk | None:
        """Rows of joined fragments, column by column.

        Row i of the jobs becomes row ``numbers[i]``, or row i. None where it has to be done
        fragment by fragment.
        """
        bound_rows = [(joined.fragments[at], rows) for at, rows in jobs]
        if self.are_live:
            bound_rows = [
                (bound, rows if bound.live is None else bound.live.physical(rows))
                for bound, rows in bound_rows
            ]
        positions = np.array([at for at, _ in jobs], np.int64)
        sizes = [len(rows) for _, rows in bound_rows]
        rows = np.concatenate([rows for _, rows in bound_rows])
        among_all = joined.numbers(np.repeat(positions, sizes), rows)
        back = None if numbers is None else inverse_permutation(numbers)
        wanted = among_all if back is None or among_all is None else among_all[back]

        def alone(at: int, _wanted: Int64s) -> pa.Array:
            parts = [bound.columns[at].take(rows) for bound, rows in bound_rows]
            array: pa.Array = concat_arrays(parts)
            return array if back is None else array.take(integer_array(back))

        takes: ColumnTakes | Sequence[Callable[[Int64s], pa.Array]] | None = joined.together
        if takes is None:
            takes = [
                partial(alone, at) if column is None else column.take
                for at, column in enumerate(joined.columns)
            ]
        return self.joined_columns(joined, positions, wanted, takes)

    def joined_columns(
        self,
        joined: JoinedFragments,
        positions: Int64s | None,
        wanted: Int64s | None,
        takes: ColumnTakes | Sequence[Callable[[Int64s], pa.Array]] | None,
    ) -> _Chunk | None:
        """All columns of rows given by their number among those of the joined fragments.

        ``takes`` takes them of all columns, or of each; without ``positions``, which a meter
        counts, all fragments are joined. None where it has to be done otherwise.
        """
        if wanted is None or takes is None:
            self.meter.fallback("joined take", "a row is beyond its fragment")
            return None

        many = len(wanted) >= _THREADED_ROWS
        try:
            if not joined.prepare(positions, wanted):
                self.meter.fallback("joined take", "unknown what cold files have to read")
                return None
            if isinstance(takes, Sequence):
                arrays = list((gather if many else map)(lambda take: take(wanted), takes))
            elif many:
                arrays = gather(lambda take: take(wanted), takes.each)
            else:
                arrays = takes.take(wanted)
            if positions is not None:
                self.meter.count("fragments_taken_joined", len(positions))
            return arrays
        except CapacityError as error:
            self.meter.fallback("joined take", "values beyond one array", error)
        except CorruptFileError as error:  # a page alone says more
            self.meter.fallback("joined take", "a file is damaged", error)
        return None

    def by_fragment(self, jobs: list[_Job]) -> Iterable[_Chunk]:
        """Rows of one fragment after the other, in the quickest of five ways."""
        parts: Iterable[Iterable[_Chunk]]
        if not self.source.fragment(jobs[0][0]).mapped:
            parts = ordered_map(self._take, jobs, workers=settings.io_concurrency)
        elif sum(len(rows) for _, rows in jobs) >= _THREADED_ROWS:
            alone = len(jobs) == 1
            parts = map(self._take_wide, jobs) if alone else gather(self._take, jobs)
        elif len(jobs) == 1 or self.deleted or not self.source.projection.fields:
            parts = map(self._take, jobs)
        else:
            parts = self._take_prefetched(jobs)
        return (chunk for part in parts for chunk in part)

    def _bind(self, job: _Job) -> tuple[BoundFragment, Int64s]:
        """The fragment of a job, opened, and its rows as physical ones."""
        position, rows = job
        if self.are_live:
            live = self.source.fragment(position).live
            rows = rows if live is None else live.physical(rows)
        return self.source.for_taking(position, rows), rows

    def _take(self, job: _Job) -> Iterable[_Chunk]:
        bound, rows = self._bind(job)
        return _in_parts(partial(_take_deleted, bound) if self.deleted else bound.take, rows)

    def _take_wide(self, job: _Job) -> Iterable[_Chunk]:
        """Many rows of one fragment: its columns are what can run side by side."""
        bound, rows = self._bind(job)
        return _in_parts(partial(_take_columns, bound, deleted=self.deleted), rows)

    def _take_prefetched(self, jobs: list[_Job]) -> Iterable[Iterable[_Chunk]]:
        """Few rows each of many fragments: what all need is being read before any is decoded."""
        bound_rows = list(map(self._bind, jobs))
        if not all(bound.readers for bound, _ in bound_rows):  # none of the columns: all null
            return [[bound.take(rows)] for bound, rows in bound_rows]
        plans = ((bound.readers[0], bound.plan_take(rows)) for bound, rows in bound_rows)
        try:
            return [run_fetches(plans)]
        except CapacityError as error:
            self.meter.fallback("prefetched take", "values beyond one array", error)
            return [_in_parts(bound.take, rows) for bound, rows in bound_rows]

    def _in_order(self, table: pa.Table, order: Int64s) -> pa.Table:
        """Undo ``order``: row ``i`` of the table becomes row ``order[i]``."""
        back = inverse_permutation(order)
        if any(without_views(column.type) != column.type for column in table.columns):
            return take_rows(table, back, distinct=True)
        try:
            columns: list[Any] = [concat_arrays(column.chunks) for column in table.columns]
        except CapacityError as error:
            self.meter.fallback("reordered take", "values beyond one array", error)
            return take_rows(table, back, distinct=True)
        if len(order) <= _SLICED_ROWS:
            numbers = back.tolist()
            moved = [
                pa.concat_arrays([column.slice(at, 1) for at in numbers]) for column in columns
            ]
            return pa.Table.from_arrays(moved, schema=table.schema)
        import pyarrow.compute as pc

        batch = pa.RecordBatch.from_arrays(columns, schema=table.schema)
        options = pc.TakeOptions(boundscheck=False)
        taken = pc.call_function("take", [batch, integer_array(back)], options)
        return pa.Table.from_batches([taken], table.schema)


def _is_ascending(order: list[Int64s]) -> bool:
    """Whether numbers, given in pieces that are ascending but for the last, are ascending."""
    return len(order) == 1 and bool((order[0][1:] > order[0][:-1]).all())


def _take_deleted(bound: BoundFragment, rows: Int64s) -> _Chunk:
    """Rows of a fragment, some of which may be deleted."""
    columns = bound.lazy_columns(rows, lambda at: bound.stored[at].take(rows), deleted=True)
    return [columns.output(output) for output in bound.projection.outputs]


def _take_columns(bound: BoundFragment, rows: Int64s, *, deleted: bool) -> _Chunk:
    """Rows of a fragment, column by column on all cores."""
    plain = bound.projection.plain and not deleted
    columns = bound.columns if plain else bound.stored
    arrays = gather(lambda column: column.take(rows), columns)
    return arrays if plain else bound.outputs(arrays, rows, deleted=deleted)


def _in_parts(take: Callable[[Int64s], _Chunk], rows: Int64s) -> Iterable[_Chunk]:
    """The rows, cut where one array would be too large."""
    return in_parts(lambda start, stop: take(rows[start:stop]), 0, len(rows))


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
