"""Comparisons of nested values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from glaive.expr.filters import bind_filter, bind_value
from glaive.format.fields import LanceSchema

PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])
ROWS = [
    ([{"x": 1, "y": "a"}], [{"x": 1, "y": "b"}]),  # a later member decides
    ([{"x": 2, "y": "a"}], [{"x": 1, "y": "b"}]),
    ([{"x": None, "y": "b"}], [{"x": 0, "y": "a"}]),  # nulls come first
    ([None], [{"x": None, "y": None}]),
    ([{"x": 1, "y": "a"}], [{"x": 1, "y": "a"}, None]),  # the shorter one comes first
    ([], []),
    (None, []),
]


def batch(kind: Any) -> pa.RecordBatch:
    sides = zip(*ROWS, strict=True)
    return pa.record_batch({n: pa.array(side, kind) for n, side in zip("lr", sides, strict=True)})


@pytest.mark.parametrize("kind", [pa.list_(PAIR), pa.large_list(PAIR)])
def test_lists_of_structs_are_ordered_by_the_first_member_that_differs(kind: Any) -> None:
    rows = batch(kind)
    schema = LanceSchema.from_arrow(rows.schema)
    less = bind_filter("l < r", schema).mask(rows).to_pylist()
    assert less == [True, False, True, True, True, False, False]
    greater = bind_value("greatest(l, r)", schema).evaluate(rows).to_pylist()
    assert greater == [ROWS[0][1], ROWS[1][0], *(right for _, right in ROWS[2:])]


def test_maps_are_ordered_by_their_entries() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    left, right = [[("a", 1)], [("b", 1)], None, []], [[("a", 2)], [("a", 2)], [], []]
    rows = pa.record_batch({"l": pa.array(left, kind), "r": pa.array(right, kind)})
    schema = LanceSchema.from_arrow(rows.schema)
    assert bind_value("l < r", schema).evaluate(rows).to_pylist() == [True, False, None, False]
    assert bind_value("least(NULL, l)", schema).evaluate(rows).to_pylist() == left


@pytest.mark.parametrize("kind", [pa.list_(pa.null()), pa.list_(pa.null(), 2)])
def test_lists_of_nothing_but_nulls_are_compared(kind: Any) -> None:
    lists = pa.array([[None, None], None], kind)
    rows = pa.record_batch({"l": lists, "s": pa.StructArray.from_arrays([lists], ["x"])})
    schema = LanceSchema.from_arrow(rows.schema)
    expected = {
        "l = l": [True, None],
        "l < l": [False, None],
        "l is distinct from l": [False, False],
        "s = s": [True, True],
        "s != s": [False, False],
    }
    for text, values in expected.items():
        assert bind_value(text, schema).evaluate(rows).to_pylist() == values, text


def test_a_string_beside_a_decimal_is_read_as_this_decimal() -> None:
    prices = pa.array([Decimal("2.50"), Decimal("1.00"), None], pa.decimal128(10, 2))
    rows = pa.record_batch({"p": prices, "s": ["2.5004", "1.006", "7.126"]})
    schema = LanceSchema.from_arrow(rows.schema)
    assert bind_value("p = s", schema).evaluate(rows).to_pylist() == [True, False, None]
    chosen = bind_value("coalesce(p, s)", schema).evaluate(rows)
    assert chosen.type == prices.type
    assert chosen.to_pylist() == [Decimal("2.50"), Decimal("1.00"), Decimal("7.13")]
