"""Numbers: rounding, powers and logarithms, trigonometry.

Arrow's functions call the C library as the reference implementation does, and so agree to the
last bit. :mod:`glaive.expr.functions.library` has the others.
"""

from __future__ import annotations

import math
from typing import Any, Final
from uuid import UUID

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.coercion import FLOAT, NUMBER, check_count, like_first, signature
from glaive.expr.functions.library import compute, engine_types
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.rows import pa, pc

is_kind = pa.types

_FLOATS = signature(FLOAT, result=like_first)

_ARROW: Final = "acos acosh asin asinh atan cos cosh exp ln log10 log2 sin sinh sqrt tan tanh"
for _name in _ARROW.split():
    function(_name, takes=_FLOATS)(getattr(pc, _name))
function("isnan", takes=signature(FLOAT, result=pa.bool_()))(pc.is_nan)


@function("abs", takes=signature(NUMBER, result=like_first))
def _abs(value: Any) -> Any:
    if is_kind.is_float16(value.type):
        return compute("abs", value)
    try:
        return pc.abs_checked(value)
    except pa.ArrowInvalid:
        raise FilterError(f"abs: the smallest {value.type} has no absolute value") from None


def _float_or_decimal(call: Call) -> Types:
    check_count(call, 1, 1)
    if is_kind.is_decimal(call.types[0]):
        return (call.types[0],), call.types[0]
    return _FLOATS(call)


function("ceil", takes=_float_or_decimal)(pc.ceil)
function("floor", takes=_float_or_decimal)(pc.floor)


def _round_types(call: Call) -> Types:
    check_count(call, 1, 2)
    if len(call.types) == 2 or is_kind.is_decimal(call.types[0]):
        return engine_types(call)
    return _FLOATS(call)


@function("round", takes=_round_types)
def _round(value: Any, *digits: Any) -> Any:
    if digits or is_kind.is_decimal(value.type):
        return compute("round", value, *digits)
    return pc.round(value, round_mode="half_towards_infinity")


def _power_types(call: Call) -> Types:
    check_count(call, 2, 2)
    if is_kind.is_decimal(call.types[0]):
        return engine_types(call)
    signature(NUMBER, NUMBER, result=pa.float64())(call)
    return (pa.float64(), pa.float64()), pa.float64()


@function("power", "pow", takes=_power_types)
def _power(base: Any, exponent: Any) -> Any:
    if is_kind.is_decimal(base.type):
        return compute("power", base, exponent)
    undefined = pc.any(pc.and_(pc.equal(base, 0.0), pc.less(exponent, 0.0)), min_count=0)
    if undefined.as_py():
        raise FilterError("power: zero cannot have a negative exponent")
    return pc.power(base, exponent)


@function("pi", takes=signature(result=pa.float64()))
def _pi() -> Any:
    return pa.scalar(math.pi)


@function("random", "rand", takes=signature(result=pa.float64()), volatile=True)
def _random(rows: int) -> Any:
    return pa.array(np.random.default_rng().random(rows))


@function("uuid", takes=signature(result=pa.string()), volatile=True)
def _uuid(rows: int) -> Any:
    drawn = np.random.default_rng().bytes(16 * rows)
    starts = range(0, 16 * rows, 16)
    return pa.array([str(UUID(bytes=drawn[at : at + 16], version=4)) for at in starts], pa.string())
