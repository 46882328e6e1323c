"""Strings: case, length, trimming, padding, joining, single characters."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

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
from glaive.expr.functions.library import compute, library
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_joined, check_size, patch, whole_end, whole_letters
from glaive.expr.rows import broadcast, count_rows, is_constant
from glaive.expr.sizes import MAX_VALUE_BYTES, bytes_of

__all__: list[str] = []

_LONGER_UPPER = "[ßŉǰΐΰև\u1e96-\u1e9a\u1f50-\u1ffc\ufb00-\ufb17]"
_OTHER_LOWER = "[İΣ]"

_MOST_PAIRS: Final = 2**32
"""Pairs of characters that `levenshtein` compares for one row: a few seconds."""

_TEXT_TO_TEXT = signature(TEXT, result=like_first)


def _cased(change: Any, letters: str, by_row: Any, text: Any) -> Any:
    return patch(change(whole_letters(text)), pc.match_substring_regex(text, letters), by_row, text)


function("upper", takes=_TEXT_TO_TEXT)(partial(_cased, pc.utf8_upper, _LONGER_UPPER, str.upper))
function("lower", takes=_TEXT_TO_TEXT)(partial(_cased, pc.utf8_lower, _OTHER_LOWER, str.lower))


library("initcap", takes=_TEXT_TO_TEXT)
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
        return trim(whole_end(text), " ")
    if not is_constant(letters):
        return compute(name, text, letters)
    if not letters.is_valid:
        return pa.nulls(count_rows((text,)), text.type)
    return trim(whole_end(text), letters.as_py()) if letters.as_py() else text


function("btrim", "trim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_trim, "btrim"))
function("ltrim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_ltrim, "ltrim"))
function("rtrim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_rtrim, "rtrim"))


def _padded_type(counted: Any) -> Any:
    exact = pa.types.is_large_string(counted[0]) and counted[1] == pa.int64()
    return pa.large_string() if exact else pa.string()


_PADDED = signature(LOOSE_TEXT, INTEGER, LOOSE_TEXT, result=_padded_type, optional=1)


def _padded(name: str, pad: Any, text: Any, size: Any, filling: Any = None) -> Any:
    filling = pa.scalar(" ") if filling is None else filling
    rows = count_rows((text, size, filling))
    sizes = pc.max_element_wise(broadcast(size, rows), pa.scalar(0, pa.int64()), skip_nulls=False)
    most = pc.max(sizes).as_py() or 0
    if most > MAX_VALUE_BYTES:
        raise FilterError(f"{name} to {most} characters: at most {MAX_VALUE_BYTES} are supported")
    filled = pc.binary_length(broadcast(filling, rows))
    check_size(name, pc.if_else(pc.greater(filled, 0), sizes, 0))
    if (
        is_constant(size)
        and is_constant(filling)
        and size.is_valid
        and len(filling.as_py() or "") == 1
    ):
        padded_texts = pad(whole_end(text), most, filling.as_py())
        return pc.utf8_slice_codeunits(padded_texts, 0, most)
    return compute(name, text, size, filling)


function("lpad", takes=_PADDED)(partial(_padded, "lpad", pc.utf8_lpad))
function("rpad", takes=_PADDED)(partial(_padded, "rpad", pc.utf8_rpad))


@function("repeat", takes=signature(TEXT, INTEGER, result=like_first))
def _repeat(text: Any, times: Any) -> Any:
    rows = count_rows((text, times))
    text, times = broadcast(text, rows), broadcast(times, rows)
    times = pc.max_element_wise(times, pa.scalar(0, pa.int64()), skip_nulls=False)
    sizes = pc.cast(pc.binary_length(text), pa.float64())
    check_size("repeat", pc.multiply(sizes, pc.cast(times, pa.float64(), safe=False)))
    empty = pc.and_(pc.equal(pc.binary_length(text), 0), pc.is_valid(times))
    return pc.binary_repeat(text, pc.if_else(empty, pa.scalar(0, pa.int64()), times))


@function("concat", takes=signature(LOOSE_TEXT, result=widest_string, repeated=True))
def _concat(*strings: Any) -> Any:
    return _joined(strings, pa.scalar(""), "replace")


@function(
    "concat_ws",
    takes=signature(LOOSE_TEXT, LOOSE_TEXT, result=widest_string, repeated=True),
)
def _concat_ws(separator: Any, *strings: Any) -> Any:
    return _joined(strings, separator, "skip")


def _joined(strings: Any, separator: Any, nulls: str) -> Any:
    kind = pa.string()
    if any(text.type == pa.large_string() for text in (*strings, separator)):
        kind = pa.large_string()
    rows = count_rows((*strings, separator))
    given = (*strings, separator)
    # There is a separator between any two strings.
    size = sum(bytes_of(text, rows) for text in strings)
    size += bytes_of(separator, rows) * max(len(strings) - 1, 0)
    name = "concat" if nulls == "replace" else "concat_ws"
    check_joined(name, rows, given, size, kind)
    columns = [broadcast(text, rows).cast(kind) for text in given]
    # Arrow returns null for rows with only nulls.
    nothing = pc.is_null(pc.coalesce(*columns[:-1]))
    columns[0] = pc.if_else(nothing, pa.scalar("", kind), columns[0])
    return pc.binary_join_element_wise(*columns, null_handling=nulls, null_replacement="")


library("ascii", takes=signature(TEXT, result=pa.int32()))
library("chr", takes=signature(INTEGER, result=pa.string()))
library("to_hex", takes=signature(INTEGER, result=pa.string()))


def _translated_type(counted: Any) -> Any:
    exact = counted[1] == counted[2] == pa.string()
    return counted[0] if exact else pa.string_view()


library("translate", takes=signature(LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT, result=_translated_type))


def _distance_type(counted: Any) -> Any:
    wide = pa.large_string() in counted and pa.string_view() not in counted
    return pa.int64() if wide else pa.int32()


def _check_pairs(left: Any, right: Any) -> None:
    longest = [pc.max(pc.utf8_length(broadcast(text, 1))).as_py() or 0 for text in (left, right)]
    if longest[0] * longest[1] > _MOST_PAIRS:
        raise FilterError(
            f"levenshtein: texts of {longest[0]} and {longest[1]} characters; the product of the "
            f"lengths may be {_MOST_PAIRS} at most"
        )


library("levenshtein", takes=signature(TEXT, TEXT, result=_distance_type), check=_check_pairs)
