"""Structs and maps: construction and members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.coerce import is_list, is_number
from glaive.expr.compare import comparable, compare, distinct, floats_of
from glaive.expr.functions.coercion import ANY, check_count, is_string, refuse, signature, unify
from glaive.expr.functions.library import compute
from glaive.expr.functions.list_parts import ListParts, lists_of, sizes_of
from glaive.expr.functions.lists import item_field, list_type
from glaive.expr.functions.registry import Call, Resolve, Types, find, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_joined
from glaive.expr.rows import broadcast, broadcast_all, count_rows
from glaive.expr.sizes import bytes_of

is_kind = pa.types


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


def _map_type(call: Call) -> Any:
    if not is_kind.is_map(call.types[0]):
        raise refuse(call, 0, "a map")
    return call.types[0]


def _one_map(result: str) -> Any:
    def resolve(call: Call) -> Types:
        check_count(call, 1, 1)
        kind = _map_type(call)
        entry = pa.struct([pa.field("key", kind.key_type, nullable=False), kind.item_field])
        inner = {"keys": kind.key_type, "values": kind.item_type, "entries": entry}[result]
        return (kind,), pa.list_(pa.field("item", inner, nullable=result != "entries"))

    return resolve


def _parts(values: Any, items: Any) -> Any:
    """Lists of some items (keys, values or entries) of the maps."""
    offsets = np.concatenate([[0], np.cumsum(sizes_of(values))])
    lists = lists_of(items, offsets, pa.list_(item_field(items.type)))
    return pc.if_else(values.is_valid(), lists, pa.scalar(None, lists.type))


def _members(values: Any) -> tuple[Any, Any]:
    """Keys and items of all maps that are not null, one map after the other."""
    present = values.drop_null()
    first, last = present.offsets[0].as_py(), present.offsets[-1].as_py()
    return present.keys.slice(first, last - first), present.items.slice(first, last - first)


function("map_keys", takes=_one_map("keys"))(lambda maps: _parts(maps, _members(maps)[0]))
function("map_values", takes=_one_map("values"))(lambda maps: _parts(maps, _members(maps)[1]))


@function("map_entries", takes=_one_map("entries"))
def _map_entries(values: Any) -> Any:
    keys, items = _members(values)
    fields = [pa.field("key", keys.type, nullable=False), values.type.item_field]
    entries = _parts(values, pa.StructArray.from_arrays([keys, items], fields=fields))
    return entries.cast(pa.list_(pa.field("item", entries.type.value_type, nullable=False)))


def _extract_types(call: Call) -> Types:
    check_count(call, 2, 2)
    kind = _map_type(call)
    if unify(kind.key_type, call.types[1]) is None:
        raise refuse(call, 1, f"a key of type {kind.key_type}")
    return (kind, kind.key_type), pa.list_(item_field(kind.item_type))


@function("map_extract", "element_at", takes=_extract_types)
def _map_extract(values: Any, key: Any) -> Any:
    rows = count_rows((values, key))
    values = broadcast(values, rows)
    keys = ListParts.of(values)
    matches = np.flatnonzero(pc.fill_null(keys.compare(key), False))
    positions = np.full(rows, -1)
    positions[keys.rows[matches]] = matches
    items = _members(values)[1].take(pa.array(positions, mask=positions < 0))
    return lists_of(items, np.arange(rows + 1), pa.list_(item_field(items.type)))


def _map_types(call: Call) -> Types:
    if len(call.types) == 2 and all(map(is_list, call.types)):
        keys, items = list_type(call, 0), list_type(call, 1)
        return (keys, items), _map_of(call, keys.value_type, items.value_type)
    if not call.types or len(call.types) % 2:
        raise FilterError(f"{call.name} takes pairs of a key and a value")
    kinds = []
    for noun, given in (("keys", call.types[::2]), ("values", call.types[1::2])):
        kind = reduce(lambda left, right: left and unify(left, right), given)
        if kind is None:
            raise FilterError(f"{call.name}: the {noun} {', '.join(map(str, given))} differ")
        kinds.append(kind)
    return tuple(kinds) * (len(call.types) // 2), _map_of(call, *kinds)


def _map_of(call: Call, keys: pa.DataType, items: pa.DataType) -> pa.DataType:
    if pa.types.is_null(keys):
        raise FilterError(f"{call.name}: the keys are null, which no key of a map may be")
    return pa.map_(keys, items)


@function("map", "make_map", takes=_map_types)
def _map(*values: Any) -> Any:
    rows = count_rows(values)
    size = sum(bytes_of(value, rows) for value in values)
    check_joined("map", rows, values, size, pa.map_(values[0].type, values[1].type))
    columns = [broadcast(value, rows) for value in values]
    if len(columns) != 2 or not all(is_list(value.type) for value in columns):
        make_list = find("make_array").compute
        columns = [make_list(*columns[::2]), make_list(*columns[1::2])]
    return compute("map", *columns)


# --- Choose between values: the first that is not null, the greatest, null where two are equal


def _all_of_one_type(
    common: Callable[[Any, Any], Any], least: int, most: int | None = None
) -> Resolve:
    """Build the rule that casts ``least`` to ``most`` arguments to their common type."""

    def resolve(call: Call) -> Types:
        check_count(call, least, most)
        return _common_type(call, common)

    return resolve


def _common_type(call: Call, common: Callable[[Any, Any], Any]) -> Types:
    kind = reduce(lambda left, right: left and common(left, right), call.types)
    if kind is None:
        types = ", ".join(map(str, call.types))
        raise FilterError(f"{call.name}: no common type of {types}; cast them to one type")
    # Dictionaries are decoded.
    cast = kind.value_type if is_kind.is_dictionary(kind) else kind
    cast = pa.string() if is_kind.is_string_view(cast) else cast
    return (cast,) * len(call.types), kind


def _compared(left: Any, right: Any) -> Any | None:
    """The type in which two values are compared."""
    for kind, other in ((left, right), (right, left)):
        if is_string(kind) and _is_binary(other):
            wide = pa.large_string() in (kind, other) or is_kind.is_large_binary(other)
            return pa.large_binary() if wide else pa.binary()
        if is_kind.is_dictionary(kind) and other not in (kind.value_type, kind):
            return unify(kind.value_type, other)
    return unify(left, right)


def _is_binary(kind: Any) -> bool:
    """Whether values are bytes of any length."""
    return bool(is_kind.is_binary(kind) or is_kind.is_large_binary(kind))


def _joined(left: Any, right: Any) -> Any | None:
    """The type for values of both types; a string for a string and a number."""
    for text, other in ((left, right), (right, left)):
        if is_string(text) and is_number(other):
            return text.value_type if is_kind.is_dictionary(text) and text is right else text
        if is_string(text) and (is_kind.is_boolean(other) or is_kind.is_duration(other)):
            return None
    return _compared(left, right)


def _first_of(left: Any, right: Any) -> Any | None:
    """The common type for ``coalesce``: none for times with strings or integers."""
    for kind, other in ((left, right), (right, left)):
        if is_kind.is_temporal(kind) and (is_string(other) or is_kind.is_integer(other)):
            return None
        if is_kind.is_dictionary(kind) and not is_string(other) and not is_kind.is_null(other):
            common = unify(kind.value_type, other)
            return common and pa.dictionary(kind.index_type, common)
    return unify(left, right)


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


@function("coalesce", takes=_all_of_one_type(_first_of, 1))
def _coalesce(*values: Any) -> Any:
    rows = count_rows(values)
    return reduce(
        lambda first, second: _choose(pc.is_valid(first), first, broadcast(second, rows)),
        values[1:],
        broadcast(values[0], rows),
    )


_NVL = (
    pa.bool_(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
)


def _nvl_types(call: Call) -> Types:
    check_count(call, 2, 2)
    left, right = call.types
    if is_kind.is_null(left) and is_kind.is_null(right):
        return (pa.bool_(), pa.bool_()), pa.bool_()
    if all(is_string(kind) or is_kind.is_null(kind) for kind in call.types):
        same = left == right and not is_kind.is_dictionary(left) and not is_kind.is_null(left)
        kind = left if same else pa.string_view()
        cast = pa.string() if is_kind.is_string_view(kind) else kind
        return (cast, cast), kind
    kinds = [kind.value_type if is_kind.is_dictionary(kind) else kind for kind in call.types]
    for kind in _NVL:
        if all(_fits(given, kind) for given in kinds):
            return (kind, kind), kind
    for number, kind in enumerate(call.types):
        if is_kind.is_nested(kind) and not is_list(kind):
            raise refuse(call, number, "a plain value")
    return (pa.string(), pa.string()), pa.string()


def _fits(kind: Any, other: Any) -> bool:
    """Whether ``nvl`` converts values of ``kind`` to ``other``."""
    if kind == other or is_kind.is_null(kind):
        return True
    if is_kind.is_integer(kind) and is_kind.is_integer(other):
        return bool(unify(kind, other) == other)
    if is_kind.is_floating(other):
        narrow = is_kind.is_integer(kind) or is_kind.is_float16(kind)
        wide = is_kind.is_floating(kind) or is_kind.is_decimal(kind)
        return bool(narrow or (is_kind.is_float64(other) and wide))
    return False


function("nvl", "ifnull", takes=_nvl_types)(_coalesce)


@function("nvl2", takes=_all_of_one_type(_joined, 3, 3))
def _nvl2(value: Any, present: Any, absent: Any) -> Any:
    return _choose(
        pc.is_valid(broadcast(value, count_rows((value, present, absent)))), present, absent
    )


def _two(call: Call) -> Types:
    check_count(call, 2, 2)
    if all(map(is_kind.is_null, call.types)):
        return (pa.string(), pa.string()), pa.string_view()
    return _common_type(call, _compared)


@function("nullif", takes=_two)
def _nullif(value: Any, other: Any) -> Any:
    rows = count_rows((value, other))
    value, other = broadcast(value, rows), broadcast(other, rows)
    equal = pc.fill_null(_equal(value, other), False)
    return _choose(equal, pa.nulls(rows, value.type), value)


def _equal(left: Any, right: Any) -> Any:
    if is_kind.is_null(left.type):
        return pa.nulls(len(left), pa.bool_())
    if is_kind.is_nested(left.type):
        return pc.invert(distinct(left, right))
    return pc.equal(comparable(left), comparable(right))


def _extreme(name: str, choose: Any, *values: Any) -> Any:
    rows, kind = count_rows(values), values[0].type
    columns = broadcast_all(values, rows)
    if len(columns) == 1 or is_kind.is_null(kind):
        return columns[0]
    if is_kind.is_floating(kind):
        return floats_of(choose(*map(comparable, columns)), kind)
    if is_kind.is_boolean(kind):
        return choose(*[column.cast(pa.int8()) for column in columns]).cast(kind)
    if is_kind.is_timestamp(kind):
        return choose(*[column.view(pa.int64()) for column in columns]).view(kind)
    if isinstance(kind, pa.ExtensionType):
        raise FilterError(f"{name}: values of type {kind} have no order")
    if is_kind.is_nested(kind):
        return reduce(partial(_better, ">=" if name == "greatest" else "<="), columns)
    return choose(*columns)


def _better(op: str, left: Any, right: Any) -> Any:
    """Of each two lists the one that is not null, or else the one that ``op`` selects."""
    first = pc.fill_null(compare(op, left, right, nulls_last=op == "<="), False)
    return _choose(pc.if_else(pc.is_valid(right), first, True), left, right)


_ORDERED = _all_of_one_type(_compared, 1)
function("greatest", takes=_ORDERED)(partial(_extreme, "greatest", pc.max_element_wise))
function("least", takes=_ORDERED)(partial(_extreme, "least", pc.min_element_wise))
function("is_valid", takes=signature(ANY, result=pa.bool_()))(pc.is_valid)
