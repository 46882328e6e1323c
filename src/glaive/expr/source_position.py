"""Errors that show a position in the source text."""

from __future__ import annotations

from collections.abc import Iterable

from glaive.errors import FilterError

__all__ = ["close_names", "failure", "position_text"]

_BEFORE, _AFTER = 50, 30
"""Characters displayed around the position."""


def failure(problem: str, text: str, at: int) -> FilterError:
    """An error with the problem and its position in the text, if that is known."""
    return FilterError(f"{problem}{position_text(text, at)}")


def position_text(text: str, at: int) -> str:
    """Line and column, the line and a caret below the position; empty without a text."""
    if not text or at < 0:
        return ""
    at = min(at, len(text))
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    line = text.count("\n", 0, at) + 1
    first, last = max(start, at - _BEFORE), min(stop, at + _AFTER)
    left = ("…" if first > start else "") + text[first:at]
    right = text[at:last] + ("…" if last < stop else "")
    position = f"column {at - start + 1}" if "\n" not in text else f"line {line}, {at - start + 1}"
    excerpt = "".join(c if c.isprintable() else " " for c in left + right)
    return f" ({position})\n  {excerpt}\n  {' ' * len(left)}^"


def close_names(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'a', 'b'?``, or an empty string."""
    from difflib import get_close_matches

    names = list(dict.fromkeys(known))
    by_lower = {name.lower(): name for name in names}
    close = get_close_matches(name.lower(), list(by_lower), n=3)
    return f"; did you mean {', '.join(repr(by_lower[name]) for name in close)}?" if close else ""
