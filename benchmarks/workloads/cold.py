"""Takes and scans of files that are not in memory."""

from __future__ import annotations

import gc
import os
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from benchmarks.workloads.common import Bench, Row, Run, Workload

__all__ = ["WORKLOADS"]


def _forget(path: Path) -> None:
    """Have the system drop the data files of a dataset from its page cache."""
    for file in (path / "data").iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # the system only drops written pages
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def take(name: str, count: int) -> Run:
    """Take rows at random, with an empty page cache before each measurement."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        engines = [engine for engine in bench.engines if engine.name != "parquet"]
        places = {e.name: e.place(bench.data, name) for e in engines}
        opened = {e.name: e.open(places[e.name]) for e in engines}
        total = bench.data.make(name).num_rows
        rng = np.random.default_rng(7)
        seen: dict[str, list[tuple[float, float]]] = {e.name: [] for e in engines}
        for engine in engines:
            engine.take(opened[engine.name], rng.integers(0, total, count))
        for _ in range(max(5, bench.repeats)):
            for engine in engines:
                rows = np.sort(rng.choice(total, min(count, total), replace=False))
                _forget(places[engine.name])
                wall, cpu = time.perf_counter(), time.process_time()
                engine.take(opened[engine.name], rows)
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                seen[engine.name].append((cpu * 1e3, wall * 1e3))
        return [_medians(Row(title, goal), seen)]

    return work


def scan(name: str, column: str) -> Run:
    """Open a dataset and sum a column of lists, with an empty page cache before."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        engines = [engine for engine in bench.engines if engine.name != "parquet"]
        places = {e.name: e.place(bench.data, name) for e in engines}
        seen: dict[str, list[tuple[float, float]]] = {e.name: [] for e in engines}
        sums = {}
        for _ in range(max(3, bench.repeats // 2)):
            for engine in engines:
                gc.collect()  # the system keeps mapped pages
                _forget(places[engine.name])
                wall, cpu = time.perf_counter(), time.process_time()
                # Sum the numbers, as an engine may defer reads to the first access.
                sums[engine.name] = sum(
                    pc.sum(batch[column].flatten()).as_py()
                    for batch in engine.stream(engine.open(places[engine.name]), [column])
                )
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                seen[engine.name].append((cpu * 1e3, wall * 1e3))
        row = Row(title, goal)
        if not np.allclose(list(sums.values()), next(iter(sums.values()))):
            row.wrong = "another sum than pylance"
        return [_medians(row, seen)]

    return work


def _medians(row: Row, seen: dict[str, list[tuple[float, float]]]) -> Row:
    row.repeats = min(map(len, seen.values()))
    row.values = {
        name: (
            statistics.median(cpu for cpu, _ in times),
            statistics.median(wall for _, wall in times),
        )
        for name, times in seen.items()
    }
    return row


WORKLOADS = [
    Workload("cold data, take 100 vectors", None, take("vectors", 100)),
    Workload("cold data, take 1,000 vectors", None, take("vectors", 1_000)),
    Workload("cold data, take 100 table", None, take("table", 100)),
    Workload("cold data, scan vectors", None, scan("vectors", "vector")),
]
