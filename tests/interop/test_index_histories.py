"""Indices over the life of a dataset, kept and searched by both libraries in turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS = 3000
WORDS = ["ape", "bear", "cat", "dog", "eel", "fox", "gnu", "hare"]

KINDS: dict[str, tuple[str, list[str], str]] = {
    "BTREE": ("n", ["n = 7", "n < 20", "n in (3, 900, 2500)", "n is null"], "ScalarIndexQuery"),
    "BITMAP": ("w", ["w = 'cat'", "w in ('ape', 'eel')", "w is null"], "ScalarIndexQuery"),
    "ZONEMAP": ("n", ["n = 7", "n < 20", "n is null"], "ScalarIndexQuery"),
    "BLOOMFILTER": ("n", ["n = 7", "n in (3, 900, 2500)"], "ScalarIndexQuery"),
    "NGRAM": ("t", ["contains(t, 'cat')", "contains(t, 'the eel')"], "ScalarIndexQuery"),
    "LABEL_LIST": ("l", ["array_has(l, 3)", "array_has_any(l, [1, 5])"], "ScalarIndexQuery"),
}
"""By kind of index: its column, filters that it answers, and what pylance's plan shows then."""

ZONES = ("ZONEMAP", "BLOOMFILTER")
"""Kinds that are not rebuilt for relocated rows."""

Dataset = Any
"""One of either library."""


def rows(start: int, count: int) -> pa.Table:
    rng = np.random.default_rng(start)
    numbers = rng.permutation(count) + start
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "n": pa.array(numbers, mask=rng.random(count) < 0.05),
            "w": pa.array(rng.choice(WORDS, count), mask=rng.random(count) < 0.1),
            "t": pa.array(
                [f"the {first} and a {other}" for first, other in rng.choice(WORDS, (count, 2))],
                mask=rng.random(count) < 0.1,
            ),
            "l": pa.array([rng.integers(0, 8, rng.integers(0, 4)).tolist() for _ in range(count)]),
        }
    )


def append(dataset: Dataset) -> None:
    count = dataset.count_rows()
    write = (
        glaive.write_dataset if isinstance(dataset, glaive.LanceDataset) else lance.write_dataset
    )
    write(rows(10_000 + count, 200), dataset.uri, mode="append")


HISTORY: list[tuple[str, Callable[[Dataset], object]]] = [
    ("delete", lambda dataset: dataset.delete("id % 10 = 3")),
    ("append", append),
    (
        "update",
        lambda dataset: dataset.update(
            {"w": "'cat'", "n": "n + 1", "t": "'a cat'"}, where="id >= 100 and id < 160"
        ),
    ),
    ("optimize", lambda dataset: dataset.optimize.optimize_indices()),
    ("append again", append),
    ("compact", lambda dataset: dataset.optimize.compact_files(target_rows_per_fragment=1500)),
    ("delta", lambda dataset: dataset.optimize.optimize_indices(num_indices_to_merge=0)),
    ("delete more", lambda dataset: dataset.delete("id % 10 = 4")),
    ("retrain", lambda dataset: dataset.optimize.optimize_indices(retrain=True)),
]


def check(place: Path, kind: str, step: str) -> None:
    """Both libraries find the rows that a scan finds, with the index."""
    _, filters, node = KINDS[kind]
    ours, theirs = glaive.dataset(place), lance.dataset(place)
    for condition in filters:
        scanned = ours.to_table(["id"], condition, use_scalar_index=False)["id"].to_pylist()
        searched = ours.to_table(["id"], condition, use_scalar_index=True)["id"].to_pylist()
        assert searched == scanned, (step, condition)
        scanner = theirs.scanner(columns=["id"], filter=condition)
        assert sorted(scanner.to_table()["id"].to_pylist()) == sorted(scanned), (step, condition)
        if not any(part.fragment_ids for part in ours.describe_indices()[0].segments):
            assert (kind in ZONES, step) == (True, "compact")  # which cuts other zones
            continue
        assert node in scanner.explain_plan(verbose=True), (step, condition)
        assert "by index" in ours.scanner(filter=condition, use_scalar_index=True).explain_plan()


@pytest.mark.sampled(every=36)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("order", ["ours", "theirs", "turns"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_stays_right_whoever_changes_the_dataset(
    tmp_path: Path, kind: str, order: str, stable: bool
) -> None:
    place = tmp_path / "t"
    options = {"max_rows_per_file": 1000, "enable_stable_row_ids": stable}
    lance.write_dataset(rows(0, ROWS), place, **options)

    def opened(step: int) -> Dataset:
        mine = order == "ours" or (order == "turns" and step % 2 == 0)
        return glaive.dataset(place) if mine else lance.dataset(str(place))

    opened(0).create_scalar_index(KINDS[kind][0], kind)
    check(place, kind, "create")
    for number, (step, change) in enumerate(HISTORY, 1):
        change(opened(number))
        check(place, kind, step)
