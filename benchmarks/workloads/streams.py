"""Reads batch by batch."""

from __future__ import annotations

from benchmarks.engines import Engine
from benchmarks.workloads.common import Bench, Row, Run, Workload, each, run, timed

__all__ = ["WORKLOADS"]


def stream(name: str) -> Run:
    """Read an opened dataset batch by batch."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        opened = {e.name: e.open(e.place(bench.data, name)) for e in bench.engines}

        def drain(engine: Engine) -> int:
            return sum(batch.num_rows for batch in engine.stream(opened[engine.name], None))

        row = Row(title, goal)
        if len({drain(engine) for engine in bench.engines}) != 1:
            row.wrong = "another number of rows"
        return timed(row, run(bench, each(bench, drain)))

    return work


WORKLOADS = [
    Workload("stream table", 3, stream("table")),
    Workload("stream vectors", None, stream("vectors")),
]
