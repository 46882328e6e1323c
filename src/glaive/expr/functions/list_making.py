"""Make lists from lists and values; row by row where items are compared or reordered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.row_bytes import row_bytes
from glaive.arrow.scalars import scalar
from glaive.errors import FilterError
from glaive.expr.coerce import is_list
from glaive.expr.functions.coercion import INTEGER, check_count
from glaive.expr.functions.list_parts import ListParts, equal_to, list_order, lists_of, set_key
from glaive.expr.functions.list_rules import item_field, list_like, list_type, lists
from glaive.expr.functions.registry import Call, Resolve, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_growth, check_size
from glaive.expr.rows import broadcast, count_rows, is_constant, map_rows
from glaive.expr.sizes import bytes_of, check_bytes, check_item_bytes, largest

__all__: list[str] = []

is_kind = pa.types


def _with_item(values: Any, item: Any, *, first: bool) -> Any:
    """Lists with one more item; a null list counts as empty."""
    rows = count_rows((values, item))
    parts = ListParts.of(broadcast(values, rows))
    ends = np.concatenate([[0], np.cumsum(parts.sizes + 1)])
    added = ends[:-1] if first else ends[1:] - 1
    order = np.full(ends[-1], -1)
    order[added] = np.arange(rows) + len(parts.values)
    order[order < 0] = np.arange(len(parts.values))
    items = concat_arrays([parts.values, broadcast(item, rows)]).take(pa.array(order))
    return lists_of(items, ends, list_like(values.type, items.type))


function("array_append", "list_append", "array_push_back", "list_push_back", takes=lists("le"))(
    partial(_with_item, first=False)
)


@function(
    "array_prepend",
    "list_prepend",
    "array_push_front",
    "list_push_front",
    takes=lists("el"),
)
def _array_prepend(item: Any, values: Any) -> Any:
    return _with_item(values, item, first=True)


def _removed(values: Any, item: Any, count: Any) -> Any:
    def removed(value: list[Any], item: Any, count: int) -> list[Any]:
        result, remaining, is_removed = [], count, equal_to(item)
        for element in value:
            if remaining > 0 and is_removed(element):
                remaining -= 1
            else:
                result.append(element)
        return result

    return map_rows(values.type, removed, values, item, count, nulls=())


_ONE, _ALL = scalar(1, pa.int64()), scalar(2**62, pa.int64())


function("array_remove", "list_remove", takes=lists("le"))(partial(_removed, count=_ONE))
function("array_remove_all", "list_remove_all", takes=lists("le"))(partial(_removed, count=_ALL))
function("array_remove_n", "list_remove_n", takes=lists("lei"))(_removed)


def _replaced(values: Any, item: Any, other: Any, count: Any) -> Any:
    rows = count_rows((values, item, other, count))
    lists, size = broadcast(values, rows), largest(other)
    check_item_bytes("array_replace", lists, size)
    before = bytes_of(lists, rows)

    def replaced(value: list[Any], item: Any, other: Any, count: int) -> list[Any]:
        result, remaining, is_replaced = [], count, equal_to(item)
        for element in value:
            replace = remaining > 0 and is_replaced(element)
            remaining -= replace
            result.append(other if replace else element)
        check_growth("array_replace", rows, before, before + (count - remaining) * size)
        return result

    return map_rows(values.type, replaced, values, item, other, count, nulls=(1, 2))


function("array_replace", "list_replace", takes=lists("lee"))(partial(_replaced, count=_ONE))
function("array_replace_all", "list_replace_all", takes=lists("lee"))(
    partial(_replaced, count=_ALL)
)
function("array_replace_n", "list_replace_n", takes=lists("leei"))(_replaced)


def _first_of_each(value: list[Any]) -> list[Any]:
    first_items: dict[Any, Any] = {}
    for item in value:
        first_items.setdefault(set_key(item), item)
    return list(first_items.values())


def _define_by_row(names: str, takes: Resolve, compute: Callable[..., list[Any]]) -> None:
    """Define a function that computes a list of the same type for each row."""

    def by_row(values: Any, *others: Any) -> Any:
        return map_rows(values.type, compute, values, *others)

    function(*names.split(), takes=takes)(by_row)


def _common(left: list[Any], right: list[Any]) -> list[Any]:
    known = {set_key(item) for item in right}
    return [item for item in _first_of_each(left) if set_key(item) in known]


def _difference(left: list[Any], right: list[Any]) -> list[Any]:
    known = {set_key(item) for item in right}
    return [item for item in _first_of_each(left) if set_key(item) not in known]


_define_by_row("array_distinct list_distinct", lists("l"), _first_of_each)
_define_by_row("array_union list_union", lists("ll"), lambda a, b: _first_of_each([*a, *b]))
_define_by_row("array_intersect list_intersect", lists("ll"), _common)
_define_by_row("array_except list_except", lists("ll"), _difference)
_define_by_row("array_reverse list_reverse", lists("l"), lambda items: items[::-1])
_define_by_row("array_pop_back list_pop_back", lists("l"), lambda items: items[:-1])
_define_by_row("array_pop_front list_pop_front", lists("l"), lambda items: items[1:])
_define_by_row(
    "array_compact list_compact", lists("l"), lambda items: [i for i in items if i is not None]
)


@function("array_sort", "list_sort", takes=lists("ltt", optional=2))
def _array_sort(values: Any, order: Any = None, nulls: Any = None) -> Any:
    order = pa.scalar("ASC") if order is None else order
    nulls = pa.scalar("NULLS FIRST") if nulls is None else nulls
    for given, known in ((order, ("ASC", "DESC")), (nulls, ("NULLS FIRST", "NULLS LAST"))):
        word = given.as_py() if is_constant(given) else ""
        if word is not None and word.upper() not in known:
            raise FilterError(f"array_sort: {word!r} must be a constant, {' or '.join(known)}")

    def ordered(value: list[Any], order: str, nulls: str) -> list[Any]:
        present = [item for item in value if item is not None]
        missing = [None] * (len(value) - len(present))
        descending, last = order.upper() == "DESC", nulls.upper() == "NULLS LAST"
        present.sort(key=partial(list_order, nulls_greatest=descending != last), reverse=descending)
        return [*present, *missing] if last else [*missing, *present]

    return map_rows(values.type, ordered, values, order, nulls)


@function("array_slice", "list_slice", takes=lists("liii", optional=1))
def _array_slice(values: Any, begin: Any, end: Any, step: Any = None) -> Any:
    step = _ONE if step is None else step

    def part(value: list[Any], begin: int, end: int, step: int) -> list[Any]:
        if step <= 0:
            raise FilterError(f"array_slice: the step must be at least 1, found {step}")
        first = max(len(value) + begin if begin < 0 else begin - 1, 0)
        last = len(value) + end if end < 0 else min(end, len(value)) - 1
        return value[first : last + 1 : step] if last >= 0 else []

    return map_rows(values.type, part, values, begin, end, step)


@function("array_resize", "list_resize", takes=lists("lie", optional=1))
def _array_resize(values: Any, size: Any, item: Any = None) -> Any:
    _check_items("array_resize", size, values)
    if item is None:
        item = pa.scalar(None, values.type.value_type)
    rows = count_rows((values, size, item))
    longest = int(pc.max(broadcast(size, rows)).as_py() or 0)
    made = longest * largest(item)
    _check_list("array_resize", made)
    check_bytes("array_resize", made * rows, rows, values.type)

    def resized(value: list[Any], size: int | None, item: Any) -> list[Any]:
        size = size or 0
        if size < 0:
            raise FilterError(f"array_resize: a list cannot have {size} items")
        return [*value[:size], *[item] * (size - len(value))]

    return map_rows(values.type, resized, values, size, item, nulls=(1, 2))


def _check_items(name: str, sizes: Any, value: Any) -> None:
    """Check that lists of these sizes may be made; ``value`` is the other argument."""
    sizes = broadcast(sizes, count_rows((sizes, value)))
    counts = pc.max_element_wise(sizes.cast(pa.float64(), safe=False), 0)
    check_size(name, counts, unit="items", unit_bytes=8)


def _check_list(name: str, size: int) -> None:
    """Check that a list of so many bytes may be made of one item."""
    check_size(name, pa.array([float(size)]))


def _flattened(kind: Any) -> Any:
    inner = kind.value_type
    if is_list(inner):
        return list_like(kind if is_kind.is_large_list(kind) else inner, inner.value_type)
    return kind


def _flatten_types(call: Call) -> Types:
    check_count(call, 1, 1)
    kind = list_type(call, 0)
    return (kind,), _flattened(kind)


@function("flatten", takes=_flatten_types)
def _flatten(values: Any) -> Any:
    inner = values.type.value_type
    if not is_list(inner):
        return values
    outer = ListParts.of(values)
    inner = ListParts.of(outer.values)
    kind = list_like(_flattened(values.type), inner.values.type)
    sizes = np.bincount(outer.rows, inner.sizes, minlength=len(values)).astype(np.int64)
    result = lists_of(inner.values, np.concatenate([[0], np.cumsum(sizes)]), kind)
    return pc.if_else(values.is_valid(), result, pa.scalar(None, kind))


def _repeat_types(call: Call) -> Types:
    check_count(call, 2, 2)
    INTEGER(call, 1)
    return (call.types[0], pa.int64()), pa.list_(item_field(call.types[0]))


@function("array_repeat", "list_repeat", takes=_repeat_types)
def _array_repeat(value: Any, count: Any) -> Any:
    _check_items("array_repeat", count, value)
    rows = count_rows((value, count))
    value, sizes = broadcast(value, rows), broadcast(count, rows)
    valid = sizes.is_valid()
    sizes = pc.fill_null(pc.max_element_wise(sizes, 0), 0).to_numpy(zero_copy_only=False)
    made = sizes * row_bytes(value, null=1)
    _check_list("array_repeat", int(made.max(initial=0)))
    check_bytes("array_repeat", int(made.sum()), rows, value.type)
    items = value.take(pa.array(np.repeat(np.arange(rows), sizes)))
    kind = pa.list_(item_field(value.type))
    result = lists_of(items, np.concatenate([[0], np.cumsum(sizes)]), kind)
    return pc.if_else(valid, result, pa.scalar(None, kind))
