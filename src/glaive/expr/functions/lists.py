"""Lists: lengths, elements, membership, extremes, and joining items as text.

Fixed-size lists become lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from glaive.arrow.chunked import concat_arrays
from glaive.arrow.widths import row_bytes
from glaive.errors import FilterError
from glaive.expr.coerce import is_list, is_number
from glaive.expr.compare import comparable, floats_of
from glaive.expr.functions.coercion import (
    INTEGER,
    LOOSE_TEXT,
    TEXT,
    check_count,
    is_string,
    refuse,
    unify,
)
from glaive.expr.functions.library import compute, library
from glaive.expr.functions.list_parts import ListParts, lists_of, sizes_of
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_growth, check_joined, check_size
from glaive.expr.rows import broadcast, count_rows, is_constant
from glaive.expr.sizes import bytes_of, check_bytes, check_item_bytes, fixed_bytes, largest

# --- Type rules of functions on lists ---------------------------------------------------

is_kind = pa.types


def list_type(call: Call, number: int) -> Any:
    """Return the list type an argument is cast to; fixed-size lists become lists."""
    kind = call.types[number]
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("item", kind.value_type))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", kind.value_type))
    if pa.types.is_null(kind):
        return pa.list_(pa.field("item", pa.null()))
    raise refuse(call, number, "a list")


def item_field(kind: Any) -> Any:
    """Return the field of a list's items, with the name of the reference implementation."""
    return pa.field("item", kind)


def list_like(kind: Any, item: Any) -> Any:
    """Return a list type with other items, large if ``kind`` is."""
    return (pa.large_list if is_kind.is_large_list(kind) else pa.list_)(item_field(item))


def lists(
    pattern: str, result: Callable[[Any], Any] | None = None, optional: int = 0
) -> Callable[[Call], Types]:
    """Build a rule: ``l`` a list, ``e`` an element of it, ``i`` an integer, ``t`` text.

    ``result`` chooses the type of the result from that of the lists; by default it is the same.
    """

    def resolve(call: Call) -> Types:
        check_count(call, len(pattern) - optional, len(pattern))
        given = pattern[: len(call.types)]
        item = None
        outer = None
        for number, (letter, kind) in enumerate(zip(given, call.types, strict=True)):
            if letter == "l":
                data_type = list_type(call, number)
                outer = data_type if outer is None or is_kind.is_large_list(data_type) else outer
                inner = data_type.value_type
            elif letter == "e":
                inner = kind
            else:
                continue
            mixed = item is not None and is_string(item) != is_string(inner)
            if mixed and not is_kind.is_null(item) and not is_kind.is_null(inner):
                raise refuse(call, number, f"a value among values of type {item}")
            common = inner if item is None else unify(item, inner)
            if common is None:
                raise refuse(call, number, f"a value among values of type {item}")
            item = common
        cast = {"l": list_like(outer, item), "e": item, "i": pa.int64(), "t": pa.string()}
        for number, letter in enumerate(given):
            if letter == "i":
                INTEGER(call, number)
            elif letter == "t":
                TEXT(call, number)
        outcome = cast["l"] if result is None else result(cast["l"])
        return tuple(cast[letter] for letter in given), outcome

    return resolve


def element_of(kind: Any) -> Any:
    """Choose the type of the items."""
    return kind.value_type


def always(kind: Any) -> Callable[[Any], Any]:
    """Choose this type."""
    return lambda _: kind


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
    "array_positions list_positions", takes=lists("le", always(pa.list_(item_field(pa.uint64()))))
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


# --- Make one list of each row's lists or values: end to end, item by item, or of single values

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


# --- Make lists from lists and values ---------------------------------------------------


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


@function("array_prepend", "list_prepend", "array_push_front", "list_push_front", takes=lists("el"))
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


# --- Lists of consecutive integers, for all rows at once --------------------------------


def _range_types(call: Call) -> Types:
    check_count(call, 1, 3)
    if not all(is_kind.is_integer(kind) or is_kind.is_null(kind) for kind in call.types):
        wrong = next(n for n, kind in enumerate(call.types) if not is_kind.is_integer(kind))
        raise refuse(call, wrong, "an integer")
    return (pa.int64(),) * len(call.types), pa.list_(item_field(pa.int64()))


