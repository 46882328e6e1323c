"""Make lists from lists and values."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.row_bytes import row_bytes
from glaive.expr.coerce import is_list
from glaive.expr.functions.coercion import INTEGER, check_count
from glaive.expr.functions.library import library
from glaive.expr.functions.list_parts import ListParts, lists_of, sizes_of
from glaive.expr.functions.list_rules import item_field, list_like, list_type, lists
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_growth, check_size
from glaive.expr.rows import broadcast, count_rows
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


library("array_remove list_remove", takes=lists("le"))
library("array_remove_all list_remove_all", takes=lists("le"))
library("array_remove_n list_remove_n", takes=lists("lei"))


def _check_replaced(values: Any, _item: Any, other: Any, *_: Any) -> None:
    rows = count_rows((values, other))
    lists, size = broadcast(values, rows), largest(other)
    check_item_bytes("array_replace", lists, size)
    before = bytes_of(lists, rows)
    check_growth("array_replace", rows, before, before + size * int(sizes_of(lists).sum()))


library("array_replace list_replace", takes=lists("lee"))
library("array_replace_all list_replace_all", takes=lists("lee"), check=_check_replaced)
library("array_replace_n list_replace_n", takes=lists("leei"), check=_check_replaced)

library("array_distinct list_distinct", takes=lists("l"))
for _name in ("union", "intersect", "except"):
    library(f"array_{_name} list_{_name}", takes=lists("ll"))
for _name in ("reverse", "pop_back", "pop_front", "compact"):
    library(f"array_{_name} list_{_name}", takes=lists("l"))
library("array_sort list_sort", takes=lists("ltt", optional=2))
library("array_slice list_slice", takes=lists("liii", optional=1))


def _check_resized(values: Any, size: Any, item: Any = None) -> None:
    _check_items("array_resize", size, values)
    item = pa.scalar(None, values.type.value_type) if item is None else item
    rows = count_rows((values, size, item))
    made = int(pc.max(broadcast(size, rows)).as_py() or 0) * largest(item)
    _check_list("array_resize", made)
    check_bytes("array_resize", made * rows, rows, values.type)


def _check_items(name: str, sizes: Any, value: Any) -> None:
    """Check that lists of these sizes may be made; ``value`` is the other argument."""
    sizes = broadcast(sizes, count_rows((sizes, value)))
    counts = pc.max_element_wise(sizes.cast(pa.float64(), safe=False), 0)
    check_size(name, counts, unit="items", unit_bytes=8)


def _check_list(name: str, size: int) -> None:
    """Check that a list of so many bytes may be made of one item."""
    check_size(name, pa.array([float(size)]))


library("array_resize list_resize", takes=lists("lie", optional=1), check=_check_resized)


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
