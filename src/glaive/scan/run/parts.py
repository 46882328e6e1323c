"""Parts of a plan: adjacent ranges that are read in the same way.

A scan reads fragments window by window (:class:`FragmentWindows`), and many small fragments as
one (:class:`glaive.scan.small.SmallFragments`).
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

if TYPE_CHECKING:  # only filtered scans load them
    from glaive.file.protocol import BoundColumn
    from glaive.scan.filter_search import FragmentSelection, Search, Selection


R = TypeVar("R")

ColumnChunks = tuple[int, Iterable[pa.Array]]
"""Index of a column, and some of its chunks."""

_INLINE_VALUES: Final = 64 * 1024
_INLINE_SEARCHED_ROWS: Final = 32 * 1024
"""Maximum values of a scan, and rows of a filtered scan, that run on one thread."""

_JOB_BYTES: Final = 4 * 1024 * 1024
"""Approximate bytes of a piece of a page: several threads share a large page."""

_NESTED_JOB_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of a piece of lists and structs. Smaller columns have a piece for each core.

Levels cost half a millisecond per piece and leaf, whatever its size.
"""

_SEARCHED_ROWS: Final = 512 * 1024
"""Rows of a window of a search: few enough for all cores, many enough for an efficient take."""

_DIRECT_ROWS: Final = 1024 * 1024
"""Rows of a window where columns find rows themselves, in less than a nanosecond per row."""

_SEARCHED_BYTES: Final = 64 * 1024 * 1024
_FETCHED_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of a window of a search, mapped or fetched, if all rows pass."""


_EAGER_BYTES: Final = 256 * 1024 * 1024
"""Bytes of a window that a stream decodes before its consumer asks for them."""


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
        """Apply ``work`` to the rows that pass, selection by selection, in order.

        The search reads at most ``window_rows`` rows at a time.
        """


class ScanPart(SearchedPart, Protocol):
    """Adjacent ranges of a plan that are read in the same way."""

    @property
    def ranges(self) -> Sequence[FragmentRows]:
        """Physical rows, in the order of the plan."""

    def batches(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        """Yield live rows in bounded memory; each batch is of one fragment."""

    def tables(self, run: ScanRun) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield live rows in the portions that the scan reads."""

    def columns(self, run: ScanRun) -> Iterable[ColumnChunks]:
        """Yield live rows column by column: the chunks of each, in order."""


@dataclass(frozen=True, slots=True)
class FragmentWindows:
    """Fragments read window by window (a :class:`ScanPart`)."""

    ranges: Sequence[FragmentRows]

    @property
    def rows(self) -> int:
        """Number of physical rows."""
        return sum(rows.stop - rows.start for rows in self.ranges)

    def batches(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        """See :class:`ScanPart`. Memory holds windows being decoded or waiting."""
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
        """See :class:`ScanPart`. Mapped files are read column by column and page by page."""
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
        """See :class:`ScanPart`. ``work`` runs on the threads that search."""

        def job(window: tuple[BoundFragment, RowRange]) -> tuple[BoundFragment, int, Iterable[R]]:
            bound, (start, stop) = window
            count, made, selections = 0, [], search.find(bound, start, stop)
            while not stream or (count + 1) * row_bytes(bound) <= _EAGER_BYTES:
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
        max_rows_of: dict[int, int] = {}  # of columns with the same width in all fragments
        rows = self.rows  # summed once for all fragments
        for bound, start, stop in run.opened(self.ranges):
            for at, column in enumerate(bound.columns):
                cuts = column.cuts()
                if len(cuts) == 2:  # one page: the usual case
                    cuts = np.array([start, stop])
                else:
                    cuts = np.unique(np.clip(cuts, start, stop))
                max_rows = max_rows_of.get(at)
                if max_rows is None:
                    max_rows = _piece_rows(column, rows)
                    if not pa.types.is_nested(column.field.type):
                        max_rows_of[at] = max_rows
                for begin, end in pairwise(cuts.tolist()):
                    step = max_rows if end - begin >= 2 * max_rows else end - begin
                    for first in range(begin, end, step):
                        yield bound, at, first, min(first + step, end)

    def _searched(
        self, search: Search, window_rows: int | None, *, stream: bool
    ) -> Iterator[tuple[BoundFragment, RowRange]]:
        """Yield the windows of a search."""
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
                max_rows = min(rows, size // width)
                if stream and bound.mapped and not bound.projection.row_sizes.are_known:
                    # Grow it: if no row passes, the scan never learns the sizes.
                    max_rows, unseen = min(max_rows, unseen), 2 * unseen
                max_rows = whole_chunks(max_rows, width)
                step = min(max_rows, ALIGNED_ROWS)
                windows_left = -(-(stop - start) // max_rows)
                end = start + (stop - start) // windows_left
                end = min(stop, -(-end // step) * step)
                end = page_end(bound, start, end) if stream else end
                yield bound, RowRange(start, end)
                start = end


def _piece_rows(column: BoundColumn, rows: int) -> int:
    """Return the maximum rows of a piece of a page, in a scan of ``rows`` rows."""
    kind, width = column.field.type, column.value_bytes
    # If the width is estimated, small pieces cost more than threads save: make half as many.
    size = _JOB_BYTES if has_known_width(kind) else 2 * _JOB_BYTES + 1
    if pa.types.is_nested(kind):
        share = width * rows // worker_count()
        size = max(size, min(share, _NESTED_JOB_BYTES))
    return whole_chunks(size // width, width)


def _read_window(
    job: tuple[BoundFragment, RowRange],
) -> tuple[BoundFragment, Iterable[list[pa.Array]]]:
    bound, (start, stop) = job
    bound.expect("sequential")  # checks the files again: a window takes time
    if row_bytes(bound) > _EAGER_BYTES:
        return bound, _read_later(bound, start, stop)
    return bound, in_parts(bound.read, start, stop)


def _read_later(bound: BoundFragment, start: int, stop: int) -> Iterator[list[pa.Array]]:
    yield from in_parts(bound.read, start, stop)


def _read_pages(job: tuple[BoundFragment, int, int, int]) -> ColumnChunks:
    bound, at, start, stop = job
    column, live = bound.columns[at], bound.live
    read = column.read if live is None else partial(live.read, column)
    return at, in_parts(read, start, stop)
