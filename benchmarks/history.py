"""Keep a run of the benchmark: ``make bench ARGS="--keep"`` writes its figures, page and chart."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from math import log10
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.workloads import Row

__all__ = ["draw_history", "keep", "lost", "page"]

ROOT = Path(__file__).resolve().parent.parent
LOSS = 1.25
"""A ratio to pylance that fell by this factor is listed."""

GROUPS = ("all", "scans", "takes", "queries", "writes", "changes", "search", "vectors", "processes")
"""Lines of the chart."""

COLOURS = (
    "#000000",
    "#2a6f97",
    "#c1121f",
    "#2d6a4f",
    "#e07a00",
    "#7b2cbf",
    "#00a6a6",
    "#b5838d",
    "#8d8600",
)
NOTES = {
    "scans": "Read one column, or all columns (`table`), into an Arrow table.",
    "nested": "Read one column of lists, structs or maps into an Arrow table.",
    "stored": "Read columns with a chosen compression, and files of the formats 2.0 and 0.1.",
    "streams": "Read an opened dataset batch by batch.",
    "queries": "Read the rows that pass a filter, or all rows (`scan`). A percentage in "
    "parentheses is the share of rows that pass.",
    "search": "Search with an index over numbers or texts; `build` rows build the index. `point` "
    "looks for one value, and `in 10` for ten values.",
    "takes": "Read rows at random positions: `take 100` reads 100 rows.",
    "cold": "Read files that are not in the page cache of the system.",
    "tables": "Open a dataset, or append to it.",
    "writes": "Write a new dataset.",
    "changes": "Change a copy of a dataset; a percentage is the share of changed rows.",
    "processes": "Start a new process that imports the library and reads.",
    "memory": "Peak of the private memory that the work adds to a process. The size in the name is "
    "the size of the rows.",
    "vectors": "Search the nearest vectors; `build` rows build an index. With `prefilter`, the "
    "search regards only rows that pass a filter.",
}
"""What the workloads of a group do."""

NAMES = {
    "scan float64 flat, one run": "scan incompressible float64, pages without chunks",
    "scan float64 flat, in chunks": "scan incompressible float64, pages with chunks",
    "scan float64, split and zstd": "scan float64, byte stream split and zstd",
    "scan 2.0 numbers": "scan numbers of format 2.0",
    "scan 2.0 text": "scan text of format 2.0",
    "scan 0.1 numbers": "scan numbers of format 0.1",
    "scan 0.1 text": "scan text of format 0.1",
    "text top 10, 1 word, ids": "text top 10, 1 word, only the column `id`",
    "text top 10, 3 words, ids": "text top 10, 3 words, only the column `id`",
    "  without indices": "open the same dataset without indices",
    "open, take 100 row ids": "open, then take 100 rows by row id",
    "nearest IVF_PQ, as by default": "nearest IVF_PQ, default options of the search",
    "memory of a write": "write the main dataset",
    "scan 3 % deleted": "scan, 3 % of the rows deleted",
}
"""Names that need an explanation, and how the page calls the workloads."""

SHARED = "  with mapped pages"
"""A name of several rows, so a kept run has only the last of them: the page leaves it out."""

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 380, 50, 110, 30, 40


def keep(rows: list[Row], data_rows: int, data_version: str, root: Path = ROOT) -> Path:
    """Write the figures of a run, and make the page and the chart of all kept runs anew."""
    folder = root / "docs" / "figures" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    commit = _git("rev-parse", "--short=8", "HEAD")
    now = datetime.now(tz=UTC)
    run = {
        "commit": commit + ("+" if _git("status", "--porcelain", "src") else ""),
        "date": f"{now:%Y-%m-%d %H:%M}",
        "rows": data_rows,
        "format": data_version,
        "with": f"Python {platform.python_version()}, pylance {version('pylance')}, "
        f"pyarrow {version('pyarrow')}",
        "figures": {
            row.name: {"group": row.group, "unit": row.unit, "goal": row.goal} | _rounded(row)
            for row in rows
            if "glaive" in row.values
        },
    }
    path = folder / f"{now:%Y-%m-%d-%H%M}-{commit}.json"
    lines = (f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in run["figures"].items())
    head = json.dumps({**run, "figures": None}, indent=1).removesuffix("null\n}")
    path.write_text(head + "{\n" + ",\n".join(lines) + "\n }\n}\n", "utf-8")
    runs = [json.loads(kept.read_text("utf-8")) for kept in sorted(folder.glob("*.json"))]
    alike = [kept for kept in runs if (kept["rows"], kept["format"]) == (data_rows, data_version)]
    (root / "docs" / "figures-benchmark.md").write_text(page(alike), "utf-8")
    (root / "docs" / "figures" / "bench.svg").write_text(draw_history(alike), "utf-8")
    return path


def _rounded(row: Row) -> dict[str, list[float]]:
    return {engine: [float(f"{t:.4g}") for t in times] for engine, times in row.values.items()}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _ratios(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the ratio of processor time, pylance to glaive, of each workload."""
    # CPU clocks have a coarse resolution: a time may be zero.
    return {
        name: row["pylance"][0] / max(row["glaive"][0], 1e-6)
        for name, row in run["figures"].items()
        if row["unit"] == "ms" and row["pylance"][0]
    }


