"""Whether what a file says lies within its memory, for many chunks at once.

Numbers here are as they were read. Nothing is added to them before it is known to be small:
a sum past 2^63 wraps around, becomes small itself, and passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.types import Where

__all__ = ["check_offset_chunks", "outside"]

Int64s = NDArray[np.int64]


def outside(starts: Int64s, sizes: Int64s, limit: int) -> NDArray[np.bool_]:
    """Which of the ranges ``[start, start + size)`` do not lie within ``[0, limit)``."""
    # A negative number of either shows in the sign of both; else the difference is exact.
    mask: NDArray[np.bool_] = ((starts | sizes) < 0) | (starts > limit - sizes)
    return mask


def check_offset_chunks(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    width: int,
    where: Where,
    *,
    numbers: int = 1,
) -> Int64s:
    """Check chunks that begin with offsets; return the bytes of the offsets of each.

    Parameters
    ----------
    starts, sizes, counts
        Bytes and values of each chunk: ``counts[i] + numbers`` numbers of ``width`` bytes,
        then the values.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, or is shorter than its offsets.
    """
    # A negative number of any shows in the sign of all; else the differences are exact.
    wrong = ((starts | sizes | counts) < 0) | (starts > data.size - sizes)
    # Not by a product of the counts, which may wrap; a width is a power of two.
    wrong |= counts > (sizes >> (width.bit_length() - 1)) - numbers
    if wrong.any():
        bad = int(wrong.argmax())
        raise CorruptFileError(
            f"variable-width values of chunk {bad}",
            expected=f"{_said(counts[bad])} values with their offsets within {data.size} bytes",
            found=f"{sizes[bad]} bytes at {starts[bad]}",
            where=where,
        )
    heads: Int64s = (counts + numbers) * width
    return heads


def _said(count: Any) -> str:
    return f"{count}" if count >= 0 else "0 or more"
