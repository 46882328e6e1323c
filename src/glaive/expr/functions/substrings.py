"""Substrings: extract, search, replace, split. Positions count characters from 1."""

from __future__ import annotations

from functools import partial
from typing import Any

from glaive.arrow.letters import alphanumeric_class, words_of
from glaive.errors import FilterError
from glaive.expr.functions.coercion import (
    INTEGER,
    LOOSE_TEXT,
    TEXT,
    length_type,
    like_first,
    signature,
)
from glaive.expr.functions.library import compute, library
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import (
    check_growth,
    compute_strings,
    whole_end,
)
from glaive.expr.rows import broadcast, count_rows, is_constant
from glaive.expr.sizes import (
    MAX_BATCH_BYTES,
    bytes_of,
    check_bytes,
    check_list_items,
    scalar_bytes,
)

__all__: list[str] = []

_FAR = 2**31 - 1
"""A position beyond the end of every string."""

_LONG = 256
"""Bytes of a pattern that Arrow compares with a text at each place."""

_MOST_WORDS = 1_000
"""Different words that `contains_tokens` looks for: each text is passed over once for each."""


def _is_short(pattern: Any) -> bool:
    """Whether a pattern is a constant that Arrow may look for."""
    return is_constant(pattern) and 0 < scalar_bytes(pattern) < _LONG


_COUNTED = signature(LOOSE_TEXT, INTEGER, result=pa.string_view())


@function("left", takes=_COUNTED)
def _left(text: Any, count: Any) -> Any:
    if is_constant(count) and count.is_valid and 0 <= count.as_py() <= _FAR:
        return pc.utf8_slice_codeunits(whole_end(text), 0, count.as_py())
    return compute("left", text, count)


library("right", takes=_COUNTED)


@function(
    "substr",
    "substring",
    takes=signature(TEXT, INTEGER, INTEGER, result=pa.string_view(), optional=1),
)
def _substr(text: Any, start: Any, count: Any = None) -> Any:
    whole = is_constant(start) and start.is_valid
    if not whole or not (count is None or (is_constant(count) and count.is_valid)):
        return compute("substr", text, start, *([] if count is None else [count]))
    if count is not None and count.as_py() < 0:
        raise FilterError(f"substr: the count must not be negative, found {count}")
    first = min(start.as_py(), _FAR) - 1
    last = None if count is None else max(first + min(count.as_py(), _FAR), 0)
    return pc.utf8_slice_codeunits(whole_end(text), max(first, 0), last)


library(
    "overlay",
    takes=signature(LOOSE_TEXT, LOOSE_TEXT, INTEGER, INTEGER, result=pa.string(), optional=1),
)


_SEARCH = signature(TEXT, TEXT, result=pa.bool_())


def _search(match: Any, name: str, text: Any, pattern: Any) -> Any:
    if not is_constant(pattern):
        return compute(name, text, pattern)
    if not pattern.is_valid:
        return pa.nulls(count_rows((text,)), pa.bool_())
    return match(text, pattern.as_py())


function("contains", takes=_SEARCH)(partial(_search, pc.match_substring, "contains"))
function("starts_with", takes=_SEARCH)(partial(_search, pc.starts_with, "starts_with"))
function("ends_with", takes=_SEARCH)(partial(_search, pc.ends_with, "ends_with"))


library("strpos instr position", takes=signature(TEXT, TEXT, result=length_type))
library("find_in_set", takes=signature(LOOSE_TEXT, LOOSE_TEXT, result=pa.int32()))


@function("contains_tokens", takes=signature(LOOSE_TEXT, LOOSE_TEXT, result=pa.bool_()))
def _contains_tokens(text: Any, tokens: Any) -> Any:
    if not is_constant(tokens):
        raise FilterError("contains_tokens: the words must be a constant, not a column")
    passing = pc.if_else(pc.is_valid(text), True, pa.scalar(None, pa.bool_()))
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
    letters = pc.add(pc.utf8_length(broadcast(text, rows)).cast(pa.int64()), 1)
    added = pc.sum(pc.multiply(letters, pc.binary_length(broadcast(other, rows)))).as_py() or 0
    before = bytes_of(text, rows)
    if rows == 1 and before + added > MAX_BATCH_BYTES:
        one, searched, laid = (broadcast(given, 1)[0].as_py() for given in (text, pattern, other))
        added = one.count(searched) * len(laid.encode())
    check_bytes("replace", before + added, rows, text.type)
    check_growth("replace", rows, before, before + added)
    return compute("replace", text, pattern, other)


library("split_part", takes=signature(TEXT, TEXT, INTEGER, result=like_first))


def _cut_type(counted: Any) -> Any:
    exact = counted == [pa.string(), pa.string(), pa.int64()]
    return pa.string() if exact else pa.string_view()


library(
    "substr_index substring_index",
    takes=signature(LOOSE_TEXT, LOOSE_TEXT, INTEGER, result=_cut_type),
)


def _list_of_text(counted: Any) -> Any:
    return pa.list_(pa.field("item", counted[0]))


def _check_parts(text: Any, separator: Any, *_: Any) -> None:
    rows = count_rows((text, separator))
    check_list_items(bytes_of(text, rows) + rows, rows)


library(
    "string_to_array string_to_list",
    takes=signature(TEXT, TEXT, TEXT, result=_list_of_text, optional=1),
    check=_check_parts,
)
