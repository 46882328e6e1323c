"""Takes of random rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

import numpy as np
import pyarrow as pa

from benchmarks.engines import Engine
from benchmarks.measure import interleave
from benchmarks.workloads.common import Bench, Row, Run, Workload, run, same, timed, without_parquet

__all__ = ["WORKLOADS"]

_FEW = 100


def against_one(columns: Sequence[str] | None) -> Run:
    """Compare a take of 100 random rows from a thousand fragments with a take from one."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        bench = without_parquet(bench)
        rng = np.random.default_rng(5)
        calls: dict[str, Callable[[], object]] = {}
        for engine in bench.engines:
            for name in ("scattered", "one_of_them"):
                opened = engine.open(engine.place(bench.data, name))
                total = bench.data.make(name).num_rows
                draws = [rng.integers(0, total, _FEW) for _ in range(64)]
                for draw in draws[:20]:  # until all fragments are open
                    engine.take(opened, draw, columns)
                turns = cycle(draws)
                calls[f"{engine.name} {name}"] = partial(
                    lambda engine, opened, turns: engine.take(opened, next(turns), columns),
                    engine,
                    opened,
                    turns,
                )
        times = run(bench, calls, 10)
        row = Row(title, None, unit="x", most=goal)
        for engine in bench.engines:
            many, one = times[f"{engine.name} scattered"], times[f"{engine.name} one_of_them"]
            row.values[engine.name] = (many.cpu / one.cpu, many.wall / one.wall)
            row.repeats = many.repeats
        return [row]

    return work


def take(name: str, count: int, inner: int, columns: Sequence[str] | None = None) -> Run:
    """Take rows at random; ``inner`` calls per measurement."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        opened = {e.name: e.open(e.place(bench.data, name)) for e in bench.engines}
        total = bench.data.make(name).num_rows
        rng = np.random.default_rng(5)
        draws = [rng.integers(0, total, count) for _ in range(64)]

        def again(engine: Engine) -> Callable[[], object]:
            turn = 0

            def call() -> pa.Table:
                nonlocal turn
                turn += 1
                return engine.take(opened[engine.name], draws[turn % len(draws)], columns)

            return call

        row = Row(
            title,
            goal,
            wrong=same({e.name: e.take(opened[e.name], draws[0], columns) for e in bench.engines}),
        )
        lance = [engine for engine in bench.engines if engine.name != "parquet"]
        times = run(bench, {engine.name: again(engine) for engine in lance}, inner)
        for engine in bench.engines:
            if engine not in lance:  # takes a second: one call per measurement
                times |= interleave({engine.name: again(engine)}, repeats=3, inner=1, seconds=0)
        return timed(row, times)

    return work


WORKLOADS = [
    Workload("take 1 table", 5, take("table", 1, 50)),
    Workload("take 100 table", 12, take("table", 100, 5)),
    Workload("take 10,000 table", 10, take("table", 10_000, 1)),
    Workload("take 100 int64", 12, take("table", 100, 20, ["seq"])),
    Workload("take 10,000 int64", 6, take("table", 10_000, 5, ["seq"])),
    Workload("take 100 text", 8, take("table", 100, 10, ["text"])),
    Workload("take 1 nested", 4, take("nested", 1, 20)),
    Workload("take 100 nested", 8, take("nested", 100, 5)),
    Workload("take 10,000 nested", 6, take("nested", 10_000, 1)),
    Workload("take 100 of 1,000 fragments", 8, take("scattered", 100, 5)),
    Workload("take 100 int64 of 1,000 fragments", 8, take("scattered", 100, 5, ["seq"])),
    Workload("  1,000 fragments against one", 3, against_one(None)),
    Workload("  int64, 1,000 fragments against one", 3, against_one(["seq"])),
    Workload("take 1 vectors", 5, take("vectors", 1, 50)),
    Workload("take 100 vectors", 12, take("vectors", 100, 10)),
    Workload("take 10,000 vectors", 10, take("vectors", 10_000, 1)),
]
