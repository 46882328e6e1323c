"""LIKE: ``%`` any text, ``_`` one character; and whether strings contain a word."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.buffers import integer_array
from glaive.arrow.chunked import as_numpy
from glaive.arrow.scalars import FALSE
from glaive.arrow.slices import slice_bits
from glaive.errors import FilterError
from glaive.expr.rows import map_constants
from glaive.expr.sizes import largest
from glaive.kernels.contains import contains
from glaive.kernels.strings import Strings

__all__ = ["containing", "like", "pattern_parts", "prefiltered"]

_OFFSET_BITS: dict[pa.DataType, Literal[32, 64]] = {
    pa.string(): 32,
    pa.binary(): 32,
    pa.large_string(): 64,
    pa.large_binary(): 64,
}

_RARE = 4
"""If at most one row in so many contains the word, only those rows are tested further."""

_MANY_PLACES = 3_000
"""Characters of a pattern that may be compared with each one of a text of any length."""

_MOST_COMPARED = 2**30
"""Comparisons for one text, of a pattern that has more characters."""

_MAX_PARTS = 1_000
"""Parts of a pattern that takes time by their number for each character."""


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

    Raises
    ------
    FilterError
        The pattern has too many parts, or many characters for a long text.
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
    if len(parts) > _MAX_PARTS:
        raise FilterError(
            f"LIKE: the pattern {pattern!r:.60} has {len(parts)} parts: words, '_' and '%'; at "
            f"most {_MAX_PARTS} are supported, as each character of a text is compared with all"
        )
    places = sum(len(part) if isinstance(part, str) else 1 for part in parts)
    size = largest(strings) if places > _MANY_PLACES and None in parts else 0
    if places * size > _MOST_COMPARED:
        raise FilterError(
            f"LIKE: the pattern {pattern!r:.60} has {places} characters, and a text {size} bytes; "
            f"the product may be {_MOST_COMPARED} at most, where case is ignored or '_' is used"
        )
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


def containing(strings: Any, word: str) -> Any:
    """Which strings contain a word; null for nulls."""
    bits, rows = _OFFSET_BITS.get(strings.type), len(strings)
    validity, *parts = strings.buffers()
    if bits is None or not rows or any(part is None for part in parts):
        return pc.match_substring(strings, word)
    width = bits // 8
    offsets = parts[0].slice(strings.offset * width, (rows + 1) * width)
    passing = contains(Strings(offsets, bits, parts[1]), rows, word.encode())
    nulls = strings.null_count
    bitmap = slice_bits(validity, strings.offset, rows) if nulls else None
    return pa.Array.from_buffers(pa.bool_(), rows, [bitmap, passing], nulls)


def prefiltered(strings: Any, word: str, test: Any) -> Any:
    """``test(strings)``, where only strings that contain ``word`` can pass.

    If few do, only those are tested.
    """
    candidates = containing(strings, word)
    rows = np.flatnonzero(as_numpy(pc.fill_null(candidates, FALSE)))
    if len(rows) * _RARE > len(strings):
        return test(strings)
    flags = np.zeros(len(strings), np.bool_)
    if len(rows):
        flags[rows] = as_numpy(test(strings.take(integer_array(rows))))
    nulls = as_numpy(strings.is_null()) if strings.null_count else None
    return pa.array(flags, mask=nulls)
