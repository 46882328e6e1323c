"""Type coercion: the common type of two operands.

The rules are the same as in Lance, so that both select the same rows. An integer and a float
become floats, an unsigned 64-bit integer and a signed integer become decimals. Two times become the
coarser unit, a string and a number become the number.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.expr import tree
from glaive.expr.tree import Node

# --- Names of types in the filter language, and back ------------------------------------

SIMPLE: dict[str, Any] = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "tinyint unsigned": pa.uint8(),
    "smallint unsigned": pa.uint16(),
    "int unsigned": pa.uint32(),
    "integer unsigned": pa.uint32(),
    "bigint unsigned": pa.uint64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "double precision": pa.float64(),
    "string": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
"""Names of simple types, in lower case; the first name of a type is used to render it."""

TIMED = ("timestamp", "datetime")
DECIMALS = ("decimal", "numeric")
UNIT_OF_DIGITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
"""Unit of a time with so many digits after the second."""
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DIGITS = {unit: digits for digits, unit in UNIT_OF_DIGITS.items()}
_TEXT = {kind: name for name, kind in reversed(SIMPLE.items())}


def sized(name: str, sizes: tuple[int, ...]) -> Any:
    """Return a type with parameters; if they are invalid, a string with the problem."""
    if name in TIMED:
        digits = sizes[0] if sizes else 6
        if len(sizes) > 1 or digits not in UNIT_OF_DIGITS:
            return f"{name} has 0, 3, 6 or 9 digits of a second: {name}(3)"
        return pa.timestamp(UNIT_OF_DIGITS[digits])
    if len(sizes) != 2:
        return f"{name} needs digits and scale: {name}(10, 2)"
    precision, scale = sizes
    if not 1 <= precision <= 76 or not scale <= precision:
        return f"{name}({precision}, {scale}): from 1 to 76 digits, and no more after the point"
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def type_text(kind: Any) -> str:
    """Return the name of a type, by default Arrow's name."""
    name = _TEXT.get(kind)
    if name is not None:
        return name
    types = pa.types
    if types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind) and kind.tz is None:
        return f"timestamp({_DIGITS[kind.unit]})"
    return str(kind)


_DECIMAL_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of integers by their width in bits."""

_FLOAT_DIGITS = {32: (14, 7), 64: (30, 15)}
"""Precision and scale of the decimal that a float is converted to."""

_MAX_SHOWN_CHARACTERS = 40
"""Maximum characters of a constant in an error message."""

TIME_UNITS = ("s", "ms", "us", "ns")
_STRINGS = (pa.string(), pa.large_string(), pa.string_view())
_BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())


def suggestion_for(constant: Any, kind: Any) -> str:
    """Suggest what to write instead of a constant outside the range of the type of a column."""
    kind = plain(kind)
    for name, is_of_kind in (("date", pa.types.is_date), ("timestamp", pa.types.is_timestamp)):
        if is_of_kind(kind) and isinstance(constant, str) and len(constant) < _MAX_SHOWN_CHARACTERS:
            quoted = constant.replace("'", "''")
            return f"write {name} '{quoted}'"
    return "test lists with array_has(column, value)" if is_list(kind) else "cast one of the two"


def plain(kind: Any) -> Any:
    """Return the value type of a dictionary, and the storage type of an extension."""
    while True:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        else:
            return kind


def is_string(kind: Any) -> bool:
    """Return whether a type is one of the three string types."""
    return kind in _STRINGS


def is_number(kind: Any) -> bool:
    """Return whether a type is an integer, a float or a decimal."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_list(kind: Any, *, fixed: bool = False) -> bool:
    """Return whether a type is a list type; with ``fixed``, also a fixed-size list."""
    types = pa.types
    variable = types.is_list(kind) or types.is_large_list(kind)
    return bool(variable or (fixed and types.is_fixed_size_list(kind)))


def is_binary(kind: Any, *, fixed: bool = False) -> bool:
    """Return whether a type is a binary type of variable or, with ``fixed``, of fixed size."""
    return kind in _BINARIES or (fixed and pa.types.is_fixed_size_binary(kind))


