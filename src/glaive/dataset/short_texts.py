"""Values as short texts, for tables that people look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from glaive.arrow.python_values import python_values
from glaive.expr.coerce import is_list

__all__ = ["short_texts"]

_CHARACTERS: Final = 60
_LIST_ITEMS: Final = 3


def short_texts(values: Any) -> list[str]:
    """A text of one line for each value; of a list, only the items that are shown become Python's.

    Parameters
    ----------
    values
        An array or a chunked array of any type.
    """
    if is_list(values.type, fixed=True):
        return [_of_items(value.values) if value.is_valid else "null" for value in values]
    return list(map(_short, python_values(values)))


def _of_items(items: Any) -> str:
    return _in_brackets(short_texts(items[:_LIST_ITEMS]), len(items))


def _in_brackets(shown: Iterable[str], count: int) -> str:
    more = f", … {count:,} items" if count > _LIST_ITEMS else ""
    return f"[{', '.join(shown)}{more}]"


def _short(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):  # of an extension type
        return _in_brackets(map(_short, value[:_LIST_ITEMS]), len(value))
    text = f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)
    text = text.replace("\r", "\\r").replace("\n", "\\n")
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
