"""A scan that returns the rows whose vectors are nearest to a query.

Rows are searched first, then filtered (unless the filter came first), then put into an order,
and cut by limit and offset; columns are taken of those that remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.scan.filter.scan import FilteredScan
from glaive.scan.filter.search import Search
from glaive.scan.found_columns import FoundColumns, FoundValues
from glaive.scan.indexed.steps import index_steps
from glaive.scan.indices import SnapshotIndices
from glaive.scan.metrics import Meter
from glaive.scan.nearest.allowed import AllowedRows
from glaive.scan.nearest.choice import ChosenIndex, choose_index
from glaive.scan.nearest.effort import effort_of
from glaive.scan.nearest.exact import ExactSearch
from glaive.scan.nearest.indexed import IndexSearch
from glaive.scan.nearest.options import NearestOptions
from glaive.scan.nearest.rescore import rescore
from glaive.scan.nearest.result import added_columns, check_known
from glaive.scan.nearest.top import Found
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.nearest.vectors import vector_type
from glaive.scan.options import ScanOptions
from glaive.scan.plan import plan_searched
from glaive.scan.reporting import report
from glaive.scan.run.compare import sorted_rows
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.run.stream import rebatch
from glaive.scan.system_columns import ROW_ID
from glaive.scan.take import take_physical
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.expr.filters import Filter

__all__ = ["NearestScan"]

_FEW_ALLOWED: Final = 1000
"""Rows that pass a filter up to which comparing their vectors is quicker than an index."""

_CANDIDATES_OF_SEVERAL: Final = 4
"""Rows that an index is asked for by each vector of a query, for each that is wanted."""


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
    index
        What is searched with; None: every vector is compared.
    columns
        Of the result.
    prefilter, postfilter
        What rows have to pass to be searched, and after they were found.
    """

    views: Views
    options: ScanOptions
    nearest: NearestOptions
    query: VectorQuery
    index: ChosenIndex | None
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
        if nearest.metric is not None:
            kind.check_metric(nearest.metric, name)
        field = views.snapshot.manifest.schema.find(name)[-1]
        index = choose_index(views.snapshot, field.id, kind, nearest)
        if index is not None:
            nearest = index.with_defaults(nearest)
        metric = nearest.metric or (index.metric if index else kind.default_metric)
        low, high = nearest.distance_range
        query = VectorQuery(kind, queries, metric, nearest.count(options.limit), low, high)
        batch = nearest.query.ndim == 2 and not kind.several
        added = added_columns(views, batch=batch)
        columns = FoundColumns.of(views, options, added)
        for order in options.order_by:
            check_known(views, order.column_name, added)
        prefilter = postfilter = None
        if options.filter is not None and options.prefilter:
            prefilter = views.filter(options.filter)
        elif options.filter is not None:
            from glaive.expr.filters import bind_filter

            source, schema = options.filter, views.snapshot.manifest.schema
            postfilter = bind_filter(source, schema, system=added.types)  # type: ignore[arg-type]  # it checks
        return cls(views, options, nearest, query, index, columns, prefilter, postfilter)

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
            lines += index_steps(self.views.snapshot, options, self.prefilter)
        return lines

    def _search_steps(self) -> list[str]:
        lines = []
        options: ScanOptions | None = self.options
        if self.index is not None:
            options = self._rest()
            if self._rescores:
                lines.append(f"true distances: {self._candidates} rows found by the index")
            for segment, opened in self.index.segments:
                count = len(opened.partitions)
                effort = effort_of(self.nearest, self.query.count, None, opened.metric, count)
                first = "" if effort.first == effort.most else f"about {effort.first} to "
                lines.append(
                    f"index {self.index.name}: segment {UUID(bytes=segment.entry.uuid.uuid)}, "
                    f"{first}{effort.most} of {count} partitions, "
                    f"{opened.num_rows} rows [ANNSubIndex, ANNIvfPartition]"
                )
        if options is not None and not (self.index is None and options.fast_search):
            ranges = plan_searched(self.views.snapshot, options)
            rows = sum(stop - start for _, start, stop in ranges)
            column = self.nearest.column
            lines.append(
                f"exact search: {column}, {rows} rows of {len(ranges)} fragments "
                "[KNNVectorDistance]"
            )
        return lines

    def table(self, meter: Meter | None = None) -> pa.Table:
        """The rows that were found."""
        meter = meter or Meter()
        snapshot = self.views.snapshot
        before = snapshot.store.counters.snapshot()
        found = self._found(meter)
        with meter.step("columns"):
            table = self.columns.table(found, meter)
        report(snapshot, self.options, meter, before, table.num_rows)
        return table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that were found, in batches; all are searched before the first."""
        from glaive.arrow.chunked import join_batches

        yield from rebatch(join_batches(self.table()), self.options)

    def count(self, meter: Meter | None = None) -> int:
        """Rows of the result."""
        return self._found(meter or Meter()).size

    def _found(self, meter: Meter) -> Found:
        """The rows of the result, in its order."""
        options = self.options
        with meter.step("search"):
            found = self._search(meter)
        meter.count("rows_found", found.size)
        if self.postfilter is not None and found.size:
            with meter.step("filter"):
                values = FoundValues.of(self.views, self.postfilter.columns, self.columns.added)
                mask = self.postfilter.mask(values.batch(found, meter))
                found = found.take(np.asarray(mask.to_numpy(zero_copy_only=False)))
        if options.order_by and found.size:
            with meter.step("sort"):
                names = [order.column_name for order in options.order_by]
                values = FoundValues.of(self.views, names, self.columns.added)
                batch = values.batch(found, meter)
                columns = [batch.column(name) for name in names]
                found = found.take(sorted_rows(columns, options.order_by))
        stop = None if options.limit is None else options.offset + options.limit
        if options.offset or stop is not None:
            found = found.take(np.arange(found.size)[options.offset : stop])
        return found

    def _search(self, meter: Meter) -> Found:
        top = self.query.top()
        if self.index is None:
            if not self.options.fast_search:
                self._exact(self.options, meter).find(top)
            return top.result()
        allowed = self._allowed(meter)
        rest = self._rest()
        source = self.views.scan((self.nearest.column,))
        if allowed is not None and allowed.count <= max(_FEW_ALLOWED, self.query.count):
            rescore(source, self.query, self._all_of(allowed), top, meter, finite=True)
            if rest is not None:
                self._exact(rest, meter).find(top)
            return top.result()
        search = IndexSearch(
            indices=SnapshotIndices.of(self.views.snapshot),
            segments=self.index.segments,
            query=self.query,
            options=self.nearest,
            candidates=self._candidates,
            allowed=allowed,
            applies_range=not self.query.kind.several
            and not (self._rescores and self.query.metric == "cosine"),
            meter=meter,
        )
        found = search.find()
        if self.query.kind.several:
            found = found.without_repeats()
        if self._rescores:
            rescore(source, self.query, found, top, meter)
        elif rest is None and not self.query.kind.several:
            return found
        else:
            top.add(found)
        if rest is not None:
            self._exact(rest, meter).find(top)
        return top.result()

    @property
    def _candidates(self) -> int:
        """Rows that an index is asked for, for each query vector."""
        wanted = self.query.count * (self.nearest.refine_factor or 1)
        return wanted * _CANDIDATES_OF_SEVERAL if self.query.kind.several else wanted

    @property
    def _rescores(self) -> bool:
        """Whether true distances of the index's rows are wanted: to compare them with others."""
        wanted = self.nearest.refine_factor is not None or self.query.kind.several
        return wanted or self._rest() is not None

    def _rest(self) -> ScanOptions | None:
        """A scan of the fragments that the index does not cover; None: there are none."""
        if self.index is None or self.options.fast_search:
            return None
        manifest = self.views.snapshot.manifest
        ids = manifest.fragment_ids.tolist()
        if self.options.fragments is not None:
            ids = list(self.options.fragments)
        rest = tuple(one for one in ids if one not in self.index.fragments)
        return replace(self.options, fragments=rest) if rest else None

    def _allowed(self, meter: Meter) -> AllowedRows | None:
        """The rows of indexed fragments that are searched; None: all."""
        options = self.options
        restricted = options.fragments is not None or options.range_before is not None
        if self.index is None or not (self.prefilter is not None or restricted):
            return None
        ids = self.views.snapshot.manifest.fragment_ids.tolist()
        wanted = ids if options.fragments is None else options.fragments
        covered = tuple(one for one in wanted if one in self.index.fragments)
        position = self.views.snapshot.manifest.position_of
        with meter.step("prefilter"):
            passed = self._passing(replace(options, fragments=covered), meter).row_ranges()
            return AllowedRows((position(fragment), rows) for fragment, rows in passed)

    def _all_of(self, allowed: AllowedRows) -> Found:
        """All rows that are allowed, for each query."""
        fragment, row = allowed.pairs()
        source = self.views.scan((), with_row_id=True)
        key = take_physical(source, fragment, row).column(0).to_numpy().astype(np.uint64)
        times = self.query.answers
        query = np.repeat(np.arange(times, dtype=np.int32), len(row))
        far = np.zeros(len(query), np.float32)
        return Found(query, far, np.tile(key, times), np.tile(fragment, times), np.tile(row, times))

    def _exact(self, options: ScanOptions, meter: Meter) -> ExactSearch:
        """The search that looks at all vectors of some fragments."""
        column = self.nearest.column
        scan = self._passing(options, meter, column, ROW_ID)
        return ExactSearch(scan, scan.run.source.projection.inputs[column], self.query)

    def _passing(self, options: ScanOptions, meter: Meter, *columns: str) -> FilteredScan:
        """The rows of some fragments that pass the filter, if it comes first."""
        inputs = () if self.prefilter is None else self.prefilter.columns
        source = self.views.scan((), inputs=tuple(dict.fromkeys((*inputs, *columns))))
        rows = replace(options, limit=None, offset=0, order_by=(), late_materialization=None)
        return FilteredScan.of(Search.of(ScanRun(source, rows, meter), self.prefilter))
