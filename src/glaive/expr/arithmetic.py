"""Arithmetic on arrays of one type.

Integers wrap around as in the reference implementation; dividing one by zero is an error,
and so is a quotient that has no place in the type. Dividing a float by zero is none. Quotients
are cut towards zero. Decimals whose digits Arrow has no room for are computed row by row.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.capacity import too_large
from glaive.errors import FilterError
from glaive.expr.intervals import moved
from glaive.expr.rows import repeat, row_values
from glaive.expr.sizes import bytes_of, reserve

__all__ = ["combine", "negative"]

_PLAIN: dict[str, Any] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_WITH_NUMPY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}
_DAY_MS = 86_400_000
_MOST_DIGITS = 38


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
    left = _full(left, rows)
    kind = left.type
    if types.is_interval(right.type):
        return moved(left, right, 1 if op == "+" else -1)
    if isinstance(right, pa.Scalar):
        found = _by_constant(op, left, right)
        if found is not None:
            return found
    right = _full(right, rows)
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
            return _whole(op, left, right)
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


def _full(value: Any, rows: int) -> Any:
    constant = isinstance(value, pa.Scalar)
    return repeat(value, rows) if constant else value


def _numbers(array: Any) -> Any:
    """Values as numpy, zero under nulls."""
    return (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)


def _nulls(*arrays: Any) -> Any:
    found = None
    for array in arrays:
        if array.null_count:
            mask = array.is_null().to_numpy(zero_copy_only=False)
            found = mask if found is None else found | mask
    return found


def _whole(op: str, left: Any, right: Any) -> Any:
    if op in "+-*":
        return _PLAIN[op](left, right)
    nulls = _nulls(left, right)
    over, by = _numbers(left), _numbers(right)
    zero = by == 0
    if np.any(zero if nulls is None else zero & ~nulls):
        raise FilterError(f"division by zero: {op} on {left.type}")
    if by.dtype.kind == "i":
        # By -1, the most negative number has no quotient in its type, and the rest 0.
        outside = (by == -1) & (over == np.iinfo(over.dtype).min)
        if op == "/" and np.any(outside):
            raise FilterError(f"a quotient does not fit {left.type}: {left.type} / -1")
        zero = zero | outside
    by = np.where(zero, by.dtype.type(1), by)
    found = np.fmod(over, by) if op == "%" else _cut(over, by)
    return pa.array(found, left.type, mask=nulls)


def _by_constant(op: str, left: Any, right: Any) -> Any:
    """The same for one valid number on the right, where Arrow takes it as it is."""
    kind = left.type
    if kind != right.type or not right.is_valid or not pa.types.is_primitive(kind):
        return None
    whole = pa.types.is_integer(kind)
    floating = pa.types.is_floating(kind) and kind.bit_width > 16
    if (whole and op in {"+", "-", "*"}) or (floating and op in {"+", "-", "*", "/"}):
        return _PLAIN[op](left, right)
    return None


def _cut(over: Any, by: Any) -> Any:
    """Quotients towards zero; numpy's go down."""
    down = over // by
    return down + ((down < 0) & (down * by != over)) if over.dtype.kind == "i" else down


def _floats(op: str, left: Any, right: Any) -> Any:
    if op != "%" and left.type.bit_width > 16:
        return _PLAIN[op](left, right)
    with np.errstate(all="ignore"):
        found = _WITH_NUMPY[op](_numbers(left), _numbers(right))
    return pa.array(found, left.type, mask=_nulls(left, right))


def _joined(left: Any, right: Any) -> Any:
    kind, rows = left.type, len(left)
    reserve("||", bytes_of(left, rows) + bytes_of(right, rows), rows, kind)
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
        # Of a number of days 32 bits count; a date beyond those of the type is an error.
        days = right.cast(pa.int32(), safe=False).cast(pa.int64())
        if types.is_date64(kind):
            days = pc.multiply(days, _DAY_MS)
        moved = (pc.add if op == "+" else pc.subtract)(_raw(left), days)
        if types.is_date32(kind):
            return moved.cast(pa.int32()).cast(kind)
        return moved.cast(kind)
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
    if op in "+-*" and pa.types.is_decimal128(kind) and kind.precision < _MOST_DIGITS:
        made = _PLAIN[op](left, right)  # all digits have room
        if made.type == kind:
            return made
    compute = _EXACT[op]
    scales = left.type.scale, right.type.scale

    def computed(over: Decimal, by: Decimal) -> int:
        first, second = _unscaled(over, scales[0]), _unscaled(by, scales[1])
        made: int = compute(first, second, *scales, kind.scale)
        return made

    found = row_values(computed, left, right)
    size = kind.bit_width // 8
    limit = 1 << (8 * size - 1)
    if any(value is not None and not -limit <= value < limit for value in found):
        raise FilterError(f"{op}: a result does not fit {kind}")
    if not found:
        return pa.array([], kind)
    # A result may have more digits than the type says, so that ``pa.array`` would refuse it.
    raw = b"".join((value or 0).to_bytes(size, "little", signed=True) for value in found)
    valid = pa.array([value is not None for value in found]).buffers()[1]
    return pa.Array.from_buffers(kind, len(found), [valid, pa.py_buffer(raw)])


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    number = _moved(int("".join(map(str, digits))), int(exponent) + scale)
    return -number if sign else number


def _moved(number: int, by: int) -> int:
    step: int = 10 ** abs(by)
    return number * step if by >= 0 else _quotient(number, step)


def _quotient(over: int, by: int) -> int:
    found = abs(over) // abs(by)
    return found if (over < 0) == (by < 0) else -found


def _divided(a: int, b: int, left: int, right: int, scale: int) -> int:
    if not b:
        raise FilterError("division by zero: / on decimals")
    return _quotient(_moved(a, scale - left + right), b)


def _rest(a: int, b: int, left: int, right: int, scale: int) -> int:
    if not b:
        raise FilterError("division by zero: % on decimals")
    a, b = _moved(a, scale - left), _moved(b, scale - right)
    return a - b * _quotient(a, b)


def _summed(sign: int) -> Any:
    return lambda a, b, left, right, scale: (
        _moved(a, scale - left) + sign * _moved(b, scale - right)
    )


_EXACT: dict[str, Any] = {
    "+": _summed(1),
    "-": _summed(-1),
    "*": lambda a, b, left, right, scale: _moved(a * b, scale - left - right),
    "/": _divided,
    "%": _rest,
}
