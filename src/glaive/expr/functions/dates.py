"""Dates and times: extract parts, truncate, construct; the current time.

Timestamps with a time zone are evaluated in that zone. Arrow has no daylight saving time after
2037.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from glaive.errors import FilterError
from glaive.expr.functions.coercion import TEXT, check_count, is_string, refuse, signature
from glaive.expr.functions.library import compute
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.rows import pa, pc

is_kind = pa.types

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of each unit of Arrow in a second."""

_NEAR_DAYS: Final = 10_000_000
"""Days before and after 1970 that Arrow's calendar has: its years have 16 bits."""


def ticks_of(moment: Any) -> Any:
    """Values as int64, in their own unit."""
    if is_kind.is_date32(moment.type) or is_kind.is_time32(moment.type):
        moment = moment.cast(pa.int32())
    return moment.cast(pa.int64())


def _is_far(moment: Any) -> bool:
    """Whether a date (``date32``) or timestamp is in a year that Arrow's calendar lacks."""
    day = 1 if is_kind.is_date32(moment.type) else 86_400 * TICKS[moment.type.unit]
    ends = pc.min_max(ticks_of(moment)).as_py()
    limit = _NEAR_DAYS * day
    return ends["min"] is not None and (ends["min"] < -limit or ends["max"] > limit)


_SPELLINGS = {
    "year": "year years yr yrs y",
    "quarter": "quarter qtr",
    "month": "month months mon mons",
    "week": "week weeks w",
    "day": "day days d",
    "hour": "hour hours hr hrs h",
    "minute": "minute minutes min mins m",
    "second": "second seconds sec secs s",
    "millisecond": "millisecond milliseconds msec msecs ms",
    "microsecond": "microsecond microseconds usec usecs us",
    "nanosecond": "nanosecond nanoseconds",
    "dow": "dow",
    "doy": "doy",
    "isodow": "isodow",
    "isoyear": "isoyear",
    "epoch": "epoch",
}
_PARTS = {word: part for part, words in _SPELLINGS.items() for word in words.split()}
_CLOCK = ("hour", "minute", "second", "millisecond", "microsecond", "nanosecond")


def moment_type(call: Call, number: int) -> Any:
    """The type to cast a point in time to; strings become timestamps."""
    kind = call.types[number]
    if is_string(kind) or is_kind.is_null(kind):
        return pa.timestamp("ns")
    if is_kind.is_timestamp(kind) or is_kind.is_date(kind) or is_kind.is_time(kind):
        return kind
    raise refuse(call, number, "a date, a time or a timestamp")


def _word(call: Call, number: int, known: dict[str, str], noun: str) -> str:
    TEXT(call, number)
    given = call.literals[number]
    word = given.as_py() if given is not None else None
    if word is None or word.lower() not in known:
        given_word = "a column" if given is None else repr(word)
        names = ", ".join(dict.fromkeys(known.values()))
        raise FilterError(f"{call.name}: no {noun} {given_word:.100}; there are {names}")
    return known[word.lower()]


def _part_types(call: Call) -> Types:
    check_count(call, 2, 2)
    part = _word(call, 0, _PARTS, "part")
    kind = call.types[1]
    if is_kind.is_null(kind):
        raise refuse(call, 1, "a date, a time or a timestamp")
    if not is_kind.is_duration(kind):
        kind = moment_type(call, 1)
    if is_kind.is_time(kind) and part not in (*_CLOCK, "epoch"):
        raise FilterError(f"date_part: a value of type {kind} has no {part}")
    result = {"epoch": pa.float64(), "nanosecond": pa.int64()}.get(part, pa.int32())
    return (pa.string(), kind), result


@function("date_part", "datepart", takes=_part_types, column=1)
def _date_part(part: Any, moment: Any) -> Any:
    name = _PARTS[part.as_py().lower()]
    if name == "epoch":
        return _epoch(moment)
    if is_kind.is_duration(moment.type):
        return _duration_part(name, moment)
    kind = pa.int64() if name == "nanosecond" else pa.int32()
    if is_kind.is_date(moment.type):
        if name in _CLOCK:
            return pc.if_else(pc.is_valid(moment), pa.scalar(0, kind), pa.scalar(None, kind))
        moment = moment.cast(pa.date32())
    if is_kind.is_time(moment.type):
        return _calendar_part(name, moment).cast(kind)
    if is_kind.is_timestamp(moment.type):
        # Arrow leaves seconds of zones before standard time out.
        moment = pc.local_timestamp(moment) if moment.type.tz else moment
    if _is_far(moment):
        return compute("date_part", part, moment)
    return _calendar_part(name, moment).cast(kind)


def _calendar_part(name: str, moment: Any) -> Any:
    match name:
        case "week":
            return pc.iso_week(moment)
        case "isoyear":
            return pc.iso_year(moment)
        case "doy":
            return pc.day_of_year(moment)
        case "dow":
            return pc.day_of_week(moment, count_from_zero=True, week_start=7)
        case "isodow":
            return pc.day_of_week(moment, count_from_zero=False, week_start=1)
        case "millisecond" | "microsecond" | "nanosecond":
            return _seconds(name, moment)
    return getattr(pc, name)(moment)


