"""What workloads are made of: rows of the table, and how they are timed and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from benchmarks.data import Data
from benchmarks.engines import Engine
from benchmarks.measure import Times, interleave

__all__ = [
    "Bench",
    "Row",
    "Run",
    "Workload",
    "each",
    "run",
    "same",
    "scan",
    "timed",
    "without_parquet",
]


@dataclass(frozen=True, slots=True)
class Bench:
    """What all workloads share; ``memory_gb`` is the largest source whose memory is measured."""

    data: Data
    engines: Sequence[Engine]
    repeats: int
    seconds: float
    memory_gb: float = 0.25


@dataclass(slots=True)
class Row:
    """One line of the table: per engine a pair, CPU and wall milliseconds unless said.

    ``wrong`` says how glaive's answer differs from pylance's; empty when it does not. ``most``
    is a goal that does not look at pylance: glaive's own value at most.
    """

    name: str
    goal: float | None
    values: dict[str, tuple[float, float]] = field(default_factory=dict)
    unit: str = "ms"
    repeats: int = 1
    wrong: str = ""
    most: float | None = None
    group: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times less CPU time glaive needs than pylance."""
        if self.unit != "ms" or not {"glaive", "pylance"} <= self.values.keys():
            return None
        # The clock of a process ticks in steps; a value may be zero.
        return self.values["pylance"][0] / max(self.values["glaive"][0], 1e-6)


Run = Callable[[Bench, str, float | None], list[Row]]


@dataclass(frozen=True, slots=True)
class Workload:
    """``goal``: how many times quicker than pylance, by CPU time."""

    name: str
    goal: float | None
    run: Run
    group: str = ""


def each(bench: Bench, call: Callable[[Engine], object]) -> dict[str, Callable[[], object]]:
    """One call per engine."""
    return {engine.name: partial(call, engine) for engine in bench.engines}


def run(bench: Bench, calls: dict[str, Callable[[], object]], inner: int = 1) -> dict[str, Times]:
    """Time calls in turn."""
    return interleave(calls, repeats=bench.repeats, inner=inner, seconds=bench.seconds)


def timed(row: Row, times: dict[str, Times]) -> list[Row]:
    """Put times into a row."""
    row.values = {name: (time.cpu, time.wall) for name, time in times.items()}
    row.repeats = min(time.repeats for time in times.values())
    return [row]


def same(results: dict[str, pa.Table]) -> str:
    """Compare glaive's answer with pylance's."""
    if "glaive" not in results:
        return ""
    ours, theirs = results["glaive"], results["pylance"]
    if ours.schema != theirs.schema:
        return f"schema {ours.schema} instead of {theirs.schema}"
    return "" if ours.equals(theirs) else "other values than pylance"


def scan(name: str, columns: list[str] | None = None) -> Run:
    """Read columns of an opened dataset into one table."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        opened = {e.name: e.open(e.place(bench.data, name)) for e in bench.engines}
        answers = {e.name: e.scan(opened[e.name], columns) for e in bench.engines}
        row = Row(title, goal, wrong=same(answers))
        del answers
        calls = each(bench, lambda engine: engine.scan(opened[engine.name], columns))
        return timed(row, run(bench, calls))

    return work


def without_parquet(bench: Bench) -> Bench:
    """The same for what Parquet files cannot do."""
    chosen = [engine for engine in bench.engines if engine.name != "parquet"]
    return replace(bench, engines=chosen)
