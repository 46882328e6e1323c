"""Which pages may contain rows that pass a condition, judged by their statistics.

A page is skipped only when no value that can be *read* from it passes. Bounds ignore NaN, and
nulls, which 0.1 reads as the value in their slot: pages with either are always read.

Specification: "Statistics" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf
from glaive.encodings.legacy.statistics import PageBounds
from glaive.types import Flags

__all__ = ["may_pass"]

_MAX_TESTED_VALUES = 32
"""A larger set is tested by the range from its smallest to its greatest value."""


def may_pass(bounds: PageBounds, condition: Condition) -> Flags:
    """One flag per page: whether rows of it may pass."""
    lows, highs = _widened(bounds.min_value), _widened(bounds.max_value, upper=True)
    every = np.ones(len(lows), np.bool_)
    if isinstance(condition, IsNull | HasText) or _passes_nan(condition, lows.type):
        return every
    if isinstance(condition, InRange):
        passing = _overlap(lows, highs, condition)
    elif condition.negated:
        return every
    else:
        values: Any = condition.values.drop_null()
        if len(values) > _MAX_TESTED_VALUES:
            if pa.types.is_floating(values.type):
                return every
            low, high = _ends(values)
            passing = _overlap(lows, highs, InRange(low=low, high=high))
        else:
            passing = np.zeros(len(lows), np.bool_)
            for value in values:
                passing |= _overlap(lows, highs, InRange(low=value, high=value))
    passing |= bounds.null_count != 0
    return passing


def _ends(values: Any) -> tuple[Any, Any]:
    """The smallest and the greatest value of a set."""
    kind = values.type
    if pa.types.is_duration(kind):  # which Arrow does not compare here
        values = values.cast(pa.int64())
    ends: Any = pc.min_max(values)
    return ends["min"].cast(kind), ends["max"].cast(kind)


def _overlap(lows: Any, highs: Any, condition: InRange) -> Flags:
    """Pages whose bounds overlap a range; unknown bounds always do."""
    above = InRange(low=condition.low, low_included=condition.low_included)
    below = InRange(high=condition.high, high_included=condition.high_included)
    overlap = np.asarray(pc.or_(above.mask(highs), pc.is_null(highs, nan_is_null=True)))
    overlap = overlap & np.asarray(pc.or_(below.mask(lows), pc.is_null(lows, nan_is_null=True)))
    flags: Flags = overlap
    return flags


def _widened(bounds: Any, *, upper: bool = False) -> Any:
    """Bounds that do not distinguish 0.0 from -0.0."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    zero = pa.scalar(0.0 if upper else -0.0, bounds.type)
    return pc.if_else(pc.equal(bounds, pa.scalar(0.0, bounds.type)), zero, bounds)


def _passes_nan(condition: InRange | IsOneOf, kind: pa.DataType) -> bool:
    """Whether a NaN may pass, whatever its bits: ordered by these, some are beyond others."""
    if not pa.types.is_floating(kind):
        return False
    if isinstance(condition, IsOneOf):
        values: Any = condition.values.drop_null()
        return bool(np.isnan(values.to_numpy(zero_copy_only=False)).any())
    return any(bound is None or isnan(bound.as_py()) for bound in (condition.low, condition.high))
