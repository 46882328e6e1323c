"""The values in JSON documents, with their paths, row by row.

Specification: "JSON columns" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from glaive.named_tuple import NamedTuple

__all__ = ["JsonValue", "json_values"]


class JsonValue(NamedTuple):
    """A value that has no members.

    Parameters
    ----------
    path
        Names of the members that lead to it, joined by dots.
    kind
        ``"str"``, ``"number"``, ``"bool"`` or ``"null"``.
    text
        The string, or the value as JSON has it.
    """

    path: str
    kind: str
    text: str


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def json_values(documents: Iterable[str]) -> Iterator[list[JsonValue]]:
    """The values of each document, in its order; items of arrays have the path of the array."""
    for text in documents:
        document = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
        yield list(_values("", document))


def _values(path: str, value: Any) -> Iterator[JsonValue]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _values(f"{path}.{name}" if path else name, member)
    elif isinstance(value, list):
        for item in value:
            yield from _values(path, item)
    elif isinstance(value, _Number):
        yield JsonValue(path, "number", value)
    elif isinstance(value, str):
        yield JsonValue(path, "str", value)
    elif value is None:
        yield JsonValue(path, "null", "null")
    else:
        yield JsonValue(path, "bool", "true" if value else "false")
