"""A scan that returns the rows whose vectors are nearest to a query.

Rows are searched first, then filtered (unless the filter came first), then put into an order,
and cut by limit and offset; columns are taken of those that remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from glaive.scan.filter.scan import FilteredScan
from glaive.scan.filter.search import Search
from glaive.scan.metrics import Meter
from glaive.scan.nearest.exact import ExactSearch
from glaive.scan.nearest.options import NearestOptions
from glaive.scan.nearest.result import FoundColumns, SearchedValues, check_known, search_columns
from glaive.scan.nearest.top import Found
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.nearest.vectors import vector_type
from glaive.scan.options import ScanOptions
from glaive.scan.plan import plan_searched
from glaive.scan.run.compare import sorted_rows
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.stream import rebatch
from glaive.scan.system_columns import ROW_ID
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.expr.filters import Filter

__all__ = ["NearestScan"]


@dataclass(frozen=True, slots=True, eq=False)
class NearestScan:
    """A search that is ready to run, once or several times.

    Parameters
    ----------
    views
        The version that is searched.
    options
        Of the scan.
    nearest
        Of the search.
    query
        What is searched for.
    columns
        Of the result.
    prefilter, postfilter
        What rows have to pass to be searched, and after they were found.
    """

    views: Views
    options: ScanOptions
    nearest: NearestOptions
    query: VectorQuery
    columns: FoundColumns
    prefilter: Filter | None
    postfilter: Filter | None

    @classmethod
    def of(cls, views: Views, options: ScanOptions, nearest: NearestOptions) -> NearestScan:
        """Work out the column, the query, the columns of the result and the filter.

        Raises
        ------
        OptionError
            The column has no vectors, or the query does not fit them.
        ColumnNotFoundError, FilterError
            A column does not exist, or the filter cannot be understood.
        """
        name = nearest.column
        kind = vector_type(views.snapshot.manifest.schema.find(name)[-1].to_arrow(), name)
        queries = kind.queries(nearest.query, name)
        metric = nearest.metric or kind.default_metric
        kind.check_metric(metric, name)
        low, high = nearest.distance_range
        query = VectorQuery(kind, queries, metric, nearest.count(options.limit), low, high)
        batch = nearest.query.ndim == 2 and not kind.several
        columns = FoundColumns.of(views, options, batch=batch)
        for order in options.order_by:
            check_known(views, order.column_name, batch=batch)
        prefilter = postfilter = None
        if options.filter is not None and options.prefilter:
            prefilter = views.filter(options.filter)
        elif options.filter is not None:
            from glaive.expr.filters import bind_filter

            source, schema = options.filter, views.snapshot.manifest.schema
            postfilter = bind_filter(source, schema, system=search_columns(batch=batch))  # type: ignore[arg-type]  # it checks
        return cls(views, options, nearest, query, columns, prefilter, postfilter)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return self.columns.schema

    def steps(self) -> list[str]:
        """What is going to be done, the last step first."""
        options, query = self.options, self.query
        lines = [f"columns: {', '.join(self.schema.names) or 'none'}"]
        if options.limit is not None or options.offset:
            limit = "none" if options.limit is None else options.limit
            lines.append(f"limit: {limit}, offset: {options.offset}")
        if options.order_by:
            lines.append(f"sort: {', '.join(order.column_name for order in options.order_by)}")
        if self.postfilter is not None:
            lines.append(f"filter of the rows found: {self.postfilter.text}")
        several = f" for each of {query.answers} queries" if query.answers > 1 else ""
        lines.append(f"nearest: {query.count} rows{several} by {query.metric}")
        lines += self._search_steps()
        if self.prefilter is not None:
            lines.append(f"filter of the rows searched: {self.prefilter.text}")
        return lines

    def _search_steps(self) -> list[str]:
        ranges = plan_searched(self.views.snapshot, self.options)
        rows = sum(stop - start for _, start, stop in ranges)
        return [f"exact search: {self.nearest.column}, {rows} rows of {len(ranges)} fragments"]

    def table(self, meter: Meter | None = None) -> pa.Table:
        """The rows that were found."""
        meter = meter or Meter()
        found = self._found(meter)
        with meter.step("columns"):
            return self.columns.table(found, meter)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that were found, in batches; all are searched before the first."""
        from glaive.arrow.chunked import join_batches

        yield from rebatch(join_batches(self.table()), self.options)

    def count(self, meter: Meter | None = None) -> int:
        """Rows of the result."""
        return len(self._found(meter or Meter()))

    def _found(self, meter: Meter) -> Found:
        """The rows of the result, in its order."""
        options = self.options
        with meter.step("search"):
            found = self._search(meter)
        meter.count("rows_found", found.size)
        if self.postfilter is not None and found.size:
            with meter.step("filter"):
                values = SearchedValues.of(self.views, self.postfilter.columns)
                mask = self.postfilter.mask(values.batch(found, meter))
                found = found.take(np.asarray(mask.to_numpy(zero_copy_only=False)))
        if options.order_by and found.size:
            with meter.step("sort"):
                names = [order.column_name for order in options.order_by]
                batch = SearchedValues.of(self.views, names).batch(found, meter)
                columns = [batch.column(name) for name in names]
                found = found.take(sorted_rows(columns, options.order_by))
        stop = None if options.limit is None else options.offset + options.limit
        if options.offset or stop is not None:
            found = found.take(np.arange(found.size)[options.offset : stop])
        return found

    def _search(self, meter: Meter) -> Found:
        top = self.query.top()
        self._exact(self.options, meter).find(top)
        return top.result()

    def _exact(self, options: ScanOptions, meter: Meter) -> ExactSearch:
        """The search that looks at all vectors of some fragments."""
        column = self.nearest.column
        inputs = () if self.prefilter is None else self.prefilter.columns
        source = self.views.scan((), inputs=tuple(dict.fromkeys((*inputs, column, ROW_ID))))
        rows = replace(options, limit=None, offset=0, order_by=(), late_materialization=None)
        search = Search.of(ScanRun(source, rows, meter), self.prefilter)
        return ExactSearch(FilteredScan.of(search), source.projection.inputs[column], self.query)
