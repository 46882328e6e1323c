"""A scan whose columns, filter and order are known: run it, count it, or explain it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches
from glaive.dataclass import dataclass
from glaive.scan.options import REWRITE_BLOBS, Meter, Reading, ScanOptions, report
from glaive.scan.plan import plan_scan
from glaive.scan.projection import SYSTEM_COLUMNS
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.stream import read_table, rebatch, stream, tables
from glaive.scan.views import BoundProjection, Views, bare_batch

if TYPE_CHECKING:
    from glaive.expr.filters import Filter
    from glaive.scan.filter_scan import FilteredScan


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A scan that is ready to run, once or several times."""

    source: BoundProjection
    options: ScanOptions
    filter: Filter | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return self.source.schema

    @property
    def is_searched(self) -> bool:
        """Whether rows have to be searched to know which are returned."""
        options = self.options
        return bool(self.filter is not None or options.order_by or options.include_deleted_rows)

    def table(self, meter: Meter | None = None) -> pa.Table:
        """Return the whole result; its chunks are pages, or windows of fragments."""
        run, before = self._run(meter), Reading.of(self.source.snapshot)
        if not self.is_searched:
            table = read_table(run)
        elif self.options.order_by:
            from glaive.scan.run.order import ordered_table

            table = ordered_table(self._filtered(run))
        else:
            table = self._filtered(run).table()
        self._report(run, before, table.num_rows)
        return table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the result in batches; in bounded memory, unless all of it must be sorted."""
        run, before = self._run(None), Reading.of(self.source.snapshot)
        rows = 0
        for batch in self._stream(run) if self.is_searched else stream(run):
            rows += batch.num_rows
            yield batch
        self._report(run, before, rows)

    def tables(self) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield the rows of an unfiltered, unordered scan, in the portions that are read."""
        return tables(self._run(None))

    def count(self, meter: Meter | None = None) -> int:
        """Count the rows of the result. An unfiltered scan reads only the manifest."""
        options = self.options
        if self.filter is not None:
            run = self._run(meter)
            counted = None
            if self.source.snapshot.manifest.index_section is not None:
                from glaive.scan.indexed import count_by_index

                counted = count_by_index(
                    self.source.snapshot, options, self.filter.terms, run.meter
                )
            if counted is None:
                return self._filtered(run).count()
            rows = max(0, counted - options.offset)
            return rows if options.limit is None else min(rows, options.limit)
        if options.include_deleted_rows:
            snapshot = self.source.snapshot
            positions = list(snapshot.positions_of(options.fragments))
            rows = max(0, int(snapshot.manifest.physical_rows[positions].sum()) - options.offset)
            return rows if options.limit is None else min(rows, options.limit)
        return plan_scan(self.source.snapshot, options).rows

    def row_ranges(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the rows of the result, few at a time; see :meth:`FilteredScan.row_ranges`."""
        return self._filtered(self._run(None)).row_ranges(stream=True)

    def _run(self, meter: Meter | None) -> ScanRun:
        return ScanRun(self.source, self.options, meter or Meter())

    def _filtered(self, run: ScanRun) -> FilteredScan:
        from glaive.scan.filter_scan import FilteredScan
        from glaive.scan.filter_search import Search

        return FilteredScan.of(Search.of(run, self.filter))

    def _stream(self, run: ScanRun) -> Iterator[pa.RecordBatch]:
        scan, schema = self._filtered(run), self.source.schema
        if self.options.order_by:
            from glaive.scan.run.order import ordered_table

            table = ordered_table(scan)
            size = self.options.batch_size
            batches = (
                batch.slice(start, size)
                for batch in join_batches(table)
                for start in range(0, batch.num_rows, size)
            )
        elif self.source.projection.outputs:
            batches = (
                pa.RecordBatch.from_arrays(chunk, schema=schema)
                for chunk in scan.chunks(stream=True)
            )
        else:
            batches = (bare_batch(len(chunk[0])) for chunk in scan.chunks(stream=True))
        return rebatch(batches, self.options)

    def _report(self, run: ScanRun, before: Reading, rows: int) -> None:
        report(self.source.snapshot, self.options, run.meter, before, rows)


def make_query(views: Views, options: ScanOptions, *, counting: bool = False) -> Query:
    """Resolve the columns, the filter and the order of a scan.

    With ``counting`` only columns that the filter needs are read.

    Raises
    ------
    ColumnNotFoundError
        A column does not exist; the message names the closest ones.
    FilterError
        The filter, or an expression, is invalid.
    """
    if not options.use_cache or options.scan_stats_callback is not None:
        comparing = options.blob_handling == REWRITE_BLOBS
        private = views.snapshot.private(comparing=comparing, shares_indices=options.use_cache)
        views = Views(private)
    condition = None if options.filter is None else views.filter(options.filter)
    inputs = [] if condition is None else list(condition.columns)
    if not counting:
        schema = views.snapshot.manifest.schema
        for order in options.order_by:
            if order.column_name not in SYSTEM_COLUMNS:
                schema.find(order.column_name)
            inputs.append(order.column_name)
        if isinstance(options.late_materialization, tuple):
            for name in options.late_materialization:
                schema.find(name)
    source = views.scan(
        () if counting else options.columns,
        with_row_id=options.with_row_id and not counting,
        with_row_address=options.with_row_address and not counting,
        blobs=options.blobs,
        inputs=tuple(dict.fromkeys(inputs)),
    )
    return Query(source, options, condition)
