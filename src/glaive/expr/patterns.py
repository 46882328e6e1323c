"""LIKE: ``%`` any text, ``_`` one character."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glaive.expr.containing import containing, prefiltered
from glaive.expr.rows import map_constants

__all__ = ["like", "pattern_parts"]


def like(strings: Any, pattern: Any, escape: str, *, ignore_case: bool) -> Any:
    """Which strings match a pattern; null where one of them is.

    Parameters
    ----------
    strings
        An array.
    pattern
        An array or a scalar of the same type.
    escape
        Makes ``%``, ``_`` and itself literal.
    """
    if strings.type == pa.string_view():
        strings = strings.cast(pa.large_string())

    def matching(strings: Any, text: str) -> Any:
        return _matching(strings, text, escape, ignore_case=ignore_case)

    return map_constants(pa.bool_(), matching, (strings, pattern))


def _matching(strings: Any, pattern: str, escape: str, *, ignore_case: bool) -> Any:
    parts = pattern_parts(pattern, escape)
    words = [part for part in parts if part not in {None, 1}]
    if not ignore_case and len(words) == 1 and 1 not in parts:
        word = str(words[0])
        if len(parts) == 1:
            return pc.equal(strings, pa.scalar(word, strings.type))
        if parts[0] is not None:
            return pc.starts_with(strings, word)
        if parts[-1] is not None:
            return pc.ends_with(strings, word)
        return containing(strings, word)
    if not parts:
        return pc.equal(strings, pa.scalar("", strings.type))
    regex = partial(pc.match_substring_regex, pattern=_regex(parts), ignore_case=ignore_case)
    if words and not ignore_case:
        return prefiltered(strings, max(map(str, words), key=len), regex)
    return regex(strings)


def _regex(parts: tuple[str | int | None, ...]) -> str:
    body = "".join(
        ".*" if part is None else "." if part == 1 else _quoted(str(part)) for part in parts
    )
    return rf"(?s)\A{body}\z"


def _quoted(text: str) -> str:
    return re.sub(r"([^\w\s])", r"\\\1", text, flags=re.ASCII) if text.isascii() else _wide(text)


def _wide(text: str) -> str:
    return "".join(
        re.sub(r"([^\w\s])", r"\\\1", letter) if letter.isascii() else letter for letter in text
    )


@lru_cache(256)
def pattern_parts(pattern: str, escape: str = "\\") -> tuple[str | int | None, ...]:
    """A pattern in parts: strings, 1 for ``_``, None for ``%`` (never two in a row)."""
    parts: list[str | int | None] = []
    word: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape and at + 1 < len(pattern):
            at += 1
            word.append(pattern[at])
        elif character in "%_":
            if word:
                parts.append("".join(word))
                word = []
            special = None if character == "%" else 1
            if special == 1 or not parts or parts[-1] is not None:
                parts.append(special)
        else:
            word.append(character)
        at += 1
    if word:
        parts.append("".join(word))
    return tuple(parts)
