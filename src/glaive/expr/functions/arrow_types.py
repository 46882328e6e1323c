"""Types as values: their names, casts to a named type, metadata of columns."""

from __future__ import annotations

import re
from typing import Any

from glaive.arrow.chunked import too_large
from glaive.arrow.conditions import decimal_type
from glaive.arrow.validation import MAX_NESTING
from glaive.errors import FilterError
from glaive.expr.casts import cast
from glaive.expr.functions.coercion import TEXT, check_count, refuse, signature
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa
from glaive.expr.rows import array_of, broadcast, count_rows
from glaive.types import MAX_WIDTH

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


# Words, quoted names and signs; any other character is a token that nothing expects.
_TOKEN = re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s()",:']+|\S""", re.DOTALL)


def named_type(name: str) -> Any:
    """Return the Arrow type of that name.

    Raises
    ------
    FilterError
        There is none of that name.
    """
    if name.count("(") > MAX_NESTING:
        raise FilterError(f"the type {name:.60}… is nested deeper than {MAX_NESTING} levels")
    try:
        reader = _NameReader(name)
        data_type = reader.type()
        reader.end()
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, pa.ArrowException):
        raise FilterError(
            f"unknown type {name!r:.100}; there are {', '.join(_PLAIN)}, Timestamp(Second, None), "
            'Timestamp(Microsecond, Some("UTC")), Time64(Nanosecond), Duration(Second), '
            "Decimal128(10, 2), FixedSizeBinary(16), List(Int64), FixedSizeList(4 x Float32), "
            'Struct("a": Int64, "b": Utf8), Dictionary(Int32, Utf8)'
        ) from None
    return data_type


class _NameReader:
    """Reads the name of a type, token by token; a token that does not fit is a ``ValueError``."""

    def __init__(self, name: str) -> None:
        self._tokens = _TOKEN.findall(name)[::-1]

    def end(self) -> None:
        if self._tokens:
            raise ValueError(self._tokens[-1])

    def type(self) -> Any:
        word = self._tokens.pop()
        if word in _PLAIN:
            return _PLAIN[word]
        self._expect("(")
        data_type = self._called(word)
        self._expect(")")
        return data_type

    def _called(self, word: str) -> Any:  # noqa: PLR0911  # A table of types.
        match word:
            case "Timestamp":
                return pa.timestamp(self._unit(), self._zone())
            case "Time32":
                return pa.time32(self._unit())
            case "Time64":
                return pa.time64(self._unit())
            case "Duration":
                return pa.duration(self._unit())
            case "Decimal128" | "Decimal256":
                precision = self._number()
                self._expect(",")
                return decimal_type(int(word[-3:]), precision, self._number())
            case "FixedSizeBinary":
                return pa.binary(self._number(0))
            case "List":
                return pa.list_(self._item())
            case "LargeList":
                return pa.large_list(self._item())
            case "FixedSizeList":
                size = self._number(1)
                if not self._skip("x"):
                    self._expect(",")
                return pa.list_(self._item(), size)
            case "Struct":
                return pa.struct(self._members())
            case "Map":
                (pairs,) = self._members(1)
                ordered = self._tokens.pop()
                return pa.map_(*pairs.type, keys_sorted=("unsorted", "sorted").index(ordered) == 1)
            case "Dictionary":
                indices = self.type()
                self._expect(",")
                return pa.dictionary(indices, self._dictionary_values())
        raise ValueError(word)

    def _members(self, limit: int | None = None) -> list[Any]:
        fields: list[Any] = []
        while self._tokens[-1] != ")" and len(fields) != limit:
            name = self._quoted('"')
            self._expect(":")
            fields.append(self._field(name))
            if not self._skip(","):
                break
        return fields

    def _item(self) -> Any:
        field = self._field("item")
        if not self._skip(","):
            return field
        self._expect("field")
        self._expect(":")
        return field.with_name(self._quoted("'"))

    def _field(self, name: str) -> Any:
        required = self._skip("non-null")
        if not required:
            self._skip("nullable")
        return pa.field(name, self.type(), not required)

    def _dictionary_values(self) -> Any:
        """The type of a dictionary's values: Arrow has no casts to dictionaries of nested ones."""
        values = self.type()
        if is_kind.is_dictionary(values) or is_kind.is_nested(values):
            raise ValueError(str(values))
        return values

    def _unit(self) -> str:
        return _UNITS[self._tokens.pop()]

    def _zone(self) -> str | None:
        if not self._skip(",") or self._skip("None"):
            return None
        if not self._skip("Some"):
            return self._quoted('"')
        self._expect("(")
        zone = self._quoted('"')
        self._expect(")")
        return zone

    def _number(self, least: int | None = None) -> int:
        """A number; below ``least``, Arrow would take it for any width."""
        number = int(self._tokens.pop())
        if least is not None and not least <= number <= MAX_WIDTH:
            raise ValueError(number)
        return number

    def _quoted(self, mark: str) -> str:
        token: str = self._tokens.pop()
        if len(token) < 3 or token[0] != mark:
            raise ValueError(token)
        return token[1:-1]

    def _skip(self, word: str) -> bool:
        found = bool(self._tokens) and self._tokens[-1] == word
        if found:
            self._tokens.pop()
        return found

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise ValueError(word)


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
