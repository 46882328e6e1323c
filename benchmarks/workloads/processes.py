"""New processes: time of the start, and memory of a scan."""

from __future__ import annotations

import statistics

import numpy as np

from benchmarks.measure import peak_memory, run_process
from benchmarks.workloads.common import Bench, Row, Run, Workload

__all__ = ["WORKLOADS"]


def _take(bench: Bench, title: str, goal: float | None) -> list[Row]:
    rows = np.random.default_rng(6).integers(0, bench.data.make("table").num_rows, 10).tolist()
    scripts = {e.name: e.cold_take(e.place(bench.data, "table"), rows) for e in bench.engines}
    return _processes(bench, Row(title, goal), scripts)


def _scan(predicate: str | None) -> Run:
    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        places = {engine.name: engine.place(bench.data, "table") for engine in bench.engines}
        scripts = {e.name: e.cold_scan(places[e.name], predicate) for e in bench.engines}
        return _processes(bench, Row(title, goal), scripts)

    return work


def _processes(bench: Bench, row: Row, scripts: dict[str, str]) -> list[Row]:
    """Run each script in new processes; the first run compiles kernels and does not count."""
    for script in scripts.values():
        run_process(script)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in scripts}
    for _ in range(max(3, bench.repeats // 2)):
        for name, script in scripts.items():
            seen[name].append(run_process(script))
    row.repeats = len(seen[bench.engines[0].name])
    row.values = {
        name: (
            statistics.median(cpu for cpu, _ in times),
            statistics.median(wall for _, wall in times),
        )
        for name, times in seen.items()
    }
    return [row]


def _memory(bench: Bench, title: str, goal: float | None) -> list[Row]:
    own, resident = (
        Row(title, None, unit="MB"),
        Row("  with mapped pages", None, unit="MB", most=goal),
    )
    for engine in bench.engines:
        script = engine.cold_stream(engine.place(bench.data, "table"))
        mine, all_of_it = peak_memory(script)
        own.values[engine.name] = (mine, mine)
        resident.values[engine.name] = (all_of_it, all_of_it)
    return [own, resident]


WORKLOADS = [
    Workload("process: take 10", 2, _take),
    Workload("process: scan table", 1.3, _scan(None)),
    Workload("process: filter", 1.3, _scan("small < 100")),
    Workload("memory of a stream", 250, _memory),
]
