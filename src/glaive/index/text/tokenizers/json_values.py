"""The values in JSON documents, with their paths, row by row.

Specification: "JSON columns" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from glaive.arrow.jsonb import MAX_DEPTH
from glaive.config import USUAL_RATIO, settings
from glaive.errors import CorruptFileError, LimitError
from glaive.named_tuple import NamedTuple

__all__ = ["JsonBudget", "JsonValue", "json_values"]


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


class JsonBudget:
    """Characters that paths of some documents may take: values and tokens repeat them.

    Parameters
    ----------
    stored
        Bytes of the documents.
    """

    __slots__ = ("_left", "_most", "_stored")

    def __init__(self, stored: int) -> None:
        self._stored = stored
        self._left = self._most = max(settings.max_decoded_bytes_per_page, USUAL_RATIO * stored)

    def take(self, characters: int) -> None:
        """Take some of them.

        Raises
        ------
        LimitError
            There are not so many left.
        """
        self._left -= characters
        if self._left < 0:
            raise LimitError(
                f"JSON documents of {self._stored} bytes have paths of long names that take more "
                f"than {self._most} bytes with each of their values and tokens. If the dataset is "
                "trusted, allow more: set GLAIVE_MAX_DECODED_BYTES_PER_PAGE."
            )


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def json_values(documents: Iterable[str], budget: JsonBudget) -> Iterator[list[JsonValue]]:
    """The values of each document, in its order; items of arrays have the path of the array.

    Raises
    ------
    CorruptFileError
        A document is no JSON, or nested too deeply.
    LimitError
        Paths take more than the budget.
    """
    for text in documents:
        try:
            document = json.loads(
                text, parse_int=_Number, parse_float=_Number, parse_constant=_Number
            )
        except (ValueError, RecursionError) as error:
            raise _no_document(text, "JSON") from error
        yield list(_values("", document, text, MAX_DEPTH, budget))


def _values(
    path: str, value: Any, text: str, levels: int, budget: JsonBudget
) -> Iterator[JsonValue]:
    if isinstance(value, dict | list):
        if not levels:
            raise _no_document(text, f"JSON of at most {MAX_DEPTH} levels")
        members = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for name, member in members:
            below = path
            if name is not None:
                budget.take(len(path) + len(name) + 1)
                below = f"{path}.{name}" if path else name
            yield from _values(below, member, text, levels - 1, budget)
    elif isinstance(value, _Number):
        yield JsonValue(path, "number", value)
    elif isinstance(value, str):
        yield JsonValue(path, "str", value)
    elif value is None:
        yield JsonValue(path, "null", "null")
    else:
        yield JsonValue(path, "bool", "true" if value else "false")


def _no_document(text: str, expected: str) -> CorruptFileError:
    return CorruptFileError(
        "a JSON document", expected=expected, found=f"{text!r:.80}", where="the column of an index"
    )
