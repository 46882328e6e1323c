"""Lists: lengths, elements, membership, extremes, and joining items as text.

Lengths, elements, membership and extremes are computed on all rows at once; positions, text
and nested lists row by row. Fixed-size lists become lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.casts import cast
from glaive.expr.coerce import is_list
from glaive.expr.compare import comparable, floats_of
from glaive.expr.functions.coercion import LOOSE_TEXT, check_count
from glaive.expr.functions.list_parts import ListParts, equal_to, list_order, set_key, sizes_of
from glaive.expr.functions.list_rules import always, element_of, item_field, list_type, lists
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_growth
from glaive.expr.rows import broadcast, count_rows, is_constant, map_rows
from glaive.expr.sizes import bytes_of, check_item_bytes, largest

__all__: list[str] = []

is_kind = pa.types


@function("array_length", "list_length", takes=lists("li", always(pa.uint64()), 1))
def _array_length(values: Any, level: Any = None) -> Any:
    if level is None:
        return pc.list_value_length(values).cast(pa.uint64())
    return map_rows(pa.uint64(), _length_at, values, level)


def _length_at(value: Any, level: int) -> int | None:
    for _ in range(level - 1):
        if not isinstance(value, list) or not value:
            return None
        value = value[0]
    return len(value) if isinstance(value, list) and level > 0 else None


def _depth(kind: Any) -> int:
    return 1 + _depth(kind.value_type) if is_list(kind, fixed=True) else 0


@function("array_ndims", "list_ndims", takes=lists("l", always(pa.uint64())))
def _array_ndims(values: Any) -> Any:
    depth = pa.scalar(_depth(values.type), pa.uint64())
    return pc.if_else(pc.is_valid(values), depth, pa.scalar(None, pa.uint64()))


@function("array_dims", "list_dims", takes=lists("l", always(pa.list_(item_field(pa.uint64())))))
def _array_dims(values: Any) -> Any:
    depth = _depth(values.type)

    def dims(value: Any) -> list[int] | None:
        return _dims(value, depth) if value else None

    return map_rows(pa.list_(item_field(pa.uint64())), dims, values)


def _dims(value: Any, depth: int) -> list[int]:
    """Lengths of a list, of its first list, and so on."""
    lengths = []
    for _ in range(depth):
        lengths.append(len(value) if value is not None else 0)
        value = value[0] if value else None
    return lengths


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

    depth = _depth(values.type)
    if depth > 1:
        return map_rows(pa.uint64(), lambda value: math.prod(_dims(value, depth)), values)
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


def _has(test: Callable[[set[Any], set[Any]], bool]) -> Callable[..., Any]:
    def compute(values: Any, others: Any) -> Any:
        def has(value: list[Any], other: list[Any]) -> bool:
            return test(_keys(value), _keys(other))

        return map_rows(pa.bool_(), has, values, others)

    return compute


def _keys(values: list[Any]) -> set[Any]:
    return set(map(set_key, values))


def _is_empty(lists: Any) -> bool:
    """Whether it is the same list without items for all rows."""
    return is_constant(lists) and lists.is_valid and not len(lists.values)


@function("array_has_all", "list_has_all", takes=lists("ll", always(pa.bool_())))
def _array_has_all(values: Any, others: Any) -> Any:
    if _is_empty(others):
        return pa.repeat(pa.scalar(True), count_rows((values, others)))
    return _has(lambda value, other: value >= other)(values, others)


@function("array_has_any", "list_has_any", "arrays_overlap", takes=lists("ll", always(pa.bool_())))
def _array_has_any(values: Any, others: Any) -> Any:
    if _is_empty(values) or _is_empty(others):
        return pa.repeat(pa.scalar(False), count_rows((values, others)))
    if not is_constant(others) or not others.is_valid or is_kind.is_nested(values.type.value_type):
        return _has(lambda value, other: bool(value & other))(values, others)
    parts, wanted = ListParts.of(values), ListParts.of(broadcast(others, 1))
    contained = pc.is_in(parts.values, value_set=wanted.values)
    return pc.if_else(values.is_valid(), pa.array(parts.any_of(contained)), None)


@function(
    "array_position",
    "array_indexof",
    "list_position",
    "list_indexof",
    takes=lists("lei", always(pa.uint64()), 1),
)
def _array_position(values: Any, wanted: Any, start: Any = None) -> Any:
    start = pa.scalar(1, pa.int64()) if start is None else start

    def position(value: list[Any], wanted: Any, start: int) -> int | None:
        if not 1 <= start <= max(len(value), 1):
            raise FilterError(f"array_position: {start} is not in a list of {len(value)} items")
        is_wanted = equal_to(wanted)
        positions = (n for n, item in enumerate(value[start - 1 :], start) if is_wanted(item))
        return next(positions, None)

    return map_rows(pa.uint64(), position, values, wanted, start, nulls=(1,))


@function(
    "array_positions",
    "list_positions",
    takes=lists("le", always(pa.list_(item_field(pa.uint64())))),
)
def _array_positions(values: Any, wanted: Any) -> Any:
    def positions(value: list[Any], wanted: Any) -> list[int]:
        is_wanted = equal_to(wanted)
        return [n for n, item in enumerate(value, 1) if is_wanted(item)]

    return map_rows(pa.list_(item_field(pa.uint64())), positions, values, wanted, nulls=(1,))


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


@function("array_any_value", "list_any_value", takes=lists("l", element_of))
def _array_any_value(values: Any) -> Any:
    def first(value: list[Any]) -> Any:
        return next((item for item in value if item is not None), None)

    return map_rows(values.type.value_type, first, values)


def _extreme(values: Any, *, greatest: bool) -> Any:
    parts = ListParts.of(values)
    if is_kind.is_nested(parts.values.type):
        choose = max if greatest else min
        order = partial(list_order, nulls_greatest=True)

        def chosen(value: list[Any]) -> Any:
            present = [item for item in value if item is not None]
            return choose(present, key=order, default=None)

        return map_rows(values.type.value_type, chosen, values)
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


@function("array_to_string", "array_join", "list_to_string", "list_join", takes=_text_types)
def _array_to_string(values: Any, separator: Any, null: Any = None) -> Any:
    null = pa.scalar(None, pa.string()) if null is None else null
    rows = count_rows((values, separator, null))
    lists = broadcast(values, rows)
    check_item_bytes("array_to_string", lists, largest(separator) + largest(null))
    before = bytes_of(lists, rows)

    def joined(value: list[Any], separator: str, null: str | None) -> str:
        texts = _shown(value, null)
        size = sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0)
        check_growth("array_to_string", rows, before, size)
        return separator.join(texts)

    return map_rows(pa.string(), joined, _with_texts(lists), separator, null, nulls=(2,))


def _shown(value: list[Any], null: str | None) -> list[str]:
    """The texts of a list, and of lists in it; ``null`` for nulls, unless it is None."""
    texts: list[str] = []
    for item in value:
        if isinstance(item, list):
            texts += _shown(item, null)
        elif item is not None:
            texts.append(item)
        elif null is not None:
            texts.append(null)
    return texts


def _with_texts(values: Any) -> Any:
    """Lists, perhaps of lists, with the text that ``CAST`` gives in place of each item.

    Floats have no exponent, and no point where they are integers.
    """
    kind = values.type
    if is_list(kind, fixed=True):
        sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        ends = pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]))
        missing = values.is_null() if values.null_count else None
        return pa.LargeListArray.from_arrays(ends, _with_texts(values.flatten()), mask=missing)
    if is_kind.is_struct(kind) or is_kind.is_map(kind):
        raise FilterError(f"array_to_string: items of type {kind} have no text")
    if is_kind.is_floating(kind):
        number = np.float64 if kind.bit_width == 64 else np.float32
        return map_rows(pa.large_string(), lambda value: _float_text(number(value)), values)
    binary = is_kind.is_binary(kind) or is_kind.is_large_binary(kind)
    return cast(values, pa.large_string(), attempt=binary)


def _float_text(value: Any) -> str:
    if np.isfinite(value):
        return str(np.format_float_positional(value, unique=True, trim="-"))
    return "NaN" if np.isnan(value) else ("inf" if value > 0 else "-inf")
