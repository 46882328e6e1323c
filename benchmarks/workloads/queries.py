"""Filters, orders and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.engines import Engine
from benchmarks.workloads.common import Bench, Row, Run, Workload, each, run, same, scan, timed

__all__ = ["WORKLOADS"]

Ask = Callable[[Any], Any]


def ask(name: str, lance: Ask, parquet: Ask) -> Run:
    """Ask the datasets and pyarrow the same question."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        opened = {e.name: e.open(e.place(bench.data, name)) for e in bench.engines}

        def call(engine: Engine) -> Any:
            question = parquet if engine.name == "parquet" else lance
            return question(opened[engine.name])

        answers = {engine.name: call(engine) for engine in bench.engines}
        row = Row(title, goal)
        if isinstance(answers["pylance"], pa.Table):
            row.wrong = same(answers)
        elif answers.get("glaive", answers["pylance"]) != answers["pylance"]:
            row.wrong = "another number than pylance"
        del answers
        return timed(row, run(bench, each(bench, call)))

    return work


def rows(name: str, columns: Sequence[str] | None, text: str, expression: pc.Expression) -> Run:
    """Read the rows that pass a filter."""
    chosen = None if columns is None else list(columns)
    return ask(
        name,
        lambda dataset: dataset.to_table(columns=chosen, filter=text),
        lambda dataset: dataset.to_table(columns=chosen, filter=expression),
    )


def count(name: str, text: str, expression: pc.Expression) -> Run:
    """Count the rows that pass a filter."""
    return ask(
        name,
        lambda dataset: dataset.count_rows(text),
        lambda dataset: dataset.count_rows(filter=expression),
    )


def first(name: str, columns: Sequence[str], key: str, limit: int) -> Run:
    """Read the first rows of an order. All keys are distinct, so that the answer is unique."""
    chosen = list(columns)
    return ask(
        name,
        lambda dataset: dataset.scanner(chosen, order_by=[key], limit=limit).to_table(),
        lambda dataset: dataset.to_table(columns=chosen).sort_by(key).slice(0, limit),
    )


_FLOAT, _SMALL, _SEQ = pc.field("float"), pc.field("small"), pc.field("seq")
_KIND, _TEXT = pc.field("kind"), pc.field("text")
_FOUR = [1, 77, 500, 900]
_THREE = ("seq", "float", "text")

WORKLOADS = [
    Workload("filter float < x (1 %)", 6, rows("table", _THREE, "float < 0.01", _FLOAT < 0.01)),
    Workload("filter int64 = k", 10, rows("table", None, "seq = 12345", _SEQ == 12345)),
    Workload(
        "filter int64 = k, 2 columns",
        12,
        rows("table", ("seq", "float"), "seq = 12345", _SEQ == 12345),
    ),
    Workload(
        "filter int32 = k (0.1 %)", 6, rows("table", ("seq", "text"), "small = 77", _SMALL == 77)
    ),
    Workload(
        "filter int32 in 4 values",
        6,
        rows(
            "table", ("seq", "float"), "small IN (1, 77, 500, 900)", _SMALL.isin([1, 77, 500, 900])
        ),
    ),
    Workload(
        "filter string of 50 values",
        6,
        rows("table", ("seq", "float"), "kind = 'category-07'", _KIND == "category-07"),
    ),
    Workload(
        "filter text LIKE",
        3,
        rows("table", ("seq",), "text LIKE '%tea%'", pc.match_substring(_TEXT, "tea")),
    ),
    Workload(
        "filter half of the rows",
        None,
        rows("table", ("seq", "float"), "float < 0.5", _FLOAT < 0.5),
    ),
    Workload("count float < x", 5, count("table", "float < 0.5", _FLOAT < 0.5)),
    Workload("first 100 by float", 3, first("table", _THREE, "float", 100)),
    Workload("filter _rowid", 1, rows("table", None, "_rowid = 4321", _SEQ == 4321)),
    Workload("scan 3 % deleted", 8, scan("deleted")),
    Workload("scan 1,000 fragments", 8, scan("fragments")),
    Workload(
        "filter 1,000 fragments",
        8,
        rows("fragments", ("seq", "float"), "small < 100", _SMALL < 100),
    ),
]
