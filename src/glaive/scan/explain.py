"""Explain the steps of a scan, before or after it runs, as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from glaive.scan.options import Meter, Reading, ScanOptions, ScanStatistics, statistics
from glaive.scan.plan import FragmentRows, plan_scan, plan_searched
from glaive.scan.query import Query
from glaive.scan.ranked import (
    PlanStep,
    filter_text,
    index_steps,
    listed,
    projection_step,
    read_step,
)
from glaive.scan.ready import ready_scan
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.expr.filters import Filter
    from glaive.scan.ranked import RankedScan


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
"""Labels of the times of a meter."""

_METRICS = ("output_rows", "rows_scanned", "bytes_read", "iops", "index_comparisons")
"""Figures of each step, by the names of pylance: programs look for them."""


def explain(query: Query | RankedScan, *, verbose: bool = False) -> str:
    """Return the steps of a scan, the last one first, as in a tree.

    Lines begin like pylance's: programs look for its words. With ``verbose`` the text also has the
    rows of each fragment.
    """
    lines = _indented(_query_steps(query))
    if verbose and isinstance(query, Query):
        ids, indent = query.source.snapshot.manifest.fragment_ids, "  " * len(lines)
        lines += [
            f"{indent}fragment {ids[at]}: rows {start}..{stop}"
            for at, start, stop in _ranges(query)
        ]
    return "\n".join(lines)


def _query_steps(query: Query | RankedScan) -> list[PlanStep]:
    """Return the steps of a scan, the last one first."""
    if not isinstance(query, Query):
        return query.steps()
    options, snapshot, condition = query.options, query.source.snapshot, query.filter
    projection = query.source.projection
    steps = projection_step(options)
    names = [field.name for field in projection.without_inputs.fields]
    orders, limit, offset = options.order_by, options.limit, options.offset
    names += [order.column_name for order in orders if order.column_name not in names]
    if orders:
        if offset:
            fetch = "None" if limit is None else limit
            steps.append(PlanStep("GlobalLimitExec", f"skip={offset}, fetch={fetch}"))
        keys = [
            f"{order.column_name}@{names.index(order.column_name)} "
            f"{'ASC' if order.ascending else 'DESC'} "
            f"NULLS {'FIRST' if order.nulls_first else 'LAST'}"
            for order in orders
        ]
        top = "" if limit is None else f"TopK(fetch={offset + limit}), "
        details = f"{top}expr={listed(keys)}, preserve_partitioning=[false]"
        steps.append(PlanStep("SortExec", details))
    ranges = _ranges(query)
    rows = sum(stop - start for _, start, stop in ranges)
    before, after = options.range_before, None
    if not orders and (limit is not None or offset):
        first, last = before or (0, snapshot.num_rows)
        cut = range(first, last)[offset : None if limit is None else offset + limit]
        if condition is None:
            before = cut.start, cut.stop
        else:
            after = offset, offset + (len(cut) if limit is None else limit)
    steps.append(
        read_step(
            snapshot,
            names,
            f"num_fragments={len(snapshot.positions_of(options.fragments))}, "
            f"range_before={_range(before)}, range_after={_range(after)}, "
            f"row_id={str(options.with_row_id).lower()}, "
            f"row_addr={str(options.with_row_address).lower()}, "
            f"{filter_text(snapshot, options, condition)}, "
            f"{rows} rows of {len(ranges)} fragments, deleted rows "
            f"{'included' if options.include_deleted_rows else 'left out'}{_terms(condition)}",
            "read",
        )
    )
    return steps + ([] if condition is None else index_steps(snapshot, options, condition))


def _indented(steps: Iterable[object]) -> list[str]:
    return [f"{'  ' * depth}{step}" for depth, step in enumerate(steps)]


def _ranges(query: Query) -> Sequence[FragmentRows]:
    """Return the ranges of rows that the scan reads or tests."""
    options, snapshot = query.options, query.source.snapshot
    if query.is_searched:
        return plan_searched(snapshot, options)
    return plan_scan(snapshot, options).ranges


def _terms(condition: Filter | None) -> str:
    """Describe how the terms of a filter are evaluated."""
    if condition is None:
        return ""
    if condition.never:
        return ", never true: nothing is read"
    terms = condition.terms
    direct = dict.fromkeys(term.condition[0] for term in terms if term.condition is not None)
    other = {path for term in terms if term.condition is None for path in term.columns}
    details = f", by statistics and in encoded form: {', '.join(direct)}" if direct else ""
    return details + (f", decoded and evaluated: {', '.join(sorted(other))}" if other else "")


def _range(bounds: tuple[int, int | None] | None) -> str:
    """Format a range like pylance."""
    return "None" if bounds is None else f"Some({bounds[0]}..{bounds[1]})"


def analyze(views: Views, options: ScanOptions, *, counting: bool = False) -> str:
    """Run a scan and report rows, bytes, requests and time per step; opens files for itself.

    Times of steps are summed over threads, so that they may exceed the time of the whole.
    """
    private = Views(views.snapshot.private())  # the session would hide reads
    query = ready_scan(private, options, counting=counting)
    meter = Meter()
    steps = _query_steps(query)
    before, wall, cpu = Reading.of(private.snapshot), perf_counter(), process_time()
    rows = query.count(meter) if counting else query.table(meter).num_rows
    wall, cpu = perf_counter() - wall, process_time() - cpu
    read = statistics(meter, before, Reading.of(private.snapshot))
    counts = Counter(meter.counts)
    if isinstance(query, Query) and not query.is_searched:  # all of what is planned was read
        plan = plan_scan(query.source.snapshot, options)
        counts |= {"fragments_scanned": len(plan.ranges), "rows_scanned": plan.rows}
    figures = _statistics(rows, counts, meter, read)
    lines = [f"AnalyzeExec verbose=true, elapsed={time_of(wall)}, {_metrics(figures['whole'])}"]
    lines += [f"{step}, {_metrics(figures[step.part])}" for step in steps]
    lines = _indented(lines)
    lines += ["", f"total: {rows} rows in {time_of(wall)}, {time_of(cpu)} of processor time"]
    lines.append(f"read: {read.bytes_read} bytes in {read.requests} requests")
    lines += [f"{name.replace('_', ' ')}: {count}" for name, count in sorted(meter.counts.items())]
    lines += times_of(_STEPS, meter.times)
    return "\n".join(lines)


def _statistics(
    rows: int, counts: Counter[str], meter: Meter, read: ScanStatistics
) -> dict[str, dict[str, int]]:
    """Return the figures of each part of a scan: index lookups, a search, reads of columns."""
    index, search = (
        {
            "bytes_read": meter.reads.get((part, "bytes"), 0),
            "iops": meter.reads.get((part, "iops"), 0),
        }
        for part in ("index", "search")
    )
    whole = {"bytes_read": read.bytes_read, "iops": read.iops}
    before = search if meter.times["search"] else index
    rest = {name: number - before[name] for name, number in whole.items()}
    own = {name: number - index[name] for name, number in search.items()}
    scanned = {"rows_scanned": max(counts["rows_scanned"], counts["rows_taken_by_index"])}
    fragments = {"fragments_scanned": counts["fragments_scanned"]}
    asked = {"index_comparisons": counts["index_comparisons"]}
    compared = {"index_comparisons": counts["rows_compared"]}
    found = {"output_rows": counts["index_rows_found"], **index, **asked}
    result = {"output_rows": rows}
    return {
        "": result,
        "whole": {**result, **scanned, **whole, "index_comparisons": read.index_comparisons},
        "index": found,
        "search": {"output_rows": counts["rows_found"], **scanned, **own, **compared},
        "columns": {**result, "rows_scanned": rows, **rest},
        "read": {"output_rows": counts.get("rows_sorted", rows), **fragments, **scanned, **rest},
    }


def _metrics(figures: Mapping[str, int]) -> str:
    """Format figures like pylance."""
    known = {**dict.fromkeys(_METRICS, 0), **figures}
    return f"metrics={listed(f'{name}={number}' for name, number in known.items())}"


def times_of(steps: Mapping[str, str], times: Mapping[str, int]) -> list[str]:
    """Return a line for each step that took time, with the label of the step."""
    return [f"{label}: {time_of(times[at] / 1e9)}" for at, label in steps.items() if at in times]


def time_of(seconds: float) -> str:
    """Return a time in milliseconds."""
    return f"{seconds * 1e3:.3f} ms"
