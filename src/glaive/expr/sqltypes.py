"""Names of types in the filter language, and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["SIMPLE", "sized", "type_text"]

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
"""Types without parameters, in lower case; the first name of a type is used to render it."""

TIMED = ("timestamp", "datetime")
DECIMALS = ("decimal", "numeric")
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_DIGITS = {unit: digits for digits, unit in _UNITS.items()}
_TEXT = {kind: name for name, kind in reversed(SIMPLE.items())}


def sized(name: str, sizes: tuple[int, ...]) -> Any:
    """A type with parameters; if they are invalid, a string with the problem."""
    if name in TIMED:
        digits = sizes[0] if sizes else 6
        if len(sizes) > 1 or digits not in _UNITS:
            return f"{name} has 0, 3, 6 or 9 digits of a second: {name}(3)"
        return pa.timestamp(_UNITS[digits])
    if len(sizes) != 2:
        return f"{name} needs digits and scale: {name}(10, 2)"
    precision, scale = sizes
    if not 1 <= precision <= 76 or not scale <= precision:
        return f"{name}({precision}, {scale}): from 1 to 76 digits, and no more after the point"
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def type_text(kind: Any) -> str:
    """The name of a type, or Arrow's name for types without one."""
    name = _TEXT.get(kind)
    if name is not None:
        return name
    types = pa.types
    if types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind) and kind.tz is None:
        return f"timestamp({_DIGITS[kind.unit]})"
    return str(kind)
