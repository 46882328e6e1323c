"""Conditions say which values pass; nulls pass the test for nulls only."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import known_true
from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf
from glaive.errors import SchemaError

DAY = dt.date(2026, 1, 1)

EXAMPLES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [False, True]),
    (pa.int8(), [-128, -1, 0, 127]),
    (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    (pa.decimal128(5, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("9.99")]),
    (pa.date32(), [DAY, DAY + dt.timedelta(1)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    (pa.string(), ["", "a", "ab", "z", "ä"]),
    (pa.large_binary(), [b"", b"\0", b"\xff"]),
    (pa.binary(2), [b"\0\0", b"ab", b"\xff\xff"]),
]


def passing(condition: Condition, array: Any) -> list[bool]:
    mask: Any = condition.mask(array)
    assert mask.type == pa.bool_()
    assert mask.null_count == 0
    passing_rows: list[bool] = mask.to_pylist()
    return passing_rows


@given(st.lists(st.sampled_from([True, False, None])), st.integers(0, 20), st.integers(0, 20))
def test_only_values_that_are_true_are_known_to_be_true(
    values: list[bool | None], skip: int, end: int
) -> None:
    mask = pa.array(values, pa.bool_())[skip : len(values) - end]
    known = known_true(mask)
    known.validate(full=True)
    assert known.to_pylist() == [value is True for value in mask.to_pylist()]


@pytest.mark.parametrize(("kind", "values"), EXAMPLES, ids=lambda value: str(value)[:20])
def test_a_range_has_the_values_between_its_bounds(kind: pa.DataType, values: list[Any]) -> None:
    array: Any = pa.array([None, *values, None], kind)
    for low in (None, *values):
        for high in (None, *values):
            for ends in ((True, True), (False, True), (True, False), (False, False)):
                condition = InRange(
                    low=None if low is None else pa.scalar(low, kind),
                    high=None if high is None else pa.scalar(high, kind),
                    low_included=ends[0],
                    high_included=ends[1],
                )
                expected = [
                    value is not None
                    and (low is None or (low <= value if ends[0] else low < value))
                    and (high is None or (value <= high if ends[1] else value < high))
                    for value in array.to_pylist()
                ]
                assert passing(condition, array) == expected
                assert passing(condition, array.slice(1)) == expected[1:]


@pytest.mark.parametrize(("kind", "values"), EXAMPLES, ids=lambda value: str(value)[:20])
def test_a_set_has_its_values_and_its_negation_all_others(
    kind: pa.DataType, values: list[Any]
) -> None:
    array = pa.array([*values, None], kind)
    wanted = values[::2]
    assert passing(IsOneOf(pa.array(wanted, kind)), array) == [
        value in wanted for value in values
    ] + [False]
    others = IsOneOf(pa.array(wanted, kind), negated=True)
    assert passing(others, array) == [value not in wanted for value in values] + [False]
    assert not any(passing(IsOneOf(pa.array([], kind)), array))
    assert passing(IsOneOf(pa.array([], kind), negated=True), array) == [True] * len(values) + [
        False
    ]


def test_nothing_is_known_to_differ_from_a_null() -> None:
    array = pa.array([1, 2, None])
    assert passing(IsOneOf(pa.array([1, None])), array) == [True, False, False]
    assert passing(IsOneOf(pa.array([1, None]), negated=True), array) == [False] * 3


def test_words_within_strings() -> None:
    array = pa.array(["ab", "b", None, "cab", "abc", ""])
    assert passing(HasText(word="ab"), array) == [True, False, False, True, True, False]
    assert passing(HasText(word="ab", begins=True), array)[3:] == [False, True, False]
    assert passing(HasText(word="ab", ends=True), array)[3:] == [True, False, False]
    assert passing(HasText(word="ab", begins=True, ends=True), array)[3:] == [False] * 3
    assert passing(HasText(word=""), array) == [True, True, False, True, True, True]


def test_a_null_passes_the_test_for_nulls() -> None:
    for array in (
        pa.array([1, None]),
        pa.array(["a", None]),
        pa.array([[1], None]),
        pa.array([{"a": 1}, None]),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([1.5, None], pa.float16()),
    ):
        assert passing(IsNull(), array) == [False, True]
        assert passing(IsNull(negated=True), array) == [True, False]
    nulls = pa.nulls(2)
    assert passing(IsNull(), nulls) == [True, True]
    assert passing(IsOneOf(pa.array([1])), nulls) == [False, False]


@pytest.mark.parametrize(
    ("kind", "code"), [(pa.float16(), "e"), (pa.float32(), "f"), (pa.float64(), "d")]
)
@given(data=st.data())
def test_floats_are_in_the_order_of_their_bits(
    kind: pa.DataType, code: str, data: st.DataObject
) -> None:
    width = struct.calcsize(code)
    top = 1 << (8 * width - 1)
    special = [-0.0, 0.0, float("inf"), float("-inf"), 1.5, -1.5]
    words = [int.from_bytes(struct.pack(f"<{code}", number), "little") for number in special]
    word = st.sampled_from([*words, 0, top, 2 * top - 1, top - 1]) | st.integers(0, 2 * top - 1)
    drawn = data.draw(st.lists(word, min_size=1, max_size=8))
    low, high = data.draw(word), data.draw(word)

    def floats(numbers: list[int]) -> pa.Array:
        raw = b"".join(number.to_bytes(width, "little") for number in numbers)
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(raw)])

    def key(number: int) -> int:
        return number if number < top else top - 1 - number

    bounds = floats([low, high])
    ends = data.draw(st.tuples(st.booleans(), st.booleans()))
    condition = InRange(low=bounds[0], high=bounds[1], low_included=ends[0], high_included=ends[1])
    expected = [
        (key(low) <= key(number) if ends[0] else key(low) < key(number))
        and (key(number) <= key(high) if ends[1] else key(number) < key(high))
        for number in drawn
    ]
    assert passing(condition, floats(drawn)) == expected
    assert passing(IsOneOf(bounds), floats(drawn)) == [number in (low, high) for number in drawn]


def test_the_null_slots_of_floats_do_not_pass() -> None:
    array = pa.array([0.0, None, 1.0])
    assert passing(IsOneOf(pa.array([0.0, 1.0])), array) == [True, False, True]
    assert passing(InRange(), array) == [True, False, True]


def test_a_dictionary_is_tested_by_its_values() -> None:
    indices = pa.array([0, 1, None, 2, 0], pa.int8())
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a", None, "b"]))
    assert passing(IsOneOf(pa.array(["a"])), array) == [True, False, False, False, True]
    assert passing(IsOneOf(pa.array(["a"]), negated=True), array) == [False] * 3 + [True, False]
    assert passing(IsNull(), array) == [False, True, True, False, False]
    assert passing(InRange(low=pa.scalar("b")), array) == [False, False, False, True, False]


def test_a_condition_of_another_type_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"int64.*string"):
        InRange(low=pa.scalar(1)).mask(pa.array(["a"]))
    with pytest.raises(SchemaError, match=r"int32.*int64"):
        IsOneOf(pa.array([1], pa.int32())).mask(pa.array([1]))


def test_storage_is_what_conditions_see() -> None:
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), None], pa.binary(16)))
    assert passing(IsOneOf(pa.array([bytes(16)], pa.binary(16))), array) == [True, False]
    assert np.asarray(array.is_null()).tolist() == [False, True]
