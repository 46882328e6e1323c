"""Nested arrays become leaves with levels, and the leaves become the same arrays again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.build import block_from_array
from glaive.encodings.levels import Layer, Leaf
from glaive.errors import CorruptFileError, SchemaError
from glaive.file.v2.columns import column_tree, number_columns, unshred
from glaive.file.v2.writer import Shredded, shred
from glaive.format.fields import LanceSchema
from glaive.types import Where

WHERE = Where("test.lance")


def _leaf(shredded: Shredded) -> Leaf:
    levels = shredded.levels
    entries = shredded.rows if levels.rep is None else len(levels.rep)
    return Leaf(
        block_from_array(shredded.values),
        shredded.rows,
        entries,
        levels.layers,
        levels.rep,
        levels.definition,
    )


def _back(array: pa.Array) -> pa.Array:
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    node = column_tree(schema.fields[0], number_columns(schema.fields))
    leaves = [_leaf(shredded) for shredded in shred(node, array)]
    return unshred(node, leaves, len(array), WHERE)


_items = st.one_of(st.none(), st.integers(-5, 5))


def _nested(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[object]]]:
    leaf = st.just((pa.int32(), _items))
    if depth == 0:
        return leaf
    inner = _nested(depth - 1)

    def lists(
        pair: tuple[pa.DataType, st.SearchStrategy[object]],
    ) -> tuple[pa.DataType, st.SearchStrategy[object]]:
        return pa.list_(pair[0]), st.one_of(st.none(), st.lists(pair[1], max_size=3))

    def large_lists(
        pair: tuple[pa.DataType, st.SearchStrategy[object]],
    ) -> tuple[pa.DataType, st.SearchStrategy[object]]:
        return pa.large_list(pair[0]), st.one_of(st.none(), st.lists(pair[1], max_size=3))

    def structs(
        pairs: list[tuple[pa.DataType, st.SearchStrategy[object]]],
    ) -> tuple[pa.DataType, st.SearchStrategy[object]]:
        names = "abc"[: len(pairs)]
        kind = pa.struct(list(zip(names, (p[0] for p in pairs), strict=True)))
        made = st.fixed_dictionaries({n: p[1] for n, p in zip(names, pairs, strict=True)})
        return kind, st.one_of(st.none(), made)

    return st.one_of(
        leaf,
        inner.map(lists),
        inner.map(large_lists),
        st.lists(inner, min_size=1, max_size=3).map(structs),
    )


@given(data=st.data())
def test_any_nesting_comes_back_as_it_was(data: st.DataObject) -> None:
    kind, values = data.draw(_nested(4))
    array = pa.array(data.draw(st.lists(values, max_size=8)), kind)
    back = _back(array)
    back.validate(full=True)
    assert back.equals(array)


@given(data=st.data(), first=st.integers(0, 4), size=st.integers(0, 5))
def test_a_slice_shreds_like_its_copy(data: st.DataObject, first: int, size: int) -> None:
    kind, values = data.draw(_nested(3))
    array = pa.array(data.draw(st.lists(values, max_size=8)), kind).slice(first, size)
    assert _back(array).equals(array)


def test_levels_are_numbered_from_the_inside() -> None:
    array = pa.array([[1, 2], None, [], [3, None]], pa.list_(pa.int16()))
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    node = column_tree(schema.fields[0], number_columns(schema.fields))
    (leaf,) = shred(node, array)
    assert leaf.levels.layers == (Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST)
    assert leaf.levels.rep is not None
    assert leaf.levels.definition is not None
    assert leaf.levels.rep.tolist() == [1, 0, 1, 1, 1, 0]
    assert leaf.levels.definition.tolist() == [0, 0, 2, 3, 0, 1]
    assert leaf.values.to_pylist() == [1, 2, 3, None]


def test_items_hidden_under_null_lists_are_dropped() -> None:
    offsets, items = pa.array([0, 2, 4, 5], pa.int32()), pa.array([1, 2, 3, 4, 5])
    array = pa.ListArray.from_arrays(offsets, items, mask=pa.array([False, True, False]))
    back = _back(array)
    assert back.equals(array)
    assert back.values.to_pylist() == [1, 2, 5]


def test_layers_that_do_not_fit_the_schema_are_reported() -> None:
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", pa.list_(pa.int32()))]))
    node = column_tree(schema.fields[0], number_columns(schema.fields))
    flat = Leaf(block_from_array(pa.array([1], pa.int32())), 1, 1, (Layer.ALL_VALID_ITEM,))
    with pytest.raises(CorruptFileError, match=r"page layers: expected item, list"):
        unshred(node, [flat], 1, WHERE)


def test_leaves_of_a_struct_must_agree_on_the_number_of_values() -> None:
    array = pa.array([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    node = column_tree(schema.fields[0], number_columns(schema.fields))
    first, other = (_leaf(shredded) for shredded in shred(node, array))
    other.values, other.entries = block_from_array(pa.array([2])), 1
    with pytest.raises(CorruptFileError, match="expected 2 values, found 1"):
        unshred(node, [first, other], 2, WHERE)


def test_definition_levels_without_a_layer_for_them_are_rejected_by_count() -> None:
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", pa.list_(pa.int32()))]))
    node = column_tree(schema.fields[0], number_columns(schema.fields))
    leaf = Leaf(
        block_from_array(pa.array([1, 2], pa.int32())),
        2,
        2,
        (Layer.ALL_VALID_ITEM, Layer.NULLABLE_LIST),
        np.array([1, 1], np.uint16),
        np.array([0, 1], np.uint16),
    )
    with pytest.raises(CorruptFileError, match="page values"):
        unshred(node, [leaf], 2, WHERE)


EMPTY = pa.struct([])


@pytest.mark.parametrize(
    ("kind", "values"),
    [(EMPTY, [{}, None]), (pa.struct([("x", pa.int8()), ("e", EMPTY)]), [{"x": 1, "e": None}])],
)
def test_nulls_of_structs_without_members_are_refused(
    kind: pa.DataType, values: list[object]
) -> None:
    with pytest.raises(SchemaError, match="struct without members and has 1 nulls"):
        _back(pa.array(values, kind))


def test_structs_without_members_may_be_in_structs_that_are_null() -> None:
    array = pa.array([{"x": 1, "e": {}}, None], pa.struct([("x", pa.int8()), ("e", EMPTY)]))
    node = column_tree(
        LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)])).fields[0], {1: 0, 2: 1}
    )
    assert [shredded.rows for shredded in shred(node, array)] == [2, 2]
