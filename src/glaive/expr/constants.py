"""Constants as they stand beside a column: made of the column's type, or refused.

The reference implementation does this before all else, where a comparison stands at the top of
a filter or under AND and OR. ``i > 2.5`` on integers is an error there, not a comparison of
floats.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.expr.coerce import is_text, plain
from glaive.expr.tree import Literal

__all__ = ["as_column"]

_BOUNDS = {
    f"{sign}int{width}": ((0, 1 << width) if sign else (-(1 << (width - 1)), 1 << (width - 1)))
    for sign in ("", "u")
    for width in (8, 16, 32, 64)
}
_MOST_HALF = 65519.99
"""The largest number that is no infinity as a 16-bit float."""


def as_column(literal: Literal, kind: Any) -> Literal | None:
    """The constant in the type of a column; None when it is no such constant."""
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
        # Beyond 63 bits they are unsigned, and no decimals.
        large = pa.types.is_uint64(literal.type) and types.is_decimal(target)
        return None if large else _whole(value, target)
    if isinstance(value, float):
        return _float(value, target)
    if isinstance(value, str):
        return value if is_text(target) else None
    if isinstance(value, bytes):
        if types.is_fixed_size_binary(target):
            return value if len(value) == target.byte_width else None
        return value if types.is_binary(target) or types.is_large_binary(target) else None
    return _list(literal, target)


def _whole(value: int, target: Any) -> Any:
    types = pa.types
    if types.is_integer(target):
        low, high = _BOUNDS[str(target)]
        return value if low <= value < high else None
    if types.is_floating(target):
        return _float(float(value), target)
    if types.is_decimal(target):
        fits = abs(value) * 10 ** max(target.scale, 0) < 10**target.precision
        return Decimal(value) if fits and target.scale >= 0 else None
    return None


def _float(value: float, target: Any) -> float | None:
    if not pa.types.is_floating(target):
        return None
    if target.bit_width == 16:
        return float(np.float16(value)) if abs(value) <= _MOST_HALF else None
    if target.bit_width == 32:
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def _list(literal: Literal, target: Any) -> Any:
    types = pa.types
    if not (
        types.is_list(target) or types.is_large_list(target) or types.is_fixed_size_list(target)
    ):
        return None
    if types.is_fixed_size_list(target) and len(literal.value) != target.list_size:
        return None
    try:
        return pa.scalar(list(literal.value), literal.type).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
