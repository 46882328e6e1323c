"""What is compared. Each workload is a name, a goal, and a function from engines to a row."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.data import Data
from benchmarks.engines import Engine
from benchmarks.measure import Times, interleave, peak_memory, run_process

__all__ = ["Bench", "Row", "Workload", "workloads"]


@dataclass(frozen=True, slots=True)
class Bench:
    """What all workloads share."""

    data: Data
    engines: Sequence[Engine]
    repeats: int
    seconds: float


@dataclass(slots=True)
class Row:
    """One line of the table: per engine a pair, CPU and wall milliseconds unless said.

    ``wrong`` says how glaive's answer differs from pylance's; empty when it does not.
    """

    name: str
    goal: float | None
    values: dict[str, tuple[float, float]] = field(default_factory=dict)
    unit: str = "ms"
    repeats: int = 1
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """``goal``: how many times quicker than pylance, by CPU time."""

    name: str
    goal: float | None
    run: Callable[[Bench, str, float | None], list[Row]]


def _timed(row: Row, times: dict[str, Times]) -> list[Row]:
    row.values = {name: (time.cpu, time.wall) for name, time in times.items()}
    row.repeats = min(time.repeats for time in times.values())
    return [row]


def _same(results: dict[str, pa.Table]) -> str:
    """Compare glaive's answer with pylance's."""
    if "glaive" not in results:
        return ""
    ours, theirs = results["glaive"], results["pylance"]
    if ours.schema != theirs.schema:
        return f"schema {ours.schema} instead of {theirs.schema}"
    return "" if ours.equals(theirs) else "other values than pylance"


def _scan(name: str, columns: list[str] | None) -> Callable[[Bench, str, float | None], list[Row]]:
    def run(bench: Bench, title: str, goal: float | None) -> list[Row]:
        opened = {e.name: e.open(e.place(bench.data, name)) for e in bench.engines}
        row = Row(
            title,
            goal,
            wrong=_same({e.name: e.scan(opened[e.name], columns) for e in bench.engines}),
        )
        calls = _each(bench, lambda engine: engine.scan(opened[engine.name], columns))
        return _timed(row, _run(bench, calls))

    return run


def _stream(name: str) -> Callable[[Bench, str, float | None], list[Row]]:
    def run(bench: Bench, title: str, goal: float | None) -> list[Row]:
        opened = {e.name: e.open(e.place(bench.data, name)) for e in bench.engines}

        def drain(engine: Engine) -> int:
            return sum(batch.num_rows for batch in engine.stream(opened[engine.name], None))

        row = Row(title, goal)
        if len({drain(engine) for engine in bench.engines}) != 1:
            row.wrong = "another number of rows"
        return _timed(row, _run(bench, _each(bench, drain)))

    return run


def _take(name: str, count: int, inner: int) -> Callable[[Bench, str, float | None], list[Row]]:
    def run(bench: Bench, title: str, goal: float | None) -> list[Row]:
        opened = {e.name: e.open(e.place(bench.data, name)) for e in bench.engines}
        total = bench.data.make(name).num_rows
        rng = np.random.default_rng(5)
        draws = [rng.integers(0, total, count) for _ in range(64)]

        def again(engine: Engine) -> Callable[[], object]:
            turn = 0

            def call() -> pa.Table:
                nonlocal turn
                turn += 1
                return engine.take(opened[engine.name], draws[turn % len(draws)])

            return call

        row = Row(
            title,
            goal,
            wrong=_same({e.name: e.take(opened[e.name], draws[0]) for e in bench.engines}),
        )
        lance = [engine for engine in bench.engines if engine.name != "parquet"]
        times = _run(bench, {engine.name: again(engine) for engine in lance}, inner)
        for engine in bench.engines:
            if engine not in lance:  # takes a second: never many per measurement
                times |= interleave({engine.name: again(engine)}, repeats=3, inner=1, seconds=0)
        return _timed(row, times)

    return run


def _open(bench: Bench, title: str, goal: float | None) -> list[Row]:
    paths = {e.name: e.place(bench.data, "table") for e in bench.engines}
    calls = _each(bench, lambda engine: engine.open(paths[engine.name]))
    return _timed(Row(title, goal), _run(bench, calls, 20))


def _append(bench: Bench, title: str, goal: float | None) -> list[Row]:
    ten = bench.data.make("table").slice(0, 10).combine_chunks()
    paths = {}
    for engine in bench.engines:
        paths[engine.name] = path = bench.data.scratch(f"append-{engine.name}")
        engine.write(ten, path, bench.data.version)
    calls = _each(bench, lambda engine: engine.append(ten, paths[engine.name]))
    rows = _timed(Row(title, goal), _run(bench, calls))
    for path in paths.values():
        shutil.rmtree(path)
    return rows


def _write(name: str) -> Callable[[Bench, str, float | None], list[Row]]:
    def run(bench: Bench, title: str, goal: float | None) -> list[Row]:
        table = bench.data.make(name)
        sizes = {}

        def write(engine: Engine) -> None:
            path = bench.data.scratch(f"write-{engine.name}")
            engine.write(table, path, bench.data.version)
            sizes[engine.name] = _size(path)

        row = Row(title, goal)
        rows = _timed(row, _run(bench, _each(bench, write)))
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

    return run


def _size(path: Path) -> int:
    files = [path] if path.is_file() else list(path.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


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


def _each(bench: Bench, call: Callable[[Engine], object]) -> dict[str, Callable[[], object]]:
    return {engine.name: partial(call, engine) for engine in bench.engines}


def _run(bench: Bench, calls: dict[str, Callable[[], object]], inner: int = 1) -> dict[str, Times]:
    return interleave(calls, repeats=bench.repeats, inner=inner, seconds=bench.seconds)


def workloads() -> list[Workload]:
    """Return all workloads in the order of the table."""
    return [
        Workload("scan float64 flat, one run", 20, _scan("plain", None)),
        Workload("scan float64 flat, in chunks", 20, _scan("flat", None)),
        Workload("scan bool", 20, _scan("table", ["flag"])),
        Workload("scan vectors", 20, _scan("vectors", None)),
        Workload("scan int64 bit-packed", 5, _scan("table", ["seq"])),
        Workload("scan int32 bit-packed", 5, _scan("table", ["small"])),
        Workload("scan float64 bit-packed", 5, _scan("table", ["float"])),
        Workload("scan timestamp", 5, _scan("table", ["time"])),
        Workload("scan int64 with nulls", 7, _scan("table", ["nullable"])),
        Workload("scan list<int32>", 7, _scan("nested", ["ints"])),
        Workload("scan list<string>", None, _scan("nested", ["strings"])),
        Workload("scan struct with nulls", 7, _scan("nested", ["struct"])),
        Workload("scan string, 50 values", 8, _scan("table", ["kind"])),
        Workload("scan text", 3, _scan("table", ["text"])),
        Workload("scan table", 4, _scan("table", None)),
        Workload("stream table", 3, _stream("table")),
        Workload("stream vectors", None, _stream("vectors")),
        Workload("take 1 table", 5, _take("table", 1, 50)),
        Workload("take 100 table", 12, _take("table", 100, 5)),
        Workload("take 10,000 table", 10, _take("table", 10_000, 1)),
        Workload("take 1 vectors", 5, _take("vectors", 1, 50)),
        Workload("take 100 vectors", 12, _take("vectors", 100, 10)),
        Workload("take 10,000 vectors", 10, _take("vectors", 10_000, 1)),
        Workload("open", 5, _open),
        Workload("append ten rows", 3, _append),
        Workload("write table", 1.8, _write("table")),
        Workload("write vectors", 5, _write("vectors")),
        Workload("write nested", None, _write("nested")),
        Workload("cold process, take 10", 1, _cold),
        Workload("memory of a stream", None, _memory),
    ]
