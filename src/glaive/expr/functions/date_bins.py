"""Bins of points in time, of days and times or of months: ``date_bin``.

Nanoseconds hold the years 1677 to 2262 only, so that bins are computed in the unit of the values:
times after that, such as the last day of the year 9999, are in bins like any other.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Final

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.coercion import check_count, refuse
from glaive.expr.functions.dates import moment_type
from glaive.expr.functions.far_years import TICKS, ticks_of
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import broadcast, count_rows
from glaive.types import Flags, Int64s

__all__: list[str] = []

is_kind = pa.types

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
