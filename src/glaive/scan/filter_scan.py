"""A filtered scan: search rows on all cores, then make their columns.

Usually one job searches a window and makes the columns of its rows. With a limit, the scan first
searches rows in the order of the dataset, up to the last row that it returns. It then makes columns
of the returned rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import Condition, InRange, IsOneOf
from glaive.dataclass import dataclass
from glaive.format.manifest import Feature
from glaive.index.row_sets import MAX_LISTED_ROWS, RowSet
from glaive.scan.filter_search import (
    Chunk,
    FragmentSelection,
    Late,
    Search,
    Selection,
    rows_passing,
)
from glaive.scan.plan import MAX_FOUND_ROWS, FragmentRows, plan_all, plan_searched, row_bytes
from glaive.scan.projection import ROW_ADDRESS, ROW_ID, Computed, Output, bounds, numbers
from glaive.scan.run.parts import FragmentWindows, SearchedPart
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.stream import as_table
from glaive.scan.small import cut_into_parts
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.expr.filters import Term
    from glaive.scan.indexed import IndexAnswer


# --- Fragments and ranges that can have passing rows, by row ids and indices ------------


def prune_ranges(search: Search, ranges: Sequence[FragmentRows]) -> Sequence[FragmentRows]:
    """Cut ranges down to rows that may pass, by row ids and indices.

    So a filter on row ids, or on a column with an index, only opens fragments with such rows.
    """
    snapshot = search.run.source.snapshot
    stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
    for term in search.terms:
        if term.condition is None:
            continue
        path, condition = term.condition
        system = search.inputs[path].system
        if system == ROW_ADDRESS or (system == ROW_ID and not stable):
            ranges = _by_address(snapshot, condition, ranges)
        elif system == ROW_ID and isinstance(condition, IsOneOf) and not condition.negated:
            wanted = numbers(condition)
            _, fragment, row = snapshot.row_id_index.candidates(wanted)
            ranges = _narrowed(fragment, row, ranges)
    alone = search.run.options.fast_search
    for answer in search.answers.values():
        ranges = _prune_by_answer(snapshot, answer, ranges, alone=alone)
    return ranges


def _prune_by_answer(
    snapshot: Snapshot, answer: IndexAnswer, ranges: Sequence[FragmentRows], *, alone: bool
) -> Sequence[FragmentRows]:
    """Return the ranges around the rows that an index found, and the ranges of unindexed fragments.

    ``alone`` omits unindexed fragments.
    """
    found = answer.rows
    rows = np.concatenate((found.starts, found.stops - np.uint64(1)))
    fragment_ids = (rows >> np.uint64(32)).astype(np.int64)
    row = (rows & np.uint64(0xFFFFFFFF)).astype(np.int64)
    different, which = np.unique(fragment_ids, return_inverse=True)
    position = np.array(snapshot.positions_of(different.tolist()), np.int64)[which]
    ids = snapshot.manifest.fragment_ids
    near = {rows.position: rows for rows in _narrowed(position, row, ranges)}
    return [
        near.get(rows.position, rows)
        for rows in ranges
        if rows.position in near or (not alone and int(ids[rows.position]) not in answer.fragments)
    ]


def _by_address(
    snapshot: Snapshot, condition: Condition, ranges: Sequence[FragmentRows]
) -> Sequence[FragmentRows]:
    if isinstance(condition, IsOneOf) and not condition.negated:
        wanted = numbers(condition)
        position = snapshot.positions_by_id((wanted >> np.uint64(32)).astype(np.int64))
        known = position >= 0
        row = (wanted & np.uint64(0xFFFFFFFF)).astype(np.int64)
        return _narrowed(position[known], row[known], ranges)
    if not isinstance(condition, InRange):
        return ranges
    low, high = bounds(condition)
    pruned = []
    for rows in ranges:
        first = int(snapshot.manifest.fragment_ids[rows.position]) << 32
        start, stop = max(rows.start, low - first), min(rows.stop, high - first + 1)
        if start < stop:
            pruned.append(FragmentRows(rows.position, start, stop))
    return pruned


def _narrowed(
    position: NDArray[np.int64], row: NDArray[np.int64], ranges: Sequence[FragmentRows]
) -> Sequence[FragmentRows]:
    """Cut each range down to the first to the last of these rows in its fragment."""
    order = np.lexsort((row, position))
    position, row = position[order], row[order]
    fragments, first = np.unique(position, return_index=True)
    last = np.append(first[1:], len(row)) - 1
    lowest, highest = row[first].tolist(), row[last].tolist() if len(row) else []
    bounds_of = dict(zip(fragments.tolist(), zip(lowest, highest, strict=True), strict=True))
    pruned = []
    for rows in ranges:
        if rows.position in bounds_of:
            low, high = bounds_of[rows.position]
            start, stop = max(rows.start, low), min(rows.stop, high + 1)
            if start < stop:
                pruned.append(FragmentRows(rows.position, start, stop))
    return pruned


R = TypeVar("R")

_EARLY_ROWS: Final = 128 * 1024
"""Rows of a window if a limit may end the scan, or the first batch should come soon."""


@dataclass(frozen=True, slots=True, eq=False)
class FilteredScan:
    """A scan whose rows have to be searched for.

    Parameters
    ----------
    outputs
        Columns of each chunk.
    late
        Which fields are taken row by row.
    """

    search: Search
    outputs: Sequence[Output | Computed]
    late: Late = None

    @classmethod
    def of(cls, search: Search) -> FilteredScan:
        """Make the scan of a search: the columns that its run reads, of the rows that it finds."""
        projection = search.run.source.projection
        late = search.run.options.late_materialization
        if not isinstance(late, tuple):
            return cls(search, projection.outputs, late)
        find = search.run.source.snapshot.manifest.schema.find
        names = {find(name)[0].name for name in late}
        fields = frozenset(at for at, field in enumerate(projection.fields) if field.name in names)
        return cls(search, projection.outputs, fields)

    @property
    def run(self) -> ScanRun:
        """The source, the options and the meter."""
        return self.search.run

    def table(self) -> pa.Table:
        """Return the whole result; its chunks stay as they are made."""
        source, options = self.run.source, self.run.options
        if self.search.answers and options.limit is None and not options.offset:
            match self._found():
                case [FoundRows() as found]:
                    return found.table()
        chunks = list(self.chunks())
        if not self.outputs:
            return source.rows_alone(sum(len(chunk[0]) for chunk in chunks))
        return as_table(source, list(map(list, zip(*chunks, strict=True))))

    def chunks(self, *, stream: bool = False) -> Iterator[Chunk]:
        """Yield columns of the rows, chunk by chunk; in bounded memory with ``stream``."""
        options = self.run.options
        if options.limit is not None or options.offset:
            for selection in self._limited():
                yield from self._columns(selection)
            return
        # The first batch of a stream should come before half a million rows are searched.
        rows = _EARLY_ROWS if stream and not self.search.is_direct else None
        for part in self._parts():
            filtered = part.filter(self.search, self._columns, stream=stream, window_rows=rows)
            for chunks in filtered:
                yield from chunks

    def map(
        self,
        work: Callable[[FragmentSelection], R],
        *,
        stream: bool,
        window_rows: int | None = None,
    ) -> Iterator[R]:
        """Apply ``work`` to each selection of rows, in order, on the threads that search.

        Windows of mapped files have at most ``window_rows``; windows of other files keep their
        size, which saves requests.
        """
        whole = FragmentWindows(self._ranges())
        if not self.run.is_mapped(whole.ranges):
            window_rows = None
        return whole.filter(self.search, work, stream=stream, window_rows=window_rows)

    def row_ranges(self, *, stream: bool = False) -> Iterator[tuple[int, Int64s]]:
        """Yield the id of each fragment with passing rows, and the physical rows, ascending.

        A fragment may come several times, each time with later rows. Ignores limit and offset. With
        ``stream`` few of them are made ahead.
        """

        def ranges_of(selection: Selection) -> list[tuple[int, Int64s]]:
            return list(selection.row_ranges())

        for part in self._parts():
            for ranges in part.filter(self.search, ranges_of, stream=stream):
                yield from ranges

    def count(self) -> int:
        """Count the rows within limit and offset; reads only columns of the filter."""
        if self.run.options.limit is not None:
            return sum(selection.count for selection in self._limited())
        counts = (part.filter(self.search, lambda some: some.count) for part in self._parts())
        return max(0, sum(map(sum, counts)) - self.run.options.offset)

    def _columns(self, selection: Selection) -> Iterable[Chunk]:
        """Make columns of some rows, in as many chunks as they need."""
        meter = self.run.meter
        meter.count("rows_passed", selection.count)
        if not self.outputs:
            return [[pa.nulls(selection.count)]]
        with meter.step("columns"):
            return selection.chunks(self.outputs, late=self.late)

    def _limited(self) -> Iterator[FoundRows | FragmentSelection]:
        """Yield the rows, in order, within limit and offset."""
        skip, remaining = self.run.options.offset, self.run.options.limit
        if remaining == 0:
            return
        rows = None if remaining is None else _EARLY_ROWS
        selections = (
            selection
            for part in self._found() or [FragmentWindows(self._ranges())]
            for selection in part.filter(
                self.search, lambda some: some, stream=True, window_rows=rows
            )
        )
        for selection in selections:
            if skip >= selection.count:
                skip -= selection.count
                continue
            stop = selection.count
            if remaining is not None:
                stop = min(stop, skip + remaining)
                remaining -= stop - skip
            yield selection.cut(skip, stop)
            if remaining == 0:
                return
            skip = 0

    def _ranges(self) -> Sequence[FragmentRows]:
        if self.search.never:
            return ()
        return prune_ranges(self.search, plan_searched(self.run.source.snapshot, self.run.options))

    def _found(self) -> Sequence[FoundRows | FragmentWindows] | None:
        """Return the parts if indices answer a term of the filter, with few rows."""
        if not self.search.answers or self.outputs is not self.run.source.projection.outputs:
            return None

        return found_parts(self.search)

    def _parts(self) -> Sequence[SearchedPart]:
        found = self._found()
        if found is not None:
            return found
        ranges = self._ranges()
        if self.search.deleted or self.search.answers:
            return [FragmentWindows(ranges)]
        return cut_into_parts(self.run, ranges)


# --- Few rows that indices found: taken at once, whatever fragments they are in ---------
# Specification: "Searching" in ``docs/format/indices.md``.

_MAX_FOUND_SHARE: Final = 0.005
"""Maximum share of all rows that are taken; for more rows windows are decoded."""

_TAKE_BYTES: Final = 64 * 1024 * 1024
"""Approximate bytes of rows that are taken at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """Live rows that pass a filter (a part of a plan, and a selection).

    Parameters
    ----------
    run
        The run of the scan; takes the columns of its projection.
    positions
        Position of the fragment of each row, ascending.
    rows
        Physical rows, ascending in each fragment.
    untested
        Terms of the filter that indices leave open: the values of the rows decide.
    """

    run: ScanRun
    positions: Int64s
    rows: Int64s
    untested: Sequence[Term] = ()

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def filter(
        self,
        search: Search,
        work: Callable[[FoundRows], R],
        *,
        stream: bool = False,
        window_rows: int | None = None,
    ) -> Iterator[R]:
        """See :class:`~glaive.scan.run.parts.SearchedPart`: few selections, each of some rows."""
        for passed in self._passing():
            search.run.meter.count("rows_taken_by_index", len(passed.rows))
            if len(passed.rows):
                yield work(passed)

    def table(self) -> pa.Table:
        """Take the columns of the projection, in one table."""
        run, parts = self.run, list(self._passing())
        positions, rows = self.positions[:0], self.rows[:0]
        if len(parts) == 1:
            positions, rows = parts[0].positions, parts[0].rows
        elif parts:
            positions = np.concatenate([part.positions for part in parts])
            rows = np.concatenate([part.rows for part in parts])
        run.meter.count("rows_taken_by_index", len(rows))
        with run.meter.step("columns"):
            return take_physical(run.source.without_inputs(), positions, rows, meter=run.meter)

    def chunks(self, outputs: Sequence[Output | Computed], *, late: Late) -> Iterable[Chunk]:
        """See :class:`~glaive.scan.filter_search.Selection`: columns of the projection."""
        source, meter = self.run.source.without_inputs(), self.run.meter
        for part in self._portions(source):
            table = take_physical(source, part.positions, part.rows, meter=meter)
            yield from _chunks(table)

    def cut(self, skip: int, stop: int) -> FoundRows:
        """Return the rows numbered ``skip`` to ``stop``."""
        if skip == 0 and stop >= len(self.rows):
            return self
        return replace(self, positions=self.positions[skip:stop], rows=self.rows[skip:stop])

    def _portions(self, source: BoundProjection) -> Iterator[FoundRows]:
        """Divide the rows into parts that are taken at once."""
        if len(self.rows):
            width = row_bytes(source.fragment(self.positions.item(0)))
            step = max(1, _TAKE_BYTES // max(1, width))
            for start in range(0, len(self.rows), step):
                yield self.cut(start, start + step)

    def _passing(self) -> Iterator[FoundRows]:
        """Yield the rows that pass all terms, in order."""
        if not self.untested:
            yield self
            return
        from glaive.scan.found_columns import stored_columns

        meter = self.run.meter
        paths = tuple(dict.fromkeys(path for term in self.untested for path in term.columns))
        source = self.run.source.of_inputs(paths)
        for part in self._portions(source):
            positions, rows = part.positions, part.rows
            meter.count("rows_scanned", len(rows))
            with meter.step("filter"):
                columns = stored_columns(source, paths, positions, rows, meter)
                flags = rows_passing(self.untested, partial(_batch, columns, len(rows)), len(rows))
            yield FoundRows(self.run, positions[flags], rows[flags])

    def row_ranges(self) -> Iterator[tuple[int, Int64s]]:
        """Yield the id of each fragment and its rows."""
        cuts = np.diff(self.positions).nonzero()[0] + 1
        ids = self.run.source.snapshot.manifest.fragment_ids
        for first, last in pairwise([0, *cuts.tolist(), len(self.rows)]):
            yield int(ids[self.positions[first]]), self.rows[first:last]


def _batch(columns: Mapping[str, Any], rows: int, term: Term) -> pa.RecordBatch:
    """Return columns for a term; a constant term still needs the number of rows."""
    if not term.columns:
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["rows"])
    return pa.RecordBatch.from_arrays([columns[path] for path in term.columns], list(term.columns))


