"""Strings: case, length, trimming, padding, joining, single characters."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from glaive.arrow.letters import alphanumeric_class, words_of
from glaive.errors import FilterError
from glaive.expr.functions.coercion import (
    BINARY,
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
from glaive.expr.functions.values import (
    check_growth,
    check_joined,
    check_size,
    compute_strings,
    patch,
    whole_end,
    whole_letters,
)
from glaive.expr.rows import broadcast, count_rows, is_constant
from glaive.expr.sizes import (
    MAX_BATCH_BYTES,
    MAX_VALUE_BYTES,
    bytes_of,
    check_bytes,
    check_list_items,
    scalar_bytes,
)

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


@function("concat_ws", takes=signature(LOOSE_TEXT, LOOSE_TEXT, result=widest_string, repeated=True))
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


# --- Substrings: extract, search, replace, split. Positions count characters from 1 -----

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


# --- Regular expressions: test, extract, count, locate and replace matches --------------

_FOUR_TEXTS = (LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT, LOOSE_TEXT)
_PLACES = (LOOSE_TEXT, LOOSE_TEXT, INTEGER, INTEGER, LOOSE_TEXT, INTEGER)


def _list_of_matches(counted: Any) -> Any:
    return pa.list_(pa.field("item", widest_string(counted)))


def _check_groups(text: Any, pattern: Any, *_: Any) -> None:
    """Check the size of what all groups of a pattern match, which may contain each other."""
    rows = count_rows((text, pattern))
    groups = pc.max(pc.count_substring(broadcast(pattern, rows), "(")).as_py() or 0
    size = bytes_of(text, rows) * (groups + 1)
    check_bytes("regexp_match", size, rows, text.type)
    check_growth("regexp_match", rows, bytes_of(text, rows), size)


def _check_replaced(text: Any, pattern: Any, other: Any, flags: Any = None) -> None:
    """Check the size of texts whose matches are replaced.

    Matches do not overlap: all values of a group together are at most as long as the text.
    """
    rows = count_rows((text, pattern, other))
    before, letters = bytes_of(text, rows), broadcast(other, rows)
    references = pc.max(pc.count_substring_regex(letters, r"[$\\]")).as_py() or 0
    longest = pc.max(pc.binary_length(letters)).as_py() or 0
    matches = rows if flags is None else before + rows
    if flags is not None and matches * longest > MAX_BATCH_BYTES:
        counts = compute("regexp_count", broadcast(text, rows), pattern)
        matches = int(pc.sum(counts).as_py() or 0)
    size = before * (1 + references) + matches * longest
    check_bytes("regexp_replace", size, rows, text.type)
    check_growth("regexp_replace", rows, before, size)


@function("regexp_like", takes=signature(TEXT, TEXT, TEXT, result=pa.bool_(), optional=1))
def _like(text: Any, pattern: Any, *flags: Any) -> Any:
    given = [flag for flag in flags if not is_constant(flag) or flag.as_py() != ""]
    return compute("regexp_like", text, pattern, *given)


library(
    "regexp_match",
    takes=signature(*_FOUR_TEXTS[1:], result=_list_of_matches, optional=1),
    check=_check_groups,
)
library(
    "regexp_replace",
    takes=signature(*_FOUR_TEXTS, result=widest_string, optional=1),
    check=_check_replaced,
)
library("regexp_count", takes=signature(*_PLACES[:3], LOOSE_TEXT, result=pa.int64(), optional=2))
library("regexp_instr", takes=signature(*_PLACES, result=pa.int64(), optional=4))


# --- Digests of strings and bytes -------------------------------------------------------

library("md5", takes=signature(BINARY, result=pa.string_view()))
for _name in ("sha224", "sha256", "sha384", "sha512"):
    library(_name, takes=signature(BINARY, result=pa.binary()))
library("digest", takes=signature(BINARY, TEXT, result=pa.binary()))
