"""Opening datasets, and appending to them."""

from __future__ import annotations

import shutil

from benchmarks.engines import Engine
from benchmarks.workloads.common import Bench, Row, Workload, each, run, same, timed
from benchmarks.workloads.manifests import WORKLOADS as MANIFESTS

__all__ = ["WORKLOADS"]


def _open(bench: Bench, title: str, goal: float | None) -> list[Row]:
    paths = {e.name: e.place(bench.data, "table") for e in bench.engines}
    calls = each(bench, lambda engine: engine.open(paths[engine.name]))
    return timed(Row(title, goal), run(bench, calls, 20))


def _append(bench: Bench, title: str, goal: float | None) -> list[Row]:
    ten = bench.data.make("table").slice(0, 10).combine_chunks()
    paths = {}
    for engine in bench.engines:
        paths[engine.name] = path = bench.data.scratch(f"append-{engine.name}")
        engine.write(ten, path, bench.data.version)
    calls = each(bench, lambda engine: engine.append(ten, paths[engine.name]))
    rows = timed(Row(title, goal), run(bench, calls))
    for path in paths.values():
        shutil.rmtree(path)
    return rows


def _two_of_many(bench: Bench, title: str, goal: float | None) -> list[Row]:
    paths = {e.name: e.place(bench.data, "wide") for e in bench.engines}
    columns = ["c00017", "c09000"]

    def call(engine: Engine) -> object:
        return engine.scan(engine.open(paths[engine.name]), columns)

    answers = {e.name: e.scan(e.open(paths[e.name]), columns) for e in bench.engines}
    return timed(Row(title, goal, wrong=same(answers)), run(bench, each(bench, call)))


WORKLOADS = [
    Workload("open", 5, _open),
    Workload("open 10,000 columns, read 2", 3, _two_of_many),
    Workload("append ten rows", 3, _append),
    *MANIFESTS,
]
