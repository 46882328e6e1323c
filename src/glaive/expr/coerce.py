"""Which type two operands meet in: rules only, no values.

They are the reference implementation's, so that both keep the same rows: an integer and a
float meet in the float, an unsigned 64-bit number and a signed one in a decimal, two times in
the coarser unit, a text and a number in the number.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

__all__ = ["arithmetic", "comparison", "concatenation", "is_number", "is_text", "plain", "shift"]

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of integers by their bits."""

_FLOAT_DIGITS = {32: (14, 7), 64: (30, 15)}
"""Precision and scale of the decimal that a float is compared as."""

_UNITS = ("s", "ms", "us", "ns")
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())


def plain(kind: Any) -> Any:
    """The type of the values: of a dictionary its values, of an extension its storage."""
    while True:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        else:
            return kind


def is_text(kind: Any) -> bool:
    """Whether it is one of the three types of text."""
    return kind in _TEXTS


def is_number(kind: Any) -> bool:
    """Whether it is an integer, a float or a decimal."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_bytes(kind: Any) -> bool:
    return kind in _BINARIES or pa.types.is_fixed_size_binary(kind)


def comparison(left: Any, right: Any) -> Any | None:
    """The type both sides are compared in; None when they cannot be."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return _numbers(left, right, exact=True)
    if is_text(left) and is_text(right):
        return _TEXTS[max(_TEXTS.index(left), _TEXTS.index(right))]
    if _is_bytes(left) and _is_bytes(right):
        return _bytes(left, right)
    met = _times(left, right) if _is_time(left) and _is_time(right) else None
    if met is None:
        met = _with_text(left, right)
    if met is None:
        met = _with_text(right, left)
    return met if met is not None else _nested(left, right)


def _bytes(left: Any, right: Any) -> Any:
    ranks = [_BINARIES.index(kind) for kind in (left, right) if kind in _BINARIES]
    return _BINARIES[max(ranks, default=0)]


def _with_text(text: Any, other: Any) -> Any | None:
    """What a text, or an integer beside a date, becomes to be compared with ``other``."""
    types = pa.types
    if is_text(text):
        if types.is_decimal(other):
            return pa.decimal128(38, 10)
        if is_number(other) or types.is_date(other) or types.is_time(other):
            return other
        if types.is_timestamp(other):
            return other
        if other in _BINARIES:
            return _BINARIES[max(_BINARIES.index(other), _TEXTS.index(text))]
    if types.is_date(other) and text in (pa.int32(), pa.int64()):
        return other
    return None


def _nested(left: Any, right: Any) -> Any | None:
    types = pa.types
    lists = [types.is_list(kind) or types.is_large_list(kind) for kind in (left, right)]
    fixed = [types.is_fixed_size_list(kind) for kind in (left, right)]
    if all(a or b for a, b in zip(lists, fixed, strict=True)):
        item = comparison(plain(left.value_type), plain(right.value_type))
        if item is None:
            return None
        large = types.is_large_list(left) or types.is_large_list(right)
        if all(fixed) and left.list_size == right.list_size:
            return pa.list_(item, left.list_size)
        return pa.large_list(item) if large else pa.list_(item)
    return None


def _is_time(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind))


def _times(left: Any, right: Any) -> Any | None:
    types = pa.types
    if types.is_date(left) and types.is_date(right):
        return pa.date64()
    if types.is_timestamp(left) and types.is_timestamp(right):
        return pa.timestamp(_coarser(left, right), left.tz if left.tz is not None else right.tz)
    if types.is_duration(left) and types.is_duration(right):
        return pa.duration(max(left.unit, right.unit, key=_UNITS.index))
    if types.is_duration(left) or types.is_duration(right):
        return None
    return pa.timestamp("ns")


def _coarser(left: Any, right: Any) -> Any:
    return _UNITS[min(_UNITS.index(left.unit), _UNITS.index(right.unit))]


def _numbers(left: Any, right: Any, *, exact: bool) -> Any | None:
    """``exact``: a decimal and a float meet in a decimal."""
    types = pa.types
    decimals = types.is_decimal(left) or types.is_decimal(right)
    floats = [kind for kind in (left, right) if types.is_floating(kind)]
    if floats and not (decimals and exact):
        return max(floats, key=lambda kind: int(kind.bit_width))
    if decimals:
        first, second = _as_decimal(left), _as_decimal(right)
        return None if first is None or second is None else _wider(first, second)
    return _whole(left, right)


def _whole(left: Any, right: Any) -> Any:
    signed = [pa.types.is_signed_integer(kind) for kind in (left, right)]
    if all(signed) or not any(signed):
        return max(left, right, key=lambda kind: int(kind.bit_width))
    positive, other = (right, left) if signed[0] else (left, right)
    if positive.bit_width == 64:
        return pa.decimal128(20, 0)
    width = max(positive.bit_width * 2, other.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]


