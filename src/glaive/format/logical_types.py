"""Convert between Arrow types and logical types, their names in schemas: ``timestamp:us:UTC``.

Children of a type are separate fields with types of their own. This module converts types of
leaves; :mod:`glaive.format.fields` adds the children of ``struct``, lists, maps and fixed-size
lists of structs.

Specification: "Logical types" in ``docs/format``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal

import pyarrow as pa

from glaive.arrow.conditions import MAX_SCALE, decimal_type
from glaive.arrow.validation import MAX_NESTING
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.types import MAX_OFFSET, MAX_WIDTH

EXTENSION_NAME: Final = "ARROW:extension:name"
EXTENSION_METADATA: Final = "ARROW:extension:metadata"
BFLOAT16: Final = "lance.bfloat16"

_UNITS: Final[tuple[Literal["s", "ms", "us", "ns"], ...]] = ("s", "ms", "us", "ns")

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    **{f"duration:{unit}": pa.duration(unit) for unit in _UNITS},
    **{f"timestamp:{unit}:-": pa.timestamp(unit) for unit in _UNITS},
}

_ALIASES: Final[dict[str, pa.DataType]] = {
    # Stored as large binary; the extension name distinguishes them.
    "json": pa.large_binary(),
    "blob": pa.large_binary(),
    BFLOAT16: pa.binary(2),
}

_NAMES: Final[dict[pa.DataType, str]] = {
    **{arrow: name for name, arrow in _SIMPLE.items()},
    # Views are a layout in memory: files store plain strings.
    pa.string_view(): "string",
    pa.binary_view(): "binary",
}

ZONE_FILE: Final = "dateutil/"
"""Prefix of the name of a time zone; pandas opens any path that follows it."""

_MAX_FIXED_SIZE_LISTS: Final = 16
"""Each is several messages in one another where a page is described, and readers limit these."""

_VARIABLE: Final = frozenset({"string", "large_string", "binary", "large_binary", "json", "blob"})
_NO_HINT: Final = frozenset({"struct", "null"})


@lru_cache(maxsize=4096)
def leaf_type(text: str) -> Any:
    """Return the Arrow type of the logical type of a leaf.

    Raises
    ------
    UnsupportedFeatureError
        The type is unknown.
    CorruptFileError
        The type is known, but a parameter is invalid.
    """
    known = _SIMPLE.get(text) or _ALIASES.get(text)
    if known is not None:
        return known
    if text.count("fixed_size_list:") + text.count("dict:") > MAX_NESTING:
        raise UnsupportedFeatureError(
            f"a logical type is nested deeper than {MAX_NESTING} levels: {text[:60]}…; the schema "
            "is damaged or malicious"
        )
    head, _, rest = text.partition(":")
    try:
        if head == "timestamp":
            unit, zone = rest.split(":", 1)
            if zone.startswith(ZONE_FILE):
                raise ValueError(text)
            return pa.timestamp(_UNITS[_UNITS.index(unit)], zone)
        if head == "decimal":
            bits, precision, scale = rest.split(":")
            return decimal_type({"128": 128, "256": 256}[bits], int(precision), int(scale))
        if head == "fixed_size_binary":
            return pa.binary(_count(rest, MAX_WIDTH))
        if head == "fixed_size_list":
            item, size = rest.rsplit(":", 1)
            return pa.list_(_item(item), _count(size))
        if head == "dict":
            values, index, ordered = rest.rsplit(":", 2)
            items = leaf_type(values)
            if pa.types.is_dictionary(items):
                raise ValueError("a dictionary of dictionaries")
            return pa.dictionary(leaf_type(index), items, {"false": False, "true": True}[ordered])
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        if isinstance(error, (CorruptFileError, UnsupportedFeatureError)):
            raise
        raise CorruptFileError(
            "logical type",
            expected=f"a {head} type with valid parameters",
            found=repr(text),
            where="schema",
        ) from error
    raise UnsupportedFeatureError(
        f"unknown logical type {text!r} in a schema; this reader supports {', '.join(_SIMPLE)}, "
        "timestamps with a time zone, decimals, fixed_size_binary, fixed_size_list, dict, struct, "
        "list, large_list and map. The dataset was probably written by a newer Lance: "
        "upgrade glaive."
    )


def _item(text: str) -> Any:
    """Return the item type of a fixed-size list, or a field if the type needs metadata."""
    if text != BFLOAT16:
        return leaf_type(text)
    metadata = {EXTENSION_NAME: BFLOAT16, EXTENSION_METADATA: ""}
    return pa.field("item", leaf_type(text), metadata=metadata)


def _count(text: str, maximum: int = MAX_OFFSET) -> int:
    # Arrow sizes have 32 bits.
    if not (text.isascii() and text.isdecimal()) or int(text) > maximum:
        raise ValueError(text)
    return int(text)


def logical_type(arrow: Any, column: str) -> str:
    """Return the logical type of a leaf's storage type.

    Raises
    ------
    SchemaError
        Lance has no such type; the message has ``column`` and a remedy.
    """
    name = _NAMES.get(arrow)
    if name is not None:
        return name
    types = pa.types
    if types.is_timestamp(arrow):
        if arrow.tz.startswith(ZONE_FILE):
            raise SchemaError(
                f"column {column!r}: expected the name of a time zone, found {arrow.tz!r}, which "
                "pandas takes for a file. Cast the column to a zone such as 'Europe/Berlin'."
            )
        return f"timestamp:{arrow.unit}:{arrow.tz}"
    if types.is_decimal128(arrow) or types.is_decimal256(arrow):
        limit = MAX_SCALE[arrow.bit_width]
        if abs(arrow.scale) > limit:
            raise SchemaError(
                f"column {column!r}: expected a scale from {-limit} to {limit}, found {arrow}. "
                "Cast it to one of these before writing."
            )
        return f"decimal:{arrow.bit_width}:{arrow.precision}:{arrow.scale}"
    if types.is_fixed_size_binary(arrow) and arrow.byte_width <= MAX_WIDTH:
        return f"fixed_size_binary:{arrow.byte_width}"
    if types.is_fixed_size_list(arrow):
        return _fixed_size_list(arrow, column)
    if types.is_dictionary(arrow):
        return _dictionary(arrow, column)
    if types.is_fixed_size_binary(arrow):
        raise SchemaError(
            f"column {column!r}: expected values of at most {MAX_WIDTH} bytes, found {arrow}. Cast "
            "the column to large_binary."
        )
    remedy = _REMEDIES.get(
        _kind(arrow), f"{_CAST} for instance to a number, string, list or struct"
    )
    raise SchemaError(
        f"column {column!r}: Unsupported data type: Lance has no type for {arrow}. {remedy}."
    )


_CAST: Final = "Cast the column before writing,"

_REMEDIES: Final = {
    "list_view": (
        "Make the column a list or large_list before writing, by pyarrow.array(column.to_pylist()):"
        " casts of pyarrow lose rows"
    ),
    "run_end": "Decode the column before writing, by pyarrow.compute.run_end_decode",
    "interval": f"{_CAST} to duration or to a struct of months, days and nanoseconds",
    "decimal": f"{_CAST} to decimal128",
    "union": f"{_CAST} to a struct with one nullable field per alternative",
}


def _kind(arrow: pa.DataType) -> str:
    types = pa.types
    if types.is_list_view(arrow) or types.is_large_list_view(arrow):
        return "list_view"
    if types.is_run_end_encoded(arrow):
        return "run_end"
    if types.is_interval(arrow):
        return "interval"
    if types.is_decimal(arrow):
        return "decimal"
    if types.is_union(arrow):
        return "union"
    return "other"


def check_list_size(arrow: Any, column: str) -> None:
    """Refuse a fixed-size list without items, which files cannot store."""
    if arrow.list_size < 1:
        raise SchemaError(
            f"column {column!r}: a fixed_size_list has at least 1 item, found {arrow}. "
            "Drop the column, or cast it to list before writing it."
        )


def _is_named_bfloat16(item: Any) -> bool:
    """Return whether items have :func:`leaf_type`'s form while Arrow lacks the extension."""
    named = (item.metadata or {}).get(EXTENSION_NAME.encode()) == BFLOAT16.encode()
    return named and item.type == pa.binary(2)