def _chunks(table: Any) -> Iterable[Chunk]:
    columns = table.columns
    if all(column.num_chunks == 1 for column in columns):
        return [[column.chunk(0) for column in columns]]
    return [batch.columns for batch in table.to_batches()]


def found_parts(search: Search) -> Sequence[FoundRows | FragmentWindows] | None:
    """Plan a filtered scan of all rows if indices answer a term and found few rows.

    Unindexed fragments stay parts to be searched. Return ``None`` if indices found many rows, or
    answer terms for different fragments.
    """
    answers, run = list(search.answers.values()), search.run
    if not answers:
        return None
    fragments = answers[0].fragments
    if any(answer.fragments != fragments for answer in answers):
        return None
    options, snapshot = run.options, run.source.snapshot
    whole = options.fragments is None and options.range_before is None
    if not whole or options.late_materialization not in (None, True):
        return None
    rows = answers[0].rows
    if len(answers) > 1:
        rows = RowSet.intersection([answer.rows for answer in answers])
    manifest = snapshot.manifest
    count = rows.count
    share = _MAX_FOUND_SHARE * int(manifest.physical_rows.sum())
    many = min(MAX_LISTED_ROWS, max(MAX_FOUND_ROWS, share))
    if count > many:
        return None
    found = _live(run, *snapshot.places_of(rows.rows()))
    sure = [number for number, answer in search.answers.items() if answer.exact]
    if len(sure) < len(search.terms):
        untested = [term for number, term in enumerate(search.terms) if number not in sure]
        found = replace(found, untested=untested)
    if options.fast_search or len(fragments) == manifest.num_fragments:
        return [found]
    covered = np.isin(manifest.fragment_ids, list(fragments))
    return list(_cut(found, covered, plan_all(snapshot, None)))


def _live(run: ScanRun, positions: Int64s, rows: Int64s) -> FoundRows:
    """Keep the live rows, in the order of the fragments."""
    snapshot = run.source.snapshot
    if len(positions) == 1 and not snapshot.manifest.deleted_rows.item(positions.item()):
        return FoundRows(run, positions, rows)
    if len(positions) > 1 and bool((positions[1:] < positions[:-1]).any()):
        order = np.argsort(positions, kind="stable")
        positions, rows = positions[order], rows[order]
    kept = snapshot.are_live(positions, rows)
    if kept is not None:
        positions, rows = positions[kept], rows[kept]
    return FoundRows(run, positions, rows)


def _cut(
    found: FoundRows, covered: Flags, ranges: Sequence[FragmentRows]
) -> Iterator[FoundRows | FragmentWindows]:
    """Yield rows found, and ranges to be searched between them, in the order of the fragments."""
    edges = [0, *(np.diff(covered).nonzero()[0] + 1).tolist(), len(covered)]
    for first, last in pairwise(edges):
        if covered[first]:
            cuts = found.positions.searchsorted((first, last)).tolist()
            yield found.cut(*cuts)
        else:
            yield FragmentWindows([rows for rows in ranges if first <= rows.position < last])
