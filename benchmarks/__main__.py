"""Run the workloads and print one table: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean

from benchmarks.data import Data
from benchmarks.engines import engines
from benchmarks.history import keep
from benchmarks.ratio_picture import draw_ratios
from benchmarks.recall_picture import draw_recall
from benchmarks.workloads import Bench, Row, Workload, workloads

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "bench"

HEADER = (
    f"{'workload':28} {'':2} {'pylance':>9} {'glaive':>9} {'other':>9}"
    f"  {'ratio CPU':>9} {'ratio wall':>10} {'goal':>6}"
)


def _line(row: Row) -> str:
    def shown(value: float) -> str:
        return f"{value:9.3f}" if value < 10 else f"{value:9.1f}"

    cells = [
        shown(row.values[name][0]) if name in row.values else f"{'-':>9}"
        for name in ("pylance", "glaive", "faiss" if "faiss" in row.values else "parquet")
    ]
    ratios, verdict = f"{'-':>9} {'-':>10}", ""
    if "glaive" in row.values:
        # CPU clocks have a coarse resolution: a time may be zero.
        cpu, wall = (
            theirs / max(ours, 1e-6)
            for theirs, ours in zip(row.values["pylance"], row.values["glaive"], strict=True)
        )
        ratios = f"{cpu:8.2f}x {wall:9.2f}x"
        if row.goal is not None and cpu < row.goal:
            verdict = "  missed"
        if row.most is not None and row.values["glaive"][0] > row.most:
            verdict = "  missed"
    goal = "" if row.goal is None else f"{row.goal:5g}x"
    if row.most is not None:
        goal = f"≤{row.most:4g}x"
    wrong = f"  WRONG: {row.wrong}" if row.wrong else ""
    return f"{row.name:28} {row.unit:2} {' '.join(cells)}  {ratios} {goal:>6}{verdict}{wrong}"


def _means(rows: list[Row]) -> str:
    """Return geometric means of the ratios by group, and how many goals are met."""
    lines = [f"{'group':28} {'rows':>4} {'mean ratio CPU':>15} {'goals met':>12}"]
    named = dict.fromkeys(row.group for row in rows)
    for name, chosen in [(name, [r for r in rows if r.group == name]) for name in named] + [
        ("all", rows)
    ]:
        ratios = [row.ratio for row in chosen if row.ratio]
        goals = [row.ratio >= row.goal for row in chosen if row.ratio and row.goal is not None]
        if ratios:
            met = f"{sum(goals)} of {len(goals)}"
            lines.append(f"{name:28} {len(ratios):4} {geometric_mean(ratios):14.2f}x {met:>12}")
    return "\n".join(lines)


def _chosen(only: str | None) -> list[Workload]:
    found = [
        workload
        for workload in workloads()
        if only is None or only.lower() in workload.name.lower()
    ]
    if not found:
        names = "\n  ".join(workload.name for workload in workloads())
        sys.exit(f"no workload has {only!r} in its name. Use a part of one of:\n  {names}")
    return found


def main() -> int:
    """Run the workloads and print the table; return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", help="run the workloads with this text in their name")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table")
    parser.add_argument("--quick", action="store_true", help="500,000 rows")
    parser.add_argument("--repeats", type=int, default=9, help="maximum repeats per workload")
    parser.add_argument("--seconds", type=float, default=4, help="per workload and engine")
    parser.add_argument("--format", default="2.2", help="data storage version")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the data sets")
    parser.add_argument(
        "--memory-gb", type=float, default=0.25, help="largest source whose peak memory is measured"
    )
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument(
        "--keep", action="store_true", help="write docs/figures/bench, its page and its chart"
    )
    parser.add_argument(
        "--recall-picture", type=Path, help="only draw recall against time, to this file"
    )
    parser.add_argument("--ratio-picture", type=Path, help="draw ten of the ratios to this file")
    options = parser.parse_args()

    chosen = _chosen(options.only)
    data = Data(options.cache, 500_000 if options.quick else options.rows, options.format)
    bench = Bench(data, engines(), options.repeats, options.seconds, options.memory_gb)
    if options.recall_picture is not None:
        draw_recall(bench, options.recall_picture)
        return 0
    print(
        f"{data.rows:,} rows, format {data.version}, Python {platform.python_version()}, "
        f"pylance {version('pylance')}, pyarrow {version('pyarrow')}\n"
        "ms: CPU time of all threads, median. Ratios: how many times less glaive needs than "
        f"pylance.\n\n{HEADER}\n{'-' * len(HEADER)}"
    )
    rows = []
    for workload in chosen:
        for row in workload.run(bench, workload.name, workload.goal):
            print(_line(row), flush=True)
            row.group = workload.group
            rows.append(row)
    print(f"\n{_means(rows)}")
    if options.keep:
        print(f"\nkept in {keep(rows, data.rows, data.version)}")
    if options.ratio_picture is not None:
        draw_ratios({row.name: row.ratio for row in rows if row.ratio}, options.ratio_picture)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
