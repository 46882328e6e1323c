"""Columns and types as text: ``id bigint, at timestamp``; vectors: ``embedding:128:float16``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.nesting import MAX_NESTING
from glaive.errors import OptionError
from glaive.expr.sqltypes import DECIMALS, SIMPLE, TIMED, sized

__all__ = ["parse_columns", "with_vectors"]

_COLUMN: Final = re.compile(r"\s*(?:`([^`]+)`|([^\s`]+))\s+(.+?)\s*", re.DOTALL)
_SIZED: Final = re.compile(r"(\w+)\s*\(\s*(\d+(?:\s*,\s*\d+)*)\s*\)")
_VECTOR: Final = re.compile(r"(.+?):(\d+)(?::(\w+))?")
_MOST_ITEMS: Final = 2**31 - 1
"""Of a vector: Arrow's sizes have 32 bits."""

_VECTOR_TYPES: Final[dict[str, Any]] = {
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
}


def parse_columns(text: str) -> pa.Schema:
    """Read columns and types as Spark writes them: ``id bigint, at timestamp, x array<float>``.

    As in Spark, ``timestamp`` is an instant (UTC) and ``timestamp_ntz`` a time of some clock.

    Raises
    ------
    OptionError
        The text has another form, or names a type that does not exist.
    """
    fields = []
    for part in _split(text):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise OptionError(f"schema: expected 'name type, …', found {part.strip()!r}")
        name = found[1] or found[2]
        words = found[3]
        required = re.search(r"\s+not\s+null$", words, re.IGNORECASE)
        data_type = _type(words[: required.start()] if required else words, name)
        fields.append(pa.field(name, data_type, required is None))
    return pa.schema(fields)


def with_vectors(schema: pa.Schema, vectors: Iterable[str]) -> pa.Schema:
    """The columns with lists of some turned into vectors.

    Parameters
    ----------
    vectors
        ``column:dimension`` or ``column:dimension:type``.

    Raises
    ------
    OptionError
        There is no such column or type.
    """
    for entry in vectors:
        found = _VECTOR.fullmatch(entry)
        data_type = None if found is None else _VECTOR_TYPES.get(found[3] or "float32")
        items = 0 if found is None or len(found[2]) > len(str(_MOST_ITEMS)) else int(found[2])
        known = data_type is not None and 1 <= items <= _MOST_ITEMS
        if found is None or found[1] not in schema.names or not known:
            raise OptionError(
                f"vector {entry!r:.80}: expected 'column:dimension' or 'column:dimension:type', "
                f"such as 'embedding:128:float16', with a column of {', '.join(schema.names)} and "
                f"a type of {', '.join(_VECTOR_TYPES)}"
            )
        number = schema.get_field_index(found[1])
        vector: Any = pa.list_(data_type, items)
        schema = schema.set(number, schema.field(number).with_type(vector))
    return schema


def _split(text: str) -> list[str]:
    """Parts between commas that are not within brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _type(words: str, column: str, levels: int = MAX_NESTING) -> Any:
    if not levels:
        raise OptionError(f"schema: column {column}: nested deeper than {MAX_NESTING} levels")
    words = " ".join(words.split())
    lower = words.lower()
    if lower in SIMPLE:
        return SIMPLE[lower]
    if lower in ("long", "short", "byte"):
        return {"long": pa.int64(), "short": pa.int16(), "byte": pa.int8()}[lower]
    if lower in ("timestamp", "timestamp_ltz"):
        return pa.timestamp("us", "UTC")
    if lower == "timestamp_ntz":
        return pa.timestamp("us")
    if lower.startswith("array<") and lower.endswith(">"):
        return pa.list_(_type(words[6:-1], column, levels - 1))
    if lower.startswith("struct<") and lower.endswith(">"):
        members = [member.partition(":") for member in _split(words[7:-1])]
        if all(mark for _, mark, _ in members):
            return pa.struct(
                [pa.field(name.strip(), _type(of, column, levels - 1)) for name, _, of in members]
            )
    found = _SIZED.fullmatch(lower)
    if found is not None and found[1] in (*TIMED, *DECIMALS):
        made = sized(found[1], tuple(int(size) for size in found[2].split(",")))
        if not isinstance(made, str):
            return made
        raise OptionError(f"schema: column {column}: {made}")
    raise OptionError(
        f"schema: column {column}: no type {words!r}; known are {', '.join(SIMPLE)}, timestamp, "
        "timestamp_ntz, decimal(10, 2), array<…> and struct<name: type, …>"
    )
