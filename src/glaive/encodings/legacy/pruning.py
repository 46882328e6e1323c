"""Which pages may hold rows that pass a condition, by their statistics.

A page is left out only when no value that can be *read* from it passes. So statistics are
not trusted where they say less than the values do: what was null reads as the value that
stood in its slot, which bounds leave aside, as they leave NaN aside.

Specification: "Statistics" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.conditions import Condition, HasText, InRange, IsNull
from glaive.encodings.legacy.statistics import PageBounds

__all__ = ["may_pass"]

Flags = NDArray[np.bool_]

_FEW = 32
"""Values of a set up to which each is looked for; of more, what lies around them."""


def may_pass(bounds: PageBounds, condition: Condition) -> Flags:
    """One flag per page: whether rows of it may pass."""
    lows, highs = _widened(bounds.min_value), _widened(bounds.max_value, upper=True)
    every = np.ones(len(lows), np.bool_)
    if isinstance(condition, IsNull | HasText) or _passes_nan(condition, lows.type):
        return every
    if isinstance(condition, InRange):
        found = _overlap(lows, highs, condition)
    elif condition.negated:
        return every
    else:
        values: Any = condition.values.drop_null()
        if len(values) > _FEW:
            if pa.types.is_floating(values.type):
                return every
            low, high = _ends(values)
            found = _overlap(lows, highs, InRange(low=low, high=high))
        else:
            found = np.zeros(len(lows), np.bool_)
            for value in values:
                found |= _overlap(lows, highs, InRange(low=value, high=value))
    found |= bounds.null_count != 0
    return found


def _ends(values: Any) -> tuple[Any, Any]:
    """The least and the greatest value of a set."""
    kind = values.type
    if pa.types.is_duration(kind):  # which Arrow does not compare here
        values = values.cast(pa.int64())
    ends: Any = pc.min_max(values)
    return ends["min"].cast(kind), ends["max"].cast(kind)


def _overlap(lows: Any, highs: Any, condition: InRange) -> Flags:
    """Pages whose bounds leave room for values in a range; unknown bounds do."""
    above = InRange(low=condition.low, low_included=condition.low_included)
    below = InRange(high=condition.high, high_included=condition.high_included)
    found = np.asarray(pc.or_(above.mask(highs), pc.is_null(highs, nan_is_null=True)))
    found = found & np.asarray(pc.or_(below.mask(lows), pc.is_null(lows, nan_is_null=True)))
    flags: Flags = found
    return flags


def _widened(bounds: Any, *, upper: bool = False) -> Any:
    """Bounds by which 0.0 and -0.0 are not told apart."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    zero = pa.scalar(0.0 if upper else -0.0, bounds.type)
    return pc.if_else(pc.equal(bounds, pa.scalar(0.0, bounds.type)), zero, bounds)


def _passes_nan(condition: Condition, kind: pa.DataType) -> bool:
    if not pa.types.is_floating(kind):
        return False
    nan = np.array([np.nan, np.copysign(np.nan, -1)])
    mask: Any = condition.mask(pa.array(nan).cast(kind))
    return bool(pc.any(mask).as_py())
