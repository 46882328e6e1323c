"""Lists: lengths, elements, membership, extremes, and joining items as text.

Fixed-size lists become lists.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from glaive.expr.coerce import is_list
from glaive.expr.compare import comparable, floats_of
from glaive.expr.functions.coercion import LOOSE_TEXT, check_count
from glaive.expr.functions.library import compute, library
from glaive.expr.functions.list_parts import ListParts, sizes_of
from glaive.expr.functions.list_rules import always, element_of, item_field, list_type, lists
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_growth
from glaive.expr.rows import broadcast, count_rows, is_constant
from glaive.expr.sizes import bytes_of, check_item_bytes, largest

__all__: list[str] = []

is_kind = pa.types


@function("array_length", "list_length", takes=lists("li", always(pa.uint64()), 1))
def _array_length(values: Any, level: Any = None) -> Any:
    if level is None:
        return pc.list_value_length(values).cast(pa.uint64())
    return compute("array_length", values, level)


def _depth(kind: Any) -> int:
    return 1 + _depth(kind.value_type) if is_list(kind, fixed=True) else 0


@function("array_ndims", "list_ndims", takes=lists("l", always(pa.uint64())))
def _array_ndims(values: Any) -> Any:
    depth = pa.scalar(_depth(values.type), pa.uint64())
    return pc.if_else(pc.is_valid(values), depth, pa.scalar(None, pa.uint64()))


library("array_dims list_dims", takes=lists("l", always(pa.list_(item_field(pa.uint64())))))


@function("empty", "array_empty", "list_empty", takes=lists("l", always(pa.bool_())))
def _empty(values: Any) -> Any:
    return pc.equal(pc.list_value_length(values), 0)


def _cardinality_types(call: Call) -> Types:
    check_count(call, 1, 1)
    kind = call.types[0]
    if is_kind.is_map(kind) or is_kind.is_null(kind):
        return (kind,), pa.uint64()
    return (list_type(call, 0),), pa.uint64()


@function("cardinality", takes=_cardinality_types)
def _cardinality(values: Any) -> Any:
    if is_kind.is_null(values.type):
        return pa.repeat(pa.scalar(0, pa.uint64()), len(values))

    if _depth(values.type) > 1:
        return compute("cardinality", values)
    return pc.if_else(values.is_valid(), pa.array(sizes_of(values), pa.uint64()), None)


@function(
    "array_has",
    "array_contains",
    "list_has",
    "list_contains",
    takes=lists("le", always(pa.bool_())),
)
def _array_has(values: Any, wanted: Any) -> Any:
    rows = count_rows((values, wanted))
    if is_kind.is_null(values.type.value_type) or (is_constant(wanted) and not wanted.is_valid):
        return pa.nulls(rows, pa.bool_())
    values = broadcast(values, rows)
    parts = ListParts.of(values)
    same = parts.compare(wanted)
    contained = pa.array(parts.any_of(same))
    return pc.if_else(pc.and_(values.is_valid(), pc.is_valid(wanted)), contained, None)


def _is_empty(lists: Any) -> bool:
    """Whether it is the same list without items for all rows."""
    return is_constant(lists) and lists.is_valid and not len(lists.values)


@function("array_has_all", "list_has_all", takes=lists("ll", always(pa.bool_())))
def _array_has_all(values: Any, others: Any) -> Any:
    if _is_empty(others):
        return pa.repeat(pa.scalar(True), count_rows((values, others)))
    if not is_constant(others) or not others.is_valid or is_kind.is_nested(values.type.value_type):
        return compute("array_has_all", values, others)
    parts, wanted = ListParts.of(values), comparable(others.values).unique()
    found = pc.index_in(comparable(parts.values), value_set=wanted)
    known = found.is_valid().to_numpy(zero_copy_only=False)
    pairs = parts.rows * len(wanted) + found.fill_null(0).to_numpy(zero_copy_only=False)
    counts = np.bincount(np.unique(pairs[known]) // len(wanted), minlength=len(values))
    return pc.if_else(values.is_valid(), pa.array(counts == len(wanted)), None)


@function("array_has_any", "list_has_any", "arrays_overlap", takes=lists("ll", always(pa.bool_())))
def _array_has_any(values: Any, others: Any) -> Any:
    if _is_empty(values) or _is_empty(others):
        return pa.repeat(pa.scalar(False), count_rows((values, others)))
    if not is_constant(others) or not others.is_valid or is_kind.is_nested(values.type.value_type):
        return compute("array_has_any", values, others)
    parts, wanted = ListParts.of(values), ListParts.of(broadcast(others, 1))
    contained = pc.is_in(parts.values, value_set=wanted.values)
    return pc.if_else(values.is_valid(), pa.array(parts.any_of(contained)), None)


library(
    "array_position array_indexof list_position list_indexof",
    takes=lists("lei", always(pa.uint64()), 1),
)
library(
    "array_positions list_positions",
    takes=lists("le", always(pa.list_(item_field(pa.uint64())))),
)


@function(
    "array_element", "array_extract", "list_element", "list_extract", takes=lists("li", element_of)
)
def _array_element(values: Any, number: Any) -> Any:
    rows = count_rows((values, number))
    values = broadcast(values, rows)
    parts = ListParts.of(values)
    positions = pc.fill_null(broadcast(number, rows), 0).to_numpy(zero_copy_only=False)
    at = np.where(positions > 0, positions - 1, parts.sizes + positions)
    present = (positions != 0) & (at >= 0) & (at < parts.sizes)
    return parts.values.take(pa.array(np.where(present, parts.begin + at, 0), mask=~present))


library("array_any_value list_any_value", takes=lists("l", element_of))


def _extreme(values: Any, *, greatest: bool) -> Any:
    parts = ListParts.of(values)
    if is_kind.is_nested(parts.values.type):
        return compute("array_max" if greatest else "array_min", values)
    keep, kind = parts.values.is_valid(), parts.values.type
    floats = is_kind.is_floating(kind)
    items = (comparable(parts.values) if floats else parts.values).filter(keep)
    table = pa.table({"row": pa.array(parts.rows).filter(keep), "item": items})
    name = "max" if greatest else "min"
    grouped = table.group_by("row").aggregate([("item", name)])
    positions = np.full(len(values), -1)
    positions[grouped["row"].to_numpy()] = np.arange(grouped.num_rows)
    extremes = grouped[f"item_{name}"].combine_chunks()
    extremes = floats_of(extremes, kind) if floats else extremes
    return extremes.take(pa.array(positions, mask=positions < 0))


function("array_max", "list_max", takes=lists("l", element_of))(partial(_extreme, greatest=True))
function("array_min", takes=lists("l", element_of))(partial(_extreme, greatest=False))


def _text_types(call: Call) -> Types:
    check_count(call, 2, 3)
    kind = list_type(call, 0)
    item = kind
    while is_list(item):
        item = item.value_type
    others = [LOOSE_TEXT(call, number)[0] for number in range(1, len(call.types))]
    return (kind, *others), pa.string()


def _check_joined(values: Any, separator: Any, null: Any = None) -> None:
    rows = count_rows((values, separator))
    lists, added = broadcast(values, rows), largest(separator)
    added += 0 if null is None else largest(null)
    check_item_bytes("array_to_string", lists, added)
    before = bytes_of(lists, rows)
    check_growth("array_to_string", rows, before, before + added * int(sizes_of(lists).sum()))


library(
    "array_to_string array_join list_to_string list_join", takes=_text_types, check=_check_joined
)
