"""Building blocks of workloads: rows of the table, timing and checks."""

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
    """The settings of a run; ``memory_gb`` is the largest source whose memory is measured."""

    data: Data
    engines: Sequence[Engine]
    repeats: int
    seconds: float
    memory_gb: float = 0.25


@dataclass(slots=True)
class Row:
    """One row of the table: CPU and wall milliseconds per engine, unless ``unit`` differs.

    ``wrong`` says how glaive's answer differs from pylance's; it is empty if they are equal.
    ``most`` is an absolute goal: the maximum of glaive's value.
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
        """The ratio of pylance's CPU time to glaive's."""
        if self.unit != "ms" or not {"glaive", "pylance"} <= self.values.keys():
            return None
        # CPU clocks have a coarse resolution: a time may be zero.
        return self.values["pylance"][0] / max(self.values["glaive"][0], 1e-6)


Run = Callable[[Bench, str, float | None], list[Row]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload; ``goal`` is the minimum ratio of pylance's CPU time to glaive's."""

    name: str
    goal: float | None
    run: Run
    group: str = ""


def each(bench: Bench, call: Callable[[Engine], object]) -> dict[str, Callable[[], object]]:
    """Return one call per engine."""
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
    """Return the bench without Parquet, for features that Parquet lacks."""
    chosen = [engine for engine in bench.engines if engine.name != "parquet"]
    return replace(bench, engines=chosen)
