"""Floats in lists are compared as those of columns are: by total order."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from tests.expr.functions.calls import evaluate

NAN = float("nan")
ITEMS = [1.0, NAN, 0.0, None, -0.0, NAN, 0.0]
FLOATS = pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)


def value(text: str, kind: Any, item: float = 0.0) -> str:
    """What a call gives for the list, by which zeros differ."""
    rows = pa.table({"l": pa.array([ITEMS], pa.list_(kind)), "x": pa.array([item], kind)})
    return repr(evaluate(text, rows).to_pylist()[0])


@FLOATS
@pytest.mark.parametrize(
    ("item", "places"), [(0.0, [3, 7]), (-0.0, [5]), (NAN, [2, 6]), (2.0, [])], ids=repr
)
def test_an_item_equals_those_of_the_same_bits(kind: Any, item: float, places: list[int]) -> None:
    assert value("array_has(l, x)", kind, item) == str(bool(places))
    assert value("array_has_all(l, make_array(x, x))", kind, item) == str(bool(places))
    assert value("array_has_any(l, make_array(x, x))", kind, item) == str(bool(places))
    assert value("array_position(l, x)", kind, item) == str(next(iter(places), None))
    assert value("array_positions(l, x)", kind, item) == str(places)
    rest = [one for place, one in enumerate(ITEMS, 1) if place not in places]
    assert value("array_remove_all(l, x)", kind, item) == repr(rest)
    assert value("array_has(array_replace_all(l, x, 5.0), x)", kind, item) == "False"


@FLOATS
def test_sets_have_each_zero_and_nan_once(kind: Any) -> None:
    assert value("array_distinct(l)", kind) == repr([1.0, NAN, 0.0, None, -0.0])
    assert value("array_union(l, make_array(x))", kind) == repr([1.0, NAN, 0.0, None, -0.0])
    assert value("array_intersect(l, make_array(x))", kind) == repr([0.0])
    assert value("array_except(l, make_array(x))", kind) == repr([1.0, NAN, None, -0.0])


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_extremes_and_sorted_lists_follow_the_order(kind: Any) -> None:
    sorted_items = [None, -0.0, 0.0, 0.0, 1.0, NAN, NAN]
    assert value("array_sort(l)", kind) == repr(sorted_items)
    assert value("array_sort(l, 'DESC', 'NULLS LAST')", kind) == repr(sorted_items[::-1])
    assert value("array_max(l)", kind) == repr(NAN)
    assert value("array_min(l)", kind) == repr(-0.0)


def test_keys_of_maps_are_those_of_the_same_bits() -> None:
    for item, wanted in ((0.0, [1]), (-0.0, [2]), (1.0, [None])):
        rows = pa.table({"x": pa.array([item])})
        assert evaluate("map_extract(map([0.0, -0.0], [1, 2]), x)", rows).to_pylist() == [wanted]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("array_distance(l, m)", "inf"),
        ("inner_product(l, m)", "-inf"),
        ("cosine_distance(l, m)", "nan"),
        ("array_distance(i, i)", "nan"),
        ("array_normalize(l)", "[0.0]"),
    ],
)
def test_vectors_whose_products_overflow_warn_of_nothing(text: str, result: str) -> None:
    lists = {"l": [[1e300]], "m": [[-1e300]], "i": [[math.inf]]}
    assert repr(evaluate(text, pa.table(lists)).to_pylist()[0]) == result
