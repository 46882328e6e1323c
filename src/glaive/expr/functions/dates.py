"""Dates and times: extract parts, truncate, construct; the current time.

Timestamps with a time zone are evaluated in that zone. Arrow has no daylight saving time after
2037.
"""

from __future__ import annotations

import datetime as dt
from math import gcd
from typing import Any, Final

import numpy as np

from glaive.dataclass import dataclass
from glaive.errors import FilterError
from glaive.expr.coerce import is_number
from glaive.expr.functions.coercion import (
    INTEGER,
    INTEGER32,
    LOOSE_TEXT,
    TEXT,
    check_count,
    is_string,
    refuse,
    signature,
)
from glaive.expr.functions.library import library
from glaive.expr.functions.registry import Call, Resolve, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import broadcast, count_rows
from glaive.types import Flags, Int64s

# --- Dates and timestamps of years that Arrow does not have, as others with the same calendar
# Years of Arrow have 16 bits. The calendar repeats every 400 years, days of the week included.

is_kind = pa.types

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of each unit of Arrow in a second."""

_NEAR_DAYS = 10_000_000
"""Days before and after 1970 that Arrow has, and some more."""

_CYCLE_DAYS = 146_097
_BEGIN = {True: 157_054, False: -281_237}
"""First days of the 400 years that days after and before 1970 are moved to: 2400 and 1200."""

_FIRST_DAY, _END_DAY = -96_465_292, 95_026_237
"""Of the years of the reference implementation, -262143 to 262142."""


@dataclass(frozen=True, slots=True, eq=False)
class Far:
    """How far moments were moved.

    Parameters
    ----------
    cycles
        How many times 400 years each was moved back.
    ticks
        400 years in the unit of the moments.
    known
        Whether the reference implementation has the year of each.
    """

    cycles: Any
    ticks: int
    known: Any

    @property
    def years(self) -> Any:
        """By how many years each was moved back."""
        return pa.array(self.cycles * 400)


def ticks_of(moment: Any) -> Any:
    """Values as int64, in their own unit."""
    if is_kind.is_date32(moment.type) or is_kind.is_time32(moment.type):
        moment = moment.cast(pa.int32())
    return moment.cast(pa.int64())


def near(moment: Any) -> tuple[Any, Far | None]:
    """Dates (``date32``) or timestamps in years that Arrow has; None if all are."""
    day = 1 if is_kind.is_date32(moment.type) else 86_400 * TICKS[moment.type.unit]
    limit = _NEAR_DAYS * day
    if limit >= 1 << 63:
        return moment, None
    ticks = ticks_of(moment)
    ends = pc.min_max(ticks).as_py()
    if ends["min"] is None or (-limit <= ends["min"] and ends["max"] <= limit):
        return moment, None
    numbers = pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False)
    begin = np.where(numbers > 0, _BEGIN[True], _BEGIN[False]) * day
    size = _CYCLE_DAYS * day
    far = (numbers < -limit) | (numbers > limit)
    cycles = np.where(far, (numbers - begin) // size, 0)
    moved = pa.array(numbers - cycles * size, mask=moment.is_null().to_numpy(zero_copy_only=False))
    days = numbers // day
    known = pa.array((days >= _FIRST_DAY) & (days < _END_DAY))
    if is_kind.is_date32(moment.type):
        moved = moved.cast(pa.int32())
    return moved.cast(moment.type), Far(cycles, size, known)


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
        moment = local_time(moment)  # Arrow leaves seconds of zones before standard time out.
    moment, far = near(moment)
    found = _calendar_part(name, moment)
    if far is not None:
        found = pc.add(found, far.years) if name in ("year", "isoyear") else found
        found = pc.if_else(far.known, found, None)
    return found.cast(kind)


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
    moved, far = near(moment)
    floored = _floored(moved, unit)
    if far is not None:
        ticks = pc.add(ticks_of(floored), pa.array(far.cycles * far.ticks))
        floored = ticks.cast(moment.type)
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


library("make_date", takes=signature(INTEGER32, INTEGER32, INTEGER32, result=pa.date32()))
library("make_time", takes=signature(INTEGER32, INTEGER32, INTEGER32, result=pa.time32("s")))


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


def _local_types(call: Call) -> Types:
    check_count(call, 1, 1)
    kind = moment_type(call, 0)
    if not is_kind.is_timestamp(kind) or is_string(call.types[0]):
        raise refuse(call, 0, "a timestamp")
    return (kind,), pa.timestamp(kind.unit)


@function("to_local_time", takes=_local_types)
def local_time(moment: Any) -> Any:
    """Timestamps as local time of their zone."""
    return moment if moment.type.tz is None else pc.local_timestamp(moment)


# --- Bins of points in time, of days and times or of months: ``date_bin`` ---------------
# Nanoseconds hold the years 1677 to 2262 only, so that bins are computed in the unit of the
# values: times after that, such as the last day of the year 9999, are in bins like any other.

_SECOND: Final = 10**9
_DAY: Final = 86_400
_MOST: Final = 2**63 - 1


def _bin_types(call: Call) -> Types:
    check_count(call, 2, 3)
    if call.literals[0] is None or not is_kind.is_interval(call.types[0]):
        raise refuse(call, 0, "a constant interval, such as interval '1 hour'")
    kind = moment_type(call, 1)
    if is_kind.is_date(kind):
        kind = pa.timestamp("ns")
    elif is_kind.is_timestamp(kind) and kind.tz is not None:
        kind = pa.timestamp("ns", kind.tz)
    if len(call.types) == 3 and is_kind.is_time(kind) != is_kind.is_time(call.types[2]):
        raise refuse(call, 2, f"a value that can be compared with {kind}")
    origin = (kind if is_kind.is_time(kind) else pa.timestamp("ns"),) * (len(call.types) - 2)
    return (call.types[0], kind, *origin), kind


@function("date_bin", takes=_bin_types, column=1)
def _date_bin(stride: Any, moment: Any, origin: Any = None) -> Any:
    if isinstance(origin, pa.Array):
        raise FilterError("date_bin: argument 3 must be a constant")
    rows = count_rows((moment,))
    if not stride.is_valid:
        return pa.nulls(rows, moment.type)
    if origin is not None and not origin.is_valid:
        return pa.nulls(rows, moment.type)
    moment = broadcast(moment, rows)
    known = moment.is_valid()
    months, days, nanos = stride.as_py()
    if months and is_kind.is_time(moment.type):
        raise FilterError("date_bin: an interval for times must be less than a day")
    if months and (days or nanos):
        raise FilterError("date_bin: an interval of months must not have days or times")
    begin = np.zeros(1, np.int64) if origin is None else _ticks(broadcast(origin, 1))
    if months:
        starts, fits = _month_bins(abs(int(months)), moment, begin)
    else:
        size = abs(days * _DAY * _SECOND + nanos)
        if is_kind.is_time(moment.type):
            if size >= _DAY * _SECOND:
                raise FilterError("date_bin: an interval for times must be less than a day")
            begin = begin * (1 if origin is None else _SECOND // TICKS[origin.type.unit])
        starts, fits = _even_bins(size, moment, begin)
    if bool((~fits & known.to_numpy(zero_copy_only=False)).any()):
        raise FilterError(f"date_bin: a bin begins before the first {moment.type}, or is too long")
    result = pa.array(np.where(fits, starts, 0), pa.int64())
    if is_kind.is_time32(moment.type):
        result = result.cast(pa.int32())
    return pc.if_else(known, result.cast(moment.type), pa.scalar(None, moment.type))


def _ticks(moment: Any) -> Int64s:
    """Values in their own unit, 0 for nulls."""
    ticks: Int64s = pc.fill_null(ticks_of(moment), 0).to_numpy(zero_copy_only=False)
    return ticks


def _even_bins(size: int, moment: Any, begin: Int64s) -> tuple[Int64s, Flags]:
    """Starts of bins of ``size`` nanoseconds, one of which begins at ``begin``; which are right."""
    if not size:
        raise FilterError("date_bin: the interval must not be zero")
    if size > _MOST:
        raise FilterError("date_bin: the interval must be less than 292 years; use months")
    value, step = _ticks(moment), _SECOND // TICKS[moment.type.unit]
    # Bins repeat after so many ticks.
    period = size // gcd(size, step)
    fits = np.ones(len(value), np.bool_)
    within = value
    if period <= _MOST // step:
        within = value % period
    else:
        fits = (value <= _MOST // step) & (value >= -(_MOST // step))
        within = np.where(fits, value, 0)
    passed = within * step % size - begin % size
    passed = np.where(passed < 0, passed + size, passed)
    starts = value + -passed // step
    return starts, fits & (starts <= value)


def _month_bins(size: int, moment: Any, begin: Int64s) -> tuple[Int64s, Flags]:
    """The same of bins of ``size`` months."""
    ticks, unit = TICKS[moment.type.unit], moment.type.unit
    value = _ticks(moment)
    month = value.view(f"M8[{unit}]").astype("M8[M]")
    origin = begin.view("M8[ns]")
    first = origin.astype("M8[M]")
    # Days and nanoseconds from the start of the month to the origin.
    day, time = np.divmod((origin - first.astype("M8[ns]")).astype(np.int64), _DAY * _SECOND)
    numbers, first_number = month.astype(np.int64), first.astype(np.int64)
    target = first_number + (numbers - first_number) // size * size
    # If the origin is later in its month than the value, the bin would start after the value.
    into_month = (value - month.astype(f"M8[{unit}]").astype(np.int64)) * (_SECOND // ticks)
    late = into_month < _within_month(numbers, day) * (_DAY * _SECOND) + time
    target = np.where((target == numbers) & late, target - size, target)
    days = _first_day(target) + _within_month(target, day)
    fits = (np.abs(days) <= _MOST // (_DAY * ticks)) & ~np.isnat(value.view(f"M8[{unit}]"))
    starts = np.where(fits, days, 0) * (_DAY * ticks) + time // (_SECOND // ticks)
    return starts, fits


def _first_day(months: Int64s) -> Int64s:
    days: Int64s = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    return days


def _within_month(months: Int64s, day: Int64s) -> Int64s:
    """The day of each month, from 0, or its last one: months have no 31st day each."""
    within: Int64s = np.minimum(day, _first_day(months + 1) - _first_day(months) - 1)
    return within


# --- Points in time from numbers and texts, in other units, and as text in a format -----

_DECIMAL_DIGITS = 65
"""Of decimals that are multiplied by nanoseconds of a second; of more, floats are."""


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


def _to(kind: Any, *, days: bool = True) -> Resolve:
    """Build the rule of a function to this type."""
    return lambda call: (_source_types(call, days=days), kind)


library("to_timestamp", takes=_to(pa.timestamp("ns"), days=False))
library("to_timestamp_seconds", takes=_to(pa.timestamp("s"), days=False))
library("to_timestamp_millis", takes=_to(pa.timestamp("ms"), days=False))
library("to_timestamp_micros", takes=_to(pa.timestamp("us"), days=False))
library("to_timestamp_nanos", takes=_to(pa.timestamp("ns"), days=False))
library("to_unixtime", takes=_to(pa.int64()))
library("to_date", takes=_to(pa.date32()))


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


library("from_unixtime", takes=_from_types)


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


library("to_time", takes=_clock_types)


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


library("to_char date_format", takes=_char_types)