def lost(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return both ratios of the workloads whose ratio fell by ``LOSS``, the largest loss first."""
    was, now = _ratios(before), _ratios(after)
    fell = {name: (was[name], now[name]) for name in was.keys() & now.keys()}
    worst = sorted(fell.items(), key=lambda pair: pair[1][1] / pair[1][0])
    return {name: both for name, both in worst if both[0] > LOSS * both[1]}


def means(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the geometric mean of the ratios of each group, and of all."""
    ratios = _ratios(run)
    groups: dict[str, list[float]] = {"all": list(ratios.values())}
    for name, ratio in ratios.items():
        groups.setdefault(run["figures"][name]["group"], []).append(ratio)
    return {group: geometric_mean(members) for group, members in groups.items()}


def page(runs: list[dict[str, Any]]) -> str:
    """Write the page of the last of these runs, with the rows that fell since the run before."""
    return "\n".join(_lines(runs)) + "\n"


def _lines(runs: list[dict[str, Any]]) -> Iterator[str]:
    run, found = runs[-1], means(runs[-1])
    goals = [
        _ratios(run)[name] >= row["goal"]
        for name, row in run["figures"].items()
        if row["goal"] is not None and name in _ratios(run)
    ]
    yield (
        "# Figures of the benchmark\n\n"
        "This page compares glaive and pylance on the same files, at commit "
        f"{run['commit']} ({run['date'][:10]}).\n"
        "[Performance](guide/performance.md) explains the figures.\n\n"
        f"- The main dataset has {run['rows']:,} rows in 4 fragments. pylance wrote its files in "
        f"format {run['format']}. Versions: {run['with']}.\n"
        "- The columns *pylance ms* and *glaive ms* are milliseconds of processor time, summed "
        "over all threads. Each figure is the median of several calls.\n"
        "- *CPU* is the processor time of pylance divided by the processor time of glaive.\n"
        "- *Wall* is the elapsed time of pylance divided by the elapsed time of glaive.\n"
        "- *CPU against Parquet* is the processor time of pyarrow for the same work on Parquet "
        "files, divided by the processor time of glaive.\n"
        "- A ratio above 1× means that glaive takes less time.\n"
        "- The number in a heading is the geometric mean of the section's CPU ratios. The mean of "
        f"all CPU ratios is {found['all']:.1f}×.\n"
        "- Many workloads have a goal: a CPU ratio that glaive should reach. "
        f"{sum(goals)} of {len(goals)} goals are met.\n\n"
        '`make bench ARGS="--keep"` writes this page.\n\n'
        "![geometric mean of the ratios by commit](figures/bench.svg)\n"
    )
    if len(runs) > 1:
        before = runs[-2]
        yield f"## Lost since {before['commit']}\n"
        if fell := lost(before, run):
            yield "| workload | ratio before | ratio now |\n|---|---|---|"
            for name, (was, now) in fell.items():
                yield f"| {_name(name)} | {_times(was)} | {_times(now)} |"
        else:
            yield f"All ratios are above 1/{LOSS} of the ratio before."
        yield ""
    for group in dict.fromkeys(row["group"] for row in run["figures"].values()):
        rows = {
            name: row
            for name, row in run["figures"].items()
            if row["group"] == group and name != SHARED
        }
        note = f"{NOTES[group]}\n" if group in NOTES else ""
        if not any(row["unit"] == "ms" for row in rows.values()):
            yield f"## {group.capitalize()}\n"
            if note:
                yield note
            yield "| what | unit | pylance | glaive |\n|---|---|---|---|"
            for name, row in rows.items():
                cells = f"{_digits(row['pylance'][0])} | {_digits(row['glaive'][0])}"
                yield f"| {_name(name)} | {row['unit']} | {cells} |"
            yield ""
            continue
        mean = f" ({found[group]:.1f}×)" if group in found else ""
        yield f"## {group.capitalize()}{mean}\n"
        if note:
            yield note
        yield "| workload | pylance ms | glaive ms | CPU | wall | CPU against Parquet |"
        yield "|---|---|---|---|---|---|"
        for name, row in rows.items():
            if row["unit"] == "ms":
                yield _row(name, row)
        yield ""


def _row(name: str, row: Mapping[str, Any]) -> str:
    (ours, wall), theirs = row["glaive"], row["pylance"]
    cells = [_digits(theirs[0]), _digits(ours)]
    cells += [_times(theirs[0] / max(ours, 1e-6)), _times(theirs[1] / max(wall, 1e-6))]
    other = row.get("parquet")
    cells.append(_times(other[0] / max(ours, 1e-6)) if other else "–")
    return f"| {_name(name)} | {' | '.join(cells)} |"


def _name(name: str) -> str:
    plain = NAMES.get(name, name).removeprefix("memory: ").removeprefix("process: ")
    return plain.replace("<", "&lt;")  # list<int32> would be a tag


def _digits(figure: float) -> str:
    """Write three digits, and all digits of the whole part."""
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio < 20 else f"{ratio:,.0f}×"


def draw_history(runs: list[dict[str, Any]]) -> str:
    """Draw the geometric mean of the ratios of each group over these runs, as an SVG."""
    found = [means(run) for run in runs]
    top = max(2.0, *(max(each.values()) for each in found))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(at: int) -> float:
        return _LEFT + (right - _LEFT) * (at / (len(runs) - 1) if len(runs) > 1 else 1)

    def y(ratio: float) -> float:
        return bottom - (bottom - _TOP) * log10(max(ratio, 1.0)) / log10(top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" fill="#444">times less CPU time than pylance, by commit</text>',
    ]
    for tick in (t for t in (1, 2, 5, 10, 20, 50, 100) if t <= top):
        parts.append(f'<path d="M{_LEFT} {y(tick):.0f}H{right}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(tick) + 4:.0f}" text-anchor="end">{tick}</text>')
    step = max(1, len(runs) // 8)
    parts += [
        f'<text x="{x(at):.0f}" y="{bottom + 18}" fill="#777" text-anchor="middle">'
        f"{escape(runs[at]['commit'])}</text>"
        for at in range(len(runs) - 1, -1, -step)
    ]
    labels = sorted((found[-1][group], group) for group in GROUPS if group in found[-1])
    last = _HEIGHT * 2.0
    for ratio, group in labels:
        colour = COLOURS[GROUPS.index(group)]
        points = [(x(at), y(each[group])) for at, each in enumerate(found) if group in each]
        line = " ".join(f"{a:.0f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.0f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in points]
        last = min(y(ratio) + 4, last - 13)
        text = f"{group} {ratio:.1f}×"
        parts.append(f'<text x="{right + 8}" y="{last:.0f}" fill="{colour}">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])
