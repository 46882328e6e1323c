"""Functions of lists whose items are constants, none at all, or of a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive

NAN = float("nan")
ROWS = pa.table(
    {
        "id": range(5),
        "n": pa.array([1, 2, 3, None, 4]),
        "x": pa.array([0.0, -0.0, NAN, None, 1.0]),
        "l": pa.array([[1], [], None, [None], [1, 2]], pa.list_(pa.int64())),
        "w": pa.array([["a"], [], None, [None], ["b"]]),
        "dic": pa.array(["a", "b", None, "c", "b"]).dictionary_encode(),
    }
)


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    return glaive.write_dataset(ROWS, tmp_path / "t")


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("array_has([1, 2], n)", [0, 1]),
        ("NOT array_has([1, 2], n)", [2, 4]),
        ("array_has([1, NULL], n)", [0]),
        ("NOT array_has([1, NULL], n)", []),
        ("NOT array_has([NULL], n)", []),
        ("NOT array_has([], n)", [0, 1, 2, 3, 4]),
        ("array_has([0.0, 7.5], x)", [0, 1]),
        ("NOT array_has([-0.0], x)", [2, 4]),
        ("array_has(['b', 'z'], dic)", [1, 4]),
        ("NOT array_has(['b', NULL], dic)", []),
    ],
)
def test_a_list_of_constants_has_an_item_as_in_does(
    dataset: Any, text: str, passing: list[int]
) -> None:
    assert dataset.to_table(filter=text)["id"].to_pylist() == passing
    dataset.create_scalar_index("n", "BTREE")
    assert dataset.to_table(filter=text, use_scalar_index=True)["id"].to_pylist() == passing


@pytest.mark.parametrize("kind", [pa.int64(), pa.null()], ids=str)
def test_no_row_is_in_an_empty_set_and_all_are_outside(dataset: Any, kind: Any) -> None:
    among = pc.field("n").isin(pa.array([], kind))
    assert dataset.count_rows(among) == 0
    assert dataset.count_rows(~among) == 5
    assert dataset.count_rows(~among & (pc.field("id") > 2)) == 2
    of_null = pc.field("n").isin(pa.array([None], kind))
    assert dataset.count_rows(of_null) == 1
    assert dataset.count_rows(~of_null) == 4
    dataset.delete(~among)
    assert dataset.count_rows() == 0


def test_an_index_finds_the_items_of_a_list_of_constants(dataset: Any) -> None:
    dataset.create_scalar_index("n", "BTREE")
    plan = dataset.scanner(filter="array_has([1, 2], n)", use_scalar_index=True).explain_plan()
    assert "n_idx" in plan


@pytest.mark.parametrize("name", ["array_has_any", "arrays_overlap"])
def test_no_list_has_an_item_of_none(dataset: Any, name: str) -> None:
    for text in (f"NOT {name}(l, [])", f"NOT {name}([], l)"):
        assert dataset.count_rows(text) == 5


def test_items_of_a_dictionary_are_added_to_lists_of_texts(dataset: Any) -> None:
    found = dataset.to_table(columns={"v": "array_append(w, dic)", "u": "array_prepend(dic, w)"})
    assert found["v"].to_pylist() == [["a", "a"], ["b"], [None], [None, "c"], ["b", "b"]]
    assert found["u"].to_pylist() == [["a", "a"], ["b"], [None], ["c", None], ["b", "b"]]
    greatest = dataset.to_table(columns={"v": "array_max(make_array(dic, 'b'))"})
    assert greatest["v"].to_pylist() == ["b", "b", "b", "c", "b"]