def _seconds(name: str, moment: Any) -> Any:
    """Seconds of the minute with their fraction, in a finer unit."""
    seconds = pc.second(moment)
    for finer in _CLOCK[3 : _CLOCK.index(name) + 1]:
        seconds = pc.add(pc.multiply(seconds, 1000), getattr(pc, finer)(moment))
    return seconds


def _epoch(moment: Any) -> Any:
    if is_kind.is_date32(moment.type):
        return pc.multiply(ticks_of(moment).cast(pa.float64()), 86_400.0)
    ticks = 1000 if is_kind.is_date64(moment.type) else TICKS[moment.type.unit]
    return pc.divide(ticks_of(moment).cast(pa.float64(), safe=False), float(ticks))


def _duration_part(name: str, moment: Any) -> Any:
    ticks = TICKS[moment.type.unit]
    sizes = {"week": 604_800 * ticks, "day": 86_400 * ticks, "hour": 3600 * ticks}
    sizes |= {"minute": 60 * ticks, "second": ticks}
    kind = pa.int64() if name == "nanosecond" else pa.int32()
    if name in sizes:
        return _narrow(pc.divide(ticks_of(moment), sizes[name]), kind)
    finer = {"millisecond": 10**3, "microsecond": 10**6, "nanosecond": 10**9}.get(name)
    if finer is None:
        raise FilterError(f"date_part: a duration has no {name}")
    more, less = max(finer // ticks, 1), max(ticks // finer, 1)
    fitting = _if_within(ticks_of(moment), (2**63 - 1) // more)
    return _narrow(pc.divide(pc.multiply(fitting, more), less), kind)


def _narrow(values: Any, kind: Any) -> Any:
    """Values that do not fit become null."""
    return values if kind == pa.int64() else _if_within(values, 2**31 - 1).cast(kind)


def _if_within(values: Any, most: int) -> Any:
    """Values that are larger or, negated, smaller become null."""
    fits = pc.and_(pc.less_equal(values, most), pc.greater_equal(values, -most))
    return pc.if_else(fits, values, None)


_UNITS = (*_CLOCK[4::-1], "day", "week", "month", "quarter", "year")
_TRUNCATED = {word: word for word in _UNITS}


def _trunc_types(call: Call) -> Types:
    check_count(call, 2, 2)
    unit = _word(call, 0, _TRUNCATED, "unit")
    kind = moment_type(call, 1)
    if is_kind.is_time(kind) and unit not in _CLOCK:
        raise FilterError(f"date_trunc: a value of type {kind} has no {unit}")
    kind = pa.timestamp("ns") if is_kind.is_date(kind) else kind
    return (pa.string(), kind), kind


@function("date_trunc", "datetrunc", takes=_trunc_types, column=1)
def _date_trunc(unit: Any, moment: Any) -> Any:
    name = unit.as_py().lower()
    coarse = {"s": "second", "ms": "millisecond", "us": "microsecond"}.get(moment.type.unit)
    if coarse in _CLOCK and name in _CLOCK[_CLOCK.index(coarse) :]:
        return moment
    if not is_kind.is_time(moment.type):
        return _floor(moment, name)
    size = TICKS[moment.type.unit] * {"hour": 3600, "minute": 60}.get(name, 1)
    if name in ("millisecond", "microsecond"):
        size = TICKS[moment.type.unit] // {"millisecond": 10**3, "microsecond": 10**6}[name]
    ticks = ticks_of(moment)
    floored = pc.multiply(pc.divide(ticks, size), size)
    width = pa.int32() if is_kind.is_time32(moment.type) else pa.int64()
    return floored.cast(width).cast(moment.type)


def _floor(moment: Any, unit: str) -> Any:
    if _is_far(moment):
        return compute("date_trunc", pa.scalar(unit), moment)
    floored = _floored(moment, unit)
    if pc.any(pc.greater(floored, moment)).as_py():
        raise FilterError(
            f"date_trunc: a value of {moment.type} is in a {unit} that begins out of range"
        )
    return floored


def _floored(moment: Any, unit: str) -> Any:
    zone = moment.type.tz
    if zone is None:
        return pc.floor_temporal(moment, unit=unit)
    bare = pa.timestamp(moment.type.unit)
    ticks = moment.cast(pa.int64())
    if unit in _CLOCK[1:]:
        floored = pc.floor_temporal(ticks.cast(bare), unit=unit)
        return floored.cast(pa.int64()).cast(moment.type)
    local = pc.local_timestamp(moment)
    floored = pc.floor_temporal(local, unit=unit)
    if unit == "hour":
        # Hours keep their UTC offset when daylight saving time begins or ends.
        ahead = pc.subtract(local.cast(pa.int64()), ticks)
        return pc.subtract(floored.cast(pa.int64()), ahead).cast(moment.type)
    return pc.assume_timezone(floored, zone, ambiguous="earliest", nonexistent="latest")


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
