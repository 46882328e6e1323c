"""Scalar and full-text indices: filters, text searches, builds, and opening."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.engines import Engine
from benchmarks.indexed import INDICES, parameters, vocabulary
from benchmarks.workloads.common import Bench, Row, Run, Workload, run, timed

__all__ = ["WORKLOADS"]

_TURNS = 32
"""Distinct questions asked in turn, so that consecutive questions differ."""

Question = dict[str, Any]
"""Arguments of ``to_table``."""


def asked(
    name: str, questions: Callable[[int], Sequence[Question]], inner: int, *, scored: bool = False
) -> Run:
    """Ask pylance and glaive the same questions of a dataset that pylance wrote and indexed.

    Parameters
    ----------
    questions
        Function of the number of rows of the dataset.
    inner
        Calls per measurement.
    scored
        Whether answers have a score and are sorted by it.
    """

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        lance = [engine for engine in bench.engines if engine.name != "parquet"]
        opened = {e.name: e.open(e.place(bench.data, name)) for e in lance}
        asked_in_turn = questions(opened["pylance"].count_rows())

        def again(engine: Engine) -> Callable[[], pa.Table]:
            turn = 0

            def call() -> pa.Table:
                nonlocal turn
                turn += 1
                table: pa.Table = opened[engine.name].to_table(
                    **asked_in_turn[turn % len(asked_in_turn)]
                )
                return table

            return call

        row = Row(title, goal)
        found = 0
        for question in asked_in_turn[:8]:
            answers = {e.name: opened[e.name].to_table(**question) for e in lance}
            found += answers["pylance"].num_rows
            row.wrong = row.wrong or _differs(answers, scored=scored)
        if not found:
            row.wrong = "no question has an answer"
        return timed(row, run(bench, {engine.name: again(engine) for engine in lance}, inner))

    return work


def _differs(answers: Mapping[str, pa.Table], *, scored: bool) -> str:
    """Say how glaive's answer differs from pylance's: in rows, or in scores if rows may tie."""
    if "glaive" not in answers:
        return ""
    theirs, ours = answers["pylance"], answers["glaive"]
    if ours.schema != theirs.schema:
        return f"schema {ours.schema} instead of {theirs.schema}"
    if scored:
        mine, others = (np.sort(np.asarray(table["_score"])) for table in (ours, theirs))
        close = len(mine) == len(others) and np.allclose(mine, others, rtol=1e-5)
        return "" if close else "other scores than pylance"
    key = "id" if "id" in theirs.column_names else theirs.column_names[0]
    same = ours.sort_by(key).equals(theirs.sort_by(key))
    return "" if same else "other rows than pylance"


def filters(*texts: Callable[[int, np.random.Generator], str]) -> Callable[[int], list[Question]]:
    """Make filters from the number of rows and random numbers."""

    def questions(rows: int) -> list[Question]:
        rng = np.random.default_rng(25)
        return [{"filter": texts[at % len(texts)](rows, rng)} for at in range(_TURNS)]

    return questions


def _key(rows: int, rng: np.random.Generator) -> int:
    return int(rng.integers(rows)) * 3


def _name(rows: int, rng: np.random.Generator) -> str:
    return f"'user-{_key(rows, rng):09d}@example.org'"


def _keys(rows: int, rng: np.random.Generator, count: int) -> str:
    return ", ".join(str(_key(rows, rng)) for _ in range(count))


def _range(rows: int, rng: np.random.Generator) -> str:
    first = int(rng.integers(rows - min(rows, 1_000) + 1)) * 3
    return f"id >= {first} AND id < {first + 3_000}"


def _times(rows: int, rng: np.random.Generator) -> str:
    # Rows are 30 seconds apart on average: select 0.1 % of the rows, or ten.
    start = 20_000 * 86_400 + int(rng.integers(rows // 2)) * 30
    return (
        f"time >= arrow_cast({start}, 'Timestamp(Second, None)') AND "
        f"time < arrow_cast({start + 30 * max(10, rows // 1_000)}, 'Timestamp(Second, None)')"
    )


def _title(_rows: int, rng: np.random.Generator) -> str:
    long = [word for word in vocabulary().to_pylist()[50:2_000] if len(word) >= 6]
    return f"contains(title, '{long[int(rng.integers(len(long)))]}')"


def texts(
    words: int, *, phrase: bool = False, columns: list[str] | None = None
) -> Callable[[int], list[Question]]:
    """Make searches of the ten best texts for some words; one word is frequent."""

    def questions(_rows: int) -> list[Question]:
        rng = np.random.default_rng(26)
        known = vocabulary()
        found = []
        for _ in range(_TURNS):
            ranks = [int(rng.integers(1, 60)), *rng.integers(20, 1_000, 2).tolist()]
            chosen = [known[rank].as_py() for rank in ranks[:words]]
            if phrase:
                chosen = [known[int(rank)].as_py() for rank in rng.integers(0, 12, 2)]
            query = " ".join(chosen)
            found.append(
                {
                    "full_text_query": f'"{query}"' if phrase else query,
                    "columns": columns,
                    "limit": 10,
                }
            )
        return found

    return questions


def built(name: str, column: str, kind: str) -> Run:
    """Build one index, which replaces the last one."""

    def work(bench: Bench, title: str, goal: float | None) -> list[Row]:
        lance = [engine for engine in bench.engines if engine.name != "parquet"]
        table = bench.data.make(name)
        paths = {e.name: bench.data.scratch(f"index-{e.name}") for e in lance}
        opened: dict[str, Any] = {}
        for engine in lance:
            engine.write(table, paths[engine.name], bench.data.version)
            opened[engine.name] = engine.open(paths[engine.name])

        def build(engine: Engine) -> Callable[[], object]:
            def call() -> object:
                return opened[engine.name].create_scalar_index(
                    column, kind, replace=True, **parameters(kind)
                )

            return call

        rows = timed(Row(title, goal), run(bench, {e.name: build(e) for e in lance}))
        for path in paths.values():
            shutil.rmtree(path)
        return rows

    return work


def _open_indexed(bench: Bench, title: str, goal: float | None) -> list[Row]:
    """Open a dataset with 20 indices, and the same dataset without indices."""
    lance = [engine for engine in bench.engines if engine.name != "parquet"]
    table = bench.data.make("keyed").slice(0, 1_000).select(["id"]).combine_chunks()
    rows = []
    for indices in (20, 0):
        path = bench.data.scratch(f"open-{indices}")
        lance[0].write(table, path, bench.data.version)
        dataset = lance[0].open(path)
        for number in range(indices):
            dataset.create_scalar_index("id", "BTREE", name=f"index-{number}", replace=False)

        def again(engine: Engine, path: Any = path) -> Callable[[], object]:
            return lambda: engine.open(path)

        row = Row(title if indices else "  without indices", goal if indices else None)
        rows += timed(row, run(bench, {e.name: again(e) for e in lance}, 20))
        shutil.rmtree(path)
    return rows


BUILD_GOALS = {"BTREE": 2, "BITMAP": 2, "ZONEMAP": 2, "INVERTED": 1}

WORKLOADS = [
    Workload(
        "BTREE int64 point", 5, asked("keyed", filters(lambda n, r: f"id = {_key(n, r)}"), 20)
    ),
    Workload(
        "BTREE string point", 5, asked("keyed", filters(lambda n, r: f"name = {_name(n, r)}"), 20)
    ),
    Workload("BTREE int64 range of 1,000", 3, asked("keyed", filters(_range), 5)),
    Workload(
        "BTREE int64 in 10",
        3,
        asked("keyed", filters(lambda n, r: f"id IN ({_keys(n, r, 10)})"), 5),
    ),
    Workload(
        "BTREE int64 in 1,000",
        3,
        asked("keyed", filters(lambda n, r: f"id IN ({_keys(n, r, 1_000)})"), 1),
    ),
    Workload(
        "BTREE string in 10",
        3,
        asked(
            "keyed",
            filters(lambda n, r: f"name IN ({', '.join(_name(n, r) for _ in range(10))})"),
            5,
        ),
    ),
    Workload(
        "BITMAP point (0.05 %)",
        3,
        asked("keyed", filters(lambda _, r: f"kind = 'category-{r.integers(150, 190):03d}'"), 5),
    ),
    Workload(
        "BITMAP in 4",
        3,
        asked(
            "keyed",
            filters(
                lambda _, r: (
                    "kind IN ("
                    + ", ".join(f"'category-{at:03d}'" for at in r.integers(100, 199, 4))
                    + ")"
                )
            ),
            5,
        ),
    ),
    Workload(
        "LABEL_LIST has",
        3,
        asked(
            "keyed",
            filters(lambda _, r: f"array_has(labels, 'label-{r.integers(100, 200):04d}')"),
            5,
        ),
    ),
    Workload("ZONEMAP range (0.1 %)", None, asked("keyed", filters(_times), 5)),
    Workload("NGRAM contains", 3, asked("documents", filters(_title), 5)),
    Workload("text top 10, 1 word", 3, asked("documents", texts(1), 5, scored=True)),
    Workload(
        "text top 10, 1 word, ids",
        3,
        asked("documents", texts(1, columns=["id", "_score"]), 5, scored=True),
    ),
    Workload("text top 10, 3 words", 3, asked("documents", texts(3), 5, scored=True)),
    Workload(
        "text top 10, 3 words, ids",
        3,
        asked("documents", texts(3, columns=["id", "_score"]), 5, scored=True),
    ),
    Workload("text top 10, phrase", 2, asked("documents", texts(2, phrase=True), 5, scored=True)),
    *(
        Workload(f"build {kind} {column}", BUILD_GOALS.get(kind), built(name, column, kind))
        for name, columns in INDICES.items()
        for column, kind in columns
        if kind != "NGRAM"  # takes pylance seconds on any data
    ),
    Workload("open with 20 indices", 5, _open_indexed),
]
