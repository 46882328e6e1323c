"""A scan with its columns, filter and order worked out: run it, count it, or explain it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches
from glaive.dataclass import NamedTuple, dataclass
from glaive.io.store import IOStats
from glaive.process import EXECUTION, anyone_listens, emit
from glaive.scan.options import TO_WRITE_AGAIN, UNREAD_METER, Meter, ScanOptions, ScanStatistics
from glaive.scan.plan import plan_scan
from glaive.scan.projection import SYSTEM_COLUMNS
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.stream import read_table, rebatch, stream, tables
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import BoundProjection, Views, bare_batch

if TYPE_CHECKING:
    from glaive.expr.filters import Filter
    from glaive.scan.filter_scan import FilteredScan
    from glaive.scan.nearest.options import NearestOptions
    from glaive.scan.ranked import RankedScan


# --- What a scan or a search did, handed to who asked for it ----------------------------

_log = logging.getLogger("glaive.scan")


class Reading(NamedTuple):
    """The counters of a store and of a cache of indices at one time."""

    store: IOStats
    indices: int
    parts: int
    hits: int
    misses: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Reading:
        """Read the counters of a version."""
        cache = snapshot.session.index_cache
        counts = cache.opened, cache.loaded, cache.hits, cache.misses
        return cls(snapshot.store.counters.snapshot(), *counts)


_NOBODY_ASKS = Reading(IOStats(), 0, 0, 0, 0)


def meter_for(options: ScanOptions) -> Meter:
    """A meter for a scan, for :func:`report`; one that counts nothing where nobody asks."""
    if options.scan_stats_callback is None and not anyone_listens():
        return UNREAD_METER
    return Meter()


def counters_before(snapshot: Snapshot, options: ScanOptions) -> Reading:
    """The counters before a scan, for :func:`report`; all 0 where nobody asks."""
    if options.scan_stats_callback is None and not anyone_listens():
        return _NOBODY_ASKS
    return Reading.of(snapshot)


def report(
    snapshot: Snapshot, options: ScanOptions, meter: Meter, before: Reading, rows: int
) -> None:
    """Call ``scan_stats_callback``, if there is one; its errors are logged.

    Parameters
    ----------
    before
        The counters when the scan began.
    rows
        Of the result.
    """
    callback = options.scan_stats_callback
    if callback is None and not anyone_listens():
        return
    meter.count("output_rows", rows)
    figures = statistics(meter, before, Reading.of(snapshot))
    emit(
        EXECUTION,
        type="plan_run",
        output_rows=rows,
        iops=figures.iops,
        requests=figures.requests,
        bytes_read=figures.bytes_read,
        indices_loaded=figures.indices_loaded,
        parts_loaded=figures.parts_loaded,
        index_comparisons=figures.index_comparisons,
    )
    if callback is None:
        return
    try:
        callback(figures)
    except Exception:
        _log.exception("scan_stats_callback failed")


def statistics(meter: Meter, before: Reading, after: Reading) -> ScanStatistics:
    """The figures between two readings of the counters."""
    reads = after.store.read_iops - before.store.read_iops
    counts = meter.counts
    return ScanStatistics(
        iops=reads,
        requests=reads,
        bytes_read=after.store.read_bytes - before.store.read_bytes,
        indices_loaded=after.indices - before.indices,
        parts_loaded=after.parts - before.parts,
        index_cache_hits=after.hits - before.hits,
        index_cache_misses=after.misses - before.misses,
        index_comparisons=counts["rows_compared"] + counts["index_comparisons"],
        all_counts=dict(counts),
        all_times=dict(meter.times),
    )


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
        """Whether rows have to be looked at, one way or another, to know which are returned."""
        options = self.options
        return bool(self.filter is not None or options.order_by or options.include_deleted_rows)

    def table(self, meter: Meter | None = None) -> pa.Table:
        """The whole result; its chunks are pages, or windows of fragments."""
        run, before = self._run(meter), self._counters()
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
        """The result in batches; in bounded memory, unless all of it must be sorted."""
        run, before = self._run(None), self._counters()
        rows = 0
        for batch in self._stream(run) if self.is_searched else stream(run):
            rows += batch.num_rows
            yield batch
        self._report(run, before, rows)

    def tables(self) -> Iterator[pa.RecordBatch | pa.Table]:
        """The rows of a scan without filter and order, in the portions that are read."""
        return tables(self._run(None))

    def count(self, meter: Meter | None = None) -> int:
        """Rows of the result. Without filter, no data file is read."""
        options = self.options
        if self.filter is not None:
            return self._filtered(self._run(meter)).count()
        if options.include_deleted_rows:
            snapshot = self.source.snapshot
            positions = list(snapshot.positions_of(options.fragments))
            rows = max(0, int(snapshot.manifest.physical_rows[positions].sum()) - options.offset)
            return rows if options.limit is None else min(rows, options.limit)
        return plan_scan(self.source.snapshot, options).rows

    def row_ranges(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Where the rows of the result are, few at a time; see :meth:`FilteredScan.row_ranges`."""
        return self._filtered(self._run(None)).row_ranges(stream=True)

    def _run(self, meter: Meter | None) -> ScanRun:
        return ScanRun(self.source, self.options, meter or meter_for(self.options))

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

    def _counters(self) -> Reading:
        return counters_before(self.source.snapshot, self.options)

    def _report(self, run: ScanRun, before: Reading, rows: int) -> None:
        report(self.source.snapshot, self.options, run.meter, before, rows)


def make_query(views: Views, options: ScanOptions, *, counting: bool = False) -> Query:
    """Work out the columns, the filter and the order of a scan.

    With ``counting`` only columns that the filter needs are read.

    Raises
    ------
    ColumnNotFoundError
        A column does not exist; the message names the closest ones.
    FilterError
        The filter, or an expression, cannot be understood.
    """
    if not options.use_cache or options.scan_stats_callback is not None:
        comparing = options.blob_handling == TO_WRITE_AGAIN
        apart = views.snapshot.apart(comparing=comparing, shares_indices=options.use_cache)
        views = Views(apart)
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


def ready_scan(views: Views, options: ScanOptions, *, counting: bool = False) -> Query | RankedScan:
    """Make a scan of any kind ready to run: a scan of rows, or a search; see :func:`make_query`."""
    if options.nearest is None and options.full_text_query is None:
        return make_query(views, options, counting=counting)
    if not options.use_cache or options.scan_stats_callback is not None:
        views = Views(views.snapshot.apart(shares_indices=options.use_cache))
    if options.full_text_query is not None:
        from glaive.scan.text_search import FullTextScan

        return FullTextScan.of(views, options, options.full_text_query)
    from glaive.scan.nearest.options import MinHashQuery

    if isinstance(options.nearest, MinHashQuery):
        from glaive.scan.nearest.minhash_scan import MinHashScan

        return MinHashScan.of(views, options, options.nearest)
    from glaive.scan.nearest.scan import NearestScan

    return NearestScan.of(views, options, cast("NearestOptions", options.nearest))
