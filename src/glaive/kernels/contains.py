"""Which strings contain a piece of text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_loops
from glaive.kernels.native import contains as loops
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.memory import as_array, as_buffer

__all__ = ["contains", "exercise"]

_VALUES_PER_BYTE = 16
"""Bytes searched for what one value costs elsewhere."""


def contains(strings: Strings, count: int, piece: bytes) -> pa.Buffer:
    """Which of ``count`` strings hold the bytes of ``piece`` somewhere, one bit each.

    Searches at about the speed of memory, several times faster than one string at a time.

    Raises
    ------
    CorruptFileError
        Offsets descend, or leave the data.
    """
    check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
    ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1]
    found = np.zeros((count + 7) // 8, np.uint8)
    if not piece:
        return as_buffer(~found)
    if not count:
        return as_buffer(found)
    first, last = int(ends[0]), int(ends[-1])
    if not use_loops((last - first) // _VALUES_PER_BYTE):
        text = as_array(strings.data)[first:last].tobytes()
        flags = np.zeros(count, np.bool_)
        at = text.find(piece)
        while at >= 0:
            row = int(np.searchsorted(ends, first + at, side="right")) - 1
            inside = first + at + len(piece) <= ends[row + 1]
            flags[row] |= inside
            at = text.find(piece, int(ends[row + 1]) - first if inside else at + 1)
        return as_buffer(np.packbits(flags, bitorder="little"))
    wanted = np.frombuffer(piece, np.uint8)
    loops.contains(
        address(strings.offsets), strings.offset_bits // 8, count, address(strings.data),
        address(wanted), len(piece), address(found),
    )  # fmt: skip
    return as_buffer(found)


def exercise() -> None:
    """Call every wrapper once with little data."""
    strings = Strings(as_buffer(np.array([0, 1, 3], np.int32)), 32, pa.py_buffer(b"abc"))
    contains(strings, 2, b"b")
