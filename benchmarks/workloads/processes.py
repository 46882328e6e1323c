"""New processes: what a start costs, and the memory of a scan."""

from __future__ import annotations

import statistics

import numpy as np

from benchmarks.measure import peak_memory, run_process
from benchmarks.workloads.common import Bench, Row, Workload

__all__ = ["WORKLOADS"]


def _cold(bench: Bench, title: str, goal: float | None) -> list[Row]:
    rows = np.random.default_rng(6).integers(0, bench.data.make("table").num_rows, 10).tolist()
    scripts = {e.name: e.cold_take(e.place(bench.data, "table"), rows) for e in bench.engines}
    for script in scripts.values():
        run_process(script)
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in scripts}
    for _ in range(max(3, bench.repeats // 2)):
        for name, script in scripts.items():
            seen[name].append(run_process(script))
    row = Row(title, goal, repeats=len(seen[bench.engines[0].name]))
    row.values = {
        name: (
            statistics.median(cpu for cpu, _ in times),
            statistics.median(wall for _, wall in times),
        )
        for name, times in seen.items()
    }
    return [row]


def _memory(bench: Bench, title: str, goal: float | None) -> list[Row]:
    own, resident = Row(title, goal, unit="MB"), Row("  with mapped pages", None, unit="MB")
    for engine in bench.engines:
        script = engine.cold_stream(engine.place(bench.data, "table"))
        mine, all_of_it = peak_memory(script)
        own.values[engine.name] = (mine, mine)
        resident.values[engine.name] = (all_of_it, all_of_it)
    return [own, resident]


WORKLOADS = [
    Workload("cold process, take 10", 1, _cold),
    Workload("memory of a stream", None, _memory),
]
