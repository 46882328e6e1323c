"""Parts of a plan: neighbouring ranges that are read in one way.

Fragments are read window by window (:class:`FragmentWindows`), many small ones as one
(:class:`glaive.scan.small.SmallFragments`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import has_known_width, in_parts
from glaive.dataclass import dataclass
from glaive.io.pool import worker_count
from glaive.scan.bound import BoundFragment, PassedPages
from glaive.scan.plan import FIRST_ROWS, WINDOW_BYTES, FragmentRows, page_end, row_bytes, windows
from glaive.scan.run.scheduler import ALIGNED_ROWS, ScanRun, whole_chunks
from glaive.types import RowRange

if TYPE_CHECKING:  # scans without a filter do not load them
    from glaive.file.protocol import BoundColumn
    from glaive.scan.filter_search import FragmentSelection, Search, Selection


R = TypeVar("R")

ColumnChunks = tuple[int, Iterable[pa.Array]]
"""Number of a column, and some of its chunks."""

MIN_RUN_FRAGMENTS: Final = 8
"""Small fragments in a row that are worth reading in bulk."""

_INLINE_VALUES: Final = 64 * 1024
_INLINE_SEARCHED_ROWS: Final = 32 * 1024
"""Rows times columns of a scan, and rows of a filtered one, that are not worth a thread."""

_JOB_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a piece of a page, about: several threads share a large page."""

_NESTED_JOB_BYTES: Final = 32 * 1024 * 1024
"""The same of lists and structs: up to a share of the column for each core, because levels cost
half a millisecond per piece and leaf, whatever its size."""

_SEARCHED_ROWS: Final = 512 * 1024
"""Rows of a search: few enough to give every core some, many enough to be worth a take."""

_DIRECT_ROWS: Final = 1024 * 1024
"""The same where columns find the rows themselves, in less than a nanosecond each."""

_SEARCHED_BYTES: Final = 64 * 1024 * 1024
_FETCHED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the columns of a search, mapped or fetched, if all rows passed."""


_HELD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of a window of a stream that are made before somebody takes them."""


class SearchedPart(Protocol):
    """A part of the plan of a filtered scan."""

    def filter(
        self,
        search: Search,
        work: Callable[[Selection], R],
        *,
        stream: bool = False,
        window_rows: int | None = None,
    ) -> Iterator[R]:
        """What ``work`` makes of the rows that pass, selection by selection, in order.

        ``window_rows`` are looked at at a time, at most.
        """


