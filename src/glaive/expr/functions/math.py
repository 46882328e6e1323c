"""Numbers: rounding, powers and logarithms, trigonometry, divisors.

Arrow's functions call the C library as the reference implementation does, and so agree to the
last bit; numpy's may differ in it and are used only where they are exact or call the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.coercion import (
    FLOAT,
    INTEGER,
    NUMBER,
    check_count,
    like_first,
    signature,
)
from glaive.expr.functions.library import compute, library
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import broadcast, count_rows, is_constant
from glaive.expr.sizes import check_bytes

is_kind = pa.types


def _numpy(compute: Callable[..., Any], *arguments: Any) -> Any:
    """Compute on numpy arrays of the first argument's type; nulls stay nulls."""
    rows = count_rows(arguments)
    valid, columns = None, []
    for argument in arguments:
        column = broadcast(argument, rows)
        if column.null_count:
            valid = column.is_valid() if valid is None else pc.and_(valid, column.is_valid())
            column = pc.fill_null(column, pa.scalar(1, pa.int8()).cast(column.type))
        columns.append(column.to_numpy(zero_copy_only=False))
    with np.errstate(all="ignore"):
        result = pa.array(compute(*columns))
    return result if valid is None else pc.if_else(valid, result, pa.scalar(None, result.type))


_FLOATS = signature(FLOAT, result=like_first)


_ARROW_NAMES = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "cos",
    "cosh",
    "exp",
    "ln",
    "log10",
    "log2",
)
for _name in (*_ARROW_NAMES, "sin", "sinh", "sqrt", "tan", "tanh"):
    function(_name, takes=_FLOATS)(getattr(pc, _name))
function("isnan", takes=signature(FLOAT, result=pa.bool_()))(pc.is_nan)


@function("cbrt", takes=_FLOATS)
def _cbrt(value: Any) -> Any:
    # The wider type gives the correct last bit.
    return _numpy(lambda value: np.cbrt(value.astype(np.longdouble)).astype(value.dtype), value)


@function("cot", takes=_FLOATS)
def _cot(value: Any) -> Any:
    return pc.divide(pa.scalar(1, value.type), pc.tan(value))


def _times(factor: float, value: Any) -> Any:
    return pc.multiply(value, pa.scalar(factor, value.type))


function("degrees", takes=_FLOATS)(partial(_times, 180 / math.pi))
function("radians", takes=_FLOATS)(partial(_times, math.pi / 180))


@function("atanh", takes=_FLOATS)
def _atanh(value: Any) -> Any:
    unit, double = pa.scalar(1, value.type), pa.scalar(2, value.type)
    doubled = pc.log1p(pc.divide(pc.multiply(double, value), pc.subtract(unit, value)))
    return pc.divide(doubled, double)


@function("signum", takes=_FLOATS)
def _signum(value: Any) -> Any:
    zero = pa.scalar(0, value.type)
    return pc.if_else(pc.equal(value, zero), zero, pc.sign(value))


@function("abs", takes=signature(NUMBER, result=like_first))
def _abs(value: Any) -> Any:
    if is_kind.is_float16(value.type):
        return _numpy(np.abs, value)
    try:
        return pc.abs_checked(value)
    except pa.ArrowInvalid:
        raise FilterError(f"abs: the smallest {value.type} has no absolute value") from None


@function("iszero", takes=signature(FLOAT, result=pa.bool_()))
def _iszero(value: Any) -> Any:
    return pc.equal(value, pa.scalar(0, value.type))


library("factorial", takes=signature(INTEGER, result=pa.int64()))


def _float_or_decimal(call: Call) -> Types:
    check_count(call, 1, 1)
    if is_kind.is_decimal(call.types[0]):
        return (call.types[0],), call.types[0]
    return _FLOATS(call)


function("ceil", takes=_float_or_decimal)(pc.ceil)
function("floor", takes=_float_or_decimal)(pc.floor)


def _round_types(call: Call) -> Types:
    check_count(call, 1, 2)
    kind = call.types[0]
    if len(call.types) == 2 and not is_kind.is_null(call.types[1]):
        INTEGER(call, 1)
    digit_types = (pa.int64(),) * (len(call.types) - 1)
    if not is_kind.is_decimal(kind):
        counted = FLOAT(call, 0)[1]
        return (counted, *digit_types), counted
    decimal = pa.decimal128 if is_kind.is_decimal128(kind) else pa.decimal256
    if digit_types and call.literals[1] is None:
        most = 38 if is_kind.is_decimal128(kind) else 76
        return (kind, *digit_types), decimal(min(kind.precision + 1, most), kind.scale)
    digits = call.literals[1].as_py() or 0 if digit_types else 0
    return (kind, *digit_types), decimal(kind.precision, min(max(digits, 0), kind.scale))


@function("round", takes=_round_types)
def _round(value: Any, digits: Any = None) -> Any:
    if is_kind.is_decimal(value.type):
        return _round_decimal(value, pa.scalar(0) if digits is None else digits)
    return _scaled(_half_away, value, digits)


def _round_decimal(value: Any, places: Any) -> Any:
    kind = value.type
    if not is_constant(places):
        return compute("round", value, places)
    wide = pa.decimal128(38, kind.scale) if is_kind.is_decimal128(kind) else kind
    value, digits = value.cast(wide), places.as_py()
    if digits is None:
        return pa.nulls(len(value), wide)
    if digits < kind.scale - kind.precision:
        return pc.if_else(pc.is_valid(value), pa.scalar(Decimal(0), wide), None)
    if digits >= kind.scale:
        return value
    return pc.round(value, ndigits=digits, round_mode="half_towards_infinity")


