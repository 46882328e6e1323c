"""Dates and timestamps of years that Arrow does not have, as others with the same calendar.

Years of Arrow have 16 bits. The calendar repeats every 400 years, days of the week included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.dataclass import dataclass
from glaive.expr.functions.untyped import pa, pc

__all__ = ["TICKS", "Far", "near", "ticks_of"]

is_kind = pa.types

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of each unit of Arrow in a second."""

_NEAR_DAYS = 10_000_000
"""Days before and after 1970 that Arrow has, and some more."""

_CYCLE_DAYS = 146_097
_BEGIN = {True: 157_054, False: -281_237}
"""First days of the 400 years that days after and before 1970 are moved to: 2400 and 1200."""

_FIRST_DAY, _END_DAY = -96_465_292, 95_026_237
"""Of the years of the reference implementation, -262143 to 262142."""


@dataclass(frozen=True, slots=True, eq=False)
class Far:
    """How far moments were moved.

    Parameters
    ----------
    cycles
        How many times 400 years each was moved back.
    ticks
        400 years in the unit of the moments.
    known
        Whether the reference implementation has the year of each.
    """

    cycles: Any
    ticks: int
    known: Any

    @property
    def years(self) -> Any:
        """By how many years each was moved back."""
        return pa.array(self.cycles * 400)


def ticks_of(moment: Any) -> Any:
    """Values as int64, in their own unit."""
    if is_kind.is_date32(moment.type) or is_kind.is_time32(moment.type):
        moment = moment.cast(pa.int32())
    return moment.cast(pa.int64())


def near(moment: Any) -> tuple[Any, Far | None]:
    """Dates (``date32``) or timestamps in years that Arrow has; None if all are."""
    day = 1 if is_kind.is_date32(moment.type) else 86_400 * TICKS[moment.type.unit]
    limit = _NEAR_DAYS * day
    if limit >= 1 << 63:
        return moment, None
    ticks = ticks_of(moment)
    ends = pc.min_max(ticks).as_py()
    if ends["min"] is None or (-limit <= ends["min"] and ends["max"] <= limit):
        return moment, None
    numbers = pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False)
    begin = np.where(numbers > 0, _BEGIN[True], _BEGIN[False]) * day
    size = _CYCLE_DAYS * day
    far = (numbers < -limit) | (numbers > limit)
    cycles = np.where(far, (numbers - begin) // size, 0)
    moved = pa.array(numbers - cycles * size, mask=moment.is_null().to_numpy(zero_copy_only=False))
    days = numbers // day
    known = pa.array((days >= _FIRST_DAY) & (days < _END_DAY))
    if is_kind.is_date32(moment.type):
        moved = moved.cast(pa.int32())
    return moved.cast(moment.type), Far(cycles, size, known)
