"""Strings, numbers, dates and times.

``upper`` and ``lower`` compute strings with special letters row by row. Arrow's number functions
call the C library, as Lance does. Timestamps with a time zone are evaluated in that zone.
:mod:`glaive.expr.functions.library` has the other functions.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

import numpy as np

from glaive.arrow.blocks import known_true
from glaive.arrow.conditions import filled, scalar
from glaive.arrow.letters import alphanumeric_class, words_of
from glaive.errors import FilterError
from glaive.expr.coerce import PER_SECOND
from glaive.expr.functions.coercion import (
    FLOAT,
    INTEGER,
    LOOSE_TEXT,
    NUMBER,
    TEXT,
    check_count,
    length_type,
    like_first,
    signature,
    widest_string,
)
from glaive.expr.functions.library import compute, engine_types
from glaive.expr.functions.registry import Call, Types, function
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


def whole_letters(text: Any) -> Any:
    """Check that strings are UTF-8, for functions that change letters; return them.

    Arrow would complete a truncated letter with the bytes after it. After the last string, these
    are other memory of this process.

    Raises
    ------
    pyarrow.ArrowInvalid
        A string is invalid UTF-8.
    """
    text.validate(full=True)
    return text


def _cased(change: Any, letters: str, by_row: Callable[[str], str], text: Any) -> Any:
    """Change the case of strings; letters that Arrow converts differently go row by row."""
    changed = change(whole_letters(text))
    others = text.filter(pc.invert(pc.string_is_ascii(text)))  # the expression is slow
    if not pc.match_substring_regex(others, letters).true_count:
        return changed
    rows = known_true(pc.match_substring_regex(text, letters))
    return pc.replace_with_mask(changed, rows, map_rows(text.type, by_row, text.filter(rows)))


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
    columns = [filled(broadcast(text, rows).cast(kind), "") for text in strings]
    return pc.binary_join_element_wise(*columns, scalar("", kind))


# --- Substrings: extract, search, replace. Positions count characters from 1 -----

_MAX_POSITION = 2**31 - 1
"""A position beyond the end of every string."""

_MAX_PATTERN_BYTES = 256
"""Maximum bytes of a pattern that Arrow may compare at each position of a string."""

_MAX_WORDS = 1_000
"""Maximum distinct words of ``contains_tokens``: each word takes a pass over all strings."""


def _is_short(pattern: Any) -> bool:
    """Return whether a pattern is a constant that is short enough for Arrow."""
    return is_constant(pattern) and 0 < scalar_bytes(pattern) < _MAX_PATTERN_BYTES


_COUNTED = signature(LOOSE_TEXT, INTEGER, result=pa.string_view())


@function("left", takes=_COUNTED)
def _left(text: Any, count: Any) -> Any:
    if is_constant(count) and count.is_valid and 0 <= count.as_py() <= _MAX_POSITION:
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
    first = min(start.as_py(), _MAX_POSITION) - 1
    last = None if count is None else max(first + min(count.as_py(), _MAX_POSITION), 0)
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
    if len(words) > _MAX_WORDS:
        raise FilterError(
            f"contains_tokens: {len(words)} different words, at most {_MAX_WORDS} are supported"
        )
    other = f"[^{alphanumeric_class()}]"
    for word in words:
        # Words consist of letters and digits, so they are used unescaped.
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


# --- Numbers: rounding, powers and logarithms, trigonometry -----------------------------
# Arrow's functions call the C library, as Lance does, and therefore agree to the last bit.
# :mod:`glaive.expr.functions.library` has the other functions.

is_kind = pa.types

_FLOATS = signature(FLOAT, result=like_first)

_ARROW: Final = "acos acosh asin asinh atan cos cosh exp ln log10 log2 sin sinh sqrt tan tanh"
for _name in _ARROW.split():
    function(_name, takes=_FLOATS)(getattr(pc, _name))
function("isnan", takes=signature(FLOAT, result=pa.bool_()))(pc.is_nan)


@function("abs", takes=signature(NUMBER, result=like_first))
def _abs(value: Any) -> Any:
    if is_kind.is_float16(value.type):
        return compute("abs", value)
    try:
        return pc.abs_checked(value)
    except pa.ArrowInvalid:
        raise FilterError(f"abs: the smallest {value.type} has no absolute value") from None


def _float_or_decimal(call: Call) -> Types:
    check_count(call, 1, 1)
    if is_kind.is_decimal(call.types[0]):
        return (call.types[0],), call.types[0]
    return _FLOATS(call)


function("ceil", takes=_float_or_decimal)(pc.ceil)
function("floor", takes=_float_or_decimal)(pc.floor)


def _round_types(call: Call) -> Types:
    check_count(call, 1, 2)
    if len(call.types) == 2 or is_kind.is_decimal(call.types[0]):
        return engine_types(call)
    return _FLOATS(call)


@function("round", takes=_round_types)
def _round(value: Any, *digits: Any) -> Any:
    if digits or is_kind.is_decimal(value.type):
        return compute("round", value, *digits)
    return pc.round(value, round_mode="half_towards_infinity")


def _power_types(call: Call) -> Types:
    check_count(call, 2, 2)
    if is_kind.is_decimal(call.types[0]):
        return engine_types(call)
    signature(NUMBER, NUMBER, result=pa.float64())(call)
    return (pa.float64(), pa.float64()), pa.float64()


@function("power", "pow", takes=_power_types)
def _power(base: Any, exponent: Any) -> Any:
    if is_kind.is_decimal(base.type):
        return compute("power", base, exponent)
    undefined = pc.any(pc.and_(pc.equal(base, 0.0), pc.less(exponent, 0.0)), min_count=0)
    if undefined.as_py():
        raise FilterError("power: zero cannot have a negative exponent")
    return pc.power(base, exponent)


@function("pi", takes=signature(result=pa.float64()))
def _pi() -> Any:
    return pa.scalar(math.pi)


@function("random", "rand", takes=signature(result=pa.float64()), volatile=True)
def _random(rows: int) -> Any:
    return pa.array(np.random.default_rng().random(rows))


@function("uuid", takes=signature(result=pa.string()), volatile=True)
def _uuid(rows: int) -> Any:
    drawn = np.random.default_rng().bytes(16 * rows)
    starts = range(0, 16 * rows, 16)
    return pa.array([str(UUID(bytes=drawn[at : at + 16], version=4)) for at in starts], pa.string())


# --- Dates and times: their parts, truncation; the current time -------------------------
# Timestamps with a time zone are evaluated in that zone. Arrow computes what it can in one call;
# :mod:`glaive.expr.functions.library` computes the rest.

"""Ticks per second of each Arrow unit."""

_NEAR_DAYS: Final = 10_000_000
"""Days before and after 1970 that Arrow's calendar supports: its years have 16 bits."""


