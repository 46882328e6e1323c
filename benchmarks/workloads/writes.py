"""Writing datasets, and their sizes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines import Engine
from benchmarks.workloads.common import Bench, Row, Run, Workload, each, run, timed

__all__ = ["WORKLOADS"]


def write(name: str) -> Run:
    """Write a table; a second row has the sizes."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        table = bench.data.make(name)
        sizes = {}

        def once(engine: Engine) -> None:
            path = bench.data.scratch(f"write-{engine.name}")
            engine.write(table, path, bench.data.version)
            sizes[engine.name] = _size(path)

        row = Row(title, goal)
        rows = timed(row, run(bench, each(bench, once)))
        for engine in bench.engines:
            if engine.name == "glaive":  # read by the other reader
                path = bench.data.folder / "scratch" / "write-glaive"
                theirs = bench.engines[0]
                back = theirs.scan(theirs.open(path), None)
                row.wrong = "" if back.equals(table) else "pylance reads other values"
            bench.data.scratch(f"write-{engine.name}")
        size = Row(f"size {name}", 0.97, unit="MB")
        size.values = {engine: (bytes_ / 1e6, bytes_ / 1e6) for engine, bytes_ in sizes.items()}
        return [*rows, size]

    return work


def _size(path: Path) -> int:
    files = [path] if path.is_file() else list(path.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


WORKLOADS = [
    Workload("write table", 1.8, write("table")),
    Workload("write vectors", 5, write("vectors")),
    Workload("write nested", 3, write("nested")),
    Workload("write blobs", 4, write("blobs")),
]
