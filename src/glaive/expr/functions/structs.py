"""Structs, maps from pairs, and the first value that is not null."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import Any

from glaive.errors import FilterError
from glaive.expr.casts import cast
from glaive.expr.coerce import is_list
from glaive.expr.functions.coercion import ANY, check_count, is_string, refuse, signature, unify
from glaive.expr.functions.library import compute, engine_types
from glaive.expr.functions.registry import Call, Types, find, function
from glaive.expr.rows import broadcast, broadcast_all, count_rows, pa, pc

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
    # Dictionaries are decoded.
    cast = kind.value_type if is_kind.is_dictionary(kind) else kind
    cast = pa.string() if is_kind.is_string_view(cast) else cast
    return (cast,) * len(call.types), kind


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
    """The value, which was cast before the call, for each row."""
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
