"""Casts to and from points in time: numbers, strings, other units; strings with a format.

Arrow parses ISO 8601 strings of all rows at once. With a format they are parsed row by row,
each distinct value once, and ``to_char`` formats in the same way.
"""

from __future__ import annotations

import datetime as dt
from functools import cache, partial
from typing import Any

import numpy as np

from glaive.arrow.python_values import python_values
from glaive.errors import FilterError
from glaive.expr.coerce import is_number
from glaive.expr.functions.coercion import INTEGER, LOOSE_TEXT, check_count, is_string, refuse
from glaive.expr.functions.dates import local_time
from glaive.expr.functions.far_years import TICKS, ticks_of
from glaive.expr.functions.registry import Call, Resolve, Types, function
from glaive.expr.functions.time_text import Moment, format_moment, parse_moment
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import broadcast, count_rows, is_constant, map_distinct, map_rows
from glaive.expr.write_text import value_texts

__all__: list[str] = []

is_kind = pa.types

_DECIMAL_DIGITS = 65
"""Of decimals that are multiplied by nanoseconds of a second; of more, floats are."""

_SHOWN_FORMATS = 4
"""Formats that an error shows: a call may have thousands."""

_DAY = r"\d{4}-\d{2}-\d{2}"
_CLOCK = r"\d{2}:\d{2}:\d{2}(\.\d+)?"
_ZONE = r"([zZ]| ?[+-]\d{2}(:?\d{2})?)"
_PLAIN_TEXT = rf"^{_DAY}([Tt ]{_CLOCK})?$"
_ZONED_TEXT = rf"^{_DAY}[Tt ]{_CLOCK}{_ZONE}$"


def _read_iso(name: str, text: Any) -> Any:
    """Nanoseconds since 1970 of ISO 8601 strings, as int64."""
    text = text.cast(pa.string())
    plain = pc.match_substring_regex(text, _PLAIN_TEXT)
    zoned = pc.match_substring_regex(text, _ZONED_TEXT)
    wrong = text.filter(pc.fill_null(pc.invert(pc.or_(plain, zoned)), False))
    if len(wrong):
        (shown,) = python_values(wrong.slice(0, 1))  # of strangers: it may be no UTF-8
        raise FilterError(
            f"{name}: {shown[:40]!r} is not a timestamp such as 2024-02-03T04:05:06Z; "
            "pass its format as second argument"
        )
    neat = pc.replace_substring_regex(text, r"(\.\d{9})\d+", r"\1")
    neat = pc.replace_substring_regex(neat, "^(.{10})[Tt]", r"\1 ")
    neat = pc.replace_substring_regex(
        pc.replace_substring_regex(neat, " ?[zZ]$", "Z"), " ([+-])", r"\1"
    )
    try:
        bare = pc.if_else(plain, neat, None).cast(pa.timestamp("ns"))
        other = pc.if_else(zoned, neat, None).cast(pa.timestamp("ns", "UTC"))
    except pa.ArrowInvalid as error:
        raise FilterError(f"{name}: {error}; nanoseconds range from 1677 to 2262") from None
    return pc.coalesce(bare.cast(pa.int64()), other.cast(pa.int64()))


def _read_formats(name: str, text: Any, formats: tuple[Any, ...]) -> Any:
    read = cache(partial(_read_one, name))
    return map_rows(pa.int64(), read, text, *formats, nulls=range(1, len(formats) + 1))


def _read_one(name: str, value: str, *formats: str | None) -> int | None:
    if all(pattern is None for pattern in formats):
        return None
    for pattern in formats:
        nanos = parse_moment(value, pattern) if pattern is not None else None
        if nanos is not None and not -(2**63) <= nanos < 2**63:
            raise FilterError(f"{name}: nanoseconds range from 1677 to 2262")
        if nanos is not None:
            return nanos
    first = ", ".join(f"{pattern!r:.100}" for pattern in formats[:_SHOWN_FORMATS])
    others = f" and {len(formats) - _SHOWN_FORMATS} others" * (len(formats) > _SHOWN_FORMATS)
    raise FilterError(f"{name}: {value[:40]!r} does not follow {first}{others}")


def _source_types(call: Call, *, days: bool) -> tuple[Any, ...]:
    check_count(call, 1)
    kind = call.types[0]
    if is_string(kind):
        return tuple(LOOSE_TEXT(call, number)[0] for number in range(len(call.types)))
    if len(call.types) > 1:
        raise refuse(call, 0, "text if a format is given")
    if is_kind.is_null(kind) or is_kind.is_integer(kind):
        return (pa.int64(),)
    if is_kind.is_timestamp(kind) or (days and is_kind.is_date(kind)):
        return (kind,)
    exact = is_kind.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS and kind.scale >= 0
    if exact and not days:
        return (kind,)
    if is_number(kind):
        return (pa.float64(),)
    raise refuse(call, 0, "text, a number or a timestamp")


