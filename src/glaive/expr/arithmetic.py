"""Arithmetic on arrays of one type.

Integers wrap around as in the reference implementation. Dividing an integer by zero is an
error, and so is a quotient that does not fit the type; dividing a float by zero is not.
Quotients are truncated towards zero. Decimals with more digits than Arrow can compute are
computed row by row.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.capacity import too_large
from glaive.errors import FilterError
from glaive.expr.intervals import add_interval
from glaive.expr.rows import broadcast, row_values
from glaive.expr.sizes import bytes_of, check_bytes

__all__ = ["combine", "negative"]

_PLAIN = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_WITH_NUMPY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}
_DAY_MS = 86_400_000
_MAX_DIGITS = 38


def combine(op: str, left: Any, right: Any, rows: int) -> Any:
    """``left op right`` for arrays or scalars; an array of ``rows`` values.

    Raises
    ------
    FilterError
        An integer or a decimal is divided by zero, or a decimal or a time is too large.
    """
    types = pa.types
    if types.is_interval(left.type):
        left, right = right, left
    left = broadcast(left, rows)
    kind = left.type
    if types.is_interval(right.type):
        return add_interval(left, right, 1 if op == "+" else -1)
    if isinstance(right, pa.Scalar):
        result = _by_constant(op, left, right)
        if result is not None:
            return result
    right = broadcast(right, rows)
    if types.is_null(kind) or types.is_null(right.type):
        return pa.nulls(rows, right.type if types.is_null(kind) else kind)
    try:
        if op == "||":
            return _joined(left, right)
        if op in {"<<", ">>"}:
            return _shifted(op, left, right)
        if types.is_decimal(kind):
            return _decimals(op, left, right)
        if types.is_integer(kind) and types.is_integer(right.type):
            return _integers(op, left, right)
        if types.is_floating(kind):
            return _floats(op, left, right)
        return _times(op, left, right)
    except pa.ArrowInvalid as error:
        if too_large(error):
            raise
        raise FilterError(f"{op} cannot be computed: {error}") from None


def negative(array: Any) -> Any:
    """Minus; the most negative integer stays itself."""
    kind = array.type
    if pa.types.is_floating(kind) and kind.bit_width == 16:
        return pa.array(-_numbers(array), kind, mask=_nulls(array))
    if pa.types.is_null(kind):
        return array
    return pc.negate(array)


def _numbers(array: Any) -> Any:
    """Values as numpy; nulls as zero."""
    return (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)


def _nulls(*arrays: Any) -> Any:
    nulls = None
    for array in arrays:
        if array.null_count:
            mask = array.is_null().to_numpy(zero_copy_only=False)
            nulls = mask if nulls is None else nulls | mask
    return nulls


def _integers(op: str, left: Any, right: Any) -> Any:
    if op in "+-*":
        return getattr(pc, _PLAIN[op])(left, right)
    nulls = _nulls(left, right)
    over, by = _numbers(left), _numbers(right)
    zero = by == 0
    if np.any(zero if nulls is None else zero & ~nulls):
        raise FilterError(f"division by zero: {op} on {left.type}")
    if by.dtype.kind == "i":
        # The most negative integer divided by -1 overflows; the remainder is 0.
        outside = (by == -1) & (over == np.iinfo(over.dtype).min)
        if op == "/" and np.any(outside):
            raise FilterError(f"a quotient does not fit {left.type}: {left.type} / -1")
        zero = zero | outside
    by = np.where(zero, by.dtype.type(1), by)
    result = np.fmod(over, by) if op == "%" else _truncated(over, by)
    return pa.array(result, left.type, mask=nulls)


def _by_constant(op: str, left: Any, right: Any) -> Any:
    """The same for one valid number on the right, where Arrow takes a scalar."""
    kind = left.type
    if kind != right.type or not right.is_valid or not pa.types.is_primitive(kind):
        return None
    integers = pa.types.is_integer(kind)
    floating = pa.types.is_floating(kind) and kind.bit_width > 16
    if (integers and op in {"+", "-", "*"}) or (floating and op in {"+", "-", "*", "/"}):
        return getattr(pc, _PLAIN[op])(left, right)
    return None


def _truncated(over: Any, by: Any) -> Any:
    """Quotients towards zero; numpy rounds down."""
    down = over // by
    return down + ((down < 0) & (down * by != over)) if over.dtype.kind == "i" else down


def _floats(op: str, left: Any, right: Any) -> Any:
    if op != "%" and left.type.bit_width > 16:
        return getattr(pc, _PLAIN[op])(left, right)
    with np.errstate(all="ignore"):
        result = _WITH_NUMPY[op](_numbers(left), _numbers(right))
    return pa.array(result, left.type, mask=_nulls(left, right))


def _joined(left: Any, right: Any) -> Any:
    kind, rows = left.type, len(left)
    check_bytes("||", bytes_of(left, rows) + bytes_of(right, rows), rows, kind)
    large = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind)
    if large is None:
        return pc.binary_join_element_wise(left, right, _empty(kind))
    return pc.binary_join_element_wise(left.cast(large), right.cast(large), _empty(large)).cast(
        kind
    )


def _empty(kind: Any) -> Any:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pa.scalar("" if text else b"", kind)


def _shifted(op: str, left: Any, right: Any) -> Any:
    by = _numbers(right)
    by = by & by.dtype.type(left.type.bit_width - 1)
    shift = np.left_shift if op == "<<" else np.right_shift
    return pa.array(shift(_numbers(left), by), left.type, mask=_nulls(left, right))


def _times(op: str, left: Any, right: Any) -> Any:
    types = pa.types
    if types.is_integer(left.type) or types.is_time(left.type):
        left, right = right, left
    kind = left.type
    if types.is_date(kind) and right.type == kind:
        raw = pc.subtract(_raw(left), _raw(right))
        return pc.divide(raw, _DAY_MS) if types.is_date64(kind) else raw
    if types.is_date(kind):
        # Only 32 bits of a number of days count; a date out of range is an error.
        days = right.cast(pa.int32(), safe=False).cast(pa.int64())
        if types.is_date64(kind):
            days = pc.multiply(days, _DAY_MS)
        shifted = (pc.add if op == "+" else pc.subtract)(_raw(left), days)
        if types.is_date32(kind):
            return shifted.cast(pa.int32()).cast(kind)
        return shifted.cast(kind)
    if types.is_time(right.type):
        right = right.cast(pa.int64()).cast(pa.duration("ns"))
    return (pc.add_checked if op == "+" else pc.subtract_checked)(left, right)


def _raw(array: Any) -> Any:
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).cast(pa.int64())
    return array.cast(pa.int64())


def _decimals(op: str, left: Any, right: Any) -> Any:
    from glaive.expr.coerce import arithmetic

    rule = arithmetic(op, left.type, right.type)
    kind = rule[2] if rule else left.type
    if op in "+-*" and pa.types.is_decimal128(kind):
        if kind.precision < _MAX_DIGITS:
            result = getattr(pc, _PLAIN[op])(left, right)  # all digits fit
            if result.type == kind:
                return result
        elif (narrow := _by_digits(op, left, right, kind)) is not None:
            return narrow
    if op == "%" and (whole := _remainder_of_integers(left, right, kind)) is not None:
        return whole
    compute = _EXACT[op]
    scales = left.type.scale, right.type.scale

    def computed(over: Decimal, by: Decimal) -> int:
        first, second = _unscaled(over, scales[0]), _unscaled(by, scales[1])
        unscaled_result: int = compute(first, second, *scales, kind.scale)
        return unscaled_result

    unscaled = row_values(computed, left, right)
    size = kind.bit_width // 8
    limit = 1 << (8 * size - 1)
    if any(value is not None and not -limit <= value < limit for value in unscaled):
        raise FilterError(f"{op}: a result does not fit {kind}")
    if not unscaled:
        return pa.array([], kind)
    # A result may have more digits than the type's precision: ``pa.array`` would refuse it.
    raw = b"".join((value or 0).to_bytes(size, "little", signed=True) for value in unscaled)
    valid = pa.array([value is not None for value in unscaled]).buffers()[1]
    return pa.Array.from_buffers(kind, len(unscaled), [valid, pa.py_buffer(raw)])


def _remainder_of_integers(left: Any, right: Any, kind: Any) -> Any:
    """Remainders of decimals that are integers of 64 bits; None if one is not, or is divided by 0.

    An unsigned column and a constant are such decimals.
    """
    if left.type.scale or right.type.scale or not pa.types.is_decimal128(kind):
        return None
    try:
        over, by = left.cast(pa.int64()), right.cast(pa.int64())
    except pa.ArrowInvalid:  # a larger one
        return None
    if pc.any(pc.equal(by, pa.scalar(0, pa.int64()))).as_py():
        return None
    return _as_type(_integers("%", over, by).cast(pa.decimal128(19, 0)), kind)


def _by_digits(op: str, left: Any, right: Any, kind: Any) -> Any:
    """The same by Arrow, for values with fewer digits than their types; None if they have more.

    Arrow adds up the digits of the types, and refuses results that may have more than 38.
    """
    if not (pa.types.is_decimal128(left.type) and pa.types.is_decimal128(right.type)):
        return None
    first, second = _digits(left), _digits(right)
    scales = left.type.scale, right.type.scale
    scale = sum(scales) if op == "*" else max(scales)
    whole = max(first - scales[0], second - scales[1])
    needed = first + second + 1 if op == "*" else whole + scale + 1
    if max(first, second, needed) > _MAX_DIGITS or scale != kind.scale:
        return None
    narrow = [
        _as_type(each, pa.decimal128(digits, each.type.scale))
        for each, digits in ((left, first), (right, second))
    ]
    return _as_type(getattr(pc, _PLAIN[op])(*narrow), kind)


def _digits(array: Any) -> int:
    """Digits of the largest value of a column of decimals; as many as its scale, at least."""
    scale = array.type.scale
    ends: Any = pc.min_max(array)
    unscaled = (abs(_unscaled(end, scale)) for end in ends.as_py().values() if end is not None)
    digits = len(str(max(unscaled, default=0)))
    return max(digits, int(scale), 1)


def _as_type(array: Any, kind: Any) -> Any:
    """The same integers as decimals with another number of digits."""
    return pa.Array.from_buffers(kind, len(array), array.buffers(), array.null_count, array.offset)


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    number = _rescaled(int("".join(map(str, digits))), int(exponent) + scale)
    return -number if sign else number


def _rescaled(number: int, by: int) -> int:
    """An unscaled decimal times 10 to the power of ``by``, truncated."""
    step: int = 10 ** abs(by)
    return number * step if by >= 0 else _quotient(number, step)


def _quotient(over: int, by: int) -> int:
    result = abs(over) // abs(by)
    return result if (over < 0) == (by < 0) else -result


def _divided(a: int, b: int, left: int, right: int, scale: int) -> int:
    if not b:
        raise FilterError("division by zero: / on decimals")
    return _quotient(_rescaled(a, scale - left + right), b)


def _remainder(a: int, b: int, left: int, right: int, scale: int) -> int:
    if not b:
        raise FilterError("division by zero: % on decimals")
    a, b = _rescaled(a, scale - left), _rescaled(b, scale - right)
    return a - b * _quotient(a, b)


def _sum_of(sign: int) -> Any:
    return lambda a, b, left, right, scale: (
        _rescaled(a, scale - left) + sign * _rescaled(b, scale - right)
    )


_EXACT: dict[str, Any] = {
    "+": _sum_of(1),
    "-": _sum_of(-1),
    "*": lambda a, b, left, right, scale: _rescaled(a * b, scale - left - right),
    "/": _divided,
    "%": _remainder,
}
