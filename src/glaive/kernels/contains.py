"""Search strings for a pattern."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import contains as compiled
from glaive.kernels.strings import Strings, as_offsets, check_offsets
from glaive.memory import as_array, as_buffer

__all__ = ["contains", "exercise"]

_VALUES_PER_BYTE = 16
"""Bytes whose search costs about as much as one value in other kernels."""


def contains(strings: Strings, count: int, pattern: bytes) -> pa.Buffer:
    """Which of ``count`` strings contain the bytes of ``pattern``, one bit each.

    Searches at about the speed of memory, several times faster than one string at a time.

    Raises
    ------
    CorruptFileError
        Offsets descend, or leave the data.
    """
    check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
    ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1]
    bits = np.zeros((count + 7) // 8, np.uint8)
    if not pattern:
        return as_buffer(~bits)
    if not count:
        return as_buffer(bits)
    first, last = int(ends[0]), int(ends[-1])
    if not use_compiled((last - first) // _VALUES_PER_BYTE):
        text = as_array(strings.data)[first:last].tobytes()
        flags = np.zeros(count, np.bool_)
        at = text.find(pattern)
        while at >= 0:
            row = int(np.searchsorted(ends, first + at, side="right")) - 1
            inside = first + at + len(pattern) <= ends[row + 1]
            flags[row] |= inside
            at = text.find(pattern, int(ends[row + 1]) - first if inside else at + 1)
        return as_buffer(np.packbits(flags, bitorder="little"))
    wanted = np.frombuffer(pattern, np.uint8)
    compiled.contains(
        address(strings.offsets), strings.offset_bits // 8, count, address(strings.data),
        address(wanted), len(pattern), address(bits),
    )  # fmt: skip
    return as_buffer(bits)


def exercise() -> None:
    """Call every wrapper once with little data."""
    strings = Strings(as_buffer(np.array([0, 1, 3], np.int32)), 32, pa.py_buffer(b"abc"))
    contains(strings, 2, b"b")