def _scaled_down(ticks: Any, size: int) -> Any:
    """Divide, truncating towards zero."""
    return pc.divide(ticks, size) if size > 1 else ticks


def _saturated(value: Any) -> Any:
    """Floats as int64: out of range becomes the minimum or maximum, NaN becomes 0."""
    low, high = -(2.0**63), 2.0**63
    floats = np.nan_to_num(pc.fill_null(value, 0.0).to_numpy(zero_copy_only=False), posinf=2.0**63)
    inside = (floats > low) & (floats < high)
    integers, limits = np.where(inside, floats, 0.0).astype(np.int64), np.iinfo(np.int64)
    clipped = np.where(inside, integers, np.where(floats <= low, limits.min, limits.max))
    return pa.array(clipped, pa.int64(), mask=value.is_null().to_numpy(zero_copy_only=False))


def _ticks_of_decimals(value: Any, factor: int) -> Any:
    """Decimals times a factor as int64, truncated; products out of range as those of floats."""
    kind = value.type
    if factor == 1:
        return pc.trunc(value.cast(pa.decimal256(76, kind.scale))).cast(pa.int64())
    wide = value.cast(pa.decimal256(kind.precision, kind.scale))
    product: Any = pc.multiply(wide, pa.scalar(factor, pa.decimal256(10, 0)))
    product = pc.trunc(product).cast(pa.decimal256(76, 0))
    low, high = (pa.scalar(bound, product.type) for bound in (-(2**63), 2**63 - 1))
    above: Any = pc.max_element_wise(product, low, skip_nulls=False)
    return pc.min_element_wise(above, high, skip_nulls=False).cast(pa.int64())


