"""Intervals such as ``1 month 2 days``: months, days and nanoseconds; adding them to dates.

As in the reference implementation, they are allowed only as arguments of functions.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.errors import FilterError

__all__ = ["add_interval", "interval_text", "read_interval"]

_SECOND = 10**9
_NANOS = {"nanosecond": 1, "microsecond": 10**3, "millisecond": 10**6, "second": _SECOND}
_NANOS |= {"minute": 60 * _SECOND, "hour": 3600 * _SECOND}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12, "decade": 120, "century": 1200}
_SHORT = {"sec": "second", "min": "minute", "hr": "hour", "mon": "month", "centurie": "century"}
_PART = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?|[+-]?\.[0-9]+)\s*([A-Za-z]+)\s*")
_STEPS = {"s": _SECOND, "ms": 10**6, "us": 10**3, "ns": 1}
_HALF = 1 << 31
_MAX_TEXT = 1_000


def read_interval(text: str) -> Any:
    """The scalar of a text such as ``1 month -2 days 3.5 hours``.

    Fractions of a month become days (of 30), fractions of a day become nanoseconds.

    Raises
    ------
    FilterError
        It is not an interval, or too large: months and days have 32 bits.
    """
    from fractions import Fraction

    if len(text) > _MAX_TEXT:  # Python does not read numbers of thousands of digits.
        raise FilterError(f"an interval has {len(text)} characters, at most {_MAX_TEXT}")
    months, days, nanos, at = Fraction(), Fraction(), Fraction(), 0
    while at < len(text) or not text:
        part = _PART.match(text, at)
        unit = part[2].lower().removesuffix("s") if part else ""
        unit = _SHORT.get(unit, unit)
        if part is None or unit not in _NANOS | _DAYS | _MONTHS:
            raise FilterError(f"{text[:40]!r} is not an interval such as '1 month 2 days 3 hours'")
        count = Fraction(part[1])
        months += count * _MONTHS.get(unit, 0)
        days += count * _DAYS.get(unit, 0)
        nanos += count * _NANOS.get(unit, 0)
        at = part.end()
    days += (months - int(months)) * 30
    nanos += (days - int(days)) * 86_400 * _SECOND
    if max(abs(months), abs(days)) >= _HALF or abs(nanos) >= _HALF << 32:
        raise FilterError(f"the interval {text[:40]!r} is too large")
    return pa.scalar((int(months), int(days), int(nanos)), pa.month_day_nano_interval())


def interval_text(interval: Any) -> str:
    """The text of an interval scalar, without quotes."""
    months, days, nanos = interval.as_py()
    return f"{months} months {days} days {nanos} nanoseconds"


def add_interval(moments: Any, interval: Any, sign: int) -> Any:
    """Dates or timestamps plus (``sign`` 1) or minus (-1) an interval.

    Adding months keeps the day, but at most the last of the month. Dates ignore parts of a day.

    Raises
    ------
    FilterError
        Timestamps have a time zone other than UTC.
    """
    from fractions import Fraction

    kind = moments.type
    if not interval.is_valid:
        return pa.nulls(len(moments), kind)
    if getattr(kind, "tz", None) not in {None, "UTC", "+00:00", "Z"}:
        raise FilterError(f"intervals cannot be added to {kind}: call to_local_time first")
    months, days, nanos = (sign * part for part in interval.as_py())
    plain = moments.cast(pa.timestamp("s" if pa.types.is_date(kind) else kind.unit))
    times = pc.fill_null(plain, pa.scalar(0, plain.type)).to_numpy(zero_copy_only=False)
    if months:
        day = times.astype("M8[D]")
        month = day.astype("M8[M]")
        first = (month + months).astype("M8[D]")
        last = (month + months + 1).astype("M8[D]") - first
        new_day = first + np.minimum(day - month.astype("M8[D]"), last - np.timedelta64(1, "D"))
        times = (new_day + (times - day)).astype(times.dtype)
    ticks = 1 if pa.types.is_date(kind) else _SECOND // _STEPS[plain.type.unit]
    if pa.types.is_date(kind):
        nanos = int(Fraction(nanos, 86_400 * _SECOND)) * 86_400 * _SECOND
    ahead = days * 86_400 * ticks + nanos * ticks // _SECOND
    if abs(ahead) >= 1 << 63:
        raise FilterError(f"the interval '{interval_text(interval)}' is too large for {kind}")
    nulls = ~moments.is_valid().to_numpy(zero_copy_only=False)
    result = pc.add_checked(pa.array(times.astype(np.int64), mask=nulls), pa.scalar(ahead))
    return result.cast(plain.type).cast(kind)