def _is_far(moment: Any) -> bool:
    """Return whether a date (``date32``) or timestamp is in a year that Arrow lacks."""
    is_date = is_kind.is_date32(moment.type)
    limit = _NEAR_DAYS * (1 if is_date else 86_400 * PER_SECOND[moment.type.unit])
    ends = pc.min_max(moment.cast(pa.int32() if is_date else pa.int64())).as_py()
    return ends["min"] is not None and (ends["min"] < -limit or ends["max"] > limit)


_DATE_PARTS: Final[dict[str, Callable[[Any], Any]]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "dow": partial(pc.day_of_week, count_from_zero=True, week_start=7),
    "isodow": partial(pc.day_of_week, count_from_zero=False, week_start=1),
    "doy": pc.day_of_year,
    "isoyear": pc.iso_year,
}
_PARTS: Final = {**_DATE_PARTS, "hour": pc.hour, "minute": pc.minute, "second": pc.second}
"""Functions of parts of timestamps, by name."""


def _word(call: Call) -> str:
    """Return the first argument in lower case if it is a constant string; otherwise empty."""
    given = call.literals[0].as_py() if call.literals and call.literals[0] is not None else None
    return given.lower() if isinstance(given, str) else ""


def _part_types(call: Call) -> Types:
    kind = call.types[1] if len(call.types) == 2 else None
    known = {}
    if kind is not None and is_kind.is_timestamp(kind):
        known = _PARTS
    elif kind is not None and is_kind.is_date32(kind):
        known = _DATE_PARTS
    return ((pa.string(), kind), pa.int32()) if _word(call) in known else engine_types(call)


@function("date_part", "datepart", takes=_part_types, column=1)
def _date_part(part: Any, moment: Any) -> Any:
    extract, kind = _PARTS.get(str(part).lower()), moment.type
    is_date = is_kind.is_date32(kind) and str(part).lower() in _DATE_PARTS
    if extract is None or not (is_date or is_kind.is_timestamp(kind)):
        return compute("date_part", part, moment)
    if not is_date and kind.tz:
        moment = pc.local_timestamp(moment)  # keeps seconds of zones before standard time
    return compute("date_part", part, moment) if _is_far(moment) else extract(moment)


_UNITS: Final = (
    "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter",
    "year",
)  # fmt: skip


def _trunc_types(call: Call) -> Types:
    kind = call.types[1] if len(call.types) == 2 else None
    if kind is not None and (is_kind.is_date(kind) or is_kind.is_null(kind)):
        kind = pa.timestamp("ns")
    if kind is None or not is_kind.is_timestamp(kind) or _word(call) not in _UNITS:
        return engine_types(call)
    return (pa.string(), kind), kind


@function("date_trunc", "datetrunc", takes=_trunc_types, column=1)
def _date_trunc(unit: Any, moment: Any) -> Any:
    name, kind = str(unit).lower(), moment.type
    if not is_kind.is_timestamp(kind) or kind.tz or name not in _UNITS or _is_far(moment):
        return compute("date_trunc", unit, moment)
    floored = pc.floor_temporal(moment, unit=name)
    if pc.any(pc.greater(floored, moment)).as_py():
        raise FilterError(f"date_trunc: a value of {kind} is in a {name} that begins out of range")
    return floored


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


@function("now", "current_timestamp", takes=signature(result=pa.timestamp("ns")))
def _current_timestamp() -> Any:
    return pa.scalar(_now(), pa.timestamp("ns"))


@function("current_date", "today", takes=signature(result=pa.date32()))
def _current_date() -> Any:
    return pa.scalar(_now().date(), pa.date32())


@function("current_time", takes=signature(result=pa.time64("ns")))
def _current_time() -> Any:
    return pa.scalar(_now().time(), pa.time64("ns"))