def _fixed_size_list(arrow: Any, column: str, depth: int = 1) -> str:
    if depth > _MAX_FIXED_SIZE_LISTS:
        raise SchemaError(
            f"column {column!r}: more than {_MAX_FIXED_SIZE_LISTS} fixed_size_lists in one "
            "another. Make one list of them, and keep its shape in the metadata of the field."
        )
    check_list_size(arrow, column)
    item = arrow.value_type
    if getattr(item, "extension_name", None) == BFLOAT16 or _is_named_bfloat16(arrow.value_field):
        return f"fixed_size_list:{BFLOAT16}:{arrow.list_size}"
    if pa.types.is_fixed_size_list(item):
        return f"fixed_size_list:{_fixed_size_list(item, column, depth + 1)}:{arrow.list_size}"
    if isinstance(item, pa.BaseExtensionType) or pa.types.is_nested(item):
        raise SchemaError(
            f"column {column!r}: items of type {item} are not supported in a fixed_size_list. "
            "Cast the column to list before writing."
        )
    return f"fixed_size_list:{logical_type(item, column)}:{arrow.list_size}"


def _dictionary(arrow: Any, column: str) -> str:
    values = _NAMES.get(arrow.value_type)
    if values is None or ":" in values:
        raise SchemaError(
            f"column {column!r}: Lance supports dictionaries of strings, binary, numbers and "
            f"booleans, not of {arrow.value_type}. Cast the column to {arrow.value_type} before "
            "writing."
        )
    # The format omits the ordered flag.
    return f"dict:{values}:{_NAMES[arrow.index_type]}:false"


def encoding_hint(text: str) -> int:
    """Return ``Field.encoding`` of a logical type, as readers of format 0.1 expect it."""
    if text in _VARIABLE:
        return 2
    if text.startswith("dict:"):
        return 3
    return 0 if text in _NO_HINT else 1
