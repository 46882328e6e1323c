"""Lists, structs, maps, and the first valid value.

Fixed-size lists become lists. :mod:`glaive.expr.functions.library` has the other functions.
"""

from __future__ import annotations

from collections import Counter
from functools import partial, reduce
from typing import Any

import numpy as np

from glaive.arrow.blocks import flag_array, known_true, number_array
from glaive.arrow.chunked import as_numpy, concat_arrays, decode_dictionary
from glaive.arrow.conditions import FALSE, TRUE, filled, scalar, valid_where
from glaive.dataclass import dataclass
from glaive.errors import FilterError
from glaive.expr.casts import cast
from glaive.expr.coerce import comparison, is_list, plain
from glaive.expr.compare import comparable, compare, same
from glaive.expr.functions.coercion import ANY, check_count, is_string, refuse, signature
from glaive.expr.functions.library import compute, engine_types
from glaive.expr.functions.registry import Call, Types, find, function
from glaive.expr.rows import (
    MAX_LIST_ITEMS,
    broadcast,
    broadcast_all,
    bytes_of,
    check_bytes,
    check_values,
    count_rows,
    is_constant,
    pa,
    pc,
    repeat,
)

is_kind = pa.types


@dataclass(frozen=True, slots=True)
class ListParts:
    """The values of all rows, and the range of each row.

    Parameters
    ----------
    values
        Values of the valid rows, one row after the other; dictionaries are decoded.
    begin, sizes
        Start and number of values of each row; the number is 0 for null rows. Shape ``(rows,)``.
    rows
        The row of each value. Shape ``(values,)``.
    """

    values: Any
    begin: Any
    sizes: Any
    rows: Any

    @classmethod
    def of(cls, lists: Any) -> ListParts:
        """Split an array of lists or maps.

        Raises
        ------
        CapacityError
            Lists have too many items: process fewer rows at a time.
        FilterError
            The list of one row has too many items.
        """
        sizes = sizes_of(lists)
        check_values(int(sizes.sum()), len(lists), MAX_LIST_ITEMS)
        values = lists.keys if pa.types.is_map(lists.type) else lists.flatten()
        if pa.types.is_dictionary(values.type):  # like values outside of lists
            values = decode_dictionary(values)
        begin = np.cumsum(sizes) - sizes
        return cls(values, begin, sizes, np.repeat(np.arange(len(lists)), sizes))

    def compare(self, wanted: Any) -> Any:
        """Return which values equal a constant, or the value of their row in an array."""
        constant = isinstance(wanted, pa.Scalar)
        if constant and not pa.types.is_nested(self.values.type):
            return compare("=", self.values, wanted)
        rows = np.zeros_like(self.rows) if constant else self.rows
        return pa.array(same(self.values, repeat(wanted, 1) if constant else wanted, rows))

    def any_of(self, chosen: Any) -> Any:
        """Return which rows have a value for which the mask ``chosen`` is true."""
        mask = as_numpy(known_true(chosen))
        return flag_array(np.bincount(self.rows[mask], minlength=len(self.sizes)) > 0)


def sizes_of(lists: Any) -> Any:
    """Return the number of values of each list or map; 0 for a null row. Shape ``(rows,)``."""
    sizes = np.diff(as_numpy(lists.offsets)).astype(np.int64)
    sizes[as_numpy(lists.is_null())] = 0
    return sizes


# --- Type rules ---


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
    """Return the field of a list's items, with the name that Lance uses."""
    return pa.field("item", kind)


def list_like(kind: Any, item: Any) -> Any:
    """Return a list type with other items, large if ``kind`` is."""
    return (pa.large_list if is_kind.is_large_list(kind) else pa.list_)(item_field(item))


def _one_list(call: Call) -> Any:
    check_count(call, 1, 1)
    return list_type(call, 0)


def _same_items(call: Call, *, lists: bool) -> Types:
    """Resolve the types of a list and an item, or of two lists: items get a common type."""
    check_count(call, 2, 2)
    first = list_type(call, 0)
    other = list_type(call, 1) if lists else call.types[1]
    item, inner = plain(first.value_type), plain(other.value_type if lists else other)
    null = is_kind.is_null(item) or is_kind.is_null(inner)
    common = None if not null and is_string(item) != is_string(inner) else comparison(item, inner)
    if common is None:
        raise refuse(call, 1, f"a value among values of type {item}")
    kind = list_like(other if lists and is_kind.is_large_list(other) else first, common)
    return (kind, kind if lists else common), pa.bool_()


def _length_types(call: Call) -> Types:
    return engine_types(call) if len(call.types) > 1 else ((_one_list(call),), pa.uint64())


@function("array_length", "list_length", takes=_length_types)
def _array_length(values: Any, level: Any = None) -> Any:
    if level is None:
        return pc.list_value_length(values).cast(pa.uint64())
    return compute("array_length", values, level)


@function("empty", "array_empty", "list_empty", takes=lambda call: ((_one_list(call),), pa.bool_()))
def _empty(values: Any) -> Any:
    return pc.equal(pc.list_value_length(values), 0)


