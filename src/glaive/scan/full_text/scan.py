"""A scan that returns the rows whose texts match a query, the best first.

Rows are searched first, then filtered (unless the filter came first), then put into an order,
and cut by limit and offset; columns are taken of those that remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.index.text.term_search import Hits
from glaive.scan.found_columns import FoundColumns, FoundValues
from glaive.scan.full_text.column import TextColumn
from glaive.scan.full_text.queries import FullTextQuery, MatchQuery, PhraseQuery
from glaive.scan.full_text.result import ADDED, SCORE, ScoredRows
from glaive.scan.full_text.search import TextSearch
from glaive.scan.full_text.text_query import TextQuery
from glaive.scan.indexed.steps import index_steps
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.reporting import counters_before, report
from glaive.scan.run.compare import sorted_rows
from glaive.scan.run.stream import rebatch
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.expr.filters import Filter

__all__ = ["FullTextScan"]


@dataclass(frozen=True, slots=True, eq=False)
class FullTextScan:
    """A search that is ready to run, once or several times.

    Parameters
    ----------
    views
        The version that is searched.
    options
        Of the scan.
    query
        What is searched for.
    columns
        Of the result.
    postfilter
        What rows that were found have to pass.
    """

    views: Views
    options: ScanOptions
    query: FullTextQuery
    columns: FoundColumns
    postfilter: Filter | None

    @classmethod
    def of(cls, views: Views, options: ScanOptions, query: FullTextQuery) -> FullTextScan:
        """Work out the columns of the query, those of the result, and the filter.

        Raises
        ------
        OptionError
            A column cannot be searched.
        ColumnNotFoundError, FilterError
            A column does not exist, or the filter cannot be understood.
        """
        schema = views.snapshot.manifest.schema
        for column in _columns_of(query, TextSearch(views, options, None, Meter())):
            TextColumn.of(views.snapshot, column)
        for order in options.order_by:
            if order.column_name not in ADDED.types:
                schema.find(order.column_name)
        postfilter = None
        if options.filter is not None and options.prefilter:
            views.filter(options.filter)
        elif options.filter is not None:
            from glaive.expr.filters import bind_filter

            postfilter = bind_filter(options.filter, schema, system=ADDED.types)  # type: ignore[arg-type]  # it checks
        return cls(views, options, query, FoundColumns.of(views, options, ADDED), postfilter)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return self.columns.schema

    def steps(self) -> list[str]:
        """What is going to be done, the last step first."""
        options = self.options
        lines = [f"columns: {', '.join(self.schema.names) or 'none'}"]
        if options.order_by:
            lines.append(f"sort: {', '.join(order.column_name for order in options.order_by)}")
        if self.postfilter is not None:
            lines.append(f"filter of the rows found: {self.postfilter.text}")
        best = "all rows" if self._most is None else f"the best {self._most} rows"
        kind = MatchQuery if isinstance(self.query, TextQuery) else type(self.query)
        lines.append(f"full-text search: {self.query!r}, {best} by {SCORE} [{kind.__name__}]")
        lines += self._column_steps()
        if options.filter is not None and options.prefilter:
            condition = self.views.filter(options.filter)
            lines.append(f"filter of the rows searched: {condition.text}")
            lines += index_steps(self.views.snapshot, options, condition)
        return lines

    def _column_steps(self) -> Iterator[str]:
        """By which index each column is searched, and for how many fragments there is none."""
        search = TextSearch(self.views, self.options, None, Meter())
        for path in _columns_of(self.query, search):
            column = search.column(path)
            fragments = self.views.snapshot.manifest.num_fragments
            name = "no index" if column.index is None else f"index {column.index.name}"
            covered = len(column.covered)
            rest = "left out" if self.options.fast_search else "read"
            yield (
                f"column {path}: {name} of {covered} fragments; "
                f"{fragments - covered} fragments {rest}"
            )

    @property
    def _most(self) -> int | None:
        """Rows that are searched for; None: all that match."""
        options = self.options
        return None if options.limit is None else options.offset + options.limit

    def table(self, meter: Meter | None = None) -> pa.Table:
        """The rows that were found."""
        meter = meter or Meter()
        snapshot = self.views.snapshot
        before = counters_before(snapshot, self.options)
        found = self._found(meter)
        with meter.step("columns"):
            table = self.columns.table(ScoredRows(found), meter)
        report(snapshot, self.options, meter, before, table.num_rows)
        return table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that were found, in batches; all are searched before the first."""
        from glaive.arrow.chunked import join_batches

        yield from rebatch(join_batches(self.table()), self.options)

    def count(self, meter: Meter | None = None) -> int:
        """Rows of the result."""
        return len(self._found(meter or Meter()).rows)

    def _found(self, meter: Meter) -> Hits:
        """The rows of the result, in its order."""
        options = self.options
        prefilter = options.filter if options.prefilter else None
        with meter.step("search"):
            search = TextSearch(self.views, options, prefilter, meter)
            found = search.hits(self.query, self._most).best(self._most)
        meter.count("rows_found", len(found.rows))
        if self.postfilter is not None and len(found.rows):
            with meter.step("filter"):
                values = FoundValues.of(self.views, self.postfilter.columns, ADDED)
                mask = self.postfilter.mask(values.batch(ScoredRows(found), meter))
                kept = np.asarray(mask.to_numpy(zero_copy_only=False))
                found = Hits(found.rows[kept], found.scores[kept])
        if options.order_by and len(found.rows):
            with meter.step("sort"):
                names = [order.column_name for order in options.order_by]
                values = FoundValues.of(self.views, names, ADDED)
                batch = values.batch(ScoredRows(found), meter)
                order = sorted_rows([batch.column(name) for name in names], options.order_by)
                found = Hits(found.rows[order], found.scores[order])
        if not options.offset and len(found.rows) <= (options.limit or 0):
            return found
        return Hits(
            found.rows[options.offset : self._most], found.scores[options.offset : self._most]
        )


def _columns_of(query: FullTextQuery, search: TextSearch) -> list[str]:
    """Paths of the columns that are searched."""
    paths = list(search.columns_of(query)) if isinstance(query, TextQuery) else []
    for leaf in query.leaves():
        if isinstance(leaf, MatchQuery | PhraseQuery):
            paths.append(leaf.column)
        else:
            paths += leaf.columns
    return list(dict.fromkeys(paths))
