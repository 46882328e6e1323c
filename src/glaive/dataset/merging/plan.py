"""Reports of what a merge will do, and of what it did."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from glaive.dataset.merging.clauses import MergeClauses
from glaive.dataset.merging.condition import bind_condition
from glaive.dataset.merging.key_values import is_word_type
from glaive.dataset.merging.old_values import is_complete, kept_columns
from glaive.dataset.merging.rows import merge
from glaive.dataset.merging.source import MergeSource, check_source
from glaive.expr.filters import bind_filter
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.plan import plan_searched

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["analyze", "explain"]

_STEPS: Final = {
    "match": "read and match keys",
    "find": "of that: find keys in encoded columns",
    "decode": "of that: decode key columns",
    "filter": "of that: look decoded keys up",
    "columns": "of that: read keys of matching rows",
    "look up": "of that: look up their rows of the source",
    "condition": "evaluate the condition",
    "write": "write rows",
    "delete": "write deletions",
}
"""Labels of the times of a meter, in order of execution."""


def explain(
    dataset: OpenedVersion, clauses: MergeClauses, source: pa.Schema | None, *, verbose: bool
) -> str:
    """The steps of a merge as a tree, the last one first."""
    schema = dataset.manifest.schema
    given = schema.to_arrow() if source is None else source
    fits = check_source(schema, given, clauses, where=dataset.uri)
    lines = [f"MergeInsert: {clauses.describe()}"]
    names = [name for name in fits.names if name not in clauses.on]
    if clauses.mode == "rewrite_columns":
        lines.append(f"write: columns in place: {', '.join(names)}")
    elif clauses.update or clauses.insert:
        kept = kept_columns(fits, schema)
        old = f", old values of {', '.join(kept)}" if clauses.update and kept else ""
        whole = "" if is_complete(fits, schema) else " nulls for what it lacks,"
        lines.append(f"write: rows of the source,{whole} in new fragments{old}")
    if clauses.by_source_condition is not None:
        bound = bind_filter(clauses.by_source_condition, schema)
        lines.append(f"scan for rows to delete: {bound.text}")
    if clauses.update and clauses.update_condition is not None:
        bound = bind_condition(schema, given, clauses.update_condition)
        lines.append(f"condition on matched rows: {bound.text}, columns {', '.join(bound.columns)}")
    arrow = schema.to_arrow()
    encoded = [name for name in clauses.on if is_word_type(arrow.field(name).type)]
    decoded = [name for name in clauses.on if name not in encoded]
    if encoded:
        lines.append(f"find keys in encoded pages: {', '.join(encoded)} [HashJoinExec]")
    if decoded:
        lines.append(f"look keys up by their values: {', '.join(decoded)} [HashJoinExec]")
    ranges = plan_searched(dataset.snapshot, ScanOptions())
    rows = dataset.snapshot.num_rows
    on = ", ".join(clauses.on)
    lines.append(f"scan: {rows} rows of {len(ranges)} fragments, columns {on} [LanceRead]")
    lines = [f"{'  ' * depth}{line}" for depth, line in enumerate(lines)]
    if verbose:
        ids, indent = dataset.manifest.fragment_ids, "  " * len(lines)
        lines += [f"{indent}fragment {ids[at]}: rows {start}..{stop}" for at, start, stop in ranges]
    return "\n".join(lines)


def analyze(dataset: OpenedVersion, clauses: MergeClauses, source: MergeSource) -> str:
    """Run a merge without a commit, and report rows, bytes, requests and time per step.

    Times of steps are summed over threads, so they may exceed the total.
    """
    plan = explain(dataset, clauses, source.rows.schema, verbose=False)
    meter, counters = Meter(), dataset.store.counters
    before, wall, cpu = counters.snapshot(), perf_counter(), process_time()
    _, counts = merge(dataset, clauses, source, meter)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    after = counters.snapshot()
    lines = [
        (
            f"total: {_time(wall)}, {_time(cpu)} of processor time; nothing was committed "
            "[AnalyzeExec verbose=true]"
        ),
        *(f"{name}={count}" for name, count in counts.items()),
        f"bytes_read={after.read_bytes - before.read_bytes}",
        f"iops={after.read_iops - before.read_iops}",
        f"requests={after.read_iops - before.read_iops}",
        f"bytes_written={after.written_bytes - before.written_bytes}",
        f"num_files_written={meter.counts['files_written']}",
        f"fragments_scanned={meter.counts['fragments_scanned']}",
        f"rows_scanned={meter.counts['rows_scanned']}",
        f"rows_matched={meter.counts['rows_matched']}",
        f"source_on_disk: {'yes' if source.on_disk else 'no'}",
        *_times(meter.times),
    ]
    return "\n".join([plan, "", *lines])


def _times(times: Mapping[str, int]) -> list[str]:
    return [
        f"{label}: {_time(times[name] / 1e9)}" for name, label in _STEPS.items() if name in times
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