def _ranges(name: str, inclusive: int, *arguments: Any) -> Any:
    if len(arguments) == 1:
        arguments = (pa.scalar(0, pa.int64()), arguments[0])
    step = arguments[2] if len(arguments) == 3 else pa.scalar(1, pa.int64())
    rows = count_rows(arguments)
    columns = [broadcast(argument, rows) for argument in (*arguments[:2], step)]
    valid = reduce(pc.and_, [column.is_valid() for column in columns])
    begin, end, stride = [
        pc.fill_null(column, 1).to_numpy(zero_copy_only=False) for column in columns
    ]
    if (stride == 0).any():
        raise FilterError(f"{name}: the step must not be 0")
    last = end.astype(object) - (0 if inclusive else np.sign(stride).astype(object))
    sizes = np.maximum((last - begin.astype(object)) // stride.astype(object) + 1, 0)
    sizes = np.where(valid.to_numpy(zero_copy_only=False), sizes, 0)
    check_size(name, pa.array(sizes.astype(np.float64)), unit="numbers", unit_bytes=8)
    sizes = sizes.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    items = np.repeat(begin, sizes) + inside * np.repeat(stride, sizes)
    kind = pa.list_(item_field(pa.int64()))
    result = lists_of(pa.array(items), offsets, kind)
    return pc.if_else(valid, result, pa.scalar(None, kind))


function("range", takes=_range_types)(partial(_ranges, "range", 0))
function("generate_series", takes=_range_types)(partial(_ranges, "generate_series", 1))


# --- Lists as vectors: distances, products, normalisation. Computed in ``float64`` ------

_OVERFLOW = np.errstate(all="ignore")
"""Numbers of a file may have any size: results are infinities and NaN, without a warning."""


def _vector(call: Call, number: int) -> Any:
    kind = list_type(call, number)
    inner = kind.value_type
    if not (is_number(inner) or is_kind.is_null(inner)):
        raise refuse(call, number, "a list of numbers")
    return list_like(kind, pa.float64())


def _two_vectors(call: Call) -> Types:
    check_count(call, 2, 2)
    return (_vector(call, 0), _vector(call, 1)), pa.float64()


def _pairs(name: str, left: Any, right: Any) -> tuple[ListParts, Any, Any, Any]:
    """Values of both vectors in the same order, and which rows have both without nulls."""
    rows = count_rows((left, right))
    left, right = broadcast(left, rows), broadcast(right, rows)
    valid = pc.and_(left.is_valid(), right.is_valid()).to_numpy(zero_copy_only=False)
    missing = pa.scalar(None, left.type), pa.scalar(None, right.type)
    mask = pa.array(valid)
    left, right = pc.if_else(mask, left, missing[0]), pc.if_else(mask, right, missing[1])
    first, second = ListParts.of(left), ListParts.of(right)
    if np.any(first.sizes != second.sizes):
        row = int((first.sizes != second.sizes).argmax())
        raise FilterError(
            f"{name}: a vector of {first.sizes[row]} numbers and one of {second.sizes[row]}; "
            "both must have the same length"
        )
    nulls = pc.or_(first.values.is_null(), second.values.is_null()).to_numpy(zero_copy_only=False)
    valid &= np.bincount(first.rows[nulls], minlength=rows) == 0
    return first, _plain(first.values), _plain(second.values), valid


def _plain(values: Any) -> Any:
    return pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)


def _sums(parts: ListParts, values: Any) -> Any:
    return np.bincount(parts.rows, weights=values, minlength=len(parts.sizes)).astype(np.float64)


def _valid(values: Any, valid: Any) -> Any:
    return pa.array(values, pa.float64(), mask=~valid)


@function("array_distance", "list_distance", takes=_two_vectors)
@_OVERFLOW
def _array_distance(left: Any, right: Any) -> Any:
    parts, first, second, valid = _pairs("array_distance", left, right)
    distances = np.sqrt(_sums(parts, (first - second) ** 2))
    # The distance of empty vectors is -0.0 in the reference implementation.
    distances[parts.sizes == 0] = -0.0
    return _valid(distances, valid)


@function("inner_product", "dot_product", takes=_two_vectors)
@_OVERFLOW
def _inner_product(left: Any, right: Any) -> Any:
    parts, first, second, valid = _pairs("inner_product", left, right)
    return _valid(_sums(parts, first * second), valid)


@function("cosine_distance", takes=_two_vectors)
@_OVERFLOW
def _cosine_distance(left: Any, right: Any) -> Any:
    parts, first, second, valid = _pairs("cosine_distance", left, right)
    lengths = np.sqrt(_sums(parts, first * first)) * np.sqrt(_sums(parts, second * second))
    distances = 1.0 - _sums(parts, first * second) / lengths
    return _valid(distances, valid & (lengths != 0))


def _one_vector(call: Call) -> Types:
    check_count(call, 1, 1)
    kind = _vector(call, 0)
    return (kind,), kind


@function("array_normalize", "list_normalize", takes=_one_vector)
@_OVERFLOW
def _array_normalize(values: Any) -> Any:
    parts, first, _, valid = _pairs("array_normalize", values, values)
    lengths = np.sqrt(_sums(parts, first * first))
    valid &= (lengths != 0) | (parts.sizes == 0)
    scaled = first / lengths[parts.rows]
    scaled = scaled[valid[parts.rows]]
    offsets = np.concatenate([[0], np.cumsum(np.where(valid, parts.sizes, 0))])
    lists = lists_of(pa.array(scaled), offsets, values.type)
    return pc.if_else(pa.array(valid), lists, pa.scalar(None, values.type))
