"""Read rows by position, in any order.

Positions count live rows over the whole dataset. They are mapped to fragments by one binary
search, read per fragment, and put back in the order asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import number_array
from glaive.arrow.capacity import in_parts
from glaive.arrow.chunked import take_rows
from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.views import without_views
from glaive.config import settings
from glaive.errors import CapacityError, OptionError, RowIndexError
from glaive.file.drive import drive_together
from glaive.io.pool import gather, ordered_map
from glaive.scan.bound import BoundFragment
from glaive.scan.small.takes import take_small
from glaive.scan.views import View

__all__ = ["positions", "take", "take_from", "take_physical"]

Int64s = NDArray[np.int64]
_Job = tuple[int, Int64s]
"""Some rows of the fragment at a position."""
_Bind = Callable[[_Job], tuple[BoundFragment, Int64s]]
"""The fragment of a job, opened, and its rows as physical ones."""

_MOST = 2**63
_INLINE_ROWS = 16 * 1024
"""Rows below which a take is more interpreted than compiled: threads would only wait."""

_FEW_ROWS = 16
"""Rows that are put in order without ``pyarrow.compute``, which takes 20 ms to load."""


def positions(rows: object) -> NDArray[np.int64]:
    """Row positions from a list, range, numpy or Arrow array of whole numbers.

    Raises
    ------
    OptionError
        Something in it is no whole number.
    """
    if isinstance(rows, pa.Array | pa.ChunkedArray):
        if rows.null_count:
            raise OptionError("row positions: expected whole numbers, found a null")
        rows = (
            rows.to_numpy(zero_copy_only=False) if isinstance(rows, pa.Array) else rows.to_numpy()
        )
    array = np.asarray(rows)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise OptionError(
            f"row positions: expected a list of whole numbers, found {array.dtype} {rows!r:.60}"
        )
    if array.dtype == np.uint64 and len(array):
        _check_size(int(array.max()))
    return array.astype(np.int64, copy=False)


def _check_size(row: int) -> None:
    if not -_MOST <= row < _MOST:
        raise RowIndexError(f"row position {row} is out of range: no dataset has that many rows")


def take(view: View, given: object) -> pa.Table:
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
    if type(given) is list and len(given) == 1 and type(given[0]) is int and view.schema.names:
        return _take_one(view, given[0])
    wanted = positions(given)
    starts = view.snapshot.row_starts
    if len(wanted) == 0:
        return view.empty()
    low, high = int(wanted.min()), int(wanted.max())
    _check(low, high, starts)
    if not view.projection.outputs:
        return view.rows_alone(len(wanted))
    first = int(np.searchsorted(starts, low, side="right")) - 1
    if high < starts[first + 1]:  # all in one fragment
        live = view.fragment(first).live
        rows = wanted - starts[first]
        if live is not None:
            rows = live.physical(rows)
        bound = view.for_taking(first, rows)
        return _as_table(view, _in_parts(partial(_take_wide, bound), rows))
    return _take_many(view, wanted, starts)


def take_from(table: pa.Table, given: object) -> pa.Table:
    """Rows of a table in memory at these positions; see :func:`take`."""
    wanted = positions(given)
    if len(wanted):
        _check(int(wanted.min()), int(wanted.max()), np.array([0, table.num_rows]))
    return take_rows(table, wanted)


def _take_one(view: View, row: int) -> pa.Table:
    """One row, with as little around the decoding as possible."""
    starts = view.snapshot.row_start_list
    if not 0 <= row < starts[-1]:
        raise _beyond(row, starts[-1])
    position = bisect_right(starts, row) - 1
    bound = view.fragment(position)
    bound.expect("random")
    rows = np.array([row - starts[position]])
    arrays = bound.take(rows if bound.live is None else bound.live.physical(rows))
    return pa.Table.from_arrays(arrays, schema=view.schema)


def _take_many(view: View, wanted: Int64s, starts: Int64s) -> pa.Table:
    fragment = np.searchsorted(starts, wanted, side="right") - 1

    def bind(job: _Job) -> tuple[BoundFragment, Int64s]:
        position, rows = job
        live = view.fragment(position).live
        if live is not None:
            rows = live.physical(rows)
        return view.for_taking(position, rows), rows

    return _take_grouped(view, fragment, wanted - starts[fragment], bind)


def take_physical(
    view: View, fragments: Int64s, rows: Int64s, *, deleted: bool = False
) -> pa.Table:
    """Physical rows of fragments given by position, in this order, repeats allowed.

    With ``deleted``, deleted rows may be among them.
    """
    if not view.projection.outputs:
        return view.rows_alone(len(rows))
    if len(rows) == 0:
        return view.empty()

    def bind(job: _Job) -> tuple[BoundFragment, Int64s]:
        return view.for_taking(*job), job[1]

    return _take_grouped(view, fragments, rows, bind, deleted=deleted)


def _take_grouped(
    view: View, fragment: Int64s, rows: Int64s, bind: _Bind, *, deleted: bool = False
) -> pa.Table:
    """Take rows of small fragments together, of others fragment by fragment."""
    parts = take_small(view, fragment, rows)
    if not parts:
        return _take_by_fragment(view, fragment, rows, bind, deleted=deleted)
    order = [places for places, _ in parts]
    tables = [pa.Table.from_arrays(arrays, schema=view.schema) for _, arrays in parts]
    left = np.ones(len(rows), np.bool_)
    left[np.concatenate(order)] = False
    if left.any():
        order.append(np.flatnonzero(left))
        tables.append(_take_by_fragment(view, fragment[left], rows[left], bind, deleted=deleted))
    if len(tables) == 1:
        return tables[0]
    return _put_back(pa.concat_tables(tables), np.concatenate(order))


def _take_by_fragment(
    view: View, fragment: Int64s, wanted: Int64s, bind: _Bind, *, deleted: bool
) -> pa.Table:
    """Take rows fragment by fragment and put them into the order asked for."""
    in_order = bool((fragment[1:] >= fragment[:-1]).all())
    order = None if in_order else np.argsort(fragment, kind="stable")
    if order is not None:
        fragment, wanted = fragment[order], wanted[order]
    edges = [0, *(np.flatnonzero(np.diff(fragment)) + 1).tolist(), len(wanted)]
    jobs = [(int(fragment[begin]), wanted[begin:end]) for begin, end in pairwise(edges)]

    def work(job: _Job) -> Iterable[list[pa.Array]]:
        bound, rows = bind(job)
        take = partial(_take_deleted, bound) if deleted else bound.take
        return _in_parts(take, rows)

    parts: Iterable[Iterable[list[pa.Array]]]
    if not view.fragment(jobs[0][0]).mapped:
        parts = ordered_map(work, jobs, workers=settings.io_concurrency)
    elif len(wanted) >= _INLINE_ROWS:
        parts = gather(work, jobs)
    elif deleted or not view.projection.fields:
        parts = map(work, jobs)
    else:
        # What all of them need is being read before any is looked at.
        found = list(map(bind, jobs))
        try:
            if all(bound.readers for bound, _ in found):
                plans = ((bound.readers[0], bound.plan_take(some)) for bound, some in found)
                parts = [drive_together(plans)]
            else:  # a fragment has none of the columns: they are null
                parts = [[bound.take(some) for bound, some in found]]
        except CapacityError:
            parts = [_in_parts(bound.take, some) for bound, some in found]
    table = _as_table(view, (arrays for one in parts for arrays in one))
    return table if order is None else _put_back(table, order)


def _take_deleted(bound: BoundFragment, rows: Int64s) -> list[pa.Array]:
    """Rows of a fragment, some of which may be deleted."""
    cells = bound.cells(rows, lambda at: bound.stored[at].take(rows), deleted=True)
    return [cells.output(one) for one in bound.projection.outputs]


def _in_parts(take: Callable[[Int64s], list[pa.Array]], rows: Int64s) -> Iterable[list[pa.Array]]:
    """The rows, cut where one array would be too large."""
    return in_parts(lambda start, stop: take(rows[start:stop]), 0, len(rows))


def _as_table(view: View, parts: Iterable[list[pa.Array]]) -> pa.Table:
    chunks = list(parts)
    if len(chunks) == 1:
        return pa.Table.from_arrays(chunks[0], schema=view.schema)
    columns = [
        pa.chunked_array([arrays[at] for arrays in chunks], field.type)
        for at, field in enumerate(view.schema)
    ]
    return pa.Table.from_arrays(columns, schema=view.schema)


def _put_back(table: pa.Table, order: NDArray[np.int64]) -> pa.Table:
    """Undo ``order``: row ``i`` of the table goes to place ``order[i]``."""
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    if any(without_views(column.type) != column.type for column in table.columns):
        return take_rows(table, back, distinct=True)
    try:
        whole: list[Any] = [concat_arrays(column.chunks) for column in table.columns]
    except CapacityError:
        return take_rows(table, back, distinct=True)
    if len(order) <= _FEW_ROWS:
        places = back.tolist()
        moved = [pa.concat_arrays([one.slice(at, 1) for at in places]) for one in whole]
        return pa.Table.from_arrays(moved, schema=table.schema)
    import pyarrow.compute as pc

    batch = pa.RecordBatch.from_arrays(whole, schema=table.schema)
    options = pc.TakeOptions(boundscheck=False)
    taken = pc.call_function("take", [batch, number_array(back)], options)
    return pa.Table.from_batches([taken], table.schema)


def _take_wide(bound: BoundFragment, rows: NDArray[np.int64]) -> list[pa.Array]:
    """Take many physical rows of one fragment: its columns are what can run side by side."""
    if len(rows) < _INLINE_ROWS or not bound.mapped:
        return bound.take(rows)
    columns = bound.columns if bound.projection.plain else bound.stored
    arrays = gather(lambda column: column.take(rows), columns)
    return arrays if bound.projection.plain else bound.outputs(arrays, rows)


def _check(low: int, high: int, starts: NDArray[np.int64]) -> None:
    total = int(starts[-1])
    if low < 0 or high >= total:
        raise _beyond(low if low < 0 else high, total)


def _beyond(row: int, total: int) -> RowIndexError:
    return RowIndexError(
        f"row position {row} is out of range: the dataset has {total} rows, counted from 0"
    )
