"""Copy many ranges of bytes to aligned positions, with padding between them.

Specification: "Where values lie" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_within
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import spaced as compiled
from glaive.memory import allocate, as_array, as_buffer
from glaive.types import Int64s

__all__ = ["exercise", "space_ranges"]

_BYTES_OF_WORK = 64  # that numpy copies in about the time of one value


def space_ranges(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, alignment: int, padding: int, where: object
) -> pa.Buffer:
    """Copy ranges in their order, each to a multiple of ``alignment``; the last ends the result.

    Parameters
    ----------
    data
        Memory of all ranges.
    starts, sizes
        ``int64`` of shape ``(ranges,)``: first byte and bytes of each range.
    alignment
        Bytes, at least 1.
    padding
        The byte between ranges.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A range leaves ``data``.
    """
    if alignment < 1 or len(starts) != len(sizes):
        raise ValueError(f"{len(starts)} starts, {len(sizes)} sizes, alignment {alignment}")
    starts = np.ascontiguousarray(starts, np.int64)
    sizes = np.ascontiguousarray(sizes, np.int64)
    check_within("values", starts, sizes, data.size, where)
    if not len(sizes):
        return pa.py_buffer(b"")
    spaces = -(-sizes // alignment) * alignment
    total = int(spaces.sum()) - int(spaces[-1] - sizes[-1])
    out = allocate(total)
    target = as_array(out)
    target[:] = padding
    if use_compiled(max(total // _BYTES_OF_WORK, len(sizes))):
        compiled.space_ranges(
            address(data), address(starts), address(sizes), len(sizes), alignment, address(out)
        )
    else:
        source, places = as_array(data), np.cumsum(spaces) - spaces
        ranges = zip(places.tolist(), starts.tolist(), sizes.tolist(), strict=True)
        for at, start, size in ranges:
            target[at : at + size] = source[start : start + size]
    return out


def exercise() -> None:
    """Call every wrapper once with little data."""
    space_ranges(as_buffer(np.zeros(16, np.uint8)), np.arange(2), np.full(2, 3), 8, 0x48, "warm-up")
