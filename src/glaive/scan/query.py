"""A scan with its columns, filter and order worked out: run it, count it, or explain it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches
from glaive.io.stats import IOStats
from glaive.scan.filter.scan import Picked, pick
from glaive.scan.filter.search import Search
from glaive.scan.metrics import Meter, ScanStatistics
from glaive.scan.options import ScanOptions
from glaive.scan.plan import plan_scan
from glaive.scan.run.execute import as_table, pieces, read_table, rebatch, stream
from glaive.scan.run.order import ordered_table
from glaive.scan.system_columns import SYSTEM_COLUMNS
from glaive.scan.views import View, Views, bare_batch

if TYPE_CHECKING:
    from glaive.expr.filters import Filter

__all__ = ["Query", "make_query", "statistics"]

_log = logging.getLogger("glaive.scan")


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A scan that is ready to run, once or several times."""

    view: View
    options: ScanOptions
    filter: Filter | None = None
    inputs: tuple[str, ...] = field(default=())

    @property
    def picks(self) -> bool:
        """Whether rows have to be looked at, one way or another, to know which are returned."""
        options = self.options
        return bool(self.filter is not None or options.order_by or options.include_deleted_rows)

    def table(self, meter: Meter | None = None) -> pa.Table:
        """The whole result; its chunks are pages, or pieces of fragments."""
        run = _Run(self, meter)
        if not self.picks:
            found = read_table(self.view, self.options)
        elif self.options.order_by:
            found = ordered_table(self._picked(run.meter))
        else:
            chunks = list(self._picked(run.meter).chunks())
            if self.view.projection.outputs:
                found = as_table(self.view, [list(one) for one in zip(*chunks, strict=True)])
            else:
                found = self.view.rows_alone(sum(len(chunk[0]) for chunk in chunks))
        run.end(found.num_rows)
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The result in batches; in bounded memory, unless all of it must be sorted."""
        run = _Run(self, None)
        rows = 0
        found = self._stream(run.meter) if self.picks else stream(self.view, self.options)
        for batch in found:
            rows += batch.num_rows
            yield batch
        run.end(rows)

    def pieces(self, *, coded: bool = False) -> Iterator[pa.RecordBatch | pa.Table]:
        """The rows of a scan without filter and order, in the portions that are read.

        For ``coded`` see :func:`glaive.scan.run.execute.pieces`.
        """
        return pieces(self.view, self.options, coded=coded)

    def _stream(self, meter: Meter) -> Iterator[pa.RecordBatch]:
        picked, schema = self._picked(meter), self.view.schema
        if self.options.order_by:
            table = ordered_table(picked)
            size = self.options.batch_size
            batches = (
                batch.slice(start, size)
                for batch in join_batches(table)
                for start in range(0, batch.num_rows, size)
            )
        elif self.view.projection.outputs:
            batches = (
                pa.RecordBatch.from_arrays(chunk, schema=schema)
                for chunk in picked.chunks(stream=True)
            )
        else:
            batches = (bare_batch(len(chunk[0])) for chunk in picked.chunks(stream=True))
        return rebatch(batches, self.options)

    def count(self) -> int:
        """Rows of the result. Without filter, no data file is read."""
        options = self.options
        if self.filter is not None:
            return self._picked(Meter()).count()
        if options.include_deleted_rows:
            snapshot = self.view.snapshot
            positions = list(snapshot.positions_of(options.fragments))
            rows = max(0, int(snapshot.manifest.physical_rows[positions].sum()) - options.offset)
            return rows if options.limit is None else min(rows, options.limit)
        return plan_scan(self.view.snapshot, options).rows

    def places(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Where the rows of the result are; see :meth:`Picked.places`."""
        return self._picked(Meter()).places()

    def _picked(self, meter: Meter) -> Picked:
        options = self.options
        search = Search.of(
            self.filter,
            self.view.projection.inputs,
            statistics=options.use_stats,
            deleted=options.include_deleted_rows,
            meter=meter,
        )
        return pick(self.view, search, options)


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
        views = Views(views.snapshot.apart())
    found = None if options.filter is None else views.filter(options.filter)
    inputs = [] if found is None else list(found.columns)
    if not counting:
        schema = views.snapshot.manifest.schema
        for one in options.order_by:
            if one.column_name not in SYSTEM_COLUMNS:
                schema.find(one.column_name)
            inputs.append(one.column_name)
        if isinstance(options.late_materialization, tuple):
            for name in options.late_materialization:
                schema.find(name)
    view = views.scan(
        () if counting else options.columns,
        with_row_id=options.with_row_id and not counting,
        with_row_address=options.with_row_address and not counting,
        blobs=options.blobs,
        inputs=tuple(dict.fromkeys(inputs)),
    )
    return Query(view, options, found, tuple(inputs))


class _Run:
    """One run of a query, which ends with its statistics."""

    __slots__ = ("_before", "_query", "meter")

    def __init__(self, query: Query, meter: Meter | None) -> None:
        self._query = query
        self.meter = meter or Meter()
        self._before = query.view.snapshot.store.counters.snapshot()

    def end(self, rows: int) -> None:
        """Hand the statistics on; errors of the one who gets them are logged."""
        callback = self._query.options.scan_stats_callback
        if callback is None:
            return
        self.meter.count("output_rows", rows)
        after = self._query.view.snapshot.store.counters.snapshot()
        try:
            callback(statistics(self.meter, self._before, after))
        except Exception:
            _log.exception("scan_stats_callback failed")


def statistics(meter: Meter, before: IOStats, after: IOStats) -> ScanStatistics:
    """The figures between two readings of a store's counters."""
    reads = after.read_iops - before.read_iops
    return ScanStatistics(
        iops=reads,
        requests=reads,
        bytes_read=after.read_bytes - before.read_bytes,
        all_counts=dict(meter.counts),
        all_times=dict(meter.times),
    )