@function(
    "array_has",
    "array_contains",
    "list_has",
    "list_contains",
    takes=partial(_same_items, lists=False),
)
def _array_has(values: Any, wanted: Any) -> Any:
    rows = count_rows((values, wanted))
    if is_kind.is_null(values.type.value_type) or (is_constant(wanted) and not wanted.is_valid):
        return pa.nulls(rows, pa.bool_())
    values = broadcast(values, rows)
    parts = ListParts.of(values)
    same = parts.compare(wanted)
    known = pc.and_(values.is_valid(), pc.is_valid(wanted))
    return pc.if_else(known, parts.any_of(same), scalar(None, pa.bool_()))


def _is_empty(lists: Any) -> bool:
    """Return whether an argument is an empty constant list."""
    return is_constant(lists) and lists.is_valid and not len(lists.values)


@function("array_has_all", "list_has_all", takes=partial(_same_items, lists=True))
def _array_has_all(values: Any, others: Any) -> Any:
    if _is_empty(others):
        return pa.repeat(TRUE, count_rows((values, others)))
    if not is_constant(others) or not others.is_valid or is_kind.is_nested(values.type.value_type):
        return compute("array_has_all", values, others)
    parts, wanted = ListParts.of(values), comparable(others.values).unique()
    found = pc.index_in(comparable(parts.values), value_set=wanted)
    known = as_numpy(found.is_valid())
    pairs = parts.rows * len(wanted) + as_numpy(filled(found, 0))
    counts = np.bincount(np.unique(pairs[known]) // len(wanted), minlength=len(values))
    return valid_where(values.is_valid(), flag_array(counts == len(wanted)))


@function("array_has_any", "list_has_any", "arrays_overlap", takes=partial(_same_items, lists=True))
def _array_has_any(values: Any, others: Any) -> Any:
    if _is_empty(values) or _is_empty(others):
        return pa.repeat(FALSE, count_rows((values, others)))
    if not is_constant(others) or not others.is_valid or is_kind.is_nested(values.type.value_type):
        return compute("array_has_any", values, others)
    parts, wanted = ListParts.of(values), ListParts.of(broadcast(others, 1))
    contained = pc.is_in(parts.values, value_set=wanted.values)
    return pc.if_else(values.is_valid(), parts.any_of(contained), scalar(None, pa.bool_()))


def _array_types(call: Call) -> Types:
    if not call.types:
        return (), pa.list_(item_field(pa.null()))
    kind = reduce(lambda left, right: left and comparison(left, right), call.types)
    if kind is None:
        raise FilterError(f"{call.name}: no common type of {', '.join(map(str, call.types))}")
    return (kind,) * len(call.types), pa.list_(item_field(kind))


@function("make_array", "make_list", takes=_array_types)
def _make_array(*values: Any) -> Any:
    if not values:
        return pa.scalar([], pa.list_(item_field(pa.null())))
    rows, width = count_rows(values), len(values)
    check_bytes("make_array", sum(bytes_of(value, rows) for value in values), rows, values[0].type)
    columns = concat_arrays([broadcast(value, rows) for value in values])
    positions = np.arange(rows * width).reshape(rows, width)
    items = columns.take(number_array((positions % width * rows + positions // width).ravel()))
    offsets: Any = number_array(np.arange(rows + 1) * width)
    return pa.ListArray.from_arrays(offsets, items, type=pa.list_(item_field(items.type)))


# --- Structs, maps from pairs, and the first valid value --------------------------------


def _struct_types(call: Call) -> Types:
    check_count(call, 1)
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(call.types)]
    return tuple(call.types), pa.struct(fields)


@function("struct", "row", takes=_struct_types)
def _struct(*values: Any) -> Any:
    rows = count_rows(values)
    names = [f"c{number}" for number in range(len(values))]
    return pa.StructArray.from_arrays(broadcast_all(values, rows), names)


def _word(call: Call, number: int, noun: str) -> str:
    given = call.literals[number]
    word = given.as_py() if given is not None else None
    if not isinstance(word, str) or not word:
        raise refuse(call, number, f"{noun} as a constant string")
    return word


def _named_types(call: Call) -> Types:
    check_count(call, 2)
    if len(call.types) % 2:
        raise FilterError(
            f"named_struct takes pairs of a name and a value, {len(call.types)} given"
        )
    names = [_word(call, number, "a name") for number in range(0, len(call.types), 2)]
    if len(set(names)) < len(names):
        twice, times = Counter(names).most_common(1)[0]
        raise FilterError(
            f"named_struct: names must be distinct, found {twice!r:.100} {times} times"
        )
    fields = [pa.field(n, kind) for n, kind in zip(names, call.types[1::2], strict=True)]
    return tuple(call.types), pa.struct(fields)


@function("named_struct", takes=_named_types, column=1)
def _named_struct(*values: Any) -> Any:
    rows = count_rows(values)
    names = [name.as_py() for name in values[::2]]
    return pa.StructArray.from_arrays(broadcast_all(values[1::2], rows), names)


def _field_types(call: Call) -> Types:
    check_count(call, 2, 2)
    kind = call.types[0]
    if not is_kind.is_struct(kind):
        raise refuse(call, 0, "a struct")
    name = _word(call, 1, "a name")
    if kind.get_field_index(name) < 0:
        known = ", ".join(field.name for field in kind)
        raise FilterError(f"get_field: the struct has no field {name!r}; it has {known}")
    return (kind, pa.string()), kind.field(name).type


@function("get_field", takes=_field_types)
def _get_field(values: Any, name: Any) -> Any:
    return pc.struct_field(values, name.as_py())


def _map_types(call: Call) -> Types:
    if not call.types or len(call.types) % 2:
        raise FilterError(f"{call.name} takes pairs of a key and a value")
    parts = [call.types[::2], call.types[1::2]]
    if len(call.types) == 2 and all(map(is_list, call.types)):
        return engine_types(Call("map", call.types, call.literals))
    lists = [find("make_array").resolve(part) for part in parts]
    (keys, _), (values, _) = lists
    kind = engine_types(Call("map", [made for _, made in lists], [None, None]))[1]
    return tuple(one for pair in zip(keys, values, strict=True) for one in pair), kind


@function("map", "make_map", takes=_map_types)
def _make_map(*values: Any) -> Any:
    if len(values) == 2 and is_list(values[0].type) and is_list(values[1].type):
        return compute("map", *values)
    rows, make_list = count_rows(values), find("make_array").compute
    columns = [broadcast(value, rows) for value in values]
    return compute("map", make_list(*columns[::2]), make_list(*columns[1::2]))


def _first_types(call: Call) -> Types:
    check_count(call, 1)
    kind = reduce(lambda left, right: left and _first_of(left, right), call.types)
    if kind is None:
        types = ", ".join(map(str, call.types))
        raise FilterError(f"{call.name}: no common type of {types}; cast them to one type")
    # Decode dictionaries.
    cast = kind.value_type if is_kind.is_dictionary(kind) else kind
    cast = pa.string() if is_kind.is_string_view(cast) else cast
    return (cast,) * len(call.types), kind


def _first_of(left: Any, right: Any) -> Any | None:
    """Return the common type for ``coalesce``; ``None`` for times with strings or integers."""
    for kind, other in ((left, right), (right, left)):
        if is_kind.is_temporal(kind) and (is_string(other) or is_kind.is_integer(other)):
            return None
        if is_kind.is_dictionary(kind) and not is_kind.is_null(other):
            common = comparison(kind.value_type, plain(other))
            return common and pa.dictionary(kind.index_type, common)
    return comparison(left, right)


def _choose(condition: Any, chosen: Any, other: Any) -> Any:
    if not isinstance(chosen.type, pa.ExtensionType):
        return pc.if_else(condition, chosen, other)
    rows = count_rows((condition, chosen, other))
    stored = [
        broadcast(value, rows).storage
        if isinstance(broadcast(value, rows), pa.ExtensionArray)
        else value
        for value in (chosen, other)
    ]
    return chosen.type.wrap_array(pc.if_else(condition, *stored))


@function("coalesce", takes=_first_types)
def _coalesce(*values: Any) -> Any:
    rows = count_rows(values)
    return reduce(
        lambda first, second: _choose(pc.is_valid(first), first, broadcast(second, rows)),
        values[1:],
        broadcast(values[0], rows),
    )


def _nvl_types(call: Call) -> Types:
    _, kind = engine_types(call)
    cast = kind.value_type if is_kind.is_dictionary(kind) else kind
    cast = pa.string() if is_kind.is_string_view(cast) else cast
    return (*call.types[:-2], cast, cast), kind


function("nvl", "ifnull", takes=_nvl_types)(_coalesce)


@function("nvl2", takes=_nvl_types)
def _nvl2(value: Any, present: Any, absent: Any) -> Any:
    rows = count_rows((value, present, absent))
    return _choose(pc.is_valid(broadcast(value, rows)), present, absent)


function("is_valid", takes=signature(ANY, result=pa.bool_()))(pc.is_valid)


# --- Casts to a named type, and to the type of another value ---


def _cast_types(call: Call) -> Types:
    kind = engine_types(call)[1]
    return (kind, call.types[1]), kind


def _cast(value: Any, other: Any) -> Any:
    """Return the value for each row; it was cast before the call."""
    return broadcast(value, count_rows((value, other)))


function("arrow_cast", takes=_cast_types)(_cast)
function("cast_to_type", takes=_cast_types)(_cast)


@function("arrow_try_cast", takes=engine_types)
def _arrow_try_cast(value: Any, name: Any) -> Any:
    kind = find("arrow_try_cast").resolve([value.type, name.type], [None, name])[1]
    return cast(_cast(value, name), kind, attempt=True)


@function("try_cast_to_type", takes=engine_types)
def _try_cast_to_type(value: Any, like: Any) -> Any:
    return cast(_cast(value, like), like.type, attempt=True)


@function("version", takes=signature(result=pa.string()))
def _version() -> Any:
    from importlib.metadata import version

    return pa.scalar(f"glaive {version('glaive')}")
