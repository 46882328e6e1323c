"""Types as values: their names, casts to a named type, metadata of columns."""

from __future__ import annotations

import re
from typing import Any

from glaive.arrow.capacity import too_large
from glaive.arrow.decimals import decimal_type
from glaive.arrow.nesting import MAX_NESTING
from glaive.errors import FilterError
from glaive.expr.casts import cast
from glaive.expr.functions.coercion import TEXT, check_count, refuse, signature
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa
from glaive.expr.rows import array_of, broadcast, count_rows
from glaive.types import MAX_WIDTH

__all__ = ["named_type", "type_name"]

is_kind = pa.types

_PLAIN = {
    "Null": pa.null(),
    "Boolean": pa.bool_(),
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "Float16": pa.float16(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Utf8": pa.string(),
    "LargeUtf8": pa.large_string(),
    "Utf8View": pa.string_view(),
    "Binary": pa.binary(),
    "LargeBinary": pa.large_binary(),
    "BinaryView": pa.binary_view(),
    "Date32": pa.date32(),
    "Date64": pa.date64(),
}
_NAMES = {kind: name for name, kind in _PLAIN.items()}
_UNITS = {"s": "s", "ms": "ms", "µs": "us", "us": "us", "ns": "ns"}
_UNITS |= {"Second": "s", "Millisecond": "ms", "Microsecond": "us", "Nanosecond": "ns"}


def _unit(unit: str) -> str:
    return "µs" if unit == "us" else unit


def type_name(kind: Any) -> str:
    """Return the name of an Arrow type in the reference implementation."""
    if isinstance(kind, pa.JsonType):
        return "LargeBinary"
    if kind in _NAMES:
        return _NAMES[kind]
    if is_kind.is_timestamp(kind):
        zone = "" if kind.tz is None else f', "{kind.tz}"'
        return f"Timestamp({_unit(kind.unit)}{zone})"
    if is_kind.is_time(kind) or is_kind.is_duration(kind):
        name = "Duration" if is_kind.is_duration(kind) else f"Time{kind.bit_width}"
        return f"{name}({_unit(kind.unit)})"
    if is_kind.is_decimal(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if is_kind.is_fixed_size_binary(kind):
        return f"FixedSizeBinary({kind.byte_width})"
    if is_kind.is_dictionary(kind):
        return f"Dictionary({type_name(kind.index_type)}, {type_name(kind.value_type)})"
    if is_kind.is_nested(kind):
        return _nested_name(kind)
    return str(kind)


def _nested_name(kind: Any) -> str:
    if is_kind.is_struct(kind):
        return f"Struct({', '.join(_field_name(field) for field in kind)})"
    if is_kind.is_map(kind):
        pair = f"{_field_name(kind.key_field)}, {_field_name(kind.item_field)}"
        return f'Map("entries": non-null Struct({pair}), unsorted)'
    inner = ("" if kind.value_field.nullable else "non-null ") + type_name(kind.value_type)
    if is_kind.is_fixed_size_list(kind):
        return f"FixedSizeList({kind.list_size} x {inner})"
    return f"{'LargeList' if is_kind.is_large_list(kind) else 'List'}({inner})"


def _field_name(field: Any) -> str:
    return f'"{field.name}": {"" if field.nullable else "non-null "}{type_name(field.type)}'


_CALLED = re.compile(r"\s*(\w+)\s*\((.*)\)\s*$", re.DOTALL)
_ZONE = re.compile(r'(?:Some\(\s*)?"([^"]*)"\s*\)?$')


def named_type(name: str) -> Any:
    """Return the Arrow type of that name.

    Raises
    ------
    FilterError
        There is none of that name.
    """
    if name.count("(") > MAX_NESTING:
        raise FilterError(f"the type {name:.60}… is nested deeper than {MAX_NESTING} levels")
    plain = _PLAIN.get(name.strip())
    if plain is not None:
        return plain
    match = _CALLED.match(name)
    try:
        data_type = _built(match[1], match[2]) if match is not None else None
    except (ValueError, KeyError, IndexError, TypeError, pa.ArrowException):
        data_type = None
    if data_type is None:
        raise FilterError(
            f"unknown type {name!r:.100}; there are {', '.join(_PLAIN)}, Timestamp(Second, None), "
            'Timestamp(Microsecond, Some("UTC")), Time64(Nanosecond), Duration(Second), '
            "Decimal128(10, 2), FixedSizeBinary(16), List(Int64), Dictionary(Int32, Utf8)"
        )
    return data_type


def _built(name: str, inside: str) -> Any:  # noqa: PLR0911  # A table of types.
    parts = [part.strip() for part in inside.split(",", 1)]
    match name:
        case "Timestamp":
            zone = None if parts[1:] in ([], ["None"]) else _zone(parts[1])
            return pa.timestamp(_UNITS[parts[0]], zone)
        case "Time32":
            return pa.time32(_UNITS[parts[0]])
        case "Time64":
            return pa.time64(_UNITS[parts[0]])
        case "Duration":
            return pa.duration(_UNITS[parts[0]])
        case "Decimal128":
            return decimal_type(128, int(parts[0]), int(parts[1]))
        case "Decimal256":
            return decimal_type(256, int(parts[0]), int(parts[1]))
        case "FixedSizeBinary":
            return pa.binary(_width(parts[0]))
        case "List":
            return pa.list_(pa.field("item", named_type(inside)))
        case "LargeList":
            return pa.large_list(pa.field("item", named_type(inside)))
        case "Dictionary":
            return pa.dictionary(named_type(parts[0]), _dictionary_values(parts[1]))
    return None


def _width(text: str) -> int:
    """Bytes of a value; a negative number would be any number of them."""
    width = int(text)
    if not 0 <= width <= MAX_WIDTH:
        raise ValueError(text)
    return width


def _dictionary_values(text: str) -> Any:
    """The type of a dictionary's values: Arrow has no casts to dictionaries of nested ones."""
    values = named_type(text)
    if is_kind.is_dictionary(values) or is_kind.is_nested(values):
        raise ValueError(text)
    return values


def _zone(text: str) -> str:
    match = _ZONE.match(text)
    if match is None:
        raise ValueError(text)
    return match[1]


def _typeof_types(call: Call) -> Types:
    check_count(call, 1, 1)
    return (call.types[0],), pa.string()


@function("arrow_typeof", takes=_typeof_types)
def _arrow_typeof(value: Any) -> Any:
    return pa.repeat(pa.scalar(type_name(value.type)), len(value))


def _target(call: Call) -> Any:
    check_count(call, 2, 2)
    TEXT(call, 1)
    given = call.literals[1]
    if given is None or given.as_py() is None:
        raise refuse(call, 1, "the name of a type, a constant")
    return named_type(given.as_py())


def _cast_types(call: Call) -> Types:
    kind = _target(call)
    return (kind, pa.string()), kind


def _cast(value: Any, other: Any) -> Any:
    """The value, which was cast before the call, for each row."""
    return broadcast(value, count_rows((value, other)))


function("arrow_cast", takes=_cast_types)(_cast)


def _try_types(call: Call) -> Types:
    kind = _target(call)
    return (call.types[0], pa.string()), kind


@function("arrow_try_cast", takes=_try_types)
def _arrow_try_cast(value: Any, name: Any) -> Any:
    return _try_cast(value, named_type(name.as_py()))


def _try_cast(value: Any, kind: Any) -> Any:
    """Cast as ``TRY_CAST`` does; values that cannot be cast become null."""
    if not is_kind.is_nested(value.type) and not is_kind.is_nested(kind):
        return cast(value, kind, attempt=True)
    try:
        return value.cast(kind)
    except pa.ArrowInvalid as error:
        if too_large(error) and len(value) > 1:
            raise
        return array_of([_try_cast_scalar(scalar, kind) for scalar in value], kind)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise FilterError(f"values of type {value.type} cannot be cast to {kind}") from None


def _try_cast_scalar(value: Any, kind: Any) -> Any:
    try:
        return value.cast(kind).as_py()
    except pa.ArrowInvalid:
        return None


def _like_types(call: Call) -> Types:
    check_count(call, 2, 2)
    return (call.types[1], call.types[1]), call.types[1]


function("cast_to_type", takes=_like_types)(_cast)


def _try_like_types(call: Call) -> Types:
    check_count(call, 2, 2)
    return tuple(call.types), call.types[1]


@function("try_cast_to_type", takes=_try_like_types)
def _try_cast_to_type(value: Any, like: Any) -> Any:
    return _try_cast(_cast(value, like), like.type)


def _metadata_types(call: Call) -> Types:
    check_count(call, 1, 2)
    if len(call.types) == 2:
        return (call.types[0], TEXT(call, 1)[0]), pa.string()
    return (call.types[0],), pa.map_(pa.string(), pa.string())


@function("arrow_metadata", takes=_metadata_types)
def _arrow_metadata(value: Any, key: Any = None) -> Any:
    # Values carry no metadata; those of columns stay with the schema.
    if key is not None:
        return pa.nulls(count_rows((value, key)), pa.string())
    return pa.array([[]] * len(value), pa.map_(pa.string(), pa.string()))


def _with_types(call: Call) -> Types:
    check_count(call, 3)
    if len(call.types) % 2 == 0:
        raise FilterError("with_metadata takes a value and pairs of a key and a string")
    for number in range(1, len(call.types)):
        TEXT(call, number)
        if call.literals[number] is None:
            raise refuse(call, number, "a constant")
    return (call.types[0], *[pa.string()] * (len(call.types) - 1)), call.types[0]


@function("with_metadata", takes=_with_types)
def _with_metadata(value: Any, *_: Any) -> Any:
    return value


@function("version", takes=signature(result=pa.string()))
def _version() -> Any:
    from importlib.metadata import version

    return pa.scalar(f"glaive {version('glaive')}")
