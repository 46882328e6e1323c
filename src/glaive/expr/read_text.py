"""Read strings as numbers, dates and times, one by one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np

__all__ = ["READERS", "UnreadableError", "is_timestamp"]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE
)
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})|([0-9]{4})([0-9]{2})([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9})[0-9]*)?")
_TICKS = re.compile(r"[0-9]{1,18}")
"""A time of day without colons is a number of units."""
_ZONE = re.compile(r"\s*(Z|z|[+-][0-9]{2}:?(?:[0-9]{2})?|[A-Za-z][\w/+-]*)")
_TRUE = {"true", "tru", "tr", "t", "yes", "ye", "y", "on", "1"}
_FALSE = {"false", "fals", "fal", "fa", "f", "no", "n", "off", "of", "0"}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


class UnreadableError(ValueError):
    """A string cannot be read as a type."""


def _bad(text: object, kind: Any) -> UnreadableError:
    quoted = repr(text)
    return UnreadableError(
        f"{quoted if len(quoted) < 60 else quoted[:59] + '…'} is not of type {kind}"
    )


def _boolean(text: str, kind: Any) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise _bad(text, kind)
    return word in _TRUE


def _integer(text: str, kind: Any) -> int:
    if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > 20:
        raise _bad(text, kind)
    value = int(text)
    signed = str(kind).startswith("int")
    low = -(1 << (kind.bit_width - 1)) if signed else 0
    high = 1 << (kind.bit_width - signed)
    if not low <= value < high:
        raise _bad(text, kind)
    return value


def _float(text: str, kind: Any) -> Any:
    if not _FLOAT.fullmatch(text):
        raise _bad(text, kind)
    value = float(text)
    if kind.bit_width == 64:
        return value
    with np.errstate(over="ignore"):
        return np.float16(value) if kind.bit_width == 16 else float(np.float32(value))


def _decimal(text: str, kind: Any) -> Decimal:
    try:
        return _rounded(Decimal(text.strip()), kind, text)
    except InvalidOperation:
        raise _bad(text, kind) from None


def _rounded(value: Decimal, kind: Any, text: object) -> Decimal:
    if not value.is_finite() or value.adjusted() > kind.precision:
        raise _bad(text, kind)
    rounded = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if rounded.scaleb(kind.scale, context=_EXACT).copy_abs() >= 10**kind.precision:
        raise _bad(text, kind)
    return rounded


def _float_to_decimal(value: float, kind: Any) -> Decimal:
    scaled = float(value) * float(10**kind.scale) if kind.scale >= 0 else value / 10**-kind.scale
    if not math.isfinite(scaled):
        raise _bad(value, kind)
    unscaled = int(
        Decimal(scaled).quantize(Decimal(1), context=Context(prec=400, rounding=ROUND_HALF_UP))
    )
    if abs(unscaled) >= 10**kind.precision:
        raise _bad(value, kind)
    return Decimal(unscaled).scaleb(-kind.scale, context=_EXACT)


def _day(text: str, kind: Any) -> tuple[date, int]:
    """The date at the start of a string, and where it ends."""
    match = _DATE.match(text)
    if match is None:
        raise _bad(text, kind)
    parts = [int(digits) for digits in match.groups() if digits is not None]
    try:
        return date(*parts), match.end()
    except ValueError:
        raise _bad(text, kind) from None


def _date(text: str, kind: Any) -> int:
    days: float
    day, end = _day(text, kind)
    if end != len(text):
        nanos, _ = _instant(text, kind)
        days = nanos // (86_400 * 10**9)
    else:
        days = (day - date(1970, 1, 1)).days
    return int(days) * (86_400_000 if kind.bit_width == 64 else 1)


def _instant(text: str, kind: Any) -> tuple[int, bool]:
    """Nanoseconds since 1970, and whether the string has a zone."""
    day, end = _day(text, kind)
    nanos = (day - date(1970, 1, 1)).days * 86_400 * 10**9
    if end == len(text):
        return nanos, False
    if text[end] not in "Tt ":
        raise _bad(text, kind)
    clock = _TIME.match(text, end + 1)
    if clock is None:
        raise _bad(text, kind)
    nanos += _nanos(clock, text, kind)
    rest = text[clock.end() :]
    if not rest:
        return nanos, False
    zone = _ZONE.fullmatch(rest)
    if zone is None:
        raise _bad(text, kind)
    return nanos - _offset(zone.group(1), nanos, text, kind), True


def _nanos(clock: re.Match[str], text: str, kind: Any) -> int:
    hours, minutes, seconds = (int(digits or 0) for digits in clock.groups()[:3])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise _bad(text, kind)
    fraction = int((clock.group(4) or "0").ljust(9, "0"))
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + fraction


def _offset(zone: str, nanos: int, text: str, kind: Any) -> int:
    if zone in {"Z", "z"}:
        return 0
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        seconds = (int(digits[:2]) * 60 + int(digits[2:])) * 60
        return (seconds if zone[0] == "+" else -seconds) * 10**9
    return _local_offset(zone, nanos, text, kind)


def _local_offset(zone: str, nanos: int, text: str, kind: Any) -> int:
    from zoneinfo import ZoneInfo

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=nanos // 10**9)
        offset = moment.replace(tzinfo=ZoneInfo(zone)).utcoffset()
    except (ValueError, OverflowError, LookupError, OSError):  # OSError: the name of a folder
        raise _bad(text, kind) from None
    return int((offset or timedelta()).total_seconds()) * 10**9


def _timestamp(text: str, kind: Any) -> int:
    nanos, zoned = _instant(text, kind)
    if kind.tz is not None and not zoned and kind.tz.upper() not in {"UTC", "Z", "+00:00"}:
        if kind.tz[0] in "+-":
            nanos -= _offset(kind.tz, nanos, text, kind)
        else:
            nanos -= _local_offset(kind.tz, nanos, text, kind)
    step = 10**9 // _PER_SECOND[kind.unit]
    ticks = nanos // step
    if not -(1 << 63) <= ticks < 1 << 63:
        raise _bad(text, kind)
    return ticks


def is_timestamp(text: str, kind: Any) -> bool:
    """Whether a string is a timestamp that a type can hold."""
    try:
        _timestamp(text, kind)
    except UnreadableError:
        return False
    return True


def _time(text: str, kind: Any) -> int:
    clock = _TIME.fullmatch(text)
    if clock is None and _TICKS.fullmatch(text):
        return int(text)
    if clock is None:
        raise _bad(text, kind)
    return _nanos(clock, text, kind) // (10**9 // _PER_SECOND[kind.unit])


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "boolean": _boolean,
    "integer": _integer,
    "float": _float,
    "decimal": _decimal,
    "float to decimal": _float_to_decimal,
    "date": _date,
    "timestamp": _timestamp,
    "time": _time,
}
"""From a string (``float to decimal``: a float) and an Arrow type to a value for ``pa.array``."""
