"""Format numbers, dates and times as strings.

Arrow formats them in a few calls; values that it writes otherwise are formatted one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import map_distinct

__all__ = ["value_texts"]

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND, _LAST_SECOND = -62_135_000_000, 253_402_000_000
_TO_YEAR_2000 = -10_957
_CYCLE_DAYS = 146_097
_FIRST_DAY, _END_DAY = -719_528, 2_932_897
"""Of the years 0 to 9999."""
_LAST_RULE = 2_145_916_800
"""The end of 2037."""
_UTC = frozenset({"UTC", "Z", "+00:00"})


def value_texts(array: Any) -> Any:
    """Each value as a ``large_string``; null for nulls.

    Raises
    ------
    FilterError
        Values of the type cannot be formatted.
    """
    kind, types = array.type, pa.types
    if types.is_float64(kind) or types.is_float32(kind):
        return _floats(array)
    if types.is_decimal(kind):
        texts = _bare(array)
        texts = pc.if_else(pc.match_substring(texts, "E"), None, texts)
        return _near_or_far(texts, array, "{:f}".format)
    if types.is_float16(kind):
        return map_distinct(pa.large_string(), _half, array)
    if types.is_duration(kind):
        return _durations(array.cast(pa.int64()), kind.unit)
    if types.is_time(kind):
        raw = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
        seconds, fraction = _seconds(raw, kind.unit)
        return _joined(_bare(seconds.cast(pa.int32()).cast(pa.time32("s"))), fraction)
    if not types.is_date(kind) and not types.is_timestamp(kind):
        raise FilterError(f"{kind} cannot be cast to text")
    if types.is_date32(kind):
        days = array.cast(pa.int32())
        near = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less(days, _END_DAY))
        return _near_or_far(_bare(pc.if_else(near, array, None)), days, _date)
    unit, zone = ("ms", None) if types.is_date64(kind) else (kind.unit, kind.tz)
    raw = array.cast(pa.int64())
    seconds, fraction = _seconds(raw, unit)
    low, high = _FIRST_DAY * 86_400, _END_DAY * 86_400
    if zone is not None and zone.upper() not in _UTC:
        # The years for which Arrow knows daylight saving time.
        low, high = low + 86_400, _LAST_RULE
    near = pc.and_(pc.greater_equal(seconds, low), pc.less(seconds, high))
    local, suffix = seconds, _text("" if zone is None else "Z")
    if zone is not None and zone.upper() not in _UTC and pc.any(near).as_py():
        moments = pc.if_else(near, seconds, None).cast(pa.timestamp("s", zone))
        try:
            local = pc.local_timestamp(moments).cast(pa.int64())
        except pa.ArrowInvalid:
            raise FilterError(f"time zone {zone!r:.80} is not known") from None
        suffix = map_distinct(pa.large_string(), _zone_text, pc.subtract(local, seconds))
    day = _bare(pc.if_else(near, local, None).cast(pa.timestamp("s")))
    texts = _joined(pc.binary_replace_slice(day, 10, 11, "T"), fraction, suffix)
    return _near_or_far(texts, raw, partial(_moment, unit=unit, zone=zone))


def _bare(array: Any) -> Any:
    return array.cast(pa.large_string())


def _text(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, _text(""))


def _near_or_far(texts: Any, raw: Any, write: Callable[[Any], str]) -> Any:
    """The texts; Arrow does not write values that are far from today."""
    far = pc.and_(raw.is_valid(), texts.is_null())
    if not far.true_count:
        return texts
    others = map_distinct(pa.large_string(), write, raw.filter(far))
    return pc.replace_with_mask(texts, far, others)


def _seconds(raw: Any, unit: str) -> tuple[Any, Any]:
    """Whole seconds, and the fraction as text: three, six or nine digits, as few as possible."""
    per = _PER_SECOND[unit]
    if per == 1:
        return raw, _text("")
    ticks = raw.fill_null(0).to_numpy(zero_copy_only=False)
    seconds, rest = np.divmod(ticks, per)
    fraction: Any = _text("")
    if rest.any():
        digits = pc.utf8_lpad(_bare(pa.array(rest)), len(str(per)) - 1, "0")
        short = pc.replace_substring_regex(digits, "(?:000)+$", "")
        point = pc.if_else(pa.array(rest != 0), _text("."), _text(""))
        fraction = _joined(point, short)
    return pa.array(seconds, mask=raw.is_null().to_numpy(zero_copy_only=False)), fraction


def _zone_text(ahead: int) -> str:
    minutes = abs(ahead) // 60  # Offsets before standard time have seconds.
    return f"{'-' if ahead < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _floats(array: Any) -> Any:
    """The shortest text that reads as the same number, in the form of the reference implementation.

    Arrow finds the digits; its exponents begin at 10 digits.
    """
    wide = array.type.bit_width == 64
    size, texts = pc.abs(array), _bare(array)
    whole = pc.and_(pc.equal(pc.trunc(array), array), pc.less(size, 1e16 if wide else 2.0**24))
    whole = pc.and_(whole, pc.greater(size, 0))
    digits = _bare(pc.if_else(whole, array, None).cast(pa.int64()))
    texts = pc.replace_substring(pc.coalesce(digits, texts), "e+", "e")
    texts = pc.if_else(
        pc.match_substring_regex(texts, "^-?[0-9]+$"), _joined(texts, _text(".0")), texts
    )
    texts = pc.if_else(pc.is_nan(array), _text("NaN"), texts)
    # Arrow writes an exponent for large ones, and none for small ones.
    large = pc.and_(
        pc.greater_equal(size, 1e10), pc.less(size, 1e16 if wide else float(np.float32(1e13)))
    )
    large = pc.fill_null(pc.and_(large, pc.invert(whole)), False)
    if large.true_count:
        digits = _bare(texts.filter(large).cast(pa.decimal128(38, 8)))
        digits = pc.replace_substring_regex(digits, r"(\.[0-9]+?)0+$", r"\1")
        texts = pc.replace_with_mask(texts, large, digits)
    if wide and pc.any(pc.and_(pc.greater_equal(size, 1e-6), pc.less(size, 1e-5))).as_py():
        texts = pc.replace_substring_regex(texts, r"^(-?)0\.00000([1-9])$", r"\1\2e-6")
        texts = pc.replace_substring_regex(texts, r"^(-?)0\.00000([1-9])([0-9]+)$", r"\1\2.\3e-6")
    return texts


def _half(value: float) -> str:
    """All digits; without a point for integers."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else str(value)
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

    if zone.upper() in _UTC:
        return f"{_to_second(seconds)}{_fraction(rest, unit)}Z"
    try:
        if zone[:1] in ("+", "-"):
            sign = 1 if zone[0] == "+" else -1
            digits = zone[1:].replace(":", "").ljust(4, "0")
            offset = sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        else:
            offset = _at(seconds).astimezone(ZoneInfo(zone)).utcoffset() or timedelta()
    except (LookupError, OSError, OverflowError, ValueError):  # OSError: the name of a folder
        raise FilterError(f"time zone {zone!r:.80} is not known") from None
    ahead = int(offset.total_seconds())
    return f"{_to_second(seconds + ahead)}{_fraction(rest, unit)}{_zone_text(ahead)}"


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


def _durations(ticks: Any, unit: str) -> Any:
    """``0 days 0 hours 0 mins 1.500 secs``; each part has the sign."""
    per = _PER_SECOND[unit]
    numbers = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    sizes, sign = np.abs(numbers).view(np.uint64), np.where(numbers < 0, -1, 1)
    seconds, rest = np.divmod(sizes, np.uint64(per))
    minutes, second = np.divmod(seconds.astype(np.int64), 60)
    parts = (minutes // 1440, minutes // 60 % 24, minutes % 60)
    days, hours, mins = (_bare(pa.array(part * sign)) for part in parts)
    minus = pc.if_else(pa.array((numbers < 0) & (second + rest > 0)), _text("-"), _text(""))
    digits = pc.utf8_lpad(_bare(pa.array(rest)), len(str(per)) - 1, "0")
    secs = [minus, _bare(pa.array(second)), *([_text("."), digits] if per > 1 else [])]
    words = [days, " days ", hours, " hours ", mins, " mins ", *secs, " secs"]
    texts = _joined(*(_text(word) if isinstance(word, str) else word for word in words))
    return pc.if_else(ticks.is_valid(), texts, None)
