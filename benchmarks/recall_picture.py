"""Draw recall against time: ``make bench ARGS="--recall-picture docs/recall.svg"``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log10
from pathlib import Path

from benchmarks.measure import interleave
from benchmarks.workloads.common import Bench
from benchmarks.workloads.vectors import QUERIES, ids_of, indexed, queries_of, truth

__all__ = ["draw_recall"]

Point = tuple[float, float]
"""Milliseconds of CPU time per query, and recall@10."""

_KINDS = {"IVF_SQ": "#2a6f97", "IVF_PQ": "#c1666b", "IVF_RQ": "#4f772d"}
_PROBES = (1, 2, 4, 8, 16)
_REFINE = {"IVF_PQ": 8}
_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 400, 60, 30


def draw_recall(bench: Bench, path: Path) -> None:
    """Search with increasing numbers of partitions; draw a line for each kind and library."""
    near = truth(bench.data.rows // 50)
    queries = queries_of(bench)
    lines: dict[tuple[str, str], list[Point]] = {}
    for kind in _KINDS:
        opened = {
            engine.name: engine.open(indexed(bench, kind))
            for engine in bench.engines
            if engine.name != "parquet"
        }
        for probes in _PROBES:
            nearest = {"nprobes": probes}
            if kind in _REFINE:
                nearest["refine_factor"] = _REFINE[kind]

            def call(name: str, nearest: dict[str, int] = nearest) -> list[list[int]]:
                return [ids_of(opened[name], query, {}, nearest) for query in queries]  # noqa: B023  # called at once

            times = interleave(
                {name: partial(call, name) for name in opened},
                repeats=bench.repeats, inner=1, seconds=bench.seconds,
            )  # fmt: skip
            for name in opened:
                hits = sum(len(one & set(ids)) for one, ids in zip(near, call(name), strict=True))
                point = times[name].cpu / QUERIES, hits / 10 / QUERIES
                lines.setdefault((kind, name), []).append(point)
    path.write_text(_svg(lines, bench.data.rows // 50))


def _svg(lines: dict[tuple[str, str], list[Point]], rows: int) -> str:
    points = [point for line in lines.values() for point in line]
    low, high = (log10(pick(time for time, _ in points)) for pick in (min, max))
    least = min(0.9, *(recall for _, recall in points))
    right, bottom = _WIDTH - 190, _HEIGHT - 50

    def at(point: Point) -> str:
        time, recall = point
        x = _LEFT + (log10(time) - low) / max(high - low, 0.1) * (right - _LEFT)
        y = bottom - (recall - least) / (1 - least) * (bottom - _TOP)
        return f"{x:.1f},{y:.1f}"

    said = "Recall against time of a query, for each kind of index, of glaive and of pylance."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13"'
    )
    made = [
        f'{head} aria-label="{said}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<path d="M{_LEFT},{_TOP} V{bottom} H{right}" fill="none" stroke="#888888"/>',
        f'<text x="{_LEFT}" y="18">recall@10, {rows:,} vectors of 128 numbers</text>',
        f'<text x="{right}" y="{_HEIGHT - 12}" text-anchor="end">ms of CPU time for a query</text>',
    ]
    for share in range(5):
        recall = least + (1 - least) * share / 4
        y = at((10**low, recall)).split(",")[1]
        made.append(f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{recall:.2f}</text>')
    for time in _ticks(low, high):
        x = at((time, least)).split(",")[0]
        made.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{time:g}</text>')
    for number, ((kind, name), line) in enumerate(lines.items()):
        style = f'stroke="{_KINDS[kind]}" stroke-width="2" fill="none"'
        dashed = "" if name == "glaive" else ' stroke-dasharray="5 4"'
        made.append(f'<polyline points="{" ".join(map(at, line))}" {style}{dashed}/>')
        down = _TOP + 10 + 22 * number
        made.append(f'<path d="M{right + 20},{down} h28" {style}{dashed}/>')
        made.append(f'<text x="{right + 56}" y="{down + 4}">{kind}, {name}</text>')
    return "\n".join([*made, "</svg>"]) + "\n"


def _ticks(low: float, high: float) -> Sequence[float]:
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
    return [time for time in steps if low <= log10(time) <= high]
