"""A filtered scan: search rows on all cores, then make their columns.

Without limit, one job searches a window and makes the columns of its rows. With one, rows are
searched first, in the order of the dataset, so that columns are made of those only that are
returned, and nothing is looked at behind the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.scan.filter.prune import prune_ranges
from glaive.scan.filter.search import Search
from glaive.scan.filter.selection import Chunk, FragmentSelection, Late, Selection
from glaive.scan.plan import FragmentRows, plan_searched
from glaive.scan.projection import Computed, Output
from glaive.scan.run.parts import FragmentWindows, SearchedPart
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.table import as_table
from glaive.scan.small.fragments import cut_into_parts
from glaive.types import Int64s

if TYPE_CHECKING:  # scans without an index do not load them
    from glaive.scan.indexed.found import FoundRows

__all__ = ["FilteredScan"]

R = TypeVar("R")

_EARLY_ROWS: Final = 128 * 1024
"""Rows of a window where a limit may end the scan, or the first batch should come soon."""


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
        """The columns that the run of a search reads, of the rows that it finds."""
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
        """What is read, the options, and what was done so far."""
        return self.search.run

    def table(self) -> pa.Table:
        """The whole result, its chunks as they are made."""
        source, options = self.run.source, self.run.options
        if self.search.answers and options.limit is None and not options.offset:
            from glaive.scan.indexed.found import FoundRows

            match self._found():
                case [FoundRows() as found]:
                    return found.table()
        chunks = list(self.chunks())
        if not self.outputs:
            return source.rows_alone(sum(len(chunk[0]) for chunk in chunks))
        return as_table(source, list(map(list, zip(*chunks, strict=True))))

    def chunks(self, *, stream: bool = False) -> Iterator[Chunk]:
        """Columns of the rows, chunk by chunk; in bounded memory with ``stream``."""
        options = self.run.options
        if options.limit is not None or options.offset:
            for selection in self._limited():
                yield from self._columns(selection)
            return
        # The first batch of a stream should not wait for half a million rows.
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
        """Do something with each selection of rows, on the threads that search; in order.

        ``window_rows`` of mapped files are looked at at a time, at most; others are fetched in as
        few requests as ever.
        """
        whole = FragmentWindows(self._ranges())
        if not self.run.is_mapped(whole.ranges):
            window_rows = None
        return whole.filter(self.search, work, stream=stream, window_rows=window_rows)

    def row_ranges(self, *, stream: bool = False) -> Iterator[tuple[int, Int64s]]:
        """Id of each fragment with rows that pass, and these, physical and ascending.

        A fragment may come several times, with rows behind those before. Limit and offset are
        not regarded. With ``stream`` few of them are made ahead.
        """

        def ranges_of(selection: Selection) -> list[tuple[int, Int64s]]:
            return list(selection.row_ranges())

        for part in self._parts():
            for ranges in part.filter(self.search, ranges_of, stream=stream):
                yield from ranges

    def count(self) -> int:
        """Rows, limit and offset regarded; reads what the filter needs only."""
        if self.run.options.limit is not None:
            return sum(selection.count for selection in self._limited())
        counts = (part.filter(self.search, lambda some: some.count) for part in self._parts())
        return max(0, sum(map(sum, counts)) - self.run.options.offset)

    def _columns(self, selection: Selection) -> Iterable[Chunk]:
        """Columns of some rows, in as many chunks as they need."""
        meter = self.run.meter
        meter.count("rows_passed", selection.count)
        if not self.outputs:
            return [[pa.nulls(selection.count)]]
        with meter.step("columns"):
            return selection.chunks(self.outputs, late=self.late)

    def _limited(self) -> Iterator[FoundRows | FragmentSelection]:
        """The rows, in order, within limit and offset; columns are not made."""
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
        """The parts where indices answer a term of the filter, with few rows."""
        if not self.search.answers or self.outputs is not self.run.source.projection.outputs:
            return None
        from glaive.scan.indexed.found import found_parts

        return found_parts(self.search)

    def _parts(self) -> Sequence[SearchedPart]:
        found = self._found()
        if found is not None:
            return found
        ranges = self._ranges()
        if self.search.deleted or self.search.answers:
            return [FragmentWindows(ranges)]
        return cut_into_parts(self.run, ranges)
