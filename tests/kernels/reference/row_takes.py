"""NumPy references of ``glaive.kernels.row_takes``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.row_takes import LocatedValues, _locate_numpy
from glaive.types import Int64s


def locate_values(
    values: Int64s, firsts: Int64s, first_chunks: Int64s | None, shift: int
) -> LocatedValues:
    """Find the chunks of values, given by number."""
    values = np.ascontiguousarray(values, np.int64)
    firsts = np.ascontiguousarray(firsts, np.int64)
    _chunks, wanted = len(firsts) - 1, len(values)
    if not wanted:
        return LocatedValues(values, values, values)
    return _locate_numpy(values, firsts)
