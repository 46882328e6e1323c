"""Strings: case, length, trimming, padding, joining, single characters.

Row by row: strings with letters whose other case is longer or depends on neighbours,
``initcap``, ``ascii``, ``chr``, ``to_hex``, ``translate``, ``levenshtein``, and calls whose second
argument is a column; some of them only for distinct values.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from glaive.arrow.letters import is_alphanumeric
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
from glaive.expr.functions.registry import function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_joined, check_size, patch, whole_end, whole_letters
from glaive.expr.rows import broadcast, count_rows, is_constant, map_distinct, map_rows
from glaive.expr.sizes import MAX_VALUE_BYTES, bytes_of

__all__: list[str] = []

_LONGER_UPPER = "[ßŉǰΐΰև\u1e96-\u1e9a\u1f50-\u1ffc\ufb00-\ufb17]"
_OTHER_LOWER = "[İΣ]"

_MOST_PAIRS: Final = 2**26
"""Pairs of characters that `levenshtein` compares for one row: half a second."""

_BLOCK: Final = 2**16
"""Characters that `initcap` changes, and that `levenshtein` compares with each other, at a time."""

_MOST_LETTERS: Final = 100_000
"""Characters that `translate` replaces: each row may have others."""

_TEXT_TO_TEXT = signature(TEXT, result=like_first)


def _cased(change: Any, letters: str, by_row: Any, text: Any) -> Any:
    return patch(change(whole_letters(text)), pc.match_substring_regex(text, letters), by_row, text)


function("upper", takes=_TEXT_TO_TEXT)(partial(_cased, pc.utf8_upper, _LONGER_UPPER, str.upper))
function("lower", takes=_TEXT_TO_TEXT)(partial(_cased, pc.utf8_lower, _OTHER_LOWER, str.lower))


@function("initcap", takes=_TEXT_TO_TEXT)
def _initcap(text: Any) -> Any:
    return map_distinct(text.type, _capitals, text)


def _capitals(text: str) -> str:
    # Words consist of letters and digits; letters are converted one by one, without context.
    parts, inside = [], False
    for start in range(0, len(text), _BLOCK):
        letters = []
        for letter in text[start : start + _BLOCK]:
            letters.append(letter.lower() if inside else letter.upper())
            inside = is_alphanumeric(letter)
        parts.append("".join(letters))
    return "".join(parts)


function("reverse", takes=signature(LOOSE_TEXT, result=like_first))(pc.utf8_reverse)
function(
    "character_length", "char_length", "length", takes=signature(LOOSE_TEXT, result=length_type)
)(pc.utf8_length)
function("octet_length", takes=signature(TEXT, result=length_type))(pc.binary_length)


@function("bit_length", takes=signature(TEXT, result=length_type))
def _bit_length(text: Any) -> Any:
    return pc.multiply(pc.binary_length(text), 8)


_TRIMMED = signature(TEXT, TEXT, result=like_first, optional=1)


def _trimmed(trim: Any, strip: Any, text: Any, letters: Any = None) -> Any:
    if letters is None:
        return trim(whole_end(text), " ")
    if not is_constant(letters):
        return map_rows(text.type, strip, text, letters)
    if not letters.is_valid:
        return pa.nulls(count_rows((text,)), text.type)
    return trim(whole_end(text), letters.as_py()) if letters.as_py() else text


function("btrim", "trim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_trim, str.strip))
function("ltrim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_ltrim, str.lstrip))
function("rtrim", takes=_TRIMMED)(partial(_trimmed, pc.utf8_rtrim, str.rstrip))


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
    at_start = name == "lpad"

    def padded(text: str, size: int, filling: str) -> str:
        missing = size - len(text)
        if missing <= 0 or not filling:
            return text[: max(size, 0)]
        added = (filling * (missing // len(filling) + 1))[:missing]
        return added + text if at_start else text + added

    return map_rows(text.type, padded, text, size, filling)


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


@function("ascii", takes=signature(TEXT, result=pa.int32()))
def _ascii(text: Any) -> Any:
    first = pc.utf8_slice_codeunits(whole_end(text), 0, 1)
    return map_distinct(pa.int32(), lambda letter: ord(letter) if letter else 0, first)


@function("chr", takes=signature(INTEGER, result=pa.string()))
def _chr(code: Any) -> Any:
    def letter(code: int) -> str:
        if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:
            raise FilterError(f"chr: {code} is not the code of a character")
        return chr(code)

    return map_distinct(pa.string(), letter, code)


@function("to_hex", takes=signature(INTEGER, result=pa.string()))
def _to_hex(number: Any) -> Any:
    return map_rows(pa.string(), lambda number: f"{number % 2**64:x}", number)


def _translated_type(counted: Any) -> Any:
    exact = counted[1] == counted[2] == pa.string()
    return counted[0] if exact else pa.string_view()


@function("translate", takes=signature(LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT, result=_translated_type))
def _translate(text: Any, letters: Any, others: Any) -> Any:
    return map_rows(
        text.type,
        lambda text, letters, others: text.translate(_replacements(letters, others)),
        text,
        letters,
        others,
    )


@lru_cache(maxsize=16)
def _replacements(letters: str, others: str) -> dict[int, str | None]:
    """What each character becomes; None if nothing. Kept, as rows may come in many parts."""
    if len(letters) > _MOST_LETTERS:
        raise FilterError(
            f"translate: {len(letters)} characters to replace, at most {_MOST_LETTERS} fit"
        )
    table: dict[int, str | None] = {}
    for number, letter in enumerate(letters):
        table.setdefault(ord(letter), others[number] if number < len(others) else None)
    return table


def _distance_type(counted: Any) -> Any:
    wide = pa.large_string() in counted and pa.string_view() not in counted
    return pa.int64() if wide else pa.int32()


@function("levenshtein", takes=signature(TEXT, TEXT, result=_distance_type))
def _levenshtein(left: Any, right: Any) -> Any:
    kind = pa.int64() if left.type == pa.large_string() else pa.int32()
    return map_rows(kind, _distance, left, right)


def _distance(left: str, right: str) -> int:
    """Edit distance, in time proportional to the product of the lengths."""
    if len(left) * len(right) > _MOST_PAIRS:
        raise FilterError(
            f"levenshtein: texts of {len(left)} and {len(right)} characters; the product of the "
            f"lengths may be {_MOST_PAIRS} at most"
        )
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    # Distances of each beginning of the shorter text from the blocks of the longer one so far.
    edge = list(range(len(shorter) + 1))
    for start in range(0, len(longer), _BLOCK):
        letters = np.frombuffer(longer[start : start + _BLOCK].encode("utf-32-le"), np.uint32)
        steps = np.arange(len(letters) + 1)
        row = edge[0] + steps
        ends = [row[-1]]
        for number, letter in enumerate(shorter, 1):
            other = np.empty_like(row)
            other[0] = edge[number]
            other[1:] = np.minimum(row[:-1] + (letters != ord(letter)), row[1:] + 1)
            # Insertions: a value propagates to the right, plus one per step.
            row = np.minimum.accumulate(other - steps) + steps
            ends.append(row[-1])
        edge = ends
    return int(edge[-1])
