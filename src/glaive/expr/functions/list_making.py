"""Lists made of other lists and of values: row by row, where items are compared or moved."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from glaive.arrow.capacity import row_weights
from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.scalars import scalar
from glaive.errors import FilterError
from glaive.expr.functions.coercion import INTEGER, check_count
from glaive.expr.functions.list_parts import ListParts
from glaive.expr.functions.list_rules import item_field, list_type, lists, same
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.unify import unify
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_size
from glaive.expr.rows import constant, count_rows, map_rows, spread
from glaive.expr.sizes import bytes_of, largest, reserve, reserve_within

__all__: list[str] = []

is_kind = pa.types


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def _key(value: Any) -> Any:
    return repr(value) if isinstance(value, list | dict) else value


# --------------------------------------------------------------------------- with values


def _with_item(values: Any, item: Any, *, first: bool) -> Any:
    """Lists with an item more; a null list is an empty one."""
    rows = count_rows((values, item))
    parts = ListParts.of(spread(values, rows))
    ends = np.concatenate([[0], np.cumsum(parts.sizes + 1)])
    added = ends[:-1] if first else ends[1:] - 1
    order = np.full(ends[-1], -1)
    order[added] = np.arange(rows) + len(parts.values)
    order[order < 0] = np.arange(len(parts.values))
    items = concat_arrays([parts.values, spread(item, rows)]).take(pa.array(order))
    return _lists_of(items, ends, values.type)


def _lists_of(items: Any, offsets: Any, kind: Any) -> Any:
    large = is_kind.is_large_list(kind)
    made = pa.LargeListArray if large else pa.ListArray
    return made.from_arrays(
        pa.array(offsets, pa.int64() if large else pa.int32()), items, type=kind
    )


@function(
    "array_append", "list_append", "array_push_back", "list_push_back", takes=lists("le", same)
)
def _array_append(values: Any, item: Any) -> Any:
    return _with_item(values, item, first=False)


@function(
    "array_prepend", "list_prepend", "array_push_front", "list_push_front", takes=lists("el", same)
)
def _array_prepend(item: Any, values: Any) -> Any:
    return _with_item(values, item, first=True)


def _concat_types(call: Call) -> Types:
    check_count(call, 1)
    kinds = [list_type(call, number) for number in range(len(call.types))]
    kind = reduce(lambda left, right: left and unify(left, right), kinds)
    if kind is None:
        raise FilterError(f"{call.name}: no list holds all of {', '.join(map(str, call.types))}")
    return (kind,) * len(kinds), kind


@function("array_concat", "array_cat", "list_concat", "list_cat", takes=_concat_types)
def _array_concat(*values: Any) -> Any:
    def joined(*parts: list[Any] | None) -> list[Any] | None:
        there = [part for part in parts if part is not None]
        return [item for part in there for item in part] if there else None

    return map_rows(values[0].type, joined, *values, nulls=range(len(values)))


def _removed(values: Any, item: Any, count: Any) -> Any:
    def removed(value: list[Any], item: Any, count: int) -> list[Any]:
        made, left = [], count
        for each in value:
            if left > 0 and _equal(each, item):
                left -= 1
            else:
                made.append(each)
        return made

    return map_rows(values.type, removed, values, item, count, nulls=())


_ONE, _ALL = scalar(1, pa.int64()), scalar(2**62, pa.int64())


@function("array_remove", "list_remove", takes=lists("le", same))
def _array_remove(values: Any, item: Any) -> Any:
    return _removed(values, item, _ONE)


@function("array_remove_all", "list_remove_all", takes=lists("le", same))
def _array_remove_all(values: Any, item: Any) -> Any:
    return _removed(values, item, _ALL)


@function("array_remove_n", "list_remove_n", takes=lists("lei", same))
def _array_remove_n(values: Any, item: Any, count: Any) -> Any:
    return _removed(values, item, count)


def _replaced(values: Any, item: Any, other: Any, count: Any) -> Any:
    lists = spread(values, count_rows((values, item, other, count)))
    reserve_within("array_replace", lists, largest(other))

    def replaced(value: list[Any], item: Any, other: Any, count: int) -> list[Any]:
        made, left = [], count
        for each in value:
            hit = left > 0 and _equal(each, item)
            left -= hit
            made.append(other if hit else each)
        return made

    return map_rows(values.type, replaced, values, item, other, count, nulls=(1, 2))


@function("array_replace", "list_replace", takes=lists("lee", same))
def _array_replace(values: Any, item: Any, other: Any) -> Any:
    return _replaced(values, item, other, _ONE)


@function("array_replace_all", "list_replace_all", takes=lists("lee", same))
def _array_replace_all(values: Any, item: Any, other: Any) -> Any:
    return _replaced(values, item, other, _ALL)


@function("array_replace_n", "list_replace_n", takes=lists("leei", same))
def _array_replace_n(values: Any, item: Any, other: Any, count: Any) -> Any:
    return _replaced(values, item, other, count)


# --------------------------------------------------------------------------- as sets


def _first_of_each(value: list[Any]) -> list[Any]:
    made: dict[Any, Any] = {}
    for item in value:
        made.setdefault(_key(item), item)
    return list(made.values())


@function("array_distinct", "list_distinct", takes=lists("l", same))
def _array_distinct(values: Any) -> Any:
    return map_rows(values.type, _first_of_each, values)


@function("array_union", "list_union", takes=lists("ll", same))
def _array_union(values: Any, others: Any) -> Any:
    return map_rows(
        values.type, lambda left, right: _first_of_each([*left, *right]), values, others
    )


@function("array_intersect", "list_intersect", takes=lists("ll", same))
def _array_intersect(values: Any, others: Any) -> Any:
    def common(left: list[Any], right: list[Any]) -> list[Any]:
        known = {_key(item) for item in right}
        return [item for item in _first_of_each(left) if _key(item) in known]

    return map_rows(values.type, common, values, others)


@function("array_except", "list_except", takes=lists("ll", same))
def _array_except(values: Any, others: Any) -> Any:
    def rest(left: list[Any], right: list[Any]) -> list[Any]:
        known = {_key(item) for item in right}
        return [item for item in _first_of_each(left) if _key(item) not in known]

    return map_rows(values.type, rest, values, others)


# --------------------------------------------------------------------------- order and parts


@function("array_reverse", "list_reverse", takes=lists("l", same))
def _array_reverse(values: Any) -> Any:
    return map_rows(values.type, lambda value: value[::-1], values)


@function("array_compact", "list_compact", takes=lists("l", same))
def _array_compact(values: Any) -> Any:
    return map_rows(values.type, lambda value: [item for item in value if item is not None], values)


@function("array_pop_back", "list_pop_back", takes=lists("l", same))
def _array_pop_back(values: Any) -> Any:
    return map_rows(values.type, lambda value: value[:-1], values)


@function("array_pop_front", "list_pop_front", takes=lists("l", same))
def _array_pop_front(values: Any) -> Any:
    return map_rows(values.type, lambda value: value[1:], values)


@function("array_sort", "list_sort", takes=lists("ltt", same, 2))
def _array_sort(values: Any, order: Any = None, nulls: Any = None) -> Any:
    order = pa.scalar("ASC") if order is None else order
    nulls = pa.scalar("NULLS FIRST") if nulls is None else nulls
    for given, known in ((order, ("ASC", "DESC")), (nulls, ("NULLS FIRST", "NULLS LAST"))):
        word = given.as_py() if constant(given) else ""
        if word is not None and word.upper() not in known:
            raise FilterError(f"array_sort: {word!r} must be a constant, {' or '.join(known)}")

    def ordered(value: list[Any], order: str, nulls: str) -> list[Any]:
        there = [item for item in value if item is not None]
        missing = [None] * (len(value) - len(there))
        there = _in_order(there, reverse=order.upper() == "DESC")
        return [*there, *missing] if nulls.upper() == "NULLS LAST" else [*missing, *there]

    return map_rows(values.type, ordered, values, order, nulls)


def _in_order(values: list[Any], *, reverse: bool) -> list[Any]:
    if any(isinstance(value, float) for value in values):
        # NaN is the greatest.
        return sorted(values, key=lambda value: (math.isnan(value), value), reverse=reverse)
    if any(isinstance(value, list) for value in values):
        return sorted(values, key=lambda v: [(x is not None, x) for x in v], reverse=reverse)
    return sorted(values, reverse=reverse)


@function("array_slice", "list_slice", takes=lists("liii", same, 1))
def _array_slice(values: Any, begin: Any, end: Any, step: Any = None) -> Any:
    step = _ONE if step is None else step

    def part(value: list[Any], begin: int, end: int, step: int) -> list[Any]:
        if step <= 0:
            raise FilterError(f"array_slice: the step must be at least 1, found {step}")
        first = max(len(value) + begin if begin < 0 else begin - 1, 0)
        last = len(value) + end if end < 0 else min(end, len(value)) - 1
        return value[first : last + 1 : step] if last >= 0 else []

    return map_rows(values.type, part, values, begin, end, step)


@function("array_resize", "list_resize", takes=lists("lie", same, 1))
def _array_resize(values: Any, size: Any, item: Any = None) -> Any:
    _check_items("array_resize", size, values)
    if item is None:
        item = pa.scalar(None, values.type.value_type)
    elif largest(item):
        rows = count_rows((values, size, item))
        longest = int(pc.max(spread(size, rows)).as_py() or 0)
        reserve("array_resize", longest * largest(item) * rows, rows, values.type)

    def resized(value: list[Any], size: int | None, item: Any) -> list[Any]:
        size = size or 0
        if size < 0:
            raise FilterError(f"array_resize: a list has no {size} items")
        return [*value[:size], *[item] * (size - len(value))]

    return map_rows(values.type, resized, values, size, item, nulls=(1, 2))


def _check_items(name: str, sizes: Any, value: Any) -> None:
    """Ask to make lists of these sizes; beside them stands another argument."""
    sizes = spread(sizes, count_rows((sizes, value)))
    counts = pc.max_element_wise(sizes.cast(pa.float64(), safe=False), 0)
    check_size(name, counts, what="items", each=8)


def _flattened(kind: Any) -> Any:
    inner = kind.value_type
    if is_kind.is_list(inner) or is_kind.is_large_list(inner):
        large = is_kind.is_large_list(kind) or is_kind.is_large_list(inner)
        field = item_field(inner.value_type)
        return pa.large_list(field) if large else pa.list_(field)
    return kind


def _flatten_types(call: Call) -> Types:
    check_count(call, 1, 1)
    kind = list_type(call, 0)
    return (kind,), _flattened(kind)


@function("flatten", takes=_flatten_types)
def _flatten(values: Any) -> Any:
    inner = values.type.value_type
    if not (is_kind.is_list(inner) or is_kind.is_large_list(inner)):
        return values
    kind = _flattened(values.type)
    outer = ListParts.of(values)
    inner = ListParts.of(outer.values)
    sizes = np.bincount(outer.rows, inner.sizes, minlength=len(values)).astype(np.int64)
    made = _lists_of(inner.values, np.concatenate([[0], np.cumsum(sizes)]), kind)
    return pc.if_else(values.is_valid(), made, pa.scalar(None, kind))


# --------------------------------------------------------------------------- from values


def _array_types(call: Call) -> Types:
    if not call.types:
        return (), pa.list_(item_field(pa.null()))
    kind = reduce(lambda left, right: left and unify(left, right), call.types)
    if kind is None:
        raise FilterError(f"{call.name}: no type holds all of {', '.join(map(str, call.types))}")
    return (kind,) * len(call.types), pa.list_(item_field(kind))


@function("make_array", "make_list", takes=_array_types)
def _make_array(*values: Any) -> Any:
    if not values:
        return pa.scalar([], pa.list_(item_field(pa.null())))
    rows, width = count_rows(values), len(values)
    reserve("make_array", sum(bytes_of(value, rows) for value in values), rows, values[0].type)
    columns = concat_arrays([spread(value, rows) for value in values])
    places = np.arange(rows * width).reshape(rows, width)
    items = columns.take(pa.array((places % width * rows + places // width).ravel()))
    offsets = pa.array(np.arange(rows + 1) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, items, type=pa.list_(item_field(items.type)))


def _repeat_types(call: Call) -> Types:
    check_count(call, 2, 2)
    INTEGER(call, 1)
    return (call.types[0], pa.int64()), pa.list_(item_field(call.types[0]))


@function("array_repeat", "list_repeat", takes=_repeat_types)
def _array_repeat(value: Any, count: Any) -> Any:
    _check_items("array_repeat", count, value)
    rows = count_rows((value, count))
    value, sizes = spread(value, rows), spread(count, rows)
    valid = sizes.is_valid()
    sizes = pc.fill_null(pc.max_element_wise(sizes, 0), 0).to_numpy(zero_copy_only=False)
    reserve("array_repeat", int((sizes * row_weights(value)).sum()), rows, value.type)
    items = value.take(pa.array(np.repeat(np.arange(rows), sizes)))
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    kind = pa.list_(item_field(value.type))
    made = pa.ListArray.from_arrays(offsets, items, type=kind)
    return pc.if_else(valid, made, pa.scalar(None, kind))


def _zip_types(call: Call) -> Types:
    check_count(call, 1)
    kinds = [list_type(call, number) for number in range(len(call.types))]
    fields = [pa.field(str(n), kind.value_type) for n, kind in enumerate(kinds, 1)]
    return tuple(kinds), pa.list_(item_field(pa.struct(fields)))


@function("arrays_zip", "list_zip", takes=_zip_types)
def _arrays_zip(*values: Any) -> Any:
    kind = pa.list_(
        item_field(
            pa.struct([pa.field(str(n), each.type.value_type) for n, each in enumerate(values, 1)])
        )
    )

    def zipped(*parts: list[Any] | None) -> list[Any] | None:
        if all(part is None for part in parts):
            return None
        size = max(len(part or []) for part in parts)
        return [
            {
                str(n): part[place] if part and place < len(part) else None
                for n, part in enumerate(parts, 1)
            }
            for place in range(size)
        ]

    return map_rows(kind, zipped, *values, nulls=range(len(values)))