def _to_unit(name: str, value: Any, formats: tuple[Any, ...], unit: str, factor: int) -> Any:
    """Ticks of a unit; numbers are multiplied by ``factor``."""
    kind = value.type
    if is_kind.is_string(kind) or is_kind.is_large_string(kind):
        nanos = _read_formats(name, value, formats) if formats else _read_iso(name, value)
        return _scaled_down(nanos, 10**9 // TICKS[unit])
    try:
        if is_kind.is_floating(kind):
            if factor == 1:
                return pc.trunc(value).cast(pa.int64())
            return _saturated(pc.multiply(value, float(factor)))
        if is_kind.is_decimal(kind):
            return _ticks_of_decimals(value, factor)
        if is_kind.is_timestamp(kind):
            ticks = value.cast(pa.int64())
            more = TICKS[unit] // TICKS[kind.unit]
            if more:
                return pc.multiply_checked(ticks, more)
            return _scaled_down(ticks, TICKS[kind.unit] // TICKS[unit])
        return pc.multiply_checked(value, factor)
    except pa.ArrowInvalid as error:
        raise FilterError(f"{name}: {error}") from None


def _to(kind: Any, *, days: bool = True) -> Resolve:
    """Build the rule of a function to this type."""
    return lambda call: (_source_types(call, days=days), kind)


def _define_timestamp(name: str, unit: str, factor: int = 1) -> None:
    @function(name, takes=_to(pa.timestamp(unit), days=False))
    def _to_timestamp(value: Any, *formats: Any) -> Any:
        return _to_unit(name, value, formats, unit, factor).cast(pa.timestamp(unit))


_define_timestamp("to_timestamp", "ns", 10**9)
_define_timestamp("to_timestamp_seconds", "s")
_define_timestamp("to_timestamp_millis", "ms")
_define_timestamp("to_timestamp_micros", "us")
_define_timestamp("to_timestamp_nanos", "ns")


@function("to_unixtime", takes=_to(pa.int64()))
def _to_unixtime(value: Any, *formats: Any) -> Any:
    if is_kind.is_date(value.type):
        value = value.cast(pa.timestamp("s"))
    return _to_unit("to_unixtime", value, formats, "s", 1)


def _from_types(call: Call) -> Types:
    check_count(call, 1, 2)
    INTEGER(call, 0)
    if len(call.types) == 1:
        return (pa.int64(),), pa.timestamp("s")
    given = call.literals[1]
    zone = given.as_py() if given is not None else None
    if not isinstance(zone, str):
        raise refuse(call, 1, "a time zone, a constant")
    try:
        pa.scalar(0, pa.timestamp("s")).cast(pa.timestamp("s", zone))
        pc.local_timestamp(pa.scalar(0, pa.timestamp("s", zone)))
    except pa.ArrowInvalid:
        raise FilterError(f"from_unixtime: no time zone {zone!r:.80}") from None
    return (pa.int64(), pa.string()), pa.timestamp("s", zone)


@function("from_unixtime", takes=_from_types)
def _from_unixtime(value: Any, zone: Any = None) -> Any:
    return value.cast(pa.timestamp("s", None if zone is None else zone.as_py()))


@function("to_date", takes=_to(pa.date32()))
def _to_date(value: Any, *formats: Any) -> Any:
    kind = value.type
    if is_kind.is_date(kind):
        return value.cast(pa.date32())
    if is_kind.is_timestamp(kind):
        return local_time(value).cast(pa.date32(), safe=False)
    if is_kind.is_integer(kind) or is_kind.is_floating(kind):
        try:
            days = pc.trunc(value).cast(pa.int32()) if is_kind.is_floating(kind) else value
            return days.cast(pa.int32()).cast(pa.date32())
        except pa.ArrowInvalid as error:
            raise FilterError(f"to_date: {error}") from None
    if formats:
        nanos = _read_formats("to_date", value, formats)
        return nanos.cast(pa.timestamp("ns")).cast(pa.date32(), safe=False)
    return map_distinct(pa.date32(), _read_day, value)


def _read_day(text: str) -> dt.date:
    try:
        if len(text) == 8 and text.isdigit():
            return dt.date(int(text[:4]), int(text[4:6]), int(text[6:]))
        day, rest = text[:10], text[10:]
        if rest:
            _read_iso("to_date", pa.array([text]))
        elif len(day) < 10:
            day = "-".join(part.zfill(2) for part in day.split("-"))
        return dt.date.fromisoformat(day)
    except ValueError:
        raise FilterError(f"to_date: {text[:40]!r} is not a date such as 2024-02-03") from None


def _clock_types(call: Call) -> Types:
    check_count(call, 1)
    kind = call.types[0]
    if is_kind.is_timestamp(kind) or is_kind.is_null(kind):
        if len(call.types) > 1:
            raise refuse(call, 0, "text if a format is given")
        return (kind if is_kind.is_timestamp(kind) else pa.timestamp("ns"),), pa.time64("ns")
    if not is_string(kind):
        raise refuse(call, 0, "text or a timestamp")
    argument_types = tuple(LOOSE_TEXT(call, number)[0] for number in range(len(call.types)))
    return argument_types, pa.time64("ns")


_DAY_NANOS = 86_400 * 10**9


@function("to_time", takes=_clock_types)
def _to_time(value: Any, *formats: Any) -> Any:
    if is_kind.is_timestamp(value.type):
        return _clock(local_time(value))
    given = formats or (pa.scalar("%H:%M:%S%.f"), pa.scalar("%H:%M"))
    nanos = _read_formats("to_time", value, given)
    return pc.subtract(nanos, pc.multiply(pc.divide(nanos, _DAY_NANOS), _DAY_NANOS)).cast(
        pa.time64("ns")
    )


def _clock(bare: Any) -> Any:
    size = TICKS[bare.type.unit]
    ticks = pc.fill_null(bare.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    nanos = np.mod(ticks, 86_400 * size) * (10**9 // size)
    return pc.if_else(bare.is_valid(), pa.array(nanos).cast(pa.time64("ns")), None)


def _char_types(call: Call) -> Types:
    check_count(call, 2, 2)
    pattern, _ = LOOSE_TEXT(call, 1)
    kind = call.types[0]
    if is_kind.is_null(kind) or is_string(kind):
        kind = pa.timestamp("ns")
    known = (is_kind.is_timestamp, is_kind.is_date, is_kind.is_time, is_kind.is_duration)
    if not any(test(kind) for test in known):
        raise refuse(call, 0, "a date, a time, a timestamp or a duration")
    return (kind, pattern), pa.string()


@function("to_char", "date_format", takes=_char_types)
def _to_char(value: Any, form: Any) -> Any:
    value = broadcast(value, count_rows((value, form)))
    if is_kind.is_duration(value.type):
        return pc.if_else(pc.is_valid(form), value_texts(value), None)
    moments = ticks_of(value)
    if is_constant(form) and form.is_valid:
        pattern = form.as_py()
        return map_distinct(pa.string(), lambda n: _formatted(n, value.type, pattern), moments)
    return map_rows(pa.string(), lambda n, f: _formatted(n, value.type, f), moments, form)


def _formatted(ticks: int, kind: Any, pattern: str) -> str:
    if is_kind.is_date32(kind):
        ticks, size = ticks * 86_400, 1
    else:
        size = 1000 if is_kind.is_date64(kind) else TICKS[kind.unit]
    seconds, rest = divmod(ticks, size)
    try:
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    except OverflowError:
        raise FilterError(f"to_char: {ticks} of {kind} is outside the years 1 to 9999") from None
    zone = getattr(kind, "tz", None)
    local = moment.replace(tzinfo=None) if zone is None else _in_zone(moment, zone)
    local_moment: Moment = (local, rest * (10**9 // size))
    return format_moment(local_moment, pattern, clock_only=is_kind.is_time(kind))


def _in_zone(moment: dt.datetime, zone: str) -> dt.datetime:
    try:
        known = pa.scalar(moment, pa.timestamp("s", zone)).as_py()
    except (LookupError, OSError, OverflowError, ValueError):  # OSError: the name of a folder
        raise FilterError(f"to_char: there is no time zone {zone!r:.80}") from None
    return known if isinstance(known, dt.datetime) else moment
