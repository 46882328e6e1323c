"""Checks that ranges read from a file lie within its memory, for many chunks at once.

The numbers may be anything. Nothing is added to a number before it is known to be small: a sum
past 2^63 would wrap around, be small itself, and pass.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.types import Flags, Int64s, Where


def outside(starts: Int64s, sizes: Int64s, limit: int) -> Flags:
    """Which of the ranges ``[start, start + size)`` do not lie within ``[0, limit)``."""
    # If either number is negative, so is their OR; else the difference is exact.
    mask: Flags = ((starts | sizes) < 0) | (starts > limit - sizes)
    return mask


def check_within(part: str, starts: Int64s, sizes: Int64s, limit: int, where: object) -> None:
    """Raise ``CorruptFileError`` about ``part`` unless all ranges lie within ``[0, limit)``."""
    wrong = outside(starts, sizes, limit)
    if wrong.any():
        bad = int(wrong.argmax())
        raise CorruptFileError(
            part,
            expected=f"ranges within {limit} bytes",
            found=f"{sizes[bad]} bytes at byte {starts[bad]}",
            where=where,
        )


def check_apart(
    part: str, rows: Int64s, sizes: Int64s, stored: int, where: object, unit: str = "bytes"
) -> None:
    """Refuse values of different rows that have more bytes, or items, together than there are.

    Such values overlap: each would be copied, and few bytes would take any amount of memory.

    Parameters
    ----------
    rows, sizes
        ``int64`` of shape ``(values,)``: the number of each row, which may be there more than
        once, and the bytes of its value, within ``stored``.
    stored
        Bytes that all values lie in.
    where, unit
        File, column and page, and the word for bytes, for messages.

    Raises
    ------
    CorruptFileError
        They have more.
    """
    total = int(sizes.sum(dtype=np.float64))  # does not wrap
    if total <= stored:
        return
    _, first = np.unique(rows, return_index=True)
    total = int(sizes[first].sum(dtype=np.float64))
    if total > stored:
        raise CorruptFileError(
            part,
            expected=f"at most {stored} {unit} in all, as they do not overlap",
            found=f"{total} {unit} in {len(first)} rows",
            where=where,
        )


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
    data
        Memory of all chunks.
    starts, sizes, counts
        ``int64`` of shape ``(chunks,)``: first byte, bytes and values of each chunk, which has
        ``counts[i] + numbers`` numbers of ``width`` bytes, then the bytes of the values.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, or is shorter than its offsets.
    """
    # If any number is negative, so is the result of the ORs; else the differences are exact.
    wrong = ((starts | sizes | counts) < 0) | (starts > data.size - sizes)
    # Not by multiplying the counts, which may wrap; a width is a power of two.
    wrong |= counts > (sizes >> (width.bit_length() - 1)) - numbers
    if wrong.any():
        bad = int(wrong.argmax())
        raise CorruptFileError(
            f"variable-width values of chunk {bad}",
            expected=f"{counts[bad] if counts[bad] >= 0 else '0 or more'} values with their "
            f"offsets within {data.size} bytes",
            found=f"{sizes[bad]} bytes at {starts[bad]}",
            where=where,
        )
    heads: Int64s = (counts + numbers) * width
    return heads
