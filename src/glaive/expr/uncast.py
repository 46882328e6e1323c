"""Remove the cast from comparisons of a cast value with a constant.

``CAST(a AS bigint) = 5`` is ``a = 5`` if 5 fits the type of ``a``: nothing needs to be converted,
and it becomes a condition on one column. The reference implementation does this for all casts
between integers, decimals and times; as there, ``CAST(d AS int) = 1`` on a decimal means 1.00.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from glaive.expr import tree
from glaive.expr.casts import cast
from glaive.expr.coerce import is_string
from glaive.expr.result_type import type_of
from glaive.expr.tree import Literal

__all__ = ["uncast"]

_EXACT = Context(prec=160)
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def uncast(op: str, left: tree.Cast, right: Literal) -> Literal | None:
    """The constant in the type that ``left`` casts from; None if it does not fit."""
    kind = type_of(left.operand)
    if kind is None or right.is_null:
        return None
    if is_string(left.type) and pa.types.is_integer(kind):
        return _from_text(op, right, kind)
    if pa.types.is_date32(right.type) and pa.types.is_integer(kind):
        return Literal(right.value, kind, at=right.at)  # both count days
    number = _number(right)
    if number is None:
        return None
    value = _value(number, right.type, kind)
    return None if value is None else Literal(value, kind, at=right.at)


def _number(literal: Literal) -> int | Decimal | None:
    kind, types = literal.type, pa.types
    if types.is_integer(kind) or types.is_timestamp(kind) or types.is_decimal128(kind):
        value: Any = literal.value
        return value if isinstance(value, int | Decimal) else None
    return None


def _value(number: int | Decimal, source: Any, kind: Any) -> int | Decimal | None:
    types = pa.types
    if types.is_decimal128(kind):
        if types.is_timestamp(source):
            return None
        digits = Decimal(number).scaleb(kind.scale, context=_EXACT)
        fits = digits == digits.to_integral_value() and abs(digits) < Decimal(10) ** kind.precision
        return Decimal(number) if fits else None
    if number != int(number) or (types.is_decimal128(source) and types.is_timestamp(kind)):
        return None
    integer = int(number)
    if types.is_timestamp(kind):
        if types.is_timestamp(source):
            if source.tz != kind.tz and not {source.tz, kind.tz} <= {None, "UTC", "+00:00", "Z"}:
                return None
            integer = _quotient(integer * _UNITS[kind.unit], _UNITS[source.unit])
        return integer if -(1 << 63) <= integer < 1 << 63 else None
    if types.is_integer(kind):
        signed = types.is_signed_integer(kind)
        low = -(1 << (kind.bit_width - 1)) if signed else 0
        return integer if low <= integer < 1 << (kind.bit_width - signed) else None
    return None


def _from_text(op: str, right: Literal, kind: Any) -> Literal | None:
    """``CAST(a AS string) = '1'``: only if the number is rendered like the constant."""
    if op not in {"=", "!="}:
        return None
    converted = cast(pa.array([right.value]), kind, attempt=True)[0]
    if not converted.is_valid or str(converted.as_py()) != right.value:
        return None
    return Literal.of(converted, at=right.at)


def _quotient(over: int, by: int) -> int:
    """Truncated towards zero."""
    return over // by if over >= 0 else -(-over // by)
