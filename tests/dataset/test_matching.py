"""Rows are matched by the values of their keys, whatever the type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.dataset.merging.source import SourceKeys


@given(
    kind=st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "int64", "uint64"]),
    data=st.data(),
)
def test_whole_numbers_match_themselves_only_however_far_apart(
    kind: str, data: st.DataObject
) -> None:
    info = np.iinfo(kind)
    ends = st.sampled_from([info.min, info.min + 1, info.max - 1, info.max])
    numbers = st.integers(int(info.min), int(info.max)) | ends | st.integers(0, 100)
    source = data.draw(st.lists(numbers, min_size=1, max_size=8))
    rows = data.draw(st.lists(numbers | st.sampled_from(source), max_size=20))
    keys = SourceKeys(["k"], [pa.array(source, kind)])
    found = keys.find([pa.array(rows, kind)])
    assert found.tolist() == [source.index(one) if one in source else -1 for one in rows]


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, 2.5, None], pa.float16()),
        pa.array([b"0" * 16, b"1" * 16, None], pa.uuid()),
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array([True, False, None]),
        pa.array([(1, 2, 3), (1, 2, 4), None], pa.month_day_nano_interval()),
    ],
    ids=["float16", "uuid", "dictionary", "bool", "interval"],
)
def test_keys_of_types_that_arrow_does_not_look_up(values: pa.Array, columns: int) -> None:
    keys = SourceKeys([f"k{n}" for n in range(columns)], [values] * columns)
    assert keys.find([values.take([1, 0, 2])] * columns).tolist() == [1, 0, -1]


def test_views_are_texts() -> None:
    keys = SourceKeys(["k"], [pa.array(["a", "b", None], pa.string_view())])
    assert keys.find([pa.array(["b", "a", None, "c"])]).tolist() == [1, 0, -1, -1]


def test_a_null_key_is_not_the_number_zero() -> None:
    keys = SourceKeys(["k"], [pa.array([None, 0, 5], pa.int64())])
    assert keys.find([pa.array([None, 0, 5, None], pa.int64())]).tolist() == [-1, 1, 2, -1]
    assert keys.first_rows.tolist() == [-1, 1, 2]
    assert not keys.repeated.any()


ITEM = pa.struct([("a", pa.int16()), ("b", pa.binary())])
KINDS: dict[str, pa.DataType] = {
    "number": pa.int64(),
    "text": pa.string(),
    "wide": pa.large_binary(),
    "fixed": pa.binary(2),
    "decimal": pa.decimal128(30, 0),
    "struct": ITEM,
    "list": pa.large_list(ITEM),
    "pair": pa.list_(pa.int64(), 2),
    "lists": pa.list_(pa.list_(pa.bool_())),
    "nothing": pa.null(),
}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """A few values, so that some are equal."""
    types = pa.types
    if types.is_null(kind):
        return st.none()
    made: st.SearchStrategy[Any] = st.integers(0, 3)
    if types.is_boolean(kind):
        made = st.booleans()
    elif types.is_fixed_size_binary(kind):
        made = st.sampled_from([b"\0\0", b"\0a", b"aa"])
    elif types.is_struct(kind):
        made = st.fixed_dictionaries({one.name: values_of(one.type) for one in kind})
    elif types.is_fixed_size_list(kind):
        made = st.lists(values_of(kind.value_type), min_size=2, max_size=2)
    elif types.is_nested(kind):
        made = st.lists(values_of(kind.value_type), max_size=2)
    elif types.is_string(kind):
        made = st.sampled_from(["", "a", "ab", "b", "\0"])
    elif types.is_binary(kind) or types.is_large_binary(kind):
        made = st.sampled_from([b"", b"\0", b"\0\0", b"a", b"\xff" * 9])
    return st.none() | made


@given(data=st.data())
def test_the_first_row_with_equal_keys_is_found(data: st.DataObject) -> None:
    """Within structs and lists a null equals a null; a key that is null equals nothing."""
    kinds = [KINDS[one] for one in data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1))]
    kinds = kinds[:3]
    rows = st.lists(st.tuples(*map(values_of, kinds)), max_size=12)
    source, lead, target = data.draw(rows), data.draw(rows), data.draw(rows)

    def columns(found: list[tuple[Any, ...]], kind: Any) -> list[Any]:
        return [pa.array([row[at] for row in found], one) for at, one in enumerate(kind)]

    def find(key: tuple[Any, ...], among: list[tuple[Any, ...]]) -> int:
        return -1 if None in key or key not in among else among.index(key)

    target += source
    sliced = [one.slice(len(lead)) for one in columns([*lead, *target], kinds)]
    keys = SourceKeys([f"k{at}" for at in range(len(kinds))], columns(source, kinds))
    assert keys.find(sliced).tolist() == [find(one, source) for one in target]
    first = [find(one, source) for one in source]
    assert keys.first_rows.tolist() == first
    twice = [one >= 0 and first.count(one) > 1 for one in first]
    assert keys.repeated.tolist() == twice


def test_many_columns_of_many_values_are_matched_together() -> None:
    rng = np.random.default_rng(0)
    columns = [pa.array(rng.permutation(3000)) for _ in range(8)]
    keys = SourceKeys([f"k{at}" for at in range(8)], columns)
    order: Any = pa.array(rng.permutation(3000))
    assert keys.find([one.take(order) for one in columns]).tolist() == order.to_pylist()
    assert (keys.find([columns[0].take(order), *columns[1:]])[:5] == -1).all()


def test_a_message_names_the_key() -> None:
    keys = SourceKeys(["a", "b"], [pa.array([1, 2]), pa.array([["x"], None])])
    assert keys.text(0) == "a = 1, b = ['x']"
