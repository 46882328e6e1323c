"""Options of readers, checked by name and type."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from glaive.errors import OptionError

__all__ = ["known_options", "option"]

T = TypeVar("T", bound=object)

_ELSEWHERE = {
    "charset": "encoding",
    "dateformat": "timestamp_format",
    "delimiter": "sep",
    "escapechar": "escape",
    "navalues": "null",
    "nullvalue": "null",
    "quotechar": "quote",
    "separator": "sep",
    "timestampformat": "timestamp_format",
}
"""Names that readers of pandas and Spark have for options, without underlines."""


def known_options(format_name: str, given: Mapping[str, object], names: tuple[str, ...]) -> None:
    """Refuse options that a format does not have."""
    for name in given:
        if name not in names:
            lower = f"{name}".lower()
            elsewhere = _ELSEWHERE.get(lower.replace("_", ""))
            close = [elsewhere] if elsewhere in names else get_close_matches(lower, names, 1)
            hint = f"; did you mean {close[0]}?" if close else "."
            known = ", ".join(names) or "none"
            raise OptionError(f"{format_name}: no option {name!r}{hint} Known: {known}")


def option(given: Mapping[str, object], name: str, default: T) -> T:
    """An option of the type of its default; text from a command line is converted."""
    value = given.get(name, default)
    if isinstance(default, bool) and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise OptionError(f"{name}: expected true or false, found {value!r}")
        value = value.lower() == "true"
    if not isinstance(value, type(default)):
        raise OptionError(f"{name}: expected {type(default).__name__}, found {value!r}")
    return value
