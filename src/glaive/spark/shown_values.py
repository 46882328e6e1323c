"""Convert comparisons with Spark constants to comparisons with stored values.

Stored types that Spark lacks are converted: milliseconds to microseconds, nanoseconds truncated to
microseconds, ``uint64`` to decimals. These conversions are monotonic, so a comparison in Spark is a
comparison with a range of stored values, computed here in integers: units of time, days, digits of
a decimal.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.expr.tree import Call, Literal, Node

__all__ = ["Ordered", "Span", "ordered"]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # for times without a zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_SHOWN_PER_SECOND = 10**6

_FIRST_DAY = date(1582, 10, 15)
"""Of the Gregorian calendar. Spark passes on this day instead of the ten before it."""

_UNKNOWN = datetime(1582, 10, 14), datetime(1582, 10, 17)  # noqa: DTZ001  # of any zone
"""Between these, in UTC, an instant may have been moved by up to ten days."""

Span = tuple[int, int]
"""Least and greatest stored value; empty if the first exceeds the second."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A column whose stored values are integers, ordered like the converted values in Spark.

    Parameters
    ----------
    least, greatest
        Bounds of stored values.
    read
        Converts a Spark constant to numerator and denominator in Spark's unit; None if it has
        another type.
    literal
        Converts a stored value to a constant of glaive.
    multiplied, divided
        Spark sees a value multiplied by the first, then divided by the second, truncated towards
        zero. One of them is 1.
    """

    least: int
    greatest: int
    read: Callable[[Any], tuple[int, int] | None]
    literal: Callable[[int], Node]
    multiplied: int = 1
    divided: int = 1

    def equal(self, constant: object) -> Span | None:
        """Stored values that equal a constant in Spark; None if they are unknown."""
        ratio = self.read(constant)
        if ratio is None:
            return None
        over, under = ratio
        low, high = -(-over // under), over // under
        if self.multiplied > 1:
            span = -(-over // (under * self.multiplied)), over // (under * self.multiplied)
        elif self.divided > 1:
            more = self.divided - 1
            span = (
                low * self.divided - (0 if low > 0 else more),
                high * self.divided + (0 if high < 0 else more),
            )
        else:
            span = low, high
        return span


def ordered(data_type: Any) -> Ordered | None:
    """How to compare values of a stored type; None for types not stored as integers."""
    types = pa.types
    if types.is_integer(data_type):
        least = 0 if types.is_unsigned_integer(data_type) else -(1 << (data_type.bit_width - 1))
        bits = data_type.bit_width - (least < 0)
        return Ordered(least, (1 << bits) - 1, _number, lambda n: Literal(n, data_type))
    if types.is_decimal(data_type):
        most = 10**data_type.precision - 1
        return Ordered(
            -most,
            most,
            lambda value: _scaled(value, data_type.scale),
            lambda n: Literal(_decimal(n, data_type.scale), data_type),
        )
    if types.is_date32(data_type):
        return Ordered(-(2**31), 2**31 - 1, _days, lambda n: _cast(n, "Date32"))
    if not types.is_timestamp(data_type):
        return None
    per_second = _PER_SECOND[data_type.unit]
    zone = "None" if data_type.tz is None else f'Some("{data_type.tz}")'
    name = f"Timestamp({_UNITS[data_type.unit]}, {zone})"
    return Ordered(
        -(2**63),
        2**63 - 1,
        _moment if data_type.tz is None else _instant,
        lambda n: _cast(n, name),
        multiplied=max(1, _SHOWN_PER_SECOND // per_second),
        divided=max(1, per_second // _SHOWN_PER_SECOND),
    )


def _number(value: Any) -> tuple[int, int] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value, 1
    if isinstance(value, Decimal) and value.is_finite():
        return value.as_integer_ratio()
    return None


def _scaled(value: Any, scale: int) -> tuple[int, int] | None:
    ratio = _number(value)
    if ratio is None:
        return None
    over, under = ratio
    return (over * 10**scale, under) if scale >= 0 else (over, under * 10**-scale)


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _days(value: Any) -> tuple[int, int] | None:
    if isinstance(value, date) and not isinstance(value, datetime) and value != _FIRST_DAY:
        return value.toordinal() - _EPOCH_DAY, 1
    return None


def _instant(value: Any) -> tuple[int, int] | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        since = value.replace(tzinfo=None) - _EPOCH - (value.utcoffset() or timedelta())
        if not _UNKNOWN[0] - _EPOCH <= since < _UNKNOWN[1] - _EPOCH:
            return since // _MICROSECOND, 1
    return None


def _moment(value: Any) -> tuple[int, int] | None:
    if isinstance(value, datetime) and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND, 1
    return None


def _cast(value: int, name: str) -> Node:
    """A constant from its integer: strings do not support years before 1 and time zones."""
    return Call("arrow_cast", (Literal(value, pa.int64()), Literal(name, pa.string())))
