"""Make one list of each row's lists or values: end to end, item by item, or of single values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from glaive.arrow.dictionaries import concat_arrays
from glaive.errors import FilterError
from glaive.expr.functions.coercion import check_count
from glaive.expr.functions.list_parts import ListParts, lists_of
from glaive.expr.functions.list_rules import item_field, list_like, list_type
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.unify import unify
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_joined
from glaive.expr.rows import broadcast, count_rows
from glaive.expr.sizes import bytes_of, fixed_bytes

__all__: list[str] = []

_POSITION_BYTES = 8


def _common_type(call: Call, kinds: Sequence[Any]) -> Any:
    kind = reduce(lambda left, right: left and unify(left, right), kinds)
    if kind is None:
        raise FilterError(f"{call.name}: no common type of {', '.join(map(str, call.types))}")
    return kind


def _bytes_of_all(values: Sequence[Any], rows: int) -> int:
    """Bytes of some arguments, and of a position for each of their values."""
    return sum(bytes_of(value, rows) + _POSITION_BYTES * rows for value in values)


def _any_valid(values: Sequence[Any], rows: int) -> Any:
    valid = pa.repeat(pa.scalar(False), rows)
    for value in values:
        valid = pc.or_(valid, pc.is_valid(value))
    return valid


def _ends(sizes: Any) -> Any:
    return np.concatenate([[0], np.cumsum(sizes)])


def _concat_types(call: Call) -> Types:
    check_count(call, 1)
    kinds = [list_type(call, number) for number in range(len(call.types))]
    kind = _common_type(call, kinds)
    return (kind,) * len(kinds), kind


@function("array_concat", "array_cat", "list_concat", "list_cat", takes=_concat_types)
def _array_concat(*values: Any) -> Any:
    rows, kind = count_rows(values), values[0].type
    check_joined("array_concat", rows, values, _bytes_of_all(values, rows), kind)
    parts = [ListParts.of(broadcast(value, rows)) for value in values]
    before = _ends([len(part.values) for part in parts])[:-1]
    begin = np.stack([part.begin for part in parts], axis=1) + before
    sizes = np.stack([part.sizes for part in parts], axis=1)
    ends = _ends(sizes.ravel())
    order = np.repeat(begin.ravel() - ends[:-1], sizes.ravel()) + np.arange(ends[-1])
    items = concat_arrays([part.values for part in parts]).take(pa.array(order))
    joined = lists_of(items, ends[:: len(parts)], list_like(kind, items.type))
    return pc.if_else(_any_valid(values, rows), joined, pa.scalar(None, joined.type))


def _array_types(call: Call) -> Types:
    if not call.types:
        return (), pa.list_(item_field(pa.null()))
    kind = _common_type(call, call.types)
    return (kind,) * len(call.types), pa.list_(item_field(kind))


@function("make_array", "make_list", takes=_array_types)
def _make_array(*values: Any) -> Any:
    if not values:
        return pa.scalar([], pa.list_(item_field(pa.null())))
    rows, width = count_rows(values), len(values)
    check_joined("make_array", rows, values, _bytes_of_all(values, rows), values[0].type)
    columns = concat_arrays([broadcast(value, rows) for value in values])
    positions = np.arange(rows * width).reshape(rows, width)
    items = columns.take(pa.array((positions % width * rows + positions // width).ravel()))
    return lists_of(items, np.arange(rows + 1) * width, pa.list_(item_field(items.type)))


def _zip_types(call: Call) -> Types:
    check_count(call, 1)
    kinds = [list_type(call, number) for number in range(len(call.types))]
    return tuple(kinds), _zipped(kinds)


def _zipped(kinds: Sequence[Any]) -> Any:
    fields = [pa.field(str(n), kind.value_type) for n, kind in enumerate(kinds, 1)]
    return pa.list_(item_field(pa.struct(fields)))


@function("arrays_zip", "list_zip", takes=_zip_types)
def _arrays_zip(*values: Any) -> Any:
    rows, kind = count_rows(values), _zipped([value.type for value in values])
    check_joined("arrays_zip", rows, values, _bytes_of_all(values, rows), kind)
    parts = [ListParts.of(broadcast(value, rows)) for value in values]
    longest = reduce(np.maximum, (part.sizes for part in parts))
    ends = _ends(longest)
    # Shorter lists are filled up with nulls, which take bytes, too.
    filled = int(ends[-1]) * sum(1 + fixed_bytes(part.values.type) for part in parts)
    check_joined("arrays_zip", rows, values, filled, kind)
    row_of_item = np.repeat(np.arange(rows), longest)
    position = np.arange(ends[-1]) - ends[row_of_item]
    members = []
    for part in parts:
        missing = position >= part.sizes[row_of_item]
        members.append(part.values.take(pa.array(part.begin[row_of_item] + position, mask=missing)))
    items = pa.StructArray.from_arrays(members, fields=list(kind.value_type))
    return pc.if_else(_any_valid(values, rows), lists_of(items, ends, kind), pa.scalar(None, kind))
