"""Convert constants to the type of the column they are compared with, or refuse them.

The reference implementation does this first, for comparisons at the top of a filter or under
AND and OR: ``i > 2.5`` on integers is an error, not a comparison of floats.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.expr.coerce import is_list, is_string, plain
from glaive.expr.tree import Literal

__all__ = ["as_column"]

_BOUNDS = {
    f"{sign}int{width}": ((0, 1 << width) if sign else (-(1 << (width - 1)), 1 << (width - 1)))
    for sign in ("", "u")
    for width in (8, 16, 32, 64)
}
_MAX_HALF = 65519.99
"""The largest number that a 16-bit float rounds to a finite one."""


def as_column(literal: Literal, kind: Any) -> Literal | None:
    """The constant in the type of a column; None if it does not fit."""
    target = plain(kind)
    if literal.is_null:
        return Literal(None, target, at=literal.at)
    value = _converted(literal, target)
    return None if value is None else Literal(value, target, at=literal.at)


def _converted(literal: Literal, target: Any) -> Any:
    value, types = literal.value, pa.types
    if isinstance(value, bool):
        return value if types.is_boolean(target) else None
    if isinstance(value, int):
        # Integers beyond 63 bits are unsigned, and not converted to decimals.
        large = pa.types.is_uint64(literal.type) and types.is_decimal(target)
        return None if large else _integer(value, target)
    if isinstance(value, float):
        return _float(value, target)
    if isinstance(value, str):
        return value if is_string(target) else None
    if isinstance(value, bytes):
        if types.is_fixed_size_binary(target):
            return value if len(value) == target.byte_width else None
        return value if types.is_binary(target) or types.is_large_binary(target) else None
    return _list(literal, target)


def _integer(value: int, target: Any) -> Any:
    types = pa.types
    if types.is_integer(target):
        low, high = _BOUNDS[str(target)]
        return value if low <= value < high else None
    if types.is_floating(target):
        return _float(float(value), target)
    if types.is_decimal(target):
        unscaled, rest = divmod(
            abs(value) * 10 ** max(target.scale, 0), 10 ** max(-target.scale, 0)
        )
        return Decimal(value) if not rest and unscaled < 10**target.precision else None
    return None


def _float(value: float, target: Any) -> float | None:
    if not pa.types.is_floating(target):
        return None
    if target.bit_width == 16:
        return None if isfinite(value) and abs(value) > _MAX_HALF else float(np.float16(value))
    if target.bit_width == 32:
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def _list(literal: Literal, target: Any) -> Any:
    types = pa.types
    if not (is_list(target, fixed=True) and is_list(literal.type, fixed=True)):
        return None
    if types.is_fixed_size_list(target) and len(literal.value) != target.list_size:
        return None
    try:
        return pa.scalar(list(literal.value), literal.type).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
