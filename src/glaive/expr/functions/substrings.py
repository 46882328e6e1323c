"""Substrings: extract, search, replace, split. Positions count characters from 1.

Row by row: ``overlay``, ``substr_index``, replacing the empty string, and calls whose pattern is
a column, or is long: at each place of a text Arrow may compare all of it, Python does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glaive.arrow.letters import alphanumeric_class, words_of
from glaive.errors import FilterError
from glaive.expr.functions.characters import Characters
from glaive.expr.functions.coercion import (
    INTEGER,
    LOOSE_TEXT,
    TEXT,
    length_type,
    like_first,
    signature,
)
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import (
    all_valid,
    check_growth,
    compute_strings,
    whole_end,
)
from glaive.expr.rows import broadcast, count_rows, is_constant, map_distinct, map_rows
from glaive.expr.sizes import (
    MAX_BATCH_BYTES,
    bytes_of,
    check_bytes,
    check_list_items,
    check_python_values,
    scalar_bytes,
)

__all__: list[str] = []

_FAR = 1 << 40
"""A position beyond the end of every string; sums of such positions do not overflow."""


_LONG = 256
"""Bytes of a pattern from which on Python looks for it, in a time that does not grow with it."""

_MOST_WORDS = 1_000
"""Different words that `contains_tokens` looks for: each text is passed over once for each."""


def _is_short(pattern: Any) -> bool:
    """Whether a pattern is a constant that Arrow may look for."""
    return is_constant(pattern) and 0 < scalar_bytes(pattern) < _LONG


def _positions(number: Any, rows: int) -> Any:
    """Positions as numpy integers that can be added without overflow."""
    filled = pc.fill_null(broadcast(number, rows), 0)
    return np.clip(filled.to_numpy(zero_copy_only=False), -_FAR, _FAR)


def _with_nulls(values: Any, kind: Any, *arguments: Any) -> Any:
    """Values of type ``kind`` that are null where an argument is."""
    values = values.cast(kind) if values.type != kind else values
    for argument in arguments:
        if not is_constant(argument) or not argument.is_valid:
            values = pc.if_else(pc.is_valid(argument), values, pa.scalar(None, kind))
    return values


def _cut(text: Any, bounds: Callable[..., tuple[Any, Any]], *others: Any) -> Any:
    """Substrings; ``bounds`` maps the lengths and the other arguments to start and end."""
    rows = count_rows((text, *others))
    letters = Characters(broadcast(text, rows))
    numbers = [_positions(other, rows) for other in others]
    return _with_nulls(letters.cut(*bounds(letters.counts, *numbers)), text.type, *others)


_COUNTED = signature(LOOSE_TEXT, INTEGER, result=pa.string_view())


@function("left", takes=_COUNTED)
def _left(text: Any, count: Any) -> Any:
    if is_constant(count) and count.is_valid and 0 <= count.as_py() < _FAR:
        return pc.utf8_slice_codeunits(whole_end(text), 0, count.as_py())
    return _cut(text, lambda sizes, n: (sizes * 0, np.where(n < 0, sizes + n, n)), count)


@function("right", takes=_COUNTED)
def _right(text: Any, count: Any) -> Any:
    return _cut(text, lambda sizes, n: (np.where(n < 0, -n, sizes - n), sizes), count)


@function(
    "substr",
    "substring",
    takes=signature(TEXT, INTEGER, INTEGER, result=pa.string_view(), optional=1),
)
def _substr(text: Any, start: Any, count: Any = None) -> Any:
    if count is not None:
        least = pc.min(pc.if_else(all_valid(text, start), count, None)).as_py()
        if least is not None and least < 0:
            raise FilterError(f"substr: the count must not be negative, found {least}")
    if is_constant(start) and (count is None or is_constant(count)) and start.is_valid:
        first = min(start.as_py(), _FAR) - 1
        if count is None:
            return pc.utf8_slice_codeunits(whole_end(text), max(first, 0))
        if count.is_valid:
            last = max(first + min(count.as_py(), _FAR), 0)
            return pc.utf8_slice_codeunits(whole_end(text), min(max(first, 0), last), last)
    if count is None:
        count = pa.scalar(_FAR, pa.int64())
    return _cut(text, lambda _, first, n: (first - 1, first - 1 + n), start, count)


@function(
    "overlay",
    takes=signature(LOOSE_TEXT, LOOSE_TEXT, INTEGER, INTEGER, result=pa.string(), optional=1),
)
def _overlay(text: Any, other: Any, start: Any, count: Any = None) -> Any:
    def laid(text: str, other: str, start: int, count: int | None = None) -> str:
        if start < 1:
            raise FilterError(f"overlay: the position must be at least 1, found {start}")
        end = max(start - 1 + (len(other) if count is None else count), 0)
        return text[: start - 1] + other + text[end:]

    given = (text, other, start) if count is None else (text, other, start, count)
    return map_rows(pa.string(), laid, *given)


_SEARCH = signature(TEXT, TEXT, result=pa.bool_())


def _search(match: Any, test: Callable[[str, str], bool], text: Any, pattern: Any) -> Any:
    if not is_constant(pattern):
        return map_rows(pa.bool_(), test, text, pattern)
    if not pattern.is_valid:
        return pa.nulls(count_rows((text,)), pa.bool_())
    return match(text, pattern.as_py())


function("contains", takes=_SEARCH)(partial(_search, pc.match_substring, str.__contains__))
function("starts_with", takes=_SEARCH)(partial(_search, pc.starts_with, str.startswith))
function("ends_with", takes=_SEARCH)(partial(_search, pc.ends_with, str.endswith))


@function("strpos", "instr", "position", takes=signature(TEXT, TEXT, result=length_type))
def _strpos(text: Any, pattern: Any) -> Any:
    kind = pa.int64() if text.type == pa.large_string() else pa.int32()
    if not is_constant(pattern):
        return map_rows(kind, lambda text, pattern: text.find(pattern) + 1, text, pattern)
    if not pattern.is_valid:
        return pa.nulls(count_rows((text,)), kind)
    positions = pc.find_substring(text, pattern.as_py())
    if not pc.all(pc.string_is_ascii(text)).as_py():
        bytes_before = pc.fill_null(positions, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = Characters(text).number(np.maximum(bytes_before, 0))
        positions = pc.if_else(pc.greater(positions, 0), pa.array(numbers), positions)
    return pc.add(positions, 1).cast(kind)


@function("find_in_set", takes=signature(LOOSE_TEXT, LOOSE_TEXT, result=pa.int32()))
def _find_in_set(text: Any, words: Any) -> Any:
    if not is_constant(words) or not words.is_valid:

        def found(text: str, words: str) -> int:
            at = -1 if "," in text else f",{words},".find(f",{text},")
            return words.count(",", 0, at) + 1 if at >= 0 else 0

        return map_rows(pa.int32(), found, text, words)
    known = pa.array(words.as_py().split(","), text.type)
    number = pc.fill_null(pc.index_in(text, value_set=known), -1)
    return _with_nulls(pc.add(number, 1), pa.int32(), text)


@function("contains_tokens", takes=signature(LOOSE_TEXT, LOOSE_TEXT, result=pa.bool_()))
def _contains_tokens(text: Any, tokens: Any) -> Any:
    if not is_constant(tokens):
        raise FilterError("contains_tokens: the words must be a constant, not a column")
    passing = _with_nulls(pa.repeat(pa.scalar(True), len(text)), pa.bool_(), text)
    words = dict.fromkeys(words_of(tokens.as_py() or ""))
    if len(words) > _MOST_WORDS:
        raise FilterError(
            f"contains_tokens: {len(words)} different words, at most {_MOST_WORDS} are supported"
        )
    other = f"[^{alphanumeric_class()}]"
    for word in words:
        # Words consist of letters and digits, which need no escape.
        passing = pc.and_(passing, pc.match_substring_regex(text, rf"(^|{other}){word}($|{other})"))
    return passing


def _replaced_type(counted: Any) -> Any:
    wide = pa.large_string() in counted and pa.string_view() not in counted
    return pa.large_string() if wide else pa.string()


@function("replace", takes=signature(TEXT, TEXT, TEXT, result=_replaced_type))
def _replace(text: Any, pattern: Any, other: Any) -> Any:
    if _is_short(pattern) and is_constant(other) and other.is_valid:
        size, added = bytes_of(text, len(text)), scalar_bytes(other)
        if size * (1 + added) > MAX_BATCH_BYTES:
            size += added * int(pc.sum(pc.count_substring(text, pattern.as_py())).as_py() or 0)
        replace = partial(pc.replace_substring, pattern=pattern.as_py(), replacement=other.as_py())
        check_growth("replace", len(text), bytes_of(text, len(text)), size)
        return compute_strings("replace", replace, text, size)
    rows = count_rows((text, pattern, other))
    if rows > 1:
        letters = pc.add(pc.utf8_length(broadcast(text, rows)).cast(pa.int64()), 1)
        added = pc.sum(pc.multiply(letters, pc.binary_length(broadcast(other, rows)))).as_py() or 0
        check_bytes("replace", bytes_of(text, rows) + added, rows, text.type)

    def replaced(text: str, pattern: str, other: str) -> str:
        check_growth("replace", 1, len(text), len(text) + text.count(pattern) * len(other))
        return text.replace(pattern, other)

    return map_rows(text.type, replaced, text, pattern, other)


@function("split_part", takes=signature(TEXT, TEXT, INTEGER, result=like_first))
def _split_part(text: Any, separator: Any, number: Any) -> Any:
    zero = pc.if_else(all_valid(text, separator), pc.equal(number, 0), False)
    if pc.any(zero).as_py():
        raise FilterError("split_part: parts count from 1, or from -1 at the end, found 0")
    if _is_short(separator) and is_constant(number) and number.is_valid:
        pattern, wanted = separator.as_py(), number.as_py()
        splits = pc.sum(pc.count_substring(text, pattern)).as_py() or 0
        most = min(abs(wanted), splits)
        check_list_items(min(splits, most * len(text)) + len(text), len(text))
        parts = pc.split_pattern(text, pattern, max_splits=most, reverse=wanted < 0)
        begin, end = _bounds(parts)
        position = begin + wanted - 1 if wanted > 0 else end + wanted
        present = (position >= begin) & (position < end)
        selected = parts.values.take(pa.array(np.where(present, position, 0), mask=~present))
        return _with_nulls(pc.fill_null(selected, ""), text.type, text)

    def part(text: str, separator: str, number: int) -> str:
        splits = text.count(separator) if separator else 0
        if abs(number) > splits + 1:
            return ""
        parts = _split(text, separator, min(abs(number), splits), reverse=number < 0)
        return parts[number - (number > 0)]

    return map_rows(text.type, part, text, separator, number)


def _split(text: str, separator: str, splits: int, *, reverse: bool = False) -> list[str]:
    """The parts of a text that is split so many times, from its end if ``reverse``."""
    check_python_values(splits + 1, 1)
    if not splits:
        return [text]
    return text.rsplit(separator, splits) if reverse else text.split(separator, splits)


def _bounds(lists: Any) -> tuple[Any, Any]:
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets[:-1], offsets[1:]


def _cut_type(counted: Any) -> Any:
    exact = counted == [pa.string(), pa.string(), pa.int64()]
    return pa.string() if exact else pa.string_view()


@function(
    "substr_index",
    "substring_index",
    takes=signature(LOOSE_TEXT, LOOSE_TEXT, INTEGER, result=_cut_type),
)
def _substr_index(text: Any, separator: Any, count: Any) -> Any:
    def cut(text: str, separator: str, count: int) -> str:
        if not separator or not count:
            return ""
        splits = text.count(separator)
        if abs(count) > splits:
            return text
        if count < 0:
            before = len(_split(text, separator, -count, reverse=True)[0])
            return text[before + len(separator) :]
        behind = len(_split(text, separator, count)[-1])
        return text[: len(text) - behind - len(separator)]

    return map_rows(text.type, cut, text, separator, count)


def _list_of_text(counted: Any) -> Any:
    return pa.list_(pa.field("item", counted[0]))


@function(
    "string_to_array",
    "string_to_list",
    takes=signature(TEXT, TEXT, TEXT, result=_list_of_text, optional=1),
)
def _string_to_array(text: Any, separator: Any, null: Any = None) -> Any:
    kind = pa.list_(text.type)
    spelled = null if null is not None else pa.scalar(None, pa.string())

    def split(value: str, separator: str | None, null: str | None) -> Any:
        if separator is None:
            check_python_values(len(value), 1)
            parts = list(value)
        elif not value:
            parts = []
        else:
            parts = _split(value, separator, value.count(separator)) if separator else [value]
        return [None if part == null else part for part in parts]

    rows = count_rows((text, separator, spelled))
    if rows > 1:
        letters = pc.sum(pc.utf8_length(broadcast(text, rows))).as_py() or 0
        check_python_values(letters, rows)
    if is_constant(separator) and is_constant(spelled):
        return map_distinct(
            kind, lambda value: split(value, separator.as_py(), spelled.as_py()), text
        )
    return map_rows(kind, split, text, separator, spelled, nulls=(1, 2))