def comparison(left: Any, right: Any) -> Any | None:
    """Return the type that both sides are compared as, or ``None`` if that is impossible."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return common_number(left, right, exact=True)
    if is_string(left) and is_string(right):
        return _STRINGS[max(_STRINGS.index(left), _STRINGS.index(right))]
    if is_binary(left, fixed=True) and is_binary(right, fixed=True):
        return _bytes(left, right)
    met = _times(left, right) if _is_time(left) and _is_time(right) else None
    if met is None:
        met = _with_text(left, right)
    if met is None:
        met = _with_text(right, left)
    return met if met is not None else _nested(left, right)


def _bytes(left: Any, right: Any) -> Any:
    ranks = [_BINARIES.index(kind) for kind in (left, right) if kind in _BINARIES]
    return _BINARIES[max(ranks, default=0)]


def _with_text(text: Any, other: Any) -> Any | None:
    """Return the type that a string, or an integer compared with a date, is converted to."""
    types = pa.types
    if is_string(text):
        if is_number(other) or types.is_date(other) or types.is_time(other):
            return other
        if types.is_timestamp(other):
            return other
        if other in _BINARIES:
            return _BINARIES[max(_BINARIES.index(other), _STRINGS.index(text))]
    if types.is_date(other) and text in (pa.int32(), pa.int64()):
        return other
    return None


def _nested(left: Any, right: Any) -> Any | None:
    types = pa.types
    if is_list(left, fixed=True) and is_list(right, fixed=True):
        item = comparison(plain(left.value_type), plain(right.value_type))
        if item is None:
            return None
        large = types.is_large_list(left) or types.is_large_list(right)
        fixed = [types.is_fixed_size_list(kind) for kind in (left, right)]
        if all(fixed) and left.list_size == right.list_size:
            return pa.list_(item, left.list_size)
        return pa.large_list(item) if large else pa.list_(item)
    return None


def _is_time(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind))


def _times(left: Any, right: Any) -> Any | None:
    types = pa.types
    if types.is_date(left) and types.is_date(right):
        return pa.date64()
    if types.is_timestamp(left) and types.is_timestamp(right):
        return pa.timestamp(_coarser(left, right), left.tz if left.tz is not None else right.tz)
    if types.is_duration(left) and types.is_duration(right):
        return pa.duration(max(left.unit, right.unit, key=TIME_UNITS.index))
    if types.is_duration(left) or types.is_duration(right):
        return None
    return pa.timestamp("ns")


def _coarser(left: Any, right: Any) -> Any:
    return TIME_UNITS[min(TIME_UNITS.index(left.unit), TIME_UNITS.index(right.unit))]


def common_number(left: Any, right: Any, *, exact: bool) -> Any | None:
    """Return the common type of two numbers; ``exact``: decimal for a decimal and a float."""
    types = pa.types
    decimals = types.is_decimal(left) or types.is_decimal(right)
    floats = [kind for kind in (left, right) if types.is_floating(kind)]
    if floats and not (decimals and exact):
        return max(floats, key=lambda kind: int(kind.bit_width))
    if decimals:
        first, second = _as_decimal(left), _as_decimal(right)
        return None if first is None or second is None else _wider(first, second)
    return _integers(left, right)


def _integers(left: Any, right: Any) -> Any:
    signed = [pa.types.is_signed_integer(kind) for kind in (left, right)]
    if all(signed) or not any(signed):
        return max(left, right, key=lambda kind: int(kind.bit_width))
    positive, other = (right, left) if signed[0] else (left, right)
    if positive.bit_width == 64:
        return pa.decimal128(20, 0)
    width = max(positive.bit_width * 2, other.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]


def _as_decimal(kind: Any) -> Any | None:
    if pa.types.is_decimal(kind):
        digits = kind.precision - min(kind.scale, 0)
        whole = kind.scale < 0 and digits <= (38 if pa.types.is_decimal128(kind) else 76)
        return _decimal(digits, 0, kind) if whole else kind  # Arrow refuses negative scales
    if pa.types.is_integer(kind):
        return pa.decimal128(_DECIMAL_DIGITS[kind.bit_width], 0)
    digits = _FLOAT_DIGITS.get(kind.bit_width)
    return pa.decimal128(*digits) if digits else None


def _wider(left: Any, right: Any) -> Any:
    scale = max(left.scale, right.scale)
    integer_digits = max(left.precision - left.scale, right.precision - right.scale)
    return _decimal(integer_digits + scale, scale, left, right)


def _decimal(precision: int, scale: int, *operands: Any) -> Any:
    if any(pa.types.is_decimal256(kind) for kind in operands):
        return pa.decimal256(min(precision, 76), scale)
    return pa.decimal128(min(precision, 38), scale)


def arithmetic(op: str, left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    """Return the types of the operands and of the result, or ``None`` for unknown operations."""
    types = pa.types
    if types.is_null(left) or types.is_null(right):
        kind = right if types.is_null(left) else left
        return (kind, kind, kind) if is_number(kind) or types.is_null(kind) else None
    if not (is_number(left) and is_number(right)):
        rule = None
        if op in {"+", "-"}:
            rule = _shifted_time(left, right)
        if rule is None and op == "+":
            swapped = _shifted_time(right, left)
            rule = swapped and (swapped[1], swapped[0], swapped[2])
        if rule is None and op == "-" and _is_time(left) and _is_time(right):
            rule = _time_difference(left, right)
        return rule
    met: Any = common_number(left, right, exact=False)
    if types.is_float16(met) and (types.is_decimal(left) or types.is_decimal(right)):
        return None
    if not types.is_decimal(met):
        return met, met, met
    if types.is_integer(left) and types.is_integer(right):
        return met, met, _decimal_result(op, met, met)
    first, second = _as_decimal(left), _as_decimal(right)
    return first, second, _decimal_result(op, first, second)


def _decimal_result(op: str, left: Any, right: Any) -> Any:
    if op == "*":
        return _decimal(left.precision + right.precision + 1, left.scale + right.scale, left, right)
    if op == "/":
        scale = min(left.scale + 4, 38)
        return _decimal(left.precision + scale - left.scale + right.scale, scale, left, right)
    scale = max(left.scale, right.scale)
    pick = min if op == "%" else max
    integer_digits = pick(left.precision - left.scale, right.precision - right.scale)
    return _decimal(integer_digits + scale + (op != "%"), scale, left, right)


def _shifted_time(left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    """Return the types of a date, timestamp or duration plus or minus an amount."""
    types = pa.types
    if types.is_date(left) and types.is_integer(right):
        return left, _days(right), left
    if types.is_date(left) and types.is_time(right):
        return pa.timestamp("ns"), pa.time64("ns"), pa.timestamp("ns")
    if types.is_timestamp(left) and types.is_duration(right):
        return left, pa.duration(left.unit), left
    moment = types.is_date(left) or types.is_timestamp(left)
    same = types.is_duration(left) and left == right
    return (left, right, left) if same or (moment and types.is_interval(right)) else None


def _time_difference(left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    """Return the types of the difference of two points in time."""
    types = pa.types
    if types.is_date(left) and types.is_date(right):
        kind = left if left == right else pa.date64()
        return kind, kind, pa.int64()
    met = _times(left, right)
    if met is None or types.is_duration(met):
        return None
    return met, met, pa.duration(met.unit)


def _days(kind: Any) -> Any:
    """Return the type of a number of days; 32 bits count."""
    return kind if pa.types.is_int64(kind) else pa.int32()


def shift(left: Any, right: Any) -> Any | None:
    """Return the type for shifting bits, from the integers among the two."""
    if not (is_number(left) and is_number(right)):
        return None
    integers = [kind for kind in (left, right) if pa.types.is_integer(kind)]
    if not integers:
        return None
    return pa.uint64() if pa.uint64() in integers else _integers(integers[0], integers[-1])


def concatenation(left: Any, right: Any) -> Any | None:
    """Return the type to which both sides of ``||`` are converted."""
    if is_binary(left, fixed=True) and is_binary(right, fixed=True):
        return _bytes(left, right)
    for text, other in ((left, right), (right, left)):
        plain = not pa.types.is_nested(other) or is_list(other)
        if is_string(text) and not is_binary(other, fixed=True) and plain:
            return _STRINGS[max(_STRINGS.index(kind) for kind in (left, right) if is_string(kind))]
    return None


# --- The type of a bound expression's values --------------------------------------------


def type_of(node: Node) -> Any:
    """Return the Arrow type of the values of a bound expression."""
    match node:
        case tree.Column() | tree.Literal():
            return plain(node.type)
        case tree.Cast() | tree.Call():
            return plain(node.type)
        case tree.Negative(operand):
            return type_of(operand)
        case tree.Arithmetic(op, left, right):
            first, second = type_of(left), type_of(right)
            if op in {"||", "<<", ">>"}:
                return first
            types = arithmetic(op, first, second)
            return types[2] if types else first
        case tree.Member(operand, name):
            return plain(type_of(operand).field(name).type)
        case tree.Subscript(operand):
            return plain(type_of(operand).value_type)
        case _:
            return pa.bool_()
