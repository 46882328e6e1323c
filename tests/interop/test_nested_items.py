"""The order of lists and structs in lists, as in the reference implementation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

LISTS: Any = pa.list_(pa.int32())
STRUCTS: Any = pa.struct({"a": pa.int64(), "b": pa.float64(), "l": LISTS})
NUMBERS: list[Any] = [None, 1, 2]
FLOATS: list[Any] = [None, 0.0, -0.0, float("nan"), 1.0]
LISTED: list[Any] = [None, [], [1], [None], [1, 2]]


def item_of(chosen: random.Random, kind: Any) -> Any:
    if kind is LISTS:
        return chosen.choice(LISTED)
    members = zip("abl", (NUMBERS, FLOATS, LISTED), strict=True)
    return chosen.choice([None, {name: chosen.choice(values) for name, values in members}])


@pytest.mark.parametrize("kind", [LISTS, STRUCTS], ids=["lists", "structs"])
def test_nested_items_have_an_order(tmp_path: Path, kind: Any) -> None:
    chosen, path = random.Random(3), str(tmp_path / "d")
    rows = [[item_of(chosen, kind) for _ in range(chosen.randrange(5))] for _ in range(300)]
    table: Any = pa.table({"s": pa.array([None, *rows], pa.list_(kind))})
    theirs = lance.write_dataset(table, path, data_storage_version="2.2")
    calls = [
        f"array_sort(s, '{order}', 'NULLS {nulls}')"
        for order in ("ASC", "DESC")
        for nulls in ("FIRST", "LAST")
    ]
    if kind is LISTS:  # it compares no structs that have nulls
        calls += ["array_max(s)", "array_min(s)"]
    columns = {f"c{number}": call for number, call in enumerate(calls)}
    mine = glaive.dataset(path).to_table(columns=columns)
    assert repr(mine.to_pylist()) == repr(theirs.to_table(columns=columns).to_pylist())


def test_extremes_of_structs_compare_member_by_member(tmp_path: Path) -> None:
    items = [{"a": 1, "b": 2.0}, {"a": 1, "b": -1.0}, {"a": 0, "b": 9.0}, None]
    path, kind = str(tmp_path / "d"), pa.struct({"a": pa.int64(), "b": pa.float64()})
    table: Any = pa.table({"s": pa.array([items], pa.list_(kind))})
    theirs = lance.write_dataset(table, path, data_storage_version="2.2")
    columns = {"most": "array_max(s)", "least": "array_min(s)"}
    mine = glaive.dataset(path).to_table(columns=columns).to_pylist()
    assert mine == theirs.to_table(columns=columns).to_pylist()
    assert mine == [{"most": items[0], "least": items[2]}]


def test_nulls_within_lists_are_neither_the_greatest_nor_the_least(tmp_path: Path) -> None:
    lists = [None, [], [1], [2, 1], [1, 2], [None], [1, None], [None, 1]]
    pairs = [(left, right) for left in lists for right in lists]
    table: Any = pa.table(
        {
            name: pa.array(side, LISTS)
            for name, side in zip("ab", zip(*pairs, strict=True), strict=True)
        }
    )
    path = str(tmp_path / "d")
    theirs = lance.write_dataset(table, path, data_storage_version="2.2")
    columns = {"most": "greatest(a, b)", "least": "least(a, b)"}
    mine = glaive.dataset(path).to_table(columns=columns).to_pylist()
    assert mine == theirs.to_table(columns=columns).to_pylist()
