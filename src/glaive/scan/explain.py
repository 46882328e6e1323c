"""What a scan is going to do, and what it did, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from glaive.scan.indexed.steps import index_steps
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.plan import plan_scan, plan_searched
from glaive.scan.query import Query
from glaive.scan.ready import ready_scan
from glaive.scan.reporting import statistics
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.expr.filters import Filter
    from glaive.scan.ranked import RankedScan

__all__ = ["analyze", "explain"]

_STEPS = {
    "index": "search indices",
    "prefilter": "find the rows that are searched",
    "search": "search",
    "find": "find rows in encoded columns",
    "decode": "decode columns of the filter and the order",
    "filter": "evaluate the remaining terms of the filter",
    "columns": "make the columns of the result",
    "sort": "sort",
}
"""What the times of a meter are called."""

_SCANNED = ("fragments_scanned", "rows_scanned")
"""Counts of a meter that programs look for by the names of pylance."""


def explain(query: Query | RankedScan, *, verbose: bool = False) -> str:
    """The steps of a scan, the last one first, as in a tree.

    Where pylance has a step of the same meaning, its name stands behind in brackets: programs look
    for it. With ``verbose`` the rows of each fragment as well.
    """
    steps = _lines(query) if isinstance(query, Query) else query.steps()
    lines = [f"{'  ' * depth}{line}" for depth, line in enumerate(steps)]
    if verbose and isinstance(query, Query):
        options, snapshot = query.options, query.source.snapshot
        every = query.is_searched
        plan = plan_searched(snapshot, options) if every else plan_scan(snapshot, options).ranges
        ids = snapshot.manifest.fragment_ids
        indent = "  " * len(lines)
        lines += [f"{indent}fragment {ids[at]}: rows {start}..{stop}" for at, start, stop in plan]
    return "\n".join(lines)


def _lines(query: Query) -> list[str]:
    options, snapshot = query.options, query.source.snapshot
    lines = [f"columns: {', '.join(query.source.schema.names) or 'none'}"]
    if options.order_by:
        how = ", ".join(
            f"{order.column_name} {'ASC' if order.ascending else 'DESC'} NULLS "
            f"{'FIRST' if order.nulls_first else 'LAST'}"
            for order in options.order_by
        )
        top = "" if options.limit is None else f", first {options.offset + options.limit} rows"
        lines.append(f"sort: {how}{top} [SortExec]")
    if options.limit is not None or options.offset:
        limit = "none" if options.limit is None else options.limit
        lines.append(f"limit: {limit}, offset: {options.offset}")
    if query.filter is not None:
        lines.append(f"filter: {query.filter.text}")
        lines += _terms(query.filter)
        lines += index_steps(snapshot, options, query.filter)
    if not query.is_searched:
        plan = plan_scan(snapshot, options)
        lines.append(f"scan: {plan.rows} rows of {len(plan.ranges)} fragments [LanceRead]")
        return lines
    ranges = plan_searched(snapshot, options)
    rows = sum(stop - start for _, start, stop in ranges)
    deleted = "deleted rows included" if options.include_deleted_rows else "deleted rows left out"
    lines.append(f"scan: {rows} rows of {len(ranges)} fragments, {deleted} [LanceRead]")
    return lines


def _terms(condition: Filter) -> list[str]:
    if condition.never:
        return ["never true: nothing is read"]
    lines = []
    direct = [term.condition[0] for term in condition.terms if term.condition is not None]
    other = sorted(
        {path for term in condition.terms if term.condition is None for path in term.columns}
    )
    if direct:
        lines.append(f"by statistics and in encoded form: {', '.join(dict.fromkeys(direct))}")
    if other:
        lines.append(f"decoded and evaluated: {', '.join(other)}")
    return lines


def analyze(views: Views, options: ScanOptions, *, counting: bool = False) -> str:
    """Run a scan and report rows, bytes, requests and time per step; opens files for itself.

    Times of steps are summed over threads, so that they may exceed the time of the whole.
    """
    apart = Views(views.snapshot.apart())  # what is kept would not be read again
    query = ready_scan(apart, options, counting=counting)
    counters, meter = apart.snapshot.store.counters, Meter()
    before, wall, cpu = counters.snapshot(), perf_counter(), process_time()
    rows = query.count(meter) if counting else query.table(meter).num_rows
    wall, cpu = perf_counter() - wall, process_time() - cpu
    read = statistics(meter, before, counters.snapshot())
    counts = dict(meter.counts)
    if isinstance(query, Query) and not query.is_searched:  # all of what is planned was read
        plan = plan_scan(query.source.snapshot, options)
        counts |= {"fragments_scanned": len(plan.ranges), "rows_scanned": plan.rows}
    scanned = "".join(f", {name}={counts[name]}" for name in _SCANNED if name in counts)
    lines = [
        (
            f"total: {rows} rows in {_time(wall)}, {_time(cpu)} of processor time "
            f"[AnalyzeExec verbose=true, output_rows={rows}]"
        ),
        (
            f"read: {read.bytes_read} bytes in {read.requests} requests "
            f"[bytes_read={read.bytes_read}, iops={read.requests}, requests={read.requests}"
            f"{scanned}]"
        ),
    ]
    lines += [f"{name.replace('_', ' ')}: {count}" for name, count in sorted(meter.counts.items())]
    lines += _times(meter.times)
    return "\n".join([explain(query), "", *lines])


def _times(times: Mapping[str, int]) -> list[str]:
    return [
        f"{label}: {_time(times[name] / 1e9)}" for name, label in _STEPS.items() if name in times
    ]


def _time(seconds: float) -> Any:
    return f"{seconds * 1e3:.3f} ms"
