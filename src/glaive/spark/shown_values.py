"""Constants as Spark has them, and the stored values that Spark shows as less, equal, greater.

Where a stored type is not Spark's own, a column is shown converted: milliseconds as
microseconds, nanoseconds cut to microseconds, ``uint64`` as a decimal. All of these keep the
order, so that a comparison with what is shown is one with a range of what is stored, found
here in integers: units of time, days, digits of a decimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from glaive.expr.tree import Call, Literal, Node

__all__ = ["Ordered", "Span", "ordered"]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of times without a zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_SHOWN_PER_SECOND = 10**6

Span = tuple[int, int]
"""Least and greatest stored value; none where the first is above the second."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A column whose stored values are integers, in the order in which Spark shows them.

    Parameters
    ----------
    least, greatest
        Bounds of what can be stored.
    read
        A constant of Spark as numerator and denominator in shown units; None when it is no
        constant for this column.
    literal
        A stored value as constant.
    multiplied, divided
        A value is shown multiplied by one, then divided by the other, cut towards zero. One
        of both is 1.
    """

    least: int
    greatest: int
    read: Callable[[Any], tuple[int, int] | None]
    literal: Callable[[int], Node]
    multiplied: int = 1
    divided: int = 1

    def equal(self, constant: object) -> Span | None:
        """Stored values that are shown as a constant; None when it cannot be told."""
        found = self.read(constant)
        if found is None:
            return None
        over, under = found
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


def ordered(kind: Any) -> Ordered | None:
    """What to know of a stored type to compare it; None for types not stored as integers."""
    types = pa.types
    if types.is_integer(kind):
        least = 0 if types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
        bits = kind.bit_width - (least < 0)
        return Ordered(least, (1 << bits) - 1, _number, lambda n: Literal(n, kind))
    if types.is_decimal(kind):
        most = 10**kind.precision - 1
        return Ordered(
            -most,
            most,
            lambda value: _scaled(value, kind.scale),
            lambda n: Literal(_decimal(n, kind.scale), kind),
        )
    if types.is_date32(kind):
        return Ordered(-(2**31), 2**31 - 1, _days, lambda n: _cast(n, "Date32"))
    if not types.is_timestamp(kind):
        return None
    per_second = _PER_SECOND[kind.unit]
    zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
    name = f"Timestamp({_UNITS[kind.unit]}, {zone})"
    return Ordered(
        -(2**63),
        2**63 - 1,
        _moment if kind.tz is None else _instant,
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
    found = _number(value)
    if found is None:
        return None
    over, under = found
    return (over * 10**scale, under) if scale >= 0 else (over, under * 10**-scale)


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _days(value: Any) -> tuple[int, int] | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_DAY, 1
    return None


def _instant(value: Any) -> tuple[int, int] | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        offset = value.utcoffset() or timedelta()
        return (value.replace(tzinfo=None) - _EPOCH - offset) // _MICROSECOND, 1
    return None


def _moment(value: Any) -> tuple[int, int] | None:
    if isinstance(value, datetime) and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND, 1
    return None


def _cast(value: int, name: str) -> Node:
    """A constant from its number: texts have no years before 1, and times in them no zone."""
    return Call("arrow_cast", (Literal(value, pa.int64()), Literal(name, pa.string())))
