"""Byte strings as kernels take them, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from glaive.kernels.strings import Strings

__all__ = ["strings_of", "values_of"]


def strings_of(values: Sequence[bytes], bits: int = 32, first: int = 0) -> Strings:
    """Strings as Arrow has them, the first offset at ``first``."""
    ends = first + np.cumsum([0, *map(len, values)])
    data = b"?" * first + b"".join(values)
    return Strings(pa.py_buffer(ends.astype(f"<i{bits // 8}")), bits, pa.py_buffer(data))


def values_of(strings: Strings) -> list[bytes]:
    """Each string."""
    ends = np.frombuffer(strings.offsets, f"<i{strings.offset_bits // 8}")
    data = strings.data.to_pybytes()
    return [data[a:b] for a, b in pairwise(ends)]
