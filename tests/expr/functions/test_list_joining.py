"""Lists of one row that become one: end to end, item by item, and of single values."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from tests.expr.functions.calls import evaluate

INTEGERS = [[1, 2], [], None, [3, None]]
TEXTS = [["a"], None, [], ["b", None, "c"]]


def concatenated(*lists: list[Any] | None) -> list[Any] | None:
    present = [items for items in lists if items is not None]
    return list(itertools.chain(*present)) if present else None


def zipped(*lists: list[Any] | None) -> list[Any] | None:
    if all(items is None for items in lists):
        return None
    rows = itertools.zip_longest(*(items or [] for items in lists))
    return [{str(n): item for n, item in enumerate(row, 1)} for row in rows]


def every_pair(first: list[Any], second: list[Any]) -> tuple[list[Any], list[Any]]:
    pairs = list(itertools.product(first, second))
    return [left for left, _ in pairs], [right for _, right in pairs]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("offset", [0, 3])
def test_lists_are_joined_and_zipped(large: bool, offset: int) -> None:
    make: Any = pa.large_list if large else pa.list_
    left, right = every_pair(INTEGERS, INTEGERS)
    _, texts = every_pair(INTEGERS, TEXTS)
    columns = {
        "a": pa.array(left, make(pa.int64())),
        "b": pa.array(right, make(pa.int64())),
        "s": pa.array(texts, make(pa.string())),
    }
    table = pa.table(columns).slice(offset)
    rows = list(zip(left, right, texts, strict=True))[offset:]
    for text, expected in {
        "array_concat(a, b)": [concatenated(a, b) for a, b, _ in rows],
        "array_concat(a, b, a)": [concatenated(a, b, a) for a, b, _ in rows],
        "array_concat(a, [7])": [concatenated(a, [7]) for a, _, _ in rows],
        "array_concat(a)": [a for a, _, _ in rows],
        "arrays_zip(a, s)": [zipped(a, s) for a, _, s in rows],
        "arrays_zip(s, a, b)": [zipped(s, a, b) for a, b, s in rows],
        "arrays_zip([7, 8], a)": [zipped([7, 8], a) for a, _, _ in rows],
        "arrays_zip(a)": [zipped(a) for a, _, _ in rows],
    }.items():
        made = evaluate(text, table)
        made.validate(full=True)
        assert made.to_pylist() == expected, text


def test_lists_of_lists_structs_and_constants_are_joined() -> None:
    kind = pa.list_(pa.struct([("x", pa.list_(pa.int8()))]))
    values = [[{"x": [1]}, None], None, [{"x": None}]]
    table = pa.table({"l": pa.array(values, kind)})
    assert evaluate("array_concat(l, l)", table).to_pylist() == [
        concatenated(items, items) for items in values
    ]
    assert evaluate("arrays_zip(l, [1])", table).to_pylist() == [
        zipped(items, [1]) for items in values
    ]
    nothing = pa.table({"l": pa.array([None], kind)})
    assert evaluate("array_concat(l, l)", nothing).to_pylist() == [None]
    assert evaluate("array_concat([1], [2])", nothing).to_pylist() == [[1, 2]]


@pytest.mark.parametrize("large", [False, True])
def test_lists_of_dictionaries_are_joined_as_their_values(large: bool) -> None:
    make: Any = pa.large_list if large else pa.list_
    words = pa.dictionary(pa.int8(), pa.string())
    nested = [[items, ["z"]] for items in TEXTS]
    table = pa.table({"d": pa.array(TEXTS, make(words)), "n": pa.array(nested, make(make(words)))})
    joined = evaluate("array_concat(d, ['z'], d)", table)
    assert joined.to_pylist() == [concatenated(items, ["z"], items) for items in TEXTS]
    doubled = evaluate("array_concat(d, d)", table)
    assert doubled.to_pylist() == [concatenated(items, items) for items in TEXTS]
    flat = evaluate("flatten(n)", table)
    assert flat.to_pylist() == [[*(items or []), "z"] for items in TEXTS]