def _half_away(value: Any) -> Any:
    # Adding 0.5 first would round 0.49999999999999994 up.
    truncated = np.trunc(value)
    away = np.abs(value - truncated) >= 0.5
    return np.where(away, truncated + np.copysign(1, value), truncated)


def _scaled(compute: Callable[[Any], Any], value: Any, digits: Any) -> Any:
    if digits is None:
        return _numpy(lambda value: compute(value).astype(value.dtype), value)

    def scaled(value: Any, digits: Any) -> Any:
        factor = np.power(10.0, np.clip(digits, -1000, 1000)).astype(value.dtype)
        return (compute(value * factor) / factor).astype(value.dtype)

    return _numpy(scaled, value, digits)


def _trunc_types(call: Call) -> Types:
    if len(call.types) < 2:
        return _FLOATS(call)
    check_count(call, 1, 2)
    kind = _narrow_or_wide(call, 1)
    return (kind, INTEGER(call, 1)[0]), kind


@function("trunc", takes=_trunc_types)
def _trunc(value: Any, digits: Any = None) -> Any:
    if digits is None:
        zero = pa.scalar(0, value.type)
        return pc.if_else(pc.equal(value, zero), zero, pc.trunc(value))
    return _scaled(np.trunc, value, digits)


def _narrow_or_wide(call: Call, numbers: int) -> Any:
    """``float64`` where one of the arguments needs it, else ``float32``."""
    known = [not is_kind.is_null(kind) for kind in call.types]
    kinds = [NUMBER(call, number)[0] for number in range(numbers) if known[number]]
    wide = any(is_kind.is_float64(kind) or is_kind.is_decimal(kind) for kind in kinds)
    return pa.float64() if wide else pa.float32()


def _both_floats(call: Call) -> Types:
    check_count(call, 2, 2)
    kind = _narrow_or_wide(call, 2)
    return (kind, kind), kind


function("atan2", takes=_both_floats)(pc.atan2)


def _nanvl_types(call: Call) -> Types:
    check_count(call, 2, 2)
    if all(is_kind.is_float16(kind) or is_kind.is_null(kind) for kind in call.types):
        return (pa.float16(),) * 2, pa.float16()
    return _both_floats(call)


@function("nanvl", takes=_nanvl_types)
def _nanvl(value: Any, other: Any) -> Any:
    rows = count_rows((value, other))
    value, other = broadcast(value, rows), broadcast(other, rows)
    return pc.if_else(pc.is_nan(value), other, value)


def _log_types(call: Call) -> Types:
    check_count(call, 1, 2)
    kind = call.types[-1]
    FLOAT(call, len(call.types) - 1)
    kind = kind if is_kind.is_float16(kind) or is_kind.is_float32(kind) else pa.float64()
    if len(call.types) == 2:
        FLOAT(call, 0)
        return (pa.float64(), kind), kind
    return (kind,), kind


@function("log", takes=_log_types)
def _log(first: Any, second: Any = None) -> Any:
    kind = first.type if second is None else second.type
    if is_kind.is_float16(kind):
        widened = [
            argument.cast(pa.float32()) for argument in (first, second) if argument is not None
        ]
        return _log(*widened).cast(kind)
    if second is None:
        return pc.divide(pc.ln(first), pa.scalar(math.log(10), kind))
    return pc.divide(pc.ln(second), pc.ln(first.cast(kind)))


def _power_types(call: Call) -> Types:
    check_count(call, 2, 2)
    base, exponent = NUMBER(call, 0)[0], NUMBER(call, 1)[0]
    if is_kind.is_decimal(base):
        kind = pa.int64() if is_kind.is_integer(exponent) else pa.float64()
        return (base, kind), base
    return (pa.float64(), pa.float64()), pa.float64()


@function("power", "pow", takes=_power_types)
def _power(base: Any, exponent: Any) -> Any:
    if is_kind.is_decimal(base.type):
        return compute("power", base, exponent)
    undefined = pc.and_(pc.equal(base, 0.0), pc.less(exponent, 0.0))
    if pc.any(undefined).as_py() if not is_constant(undefined) else undefined.as_py():
        raise FilterError("power: zero cannot have a negative exponent")
    return pc.power(base, exponent)


_DIVISORS = signature(INTEGER, INTEGER, result=pa.int64())

library("gcd", takes=_DIVISORS)
library("lcm", takes=_DIVISORS)


@function("pi", takes=signature(result=pa.float64()))
def _pi() -> Any:
    return pa.scalar(math.pi)


@function("random", "rand", takes=signature(result=pa.float64()), volatile=True)
def _random(rows: int) -> Any:
    return pa.array(np.random.default_rng().random(rows))


@function("uuid", takes=signature(result=pa.string()), volatile=True)
def _uuid(rows: int) -> Any:
    check_bytes("uuid", 36 * rows, rows, pa.string())
    raw = np.random.default_rng().integers(0, 256, (rows, 16), np.uint8)
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((rows, 36), ord("-"), np.uint8)
    positions = [position for position in range(36) if position not in (8, 13, 18, 23)]
    text[:, positions] = digits[np.stack([raw >> 4, raw & 15], axis=2).reshape(rows, 32)]
    offsets = np.arange(rows + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())]
    )
