"""The compiled search for a piece of text; its wrapper is in ``glaive.kernels.contains``.

All strings are searched as the one text that they are in memory: 64 places at a time are
compared with the first, the second and the last byte of the piece, and only places where they
are equal are looked at.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.compare import in_range_8
from glaive.kernels.loops.keep import load_offset
from glaive.kernels.loops.memory import load_u8, load_u64, loop, store_u8, trailing_zeros

WINDOW = 64


@loop
def same_bytes(one: int, other: int, size: int) -> bool:
    """Whether ``size`` bytes are equal."""
    at = 0
    while at + 8 <= size:
        if load_u64(one + at) != load_u64(other + at):
            return False
        at += 8
    while at < size:
        if load_u8(one + at) != load_u8(other + at):
            return False
        at += 1
    return True


@loop
def contains(
    offsets: int, width: int, count: int, data: int, piece: int, size: int, target: int
) -> None:
    """Set the bit of every string that holds the piece of ``size`` ≥ 1 bytes.

    The wrapper has checked the offsets, and all bits of ``target`` are clear.
    """
    first = np.uint64(load_u8(piece))
    second = min(1, size - 1)
    following = np.uint64(load_u8(piece + second))
    last = np.uint64(load_u8(piece + size - 1))
    none = np.uint64(0)
    at = load_offset(offsets, width, 0)
    end = load_offset(offsets, width, count) - size
    row = 0
    row_end = load_offset(offsets, width, 1)
    while at <= end:
        places = end - at + 1
        found = none
        if places >= WINDOW:
            found = in_range_8(data + at, first, none)
            found &= in_range_8(data + at + second, following, none)
            found &= in_range_8(data + at + size - 1, last, none)
        else:
            for i in range(places):
                if load_u8(data + at + i) == first and load_u8(data + at + i + size - 1) == last:
                    found |= np.uint64(1) << np.uint64(i)
        after = at + WINDOW
        while found != none:
            here = at + np.int64(trailing_zeros(found))
            found &= found - np.uint64(1)
            if size > 2 and not same_bytes(data + here + 1, piece + 1, size - 2):
                continue
            while row_end <= here:
                row += 1
                row_end = load_offset(offsets, width, row + 1)
            if here + size > row_end:
                continue
            byte = target + (row >> 3)
            store_u8(byte, np.uint64(load_u8(byte)) | (np.uint64(1) << np.uint64(row & 7)))
            # On with the next string.
            if row_end >= after:
                after = row_end
                found = none
            else:
                found &= ~low_bits(row_end - at)
        at = after
