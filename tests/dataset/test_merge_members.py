"""Structs of which the source of a merge has some members: the others keep their values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.dataset.merging.rows import keep_members
from glaive.errors import SchemaError

FULL = pa.struct(
    [("a", pa.int64()), ("b", pa.list_(pa.struct([("x", pa.int8()), ("y", pa.utf8())])))]
)
PART = pa.struct([("a", pa.int64())])
INNER = pa.struct([("b", pa.list_(pa.struct([("y", pa.utf8())])))])
LISTS = {"list": pa.list_, "large_list": pa.large_list, "pairs": lambda kind: pa.list_(kind, 2)}


def item(a: int | None, *pairs: tuple[int, str]) -> dict[str, Any]:
    return {"a": a, "b": [{"x": x, "y": y} for x, y in pairs]}


@pytest.mark.parametrize("make", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("skip", [0, 1])
def test_items_of_lists_belong_together_by_their_place(make: Any, skip: int) -> None:
    old = [[item(1), item(2, (1, "p"))], None, [item(3), None], [item(5), item(6)]]
    new = [[{"a": 10}, {"a": 20}], None, [{"a": None}, {"a": 40}], [None, {"a": 60}]]
    found = keep_members(
        pa.array(new, make(PART)).slice(skip), pa.array(old, make(FULL)).slice(skip), "s"
    )
    found.validate(full=True)
    assert found.type == make(FULL)
    assert (
        found.to_pylist()
        == [
            [item(10), item(20, (1, "p"))],
            None,
            [item(None), {"a": 40, "b": None}],
            [item(None), item(60)],
        ][skip:]
    )


def test_lists_within_lists() -> None:
    old = pa.array([[item(1, (1, "p"), (2, "q")), item(2)]], pa.list_(FULL))
    new = pa.array([[{"b": [{"y": "r"}, {"y": None}]}, {"b": []}]], pa.list_(INNER))
    expected = [[{"a": 1, "b": [{"x": 1, "y": "r"}, {"x": 2, "y": None}]}, item(2)]]
    assert keep_members(new, old, "s").to_pylist() == expected


@pytest.mark.parametrize("new", [[{"a": 1}, {"a": 2}], [], None])
def test_lists_of_another_length_are_refused(new: Any) -> None:
    old = pa.array([[], [item(1)]], pa.list_(FULL))
    given = pa.array([[], new], pa.list_(PART))
    with pytest.raises(SchemaError, match=r"'s'.*structs in lists.*found . and 1 items"):
        keep_members(given, old, "s")


def test_an_empty_list_for_a_null_is_empty() -> None:
    found = keep_members(pa.array([[]], pa.list_(PART)), pa.array([None], pa.list_(FULL)), "s")
    assert found.to_pylist() == [[]]
