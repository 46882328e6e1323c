"""The common type of two types."""

from __future__ import annotations

from typing import Any

from glaive.expr.coerce import is_list, is_number
from glaive.expr.functions.coercion import is_string
from glaive.expr.functions.untyped import pa

__all__ = ["unify"]

is_kind = pa.types

_FLOATS = (pa.float16(), pa.float32(), pa.float64())
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of integers by their width in bits."""

_FLOAT_DIGITS = {pa.float16(): (5, 2), pa.float32(): (14, 7), pa.float64(): (30, 15)}
_UNITS = ("s", "ms", "us", "ns")


def unify(left: Any, right: Any) -> Any | None:
    """Return the common type; None if there is none.

    It is the smallest integer type for both integers, or else a decimal; the number for a
    number and a string; the coarser unit for two timestamps.
    """
    if left == right or is_kind.is_null(right):
        return left
    if is_kind.is_null(left):
        return right
    for rule in (_numbers, _strings, _times, _lists):
        for pair in ((left, right), (right, left)):
            unified = rule(*pair)
            if unified is not None:
                return unified
    return None


def _numbers(left: Any, right: Any) -> Any | None:
    if not (is_number(left) and is_number(right)):
        return None
    if is_kind.is_decimal(left):
        return _decimals(left, right)
    if is_kind.is_decimal(right):
        return None
    if is_kind.is_floating(left):
        other = right if is_kind.is_floating(right) else left
        return max(left, other, key=_FLOATS.index)
    if is_kind.is_floating(right):
        return None
    return _integers(left, right)


def _integers(left: Any, right: Any) -> Any:
    signed = is_kind.is_signed_integer
    if signed(left) == signed(right):
        return max(left, right, key=lambda kind: kind.bit_width)
    unsigned, other = (right, left) if signed(left) else (left, right)
    width = max(2 * unsigned.bit_width, other.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(width, pa.decimal128(20, 0))


def _decimals(left: Any, right: Any) -> Any:
    if is_kind.is_decimal(right):
        precision, scale = right.precision, right.scale
    elif is_kind.is_floating(right):
        precision, scale = _FLOAT_DIGITS[right]
    else:
        precision, scale = _DIGITS[right.bit_width], 0
    digits = max(scale, left.scale)
    wide = is_kind.is_decimal256(left) or is_kind.is_decimal256(right)
    decimal, max_precision = (pa.decimal256, 76) if wide else (pa.decimal128, 38)
    integer_digits = max(precision - scale, left.precision - left.scale)
    return decimal(min(integer_digits + digits, max_precision), digits)


def _strings(left: Any, right: Any) -> Any | None:
    if not is_string(left):
        return None
    if is_string(right):
        for kind in (left, right):
            if is_kind.is_dictionary(kind):
                other = unify(*(_values(side) for side in (left, right)))
                return pa.dictionary(kind.index_type, other)
        return pa.string_view() if pa.string_view() in (left, right) else pa.large_string()
    plain = is_number(right) or is_kind.is_temporal(right)
    return right if plain and not is_kind.is_duration(right) else None


def _values(kind: Any) -> Any:
    return kind.value_type if is_kind.is_dictionary(kind) else kind


def _times(left: Any, right: Any) -> Any | None:
    if is_kind.is_timestamp(left) and is_kind.is_date(right):
        return pa.timestamp("ns")
    if is_kind.is_timestamp(left) and is_kind.is_timestamp(right):
        unit = min(left.unit, right.unit, key=_UNITS.index)
        return pa.timestamp(unit, left.tz or right.tz)
    if is_kind.is_date64(left) and is_kind.is_date32(right):
        return left
    if is_kind.is_date(left) and right in (pa.int32(), pa.int64()):
        return left
    if is_kind.is_time(left) and is_kind.is_time(right):
        return max(left, right, key=lambda kind: _UNITS.index(kind.unit))
    if is_kind.is_duration(left) and is_kind.is_duration(right):
        return max(left, right, key=lambda kind: _UNITS.index(kind.unit))
    if is_kind.is_binary(left) and is_kind.is_large_binary(right):
        return right
    if is_kind.is_fixed_size_binary(left) and is_kind.is_binary(right):
        return right
    return None


def _lists(left: Any, right: Any) -> Any | None:
    if not (is_list(left, fixed=True) and is_list(right, fixed=True)):
        return None
    item = unify(left.value_type, right.value_type)
    if item is None:
        return None
    large = is_kind.is_large_list(left) or is_kind.is_large_list(right)
    return pa.large_list(pa.field("item", item)) if large else pa.list_(pa.field("item", item))
