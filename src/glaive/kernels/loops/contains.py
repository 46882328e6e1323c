"""The compiled search for a substring; its wrapper is in ``glaive.kernels.contains``.

All strings are searched as the one text that they are in memory: 64 positions at a time are
compared with the first, the second and the last byte of the pattern, and only positions where
all three are equal are compared with the rest.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.compare import in_range_8
from glaive.kernels.loops.memory import kernel, load_u8, same_bytes, set_bit, trailing_zeros
from glaive.kernels.loops.offsets import arrow_offset

WINDOW = 64


@kernel
def candidates_64(
    text: int, first: np.uint64, second: np.uint64, last: np.uint64, size: int
) -> np.uint64:
    """Bit ``i``: whether a pattern of ``size`` bytes may begin at position ``i`` of 64.

    Its first, second and last byte are there; of one byte, the second is that byte, too.
    """
    none = np.uint64(0)
    candidates = in_range_8(text, first, none)
    candidates &= in_range_8(text + min(1, size - 1), second, none)
    return candidates & in_range_8(text + size - 1, last, none)


@kernel
def contains(
    offsets: int, width: int, count: int, data: int, pattern: int, size: int, target: int
) -> None:
    """Set the bit of every string that contains the pattern of ``size`` ≥ 1 bytes.

    The wrapper has checked the offsets, and all bits of ``target`` are clear.
    """
    first = np.uint64(load_u8(pattern))
    second = np.uint64(load_u8(pattern + min(1, size - 1)))
    last = np.uint64(load_u8(pattern + size - 1))
    none = np.uint64(0)
    at = arrow_offset(offsets, width, 0)
    end = arrow_offset(offsets, width, count) - size
    row = 0
    row_end = arrow_offset(offsets, width, 1)
    while at <= end:
        positions = end - at + 1
        candidates = none
        if positions >= WINDOW:
            candidates = candidates_64(data + at, first, second, last, size)
        else:
            for i in range(positions):
                if load_u8(data + at + i) == first and load_u8(data + at + i + size - 1) == last:
                    candidates |= np.uint64(1) << np.uint64(i)
        after = at + WINDOW
        while candidates != none:
            here = at + np.int64(trailing_zeros(candidates))
            candidates &= candidates - np.uint64(1)
            if size > 2 and not same_bytes(data + here + 1, pattern + 1, size - 2):
                continue
            while row_end <= here:
                row += 1
                row_end = arrow_offset(offsets, width, row + 1)
            if here + size > row_end:
                continue
            set_bit(target, row)
            # Continue with the next string.
            if row_end >= after:
                after = row_end
                candidates = none
            else:
                candidates &= ~low_bits(row_end - at)
        at = after
