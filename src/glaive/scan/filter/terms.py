"""Which of some rows pass terms of a filter, by their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import flags_of
from glaive.errors import FilterError
from glaive.types import Flags

if TYPE_CHECKING:
    from glaive.expr.filters import Term

__all__ = ["rows_passing"]


def rows_passing(
    terms: Sequence[Term], batch: Callable[[Term], pa.RecordBatch], rows: int
) -> Flags:
    """Which of some rows pass all terms; ``batch`` has the columns of one for all of them."""
    passing: Flags | None = None
    for term in terms:
        columns = batch(term)
        try:
            passed = _flags(term.mask(columns))
        except FilterError:
            # Perhaps of a row that a term before rules out: an overflow, a division by 0.
            if passing is None:
                raise
            passed = np.zeros(rows, np.bool_)
            passed[passing] = _flags(term.mask(columns.filter(pa.array(passing))))
        passing = passed if passing is None else passing & passed
    return np.ones(rows, np.bool_) if passing is None else passing


def _flags(mask: Any) -> Flags:
    return flags_of(mask.buffers()[1], len(mask), mask.offset)