class ScanPart(SearchedPart, Protocol):
    """Neighbouring ranges of a plan, all read in the same way."""

    @property
    def ranges(self) -> Sequence[FragmentRows]:
        """Physical rows, in the order of the plan."""

    def batches(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        """Live rows in bounded memory; no batch spans two fragments."""

    def tables(self, run: ScanRun) -> Iterator[pa.RecordBatch | pa.Table]:
        """Live rows in the portions that are read."""

    def columns(self, run: ScanRun) -> Iterable[ColumnChunks]:
        """Live rows column by column: the chunks of each, in order."""


@dataclass(frozen=True, slots=True)
class FragmentWindows:
    """Fragments read window by window (a :class:`ScanPart`)."""

    ranges: Sequence[FragmentRows]

    @property
    def rows(self) -> int:
        """Physical rows."""
        return sum(rows.stop - rows.start for rows in self.ranges)

    def batches(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        """See :class:`ScanPart`. Memory: the windows being decoded or waiting."""
        schema = run.source.schema
        passed = None
        inline = self.rows * len(schema) <= _INLINE_VALUES
        for bound, parts in self._windows(run, inline=inline):
            if passed is None:
                passed = PassedPages(self.rows * row_bytes(bound))
            for arrays in parts:
                batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                yield batch
                passed.add(bound, batch.nbytes)

    def tables(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        """See :class:`ScanPart`."""
        return self.batches(run)

    def columns(self, run: ScanRun) -> Iterator[ColumnChunks]:
        """See :class:`ScanPart`. Column by column and page by page, where files are mapped."""
        if run.source.projection.plain and run.is_mapped(self.ranges):
            yield from run.map(
                _read_pages, self._page_jobs(run), self.ranges, job_bytes=_JOB_BYTES, stream=False
            )
            return
        for _, parts in self._windows(run, inline=False, stream=run.is_mapped(self.ranges)):
            for arrays in parts:
                yield from enumerate([array] for array in arrays)

    def filter(
        self,
        search: Search,
        work: Callable[[FragmentSelection], R],
        *,
        stream: bool = False,
        window_rows: int | None = None,
    ) -> Iterator[R]:
        """See :class:`ScanPart`. ``work`` is done on the threads that search."""

        def job(window: tuple[BoundFragment, RowRange]) -> tuple[BoundFragment, int, Iterable[R]]:
            bound, (start, stop) = window
            count, made, selections = 0, [], search.find(bound, start, stop)
            while not stream or (count + 1) * row_bytes(bound) <= _HELD_BYTES:
                selection = next(selections, None)
                if selection is None:
                    break
                made.append(work(selection))
                count += selection.count
            return bound, count, chain(made, map(work, selections))

        results = search.run.map(
            job,
            self._searched(search, window_rows, stream=stream),
            self.ranges,
            job_bytes=_FETCHED_BYTES,
            inline=self.rows <= _INLINE_SEARCHED_ROWS,
            stream=stream,
        )
        passed = PassedPages(searched=True)
        for bound, count, found in results:
            yield from found
            if stream:
                passed.add(bound, max(1, count) * row_bytes(bound))

    # ------------------------------------------------------------------- jobs

    def _windows(
        self, run: ScanRun, *, inline: bool, stream: bool = True
    ) -> Iterable[tuple[BoundFragment, Iterable[list[pa.Array]]]]:
        jobs = (
            (bound, window)
            for bound, start, stop in run.opened(self.ranges)
            for window in windows(bound, start, stop)
        )
        return run.map(
            _read_window, jobs, self.ranges, job_bytes=WINDOW_BYTES, inline=inline, stream=stream
        )

    def _page_jobs(self, run: ScanRun) -> Iterator[tuple[BoundFragment, int, int, int]]:
        most_of: dict[int, int] = {}  # of columns whose values are as wide in all fragments
        rows = self.rows  # added up once, not for each fragment
        for bound, start, stop in run.opened(self.ranges):
            for at, column in enumerate(bound.columns):
                cuts = column.cuts()
                if len(cuts) == 2:  # one page: the usual case
                    cuts = np.array([start, stop])
                else:
                    cuts = np.unique(np.clip(cuts, start, stop))
                most = most_of.get(at)
                if most is None:
                    most = _piece_rows(column, rows)
                    if not pa.types.is_nested(column.field.type):
                        most_of[at] = most
                for begin, end in pairwise(cuts.tolist()):
                    step = most if end - begin >= 2 * most else end - begin
                    for first in range(begin, end, step):
                        yield bound, at, first, min(first + step, end)

    def _searched(
        self, search: Search, window_rows: int | None, *, stream: bool
    ) -> Iterator[tuple[BoundFragment, RowRange]]:
        """Windows in which rows are searched."""
        rows = window_rows or (_DIRECT_ROWS if search.is_direct else _SEARCHED_ROWS)
        unseen = FIRST_ROWS
        for bound, first, stop in search.run.opened(self.ranges):
            start = first
            search.run.meter.count("fragments_scanned", 1)
            if search.has_few_indexed(bound, first, stop):
                yield bound, RowRange(first, stop)
                continue
            size = _SEARCHED_BYTES if bound.mapped else _FETCHED_BYTES
            while start < stop:
                width = max(1, row_bytes(bound))
                most = min(rows, size // width)
                if stream and bound.mapped and not bound.projection.row_sizes.are_known:
                    # It grows: where no row passes, they are never seen.
                    most, unseen = min(most, unseen), 2 * unseen
                most = whole_chunks(most, width)
                step = min(most, ALIGNED_ROWS)
                windows_left = -(-(stop - start) // most)
                end = start + (stop - start) // windows_left
                end = min(stop, -(-end // step) * step)
                end = page_end(bound, start, end) if stream else end
                yield bound, RowRange(start, end)
                start = end


def _piece_rows(column: BoundColumn, rows: int) -> int:
    """Rows of a piece of a page of the column, at most, where so many rows are read in all."""
    kind, width = column.field.type, column.value_bytes
    # Where the width is a guess, pieces cost more than threads bring: half as many.
    size = _JOB_BYTES if has_known_width(kind) else 2 * _JOB_BYTES + 1
    if pa.types.is_nested(kind):
        share = width * rows // worker_count()
        size = max(size, min(share, _NESTED_JOB_BYTES))
    return whole_chunks(size // width, width)


def _read_window(
    job: tuple[BoundFragment, RowRange],
) -> tuple[BoundFragment, Iterable[list[pa.Array]]]:
    bound, (start, stop) = job
    bound.expect("sequential")  # and that the files are whole: a window takes a while
    if row_bytes(bound) > _HELD_BYTES:
        return bound, _read_later(bound, start, stop)
    return bound, in_parts(bound.read, start, stop)


def _read_later(bound: BoundFragment, start: int, stop: int) -> Iterator[list[pa.Array]]:
    yield from in_parts(bound.read, start, stop)


def _read_pages(job: tuple[BoundFragment, int, int, int]) -> ColumnChunks:
    bound, at, start, stop = job
    column, live = bound.columns[at], bound.live
    read = column.read if live is None else partial(live.read, column)
    return at, in_parts(read, start, stop)
