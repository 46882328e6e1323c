"""Format numbers, dates and times as strings, row by row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import FilterError
from glaive.expr.rows import row_values

__all__ = ["duration_text", "value_texts"]

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_PLAIN = {4: (np.float32(1e-6), np.float32(1e13)), 8: (1e-5, 1e16)}
"""By bytes of a float: from where to where it is written without an exponent."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND, _LAST_SECOND = -62_135_000_000, 253_402_000_000
_TO_YEAR_2000 = -10_957
_CYCLE_DAYS = 146_097


def value_texts(array: Any) -> list[str | None]:
    """Each value as a string; None for nulls.

    Raises
    ------
    FilterError
        Values of the type cannot be formatted.
    """
    kind, types = array.type, pa.types
    write: Callable[[Any], str]
    if types.is_floating(kind):
        width = np.dtype(f"f{kind.bit_width // 8}").type
        write = _half if kind.bit_width == 16 else lambda value: _float(width(value))
    elif types.is_decimal(kind):
        write = "{:f}".format
    elif types.is_date32(kind):
        write = _date
    elif types.is_date64(kind):
        write = partial(_moment, unit="ms", zone=None)
    elif types.is_timestamp(kind):
        write = partial(_moment, unit=kind.unit, zone=kind.tz)
    elif types.is_time(kind):
        write = partial(_clock, unit=kind.unit)
    elif types.is_duration(kind):
        write = partial(duration_text, unit=kind.unit)
    else:
        raise FilterError(f"{kind} cannot be cast to text")
    if types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return row_values(write, array)


def _float(value: Any) -> str:
    """The shortest string that reads as the same number."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    size, (low, high) = abs(value), _PLAIN[value.itemsize]
    if size == 0 or low <= size < high:
        return str(np.format_float_positional(value, unique=True, trim="0"))
    mantissa, exponent = np.format_float_scientific(value, unique=True, trim="-").split("e")
    mantissa = mantissa.removesuffix(".")
    return f"{mantissa}e{int(exponent)}"


def _half(value: float) -> str:
    """All digits; without a point for integers."""
    if not np.isfinite(value):
        return _float(np.float32(value))
    return str(np.format_float_positional(np.float32(value), unique=True, trim="-"))


def _date(days: int) -> str:
    # For years that ``datetime`` does not have: the calendar repeats every 400 years.
    cycles, rest = divmod(days + _TO_YEAR_2000, _CYCLE_DAYS)
    day = date(2000, 1, 1) + timedelta(days=rest)
    year = day.year + 400 * cycles
    year_text = f"{year:04}" if 0 <= year < 10_000 else f"{year:+05}"
    return f"{year_text}-{day.month:02}-{day.day:02}"


def _at(seconds: int) -> datetime:
    """A point in time with the same zone rules, within the range of ``datetime``."""
    return _EPOCH + timedelta(seconds=min(max(seconds, _FIRST_SECOND), _LAST_SECOND))


def _moment(value: int, unit: str, zone: str | None) -> str:
    seconds, rest = divmod(value, _PER_SECOND[unit])
    if zone is None:
        return f"{_to_second(seconds)}{_fraction(rest, unit)}"
    from zoneinfo import ZoneInfo

    if zone.upper() in {"UTC", "Z", "+00:00"}:
        return f"{_to_second(seconds)}{_fraction(rest, unit)}Z"
    try:
        if zone[:1] in ("+", "-"):
            sign = 1 if zone[0] == "+" else -1
            digits = zone[1:].replace(":", "").ljust(4, "0")
            offset = sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        else:
            offset = _at(seconds).astimezone(ZoneInfo(zone)).utcoffset() or timedelta()
    except (LookupError, OSError, OverflowError, ValueError):  # OSError: the name of a folder
        raise FilterError(f"there is no time zone {zone!r:.80}") from None
    ahead = int(offset.total_seconds())
    minutes = abs(ahead) // 60  # Offsets before standard time have seconds.
    zone_text = f"{'-' if ahead < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f"{_to_second(seconds + ahead)}{_fraction(rest, unit)}{zone_text}"


def _to_second(seconds: int) -> str:
    days, second = divmod(seconds, 86_400)
    return f"{_date(days)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def _fraction(rest: int, unit: str) -> str:
    """Three, six or nine digits, as few as possible."""
    nanos = rest * (10**9 // _PER_SECOND[unit])
    if not nanos:
        return ""
    for digits in (3, 6, 9):
        if nanos % 10 ** (9 - digits) == 0:
            return f".{nanos // 10 ** (9 - digits):0{digits}}"
    return ""


def _clock(value: int, unit: str) -> str:
    seconds, rest = divmod(value, _PER_SECOND[unit])
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(rest, unit)}"


def duration_text(value: int, unit: str) -> str:
    """``0 days 0 hours 0 mins 1.500 secs``; each part has the sign."""
    size = _PER_SECOND[unit]
    seconds_total, rest = divmod(abs(value), size)
    sign = "-" if value < 0 else ""
    parts = [seconds_total // 86_400, seconds_total // 3600 % 24, seconds_total // 60 % 60]
    days, hours, minutes = (f"{sign if part else ''}{part}" for part in parts)
    fraction = f".{rest:0{len(str(size)) - 1}}" if size > 1 else ""
    seconds = f"{sign if seconds_total % 60 or rest else ''}{seconds_total % 60}{fraction}"
    return f"{days} days {hours} hours {minutes} mins {seconds} secs"
