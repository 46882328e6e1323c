"""Filters that differ in their constants only are bound as any other is."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.filters import Filter, FilterShapes, bind_filter
from glaive.format.fields import LanceSchema

SCHEMA = LanceSchema.from_arrow(
    pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int8()),
            ("unsigned", pa.uint64()),
            ("price", pa.float64()),
            ("name", pa.string()),
            ("wide", pa.large_string()),
            ("flag", pa.bool_()),
            ("day", pa.date32()),
            ("list", pa.list_(pa.int64())),
            ("c 5", pa.int64()),
        ]
    )
)

KEPT = [
    "id = {n}",
    "{n} < id",
    "NOT id = {n}",
    "small != {n}",
    "price = {n}",
    "unsigned >= {n} AND unsigned < {n}",
    "name = '{s}'",
    "wide > '{s}' AND id <= {n} AND flag IS TRUE",
    "id IN ({n}, {n}, {n})",
    "name NOT IN ('{s}', '{s}')",
    "id BETWEEN {n} AND {n}",
    "id IS NOT DISTINCT FROM {n}",
    "`c 5` = {n}",
]
"""Shapes whose constants take each other's place, but for the last."""

OTHERS = [
    "id = {n} + {n}",
    "id = -{n}",
    "id = {n} AND {n} = {n}",
    "id = {n} OR id = {n}",
    "name = '{s}''{s}'",
    "name LIKE '{s}'",
    "length(name) = {n}",
    "list[{n}] = {n}",
    "id = {n} -- {n} '{s}'",
    "id = {n} /* '{s}' */",
    "day = '{s}'",
    "cast(small AS string) = '{n}'",
    "price > {n}.{n}",
    "name = x'{n}'",
    'name = "{s} {n}"',
    "unknown = {n}",
    "id = '{s}'",
    "id = ",
]

NUMBERS = st.sampled_from([0, 1, 3, 7, 100, 127, 128, 300, 2**31, 10**17, 2**63, 2**64])
WORDS = st.text("ab' %_.\\0-5\"`\n", max_size=4)


def written(shape: str, numbers: list[int], words: list[str]) -> str:
    number, word = iter(numbers), iter(words)
    while "{n}" in shape or "{s}" in shape:
        shape = shape.replace("{n}", str(next(number)), 1).replace("{s}", next(word), 1)
    return shape


def bound(text: str, shapes: FilterShapes | None) -> Filter | str:
    try:
        return bind_filter(text, SCHEMA, shapes=shapes)
    except FilterError as error:
        return str(error)


def outcome(found: Filter | str) -> object:
    if isinstance(found, str):
        return found
    conditions = [
        (term.expression, re.sub(r"object at \w+", "", str(term.condition))) for term in found.terms
    ]
    return found.expression, conditions, found.text, found.columns


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("shape", KEPT + OTHERS)
@settings(max_examples=12)
@given(
    before=st.tuples(st.lists(NUMBERS, min_size=9, max_size=9), st.lists(WORDS, min_size=9)),
    after=st.tuples(st.lists(NUMBERS, min_size=9, max_size=9), st.lists(WORDS, min_size=9)),
)
def test_a_filter_is_the_same_whatever_was_bound_before(
    shape: str, before: tuple[list[int], list[str]], after: tuple[list[int], list[str]]
) -> None:
    shapes, text = FilterShapes(), written(shape, *after)
    bound(written(shape, *before), shapes)
    first, second = bound(text, shapes), bound(text, None)
    are_bound = isinstance(first, Filter) and isinstance(second, Filter)
    if are_bound and first.expression != second.expression:
        # Operands that are equal by chance, or bounds in disorder, stay as they are.
        assert first.columns == second.columns
        assert first.text == second.text
    else:
        assert outcome(first) == outcome(second)


def filled(shapes: FilterShapes, text: str) -> object:
    """The expression of a text whose shape is kept; None where it has to be bound."""
    made = tree.Column("made", pa.null())
    node = shapes.bind(text, lambda: made)
    return None if node is made else node


@pytest.mark.parametrize("shape", KEPT[:-1])
def test_constants_of_comparisons_take_the_place_of_others(shape: str) -> None:
    shapes = FilterShapes()
    bound(written(shape, list(range(1, 9)), ["a", "b", "c"]), shapes)
    other = written(shape, list(range(11, 19)), ["x", "y", "z"])
    assert filled(shapes, other) == bind_filter(other, SCHEMA).expression


@pytest.mark.parametrize("shape", OTHERS)
def test_other_constants_are_bound_each_time(shape: str) -> None:
    shapes = FilterShapes()
    text = written(shape, list(range(1, 9)), ["a", "b", "c"])
    bound(text, shapes)
    assert filled(shapes, text) is None


def test_shapes_are_dropped_when_there_are_many() -> None:
    shapes = FilterShapes()
    for spaces in range(70):
        bind_filter("id =" + " " * spaces + "1", SCHEMA, shapes=shapes)
    assert filled(shapes, "id =1") is None
    assert filled(shapes, "id =" + " " * 69 + "2") is not None


def test_a_constant_beyond_its_column_is_named() -> None:
    shapes = FilterShapes()
    bind_filter("small = 1", SCHEMA, shapes=shapes)
    with pytest.raises(FilterError, match=r"300 .*does not fit"):
        bind_filter("small = 300", SCHEMA, shapes=shapes)


@pytest.mark.spec("sec-1")
def test_names_of_columns_are_not_taken_for_constants() -> None:
    """A stranger's name of a column was like the mark of one, and other filters a bare error."""
    schema = LanceSchema.from_arrow(pa.schema([("\0n", pa.int64()), ("3", pa.int64())]))
    shapes = FilterShapes()
    for text in ("`\0n` = 7", "`3` = 7", "`\0n` = 8"):
        found = bind_filter(text, schema, shapes=shapes)
        assert found.expression == bind_filter(text, schema).expression
