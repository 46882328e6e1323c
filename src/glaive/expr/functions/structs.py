"""Structs and maps: construction and members."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.coerce import is_list
from glaive.expr.functions.coercion import check_count, refuse
from glaive.expr.functions.library import compute
from glaive.expr.functions.list_parts import ListParts, lists_of, sizes_of
from glaive.expr.functions.list_rules import item_field, list_type
from glaive.expr.functions.registry import Call, Types, find, function
from glaive.expr.functions.unify import unify
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_joined
from glaive.expr.rows import broadcast, broadcast_all, count_rows
from glaive.expr.sizes import bytes_of

__all__: list[str] = []

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