def _as_decimal(kind: Any) -> Any | None:
    if pa.types.is_decimal(kind):
        return kind
    if pa.types.is_integer(kind):
        return pa.decimal128(_DIGITS[kind.bit_width], 0)
    digits = _FLOAT_DIGITS.get(kind.bit_width)
    return pa.decimal128(*digits) if digits else None


def _wider(left: Any, right: Any) -> Any:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return _decimal(whole + scale, scale, left, right)


def _decimal(precision: int, scale: int, *operands: Any) -> Any:
    if any(pa.types.is_decimal256(kind) for kind in operands):
        return pa.decimal256(min(precision, 76), scale)
    return pa.decimal128(min(precision, 38), scale)


def arithmetic(op: str, left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    """Types of the operands and of the result; None when they do not go together."""
    types = pa.types
    if types.is_null(left) or types.is_null(right):
        kind = right if types.is_null(left) else left
        return (kind, kind, kind) if is_number(kind) or types.is_null(kind) else None
    if not (is_number(left) and is_number(right)):
        return _time_arithmetic(op, left, right)
    met: Any = _numbers(left, right, exact=False)
    if types.is_float16(met) and (types.is_decimal(left) or types.is_decimal(right)):
        return None
    if not types.is_decimal(met):
        return met, met, met
    if types.is_integer(left) and types.is_integer(right):
        return met, met, _decimal_result(op, met, met)
    first, second = _as_decimal(left), _as_decimal(right)
    return first, second, _decimal_result(op, first, second)


def _decimal_result(op: str, left: Any, right: Any) -> Any:
    if op == "*":
        return _decimal(left.precision + right.precision + 1, left.scale + right.scale, left, right)
    if op == "/":
        scale = min(left.scale + 4, 38)
        return _decimal(left.precision + scale - left.scale + right.scale, scale, left, right)
    scale = max(left.scale, right.scale)
    pick = min if op == "%" else max
    whole = pick(left.precision - left.scale, right.precision - right.scale)
    return _decimal(whole + scale + (op != "%"), scale, left, right)


def _time_arithmetic(op: str, left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    found = None
    if op in {"+", "-"}:
        found = _moved(left, right)
    if found is None and op == "+":
        turned = _moved(right, left)
        found = turned and (turned[1], turned[0], turned[2])
    if found is None and op == "-" and _is_time(left) and _is_time(right):
        found = _apart(left, right)
    return found


def _moved(left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    """A date, timestamp or duration with something added or taken away."""
    types = pa.types
    if types.is_date(left) and types.is_integer(right):
        return left, _days(right), left
    if types.is_date(left) and types.is_time(right):
        return pa.timestamp("ns"), pa.time64("ns"), pa.timestamp("ns")
    if types.is_timestamp(left) and types.is_duration(right):
        return left, pa.duration(left.unit), left
    moment = types.is_date(left) or types.is_timestamp(left)
    same = types.is_duration(left) and left == right
    return (left, right, left) if same or (moment and types.is_interval(right)) else None


def _apart(left: Any, right: Any) -> tuple[Any, Any, Any] | None:
    """What lies between two moments."""
    types = pa.types
    if types.is_date(left) and types.is_date(right):
        kind = left if left == right else pa.date64()
        return kind, kind, pa.int64()
    met = _times(left, right)
    if met is None or types.is_duration(met):
        return None
    return met, met, pa.duration(met.unit)


def _days(kind: Any) -> Any:
    """What a number of days is counted in; bits beyond 32 are dropped, unsigned ones refused."""
    return kind if pa.types.is_int64(kind) else pa.int32()


def shift(left: Any, right: Any) -> Any | None:
    """The type in which bits are shifted: that of the integers among the two."""
    if not (is_number(left) and is_number(right)):
        return None
    whole = [kind for kind in (left, right) if pa.types.is_integer(kind)]
    if not whole:
        return None
    return pa.uint64() if pa.uint64() in whole else _whole(whole[0], whole[-1])


def concatenation(left: Any, right: Any) -> Any | None:
    """The type both sides of ``||`` become."""
    types = pa.types
    if _is_bytes(left) and _is_bytes(right):
        return _bytes(left, right)
    for text, other in ((left, right), (right, left)):
        plain = not types.is_nested(other) or types.is_list(other) or types.is_large_list(other)
        if is_text(text) and not _is_bytes(other) and plain:
            return _TEXTS[max(_TEXTS.index(kind) for kind in (left, right) if is_text(kind))]
    return None
