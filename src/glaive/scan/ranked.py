"""A search whose rows come by distance or score: what becomes of the rows that it found.

They are filtered (unless the filter came first), then put into an order, and cut by limit and
offset; columns are taken of those that remain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import as_numpy
from glaive.dataclass import dataclass
from glaive.scan.found_columns import AddedColumns, FoundColumns, FoundRows, FoundValues
from glaive.scan.indexed.steps import (
    PlanStep,
    index_steps,
    listed,
    projection_step,
    read_step,
)
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.reporting import counters_before, meter_for, report
from glaive.scan.run.compare import sorted_rows
from glaive.scan.run.stream import rebatch
from glaive.scan.views import Views
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.expr.filters import Filter

__all__ = ["RankedRows", "RankedScan", "filters_of"]


class RankedRows(FoundRows, Protocol):
    """Rows that a search found, the best first."""

    def take(self, chosen: Int64s | Flags) -> Self:
        """Some of the rows, in this order."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankedScan(ABC):
    """A search that is ready to run, once or several times.

    Parameters
    ----------
    views
        The version that is searched.
    options
        Of the scan.
    columns
        Of the result.
    prefilter, postfilter
        What rows have to pass to be searched, and after they were found.
    """

    views: Views
    options: ScanOptions
    columns: FoundColumns
    prefilter: Filter | None
    postfilter: Filter | None

    @abstractmethod
    def steps(self) -> list[PlanStep]:
        """What is going to be done, the last step first."""

    @abstractmethod
    def _search(self, meter: Meter) -> RankedRows:
        """The best rows, in their order."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return self.columns.schema

    def table(self, meter: Meter | None = None) -> pa.Table:
        """The rows that were found."""
        meter = meter or meter_for(self.options)
        snapshot = self.views.snapshot
        before = counters_before(snapshot, self.options)
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
        return self._found(meter or meter_for(self.options)).size

    def _result_steps(self) -> list[PlanStep]:
        """What becomes of the rows that are found, the last step first."""
        options, steps = self.options, projection_step(self.options)
        names = [
            path for path in self.columns.plain if path and path not in self.columns.added.types
        ]
        steps.append(read_step(self.views.snapshot, names))
        if options.limit is not None or options.offset:
            fetch = "None" if options.limit is None else options.limit
            steps.append(PlanStep("GlobalLimitExec", f"skip={options.offset}, fetch={fetch}"))
        if options.order_by:
            keys = listed(order.column_name for order in options.order_by)
            steps.append(PlanStep("SortExec", f"expr={keys}, preserve_partitioning=[false]"))
        if self.postfilter is not None:
            steps.append(PlanStep("FilterExec", self.postfilter.text))
        return steps

    def _prefilter_steps(self) -> list[PlanStep]:
        """How the rows are found that pass a filter before they are searched."""
        if self.prefilter is None:
            return []
        steps = index_steps(self.views.snapshot, self.options, self.prefilter)
        return [PlanStep("FilterExec", self.prefilter.text, "search"), *steps]

    def _found(self, meter: Meter) -> RankedRows:
        """The rows of the result, in its order."""
        options = self.options
        with meter.step("search", self.views.snapshot.store.counters):
            found = self._search(meter)
        meter.count("rows_found", found.size)
        if self.postfilter is not None and found.size:
            with meter.step("filter"):
                values = FoundValues.of(self.views, self.postfilter.columns, self.columns.added)
                mask = self.postfilter.mask(values.batch(found, meter))
                found = found.take(as_numpy(mask))
        if options.order_by and found.size:
            with meter.step("sort"):
                names = [order.column_name for order in options.order_by]
                values = FoundValues.of(self.views, names, self.columns.added)
                batch = values.batch(found, meter)
                columns = [batch.column(name) for name in names]
                found = found.take(sorted_rows(columns, options.order_by))
        stop = None if options.limit is None else options.offset + options.limit
        if options.offset or (stop is not None and stop < found.size):
            found = found.take(np.arange(found.size)[options.offset : stop])
        return found


def filters_of(
    views: Views, options: ScanOptions, added: AddedColumns
) -> tuple[Filter | None, Filter | None]:
    """The filter of the rows that are searched, and that of those found.

    Raises
    ------
    ColumnNotFoundError, FilterError
        A column of the filter or of the order does not exist, or the filter cannot be understood.
    """
    for order in options.order_by:
        if order.column_name not in added.types:
            views.snapshot.manifest.schema.find(order.column_name)
    if options.filter is None:
        return None, None
    if options.prefilter:
        return views.filter(options.filter), None
    from glaive.expr.filters import bind_filter

    source, schema = options.filter, views.snapshot.manifest.schema
    return None, bind_filter(source, schema, system=added.types)  # type: ignore[arg-type]  # it checks
