"""Scans that pick rows: find them in pieces of fragments, on all cores, then make the columns.

Without limit, one job finds the rows of a piece and makes their columns. With one, rows are
found first, in the order of the dataset, so that columns are made of those only that are
returned, and nothing is looked at behind the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.config import settings
from glaive.errors import CapacityError
from glaive.io.pool import gather, ordered_map, worker_count
from glaive.scan.bound import BoundFragment
from glaive.scan.filter.hits import Hits
from glaive.scan.filter.prune import narrowed
from glaive.scan.filter.search import Search
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.plan import FragmentRows, plan_searched, row_bytes
from glaive.scan.projection import Computed, Output
from glaive.scan.small.fragments import SmallFragments, find_small
from glaive.scan.views import View
from glaive.types import RowRange

__all__ = ["Picked", "pick"]

T = TypeVar("T")
R = TypeVar("R")

Chunk = list[Any]
"""One array per column."""

_PIECE_ROWS = 512 * 1024
"""Rows of a job: few enough to give every core some, many enough to be worth a take."""

_FOUND_ROWS = 1024 * 1024
"""The same where columns find the rows themselves, in less than a nanosecond each."""

_PIECE_BYTES = 64 * 1024 * 1024
"""Bytes of the columns of a piece, if all rows passed; wide rows make shorter pieces."""

_LIMITED_ROWS = 128 * 1024
"""Rows of a job where a limit may end the scan."""

_ALIGNED = 4096

_AHEAD = 24
_FETCH_BYTES = 16 * 1024 * 1024
"""Pieces under way when they must be fetched, and what each may have."""

_BUSY_ROWS = 32 * 1024
"""Rows below which a scan is not worth a second thread."""


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """A scan that picks rows.

    Parameters
    ----------
    outputs
        Columns of each chunk.
    late
        See :meth:`Hits.columns`.
    """

    view: View
    search: Search
    options: ScanOptions
    outputs: Sequence[Output | Computed]
    late: bool | frozenset[int] | None = None

    @property
    def meter(self) -> Meter:
        """What was done so far."""
        return self.search.meter

    def chunks(self, *, stream: bool = False) -> Iterator[Chunk]:
        """Columns of the rows, chunk by chunk; in bounded memory with ``stream``."""
        if self.options.limit is not None or self.options.offset:
            yield from self._limited()
            return
        for part in self._parts():
            if isinstance(part, SmallFragments):
                found = self._small(part)
                if found is not None:
                    if len(found[0]):
                        yield found
                    continue
            ranges = part.ranges if isinstance(part, SmallFragments) else part
            # The first batch of a stream should not wait for half a million rows.
            rows = _LIMITED_ROWS if stream and not self.search.is_direct else None
            for parts in self._run(self._work, self._pieces(ranges, rows), ranges, stream=stream):
                for chunks in parts:
                    yield from chunks

    def map(
        self, work: Callable[[tuple[BoundFragment, RowRange]], R], *, stream: bool
    ) -> Iterable[R]:
        """Do something with each piece of the fragments, in order."""
        ranges = self._ranges()
        return self._run(work, self._pieces(ranges), ranges, stream=stream)

    def places(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Id of each fragment with rows that pass, and these, physical and ascending.

        A fragment may come several times, with rows behind those before. Limit and offset are
        not regarded.
        """
        for part in self._parts():
            if isinstance(part, SmallFragments):
                cells = part.cells(self.view)
                if cells is not None:
                    self.meter.count("rows_scanned", cells.count)
                    yield from part.places(self.view, self.search.passing(cells))
                    continue
            ranges = part.ranges if isinstance(part, SmallFragments) else part
            for found in self._run(self._place, self._pieces(ranges), ranges, stream=False):
                yield from found

    def hits(self) -> Iterator[Hits]:
        """The rows, in order, within limit and offset; columns are not made."""
        skip, left = self.options.offset, self.options.limit
        if left == 0:
            return
        ranges = self._ranges()
        jobs = self._pieces(ranges, _LIMITED_ROWS if left is not None else None)
        for found in self._run(self._find, jobs, ranges, stream=True):
            for hits in found:
                if skip >= hits.count:
                    skip -= hits.count
                    continue
                stop = hits.count if left is None else min(hits.count, skip + left)
                yield hits.cut(skip, stop)
                if left is not None:
                    left -= stop - skip
                    if left == 0:
                        return
                skip = 0

    def count(self) -> int:
        """Rows, limit and offset regarded; reads what the filter needs only."""
        if self.options.limit is not None:
            return sum(hits.count for hits in self.hits())
        total = 0
        for part in self._parts():
            if isinstance(part, SmallFragments):
                some = self._count_small(part)
                if some is not None:
                    total += some
                    continue
            ranges = part.ranges if isinstance(part, SmallFragments) else part
            total += sum(self._run(self._count, self._pieces(ranges), ranges, stream=False))
        return max(0, total - self.options.offset)

    # ------------------------------------------------------------------- jobs

    def _find(self, job: tuple[BoundFragment, RowRange]) -> list[Hits]:
        bound, (start, stop) = job
        return list(self.search.find(bound, start, stop))

    def _work(self, job: tuple[BoundFragment, RowRange]) -> list[Iterable[Chunk]]:
        bound, (start, stop) = job
        return [self.columns(hits) for hits in self.search.find(bound, start, stop)]

    def _count(self, job: tuple[BoundFragment, RowRange]) -> int:
        bound, (start, stop) = job
        return sum(hits.count for hits in self.search.find(bound, start, stop))

    def _place(self, job: tuple[BoundFragment, RowRange]) -> list[tuple[int, NDArray[np.int64]]]:
        bound, (start, stop) = job
        return [(bound.fragment.id, hits.rows) for hits in self.search.find(bound, start, stop)]

    def columns(self, hits: Hits) -> Iterable[Chunk]:
        """Columns of some rows, in as many chunks as they need."""
        self.meter.count("rows_passed", hits.count)
        if not self.outputs:
            return [[pa.nulls(hits.count)]]
        with self.meter.step("columns"):
            return hits.chunks(self.outputs, late=self.late, deleted=self.search.deleted)

    def _limited(self) -> Iterator[Chunk]:
        if self.view.snapshot.manifest.num_fragments == 0:
            return
        for hits in self.hits():
            yield from self.columns(hits)

    # --------------------------------------------------------- small fragments

    def _parts(self) -> Iterable[SmallFragments | Sequence[FragmentRows]]:
        ranges = self._ranges()
        simple = not self.search.deleted and not self.view.projection.payloads
        if not ranges or not simple or not self._is_mapped(ranges):
            return [ranges]
        return find_small(self.view, ranges)

    def _small(self, part: SmallFragments) -> Chunk | None:
        cells = part.cells(self.view)
        if cells is None:
            return None
        self.meter.count("rows_scanned", cells.count)
        flags = self.search.passing(cells)
        mask = part.live_mask(self.view, flags)
        if not self.outputs:
            return [pa.nulls(mask.true_count)]
        try:
            # Values are computed of the rows that pass: others may be none they exist for.
            passing = cells.filtered(mask)
            return [passing.output(output) for output in self.outputs]
        except CapacityError:
            return None

    def _count_small(self, part: SmallFragments) -> int | None:
        cells = part.cells(self.view)
        if cells is None:
            return None
        return int(part.live_mask(self.view, self.search.passing(cells)).true_count)

    # ----------------------------------------------------------------- pieces

    def _ranges(self) -> Sequence[FragmentRows]:
        snapshot, search = self.view.snapshot, self.search
        if search.never:
            return ()
        return narrowed(snapshot, search, plan_searched(snapshot, self.options))

    def _is_mapped(self, ranges: Sequence[FragmentRows]) -> bool:
        return self.view.fragment(ranges[0].position).mapped

    def _pieces(
        self, ranges: Sequence[FragmentRows], rows: int | None = None
    ) -> Iterator[tuple[BoundFragment, RowRange]]:
        if rows is None:
            rows = _FOUND_ROWS if self.search.is_direct else _PIECE_ROWS
        for bound, (_, first, stop) in self._opened(ranges):
            start = first
            self.meter.count("fragments_scanned", 1)
            size = _PIECE_BYTES if bound.mapped else _FETCH_BYTES
            most = min(rows, size // max(1, row_bytes(bound)))
            most = max(_ALIGNED, most // _ALIGNED * _ALIGNED)
            while start < stop:
                pieces = -(-(stop - start) // most)
                end = stop if pieces == 1 else start + (stop - start) // pieces
                end = min(stop, -(-end // _ALIGNED) * _ALIGNED)
                yield bound, RowRange(start, end)
                start = end

    def _opened(
        self, ranges: Sequence[FragmentRows]
    ) -> Iterator[tuple[BoundFragment, tuple[int, int, int]]]:
        def bind(rows: FragmentRows) -> tuple[BoundFragment, tuple[int, int, int]]:
            bound = self.view.fragment(rows.position)
            bound.expect("sequential")
            return bound, (rows.position, rows.start, rows.stop)

        if not ranges or self._is_mapped(ranges):
            return map(bind, ranges)
        ahead = self.options.fragment_readahead or _AHEAD
        return ordered_map(bind, ranges, ahead=ahead, workers=settings.io_concurrency)

    def _run(
        self,
        work: Callable[[T], R],
        jobs: Iterable[T],
        ranges: Sequence[FragmentRows],
        *,
        stream: bool,
    ) -> Iterable[R]:
        """Apply ``work`` to jobs, on the threads that suit; results in order."""
        in_order = self.options.scan_in_order
        if not ranges:
            return []
        ahead = self.options.windows_ahead(_FETCH_BYTES, mapped=self._is_mapped(ranges))
        if not self._is_mapped(ranges):
            workers = settings.io_concurrency
            return ordered_map(
                work, jobs, ahead=ahead or _AHEAD, workers=workers, in_order=in_order
            )
        if sum(one.stop - one.start for one in ranges) <= _BUSY_ROWS:
            return map(work, jobs)
        if not stream:
            return gather(work, jobs)
        return ordered_map(work, jobs, ahead=ahead or worker_count() + 1, in_order=in_order)


def pick(view: View, search: Search, options: ScanOptions) -> Picked:
    """A scan with a filter, or with deleted rows."""
    named = options.late_materialization
    late: bool | frozenset[int] | None
    if isinstance(named, tuple):
        fields = view.projection.fields
        names = {view.snapshot.manifest.schema.find(name)[0].name for name in named}
        late = frozenset(at for at, one in enumerate(fields) if one.name in names)
    else:
        late = named
    return Picked(view, search, options, view.projection.outputs, late)
