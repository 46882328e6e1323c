"""Strings: case, length, trimming, joining, substrings.

``upper`` and ``lower`` compute texts with special letters row by row.
:mod:`glaive.expr.functions.library` has the other functions.
"""

from __future__ import annotations

from collections.abc import Callable
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
    widest_string,
)
from glaive.expr.functions.library import compute
from glaive.expr.functions.registry import function
from glaive.expr.rows import (
    broadcast,
    bytes_of,
    check_bytes,
    count_rows,
    is_constant,
    map_rows,
    pa,
    pc,
    scalar_bytes,
)

_LONGER_UPPER = "[ßŉǰΐΰև\u1e96-\u1e9a\u1f50-\u1ffc\ufb00-\ufb17]"
_OTHER_LOWER = "[İΣ]"

_TEXT_TO_TEXT = signature(TEXT, result=like_first)


def patch(result: Any, rows: Any, compute: Callable[[str], Any], text: Any) -> Any:
    """Compute some rows again with a Python function.

    Parameters
    ----------
    result
        Values for all rows.
    rows
        A boolean array: the rows to replace.
    """
    rows = pc.fill_null(rows, False)
    if not rows.true_count:
        return result
    right = map_rows(result.type, compute, text.filter(rows))
    return pc.replace_with_mask(result, rows, right)


def whole_letters(text: Any) -> Any:
    """The texts, if they are UTF-8: else Arrow takes the rest of a letter from the bytes behind.

    Behind the last text is other memory of this process. For functions that change letters.

    Raises
    ------
    pyarrow.ArrowInvalid
        They are not.
    """
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid("Invalid UTF8 sequence in input") from None
    return text


def _cased(change: Any, letters: str, by_row: Any, text: Any) -> Any:
    return patch(change(whole_letters(text)), pc.match_substring_regex(text, letters), by_row, text)


function("upper", takes=_TEXT_TO_TEXT)(partial(_cased, pc.utf8_upper, _LONGER_UPPER, str.upper))
function("lower", takes=_TEXT_TO_TEXT)(partial(_cased, pc.utf8_lower, _OTHER_LOWER, str.lower))


function("reverse", takes=signature(LOOSE_TEXT, result=like_first))(pc.utf8_reverse)
function(
    "character_length", "char_length", "length", takes=signature(LOOSE_TEXT, result=length_type)
)(pc.utf8_length)
function("octet_length", takes=signature(TEXT, result=length_type))(pc.binary_length)


@function("bit_length", takes=signature(TEXT, result=length_type))
def _bit_length(text: Any) -> Any:
    return pc.multiply(pc.binary_length(text), 8)


_TRIMMED = signature(TEXT, TEXT, result=like_first, optional=1)


def _trimmed(trim: Any, name: str, text: Any, letters: Any = None) -> Any:
    if letters is None:
        return trim(whole_letters(text), " ")
    if not is_constant(letters):
        return compute(name, text, letters)
    if not letters.is_valid:
        return pa.nulls(count_rows((text,)), text.type)
    return trim(whole_letters(text), letters.as_py()) if letters.as_py() else text


function("btrim", "trim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_trim, "btrim"))
function("ltrim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_ltrim, "ltrim"))
function("rtrim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_rtrim, "rtrim"))


@function("concat", takes=signature(LOOSE_TEXT, result=widest_string, repeated=True))
def _concat(*strings: Any) -> Any:
    large = any(text.type == pa.large_string() for text in strings)
    kind, rows = pa.large_string() if large else pa.string(), count_rows(strings)
    check_bytes("concat", sum(bytes_of(text, rows) for text in strings), rows, kind)
    columns = [pc.fill_null(broadcast(text, rows).cast(kind), "") for text in strings]
    return pc.binary_join_element_wise(*columns, pa.scalar("", kind))


# --- Substrings: extract, search, replace. Positions count characters from 1 -----

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
        return pc.utf8_slice_codeunits(whole_letters(text), 0, count.as_py())
    return compute("left", text, count)


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
    return pc.utf8_slice_codeunits(whole_letters(text), max(first, 0), last)


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
    if not (_is_short(pattern) and is_constant(other) and other.is_valid):
        return compute("replace", text, pattern, other)
    found = int(pc.sum(pc.count_substring(text, pattern.as_py())).as_py() or 0)
    size = bytes_of(text, len(text)) + scalar_bytes(other) * found
    check_bytes("replace", size, len(text), text.type)
    return pc.replace_substring(text, pattern=pattern.as_py(), replacement=other.as_py())


@function("regexp_like", takes=signature(TEXT, TEXT, TEXT, result=pa.bool_(), optional=1))
def _like(text: Any, pattern: Any, *flags: Any) -> Any:
    given = [flag for flag in flags if not is_constant(flag) or flag.as_py() != ""]
    return compute("regexp_like", text, pattern, *given)
