"""Compiled kernels over stored ends; their wrappers are in ``glaive.kernels.end_offsets``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, load_i64, store_u8, store_u32, store_u64


@kernel
def resolve(
    stored: int, count: int, start: int, adjustment: int, width: int, offsets: int, validity: int,
) -> int:  # fmt: skip
    """Return the number of nulls, -1 when an end is out of order or too large."""
    before = start
    nulls = 0
    byte = np.uint64(0)
    if width == 4:
        store_u32(offsets, np.uint32(0))
    else:
        store_u64(offsets, np.uint64(0))
    for i in range(count):
        end = load_i64(stored + i * 8)
        valid = 1
        if end >= adjustment:
            end -= adjustment
            valid = 0
        if end < before or end >= adjustment:
            return -1
        before = end
        nulls += 1 - valid
        byte |= np.uint64(valid) << np.uint64(i & 7)
        if (i & 7) == 7:
            store_u8(validity + (i >> 3), np.uint8(byte))
            byte = np.uint64(0)
        if width == 4:
            store_u32(offsets + (i + 1) * 4, np.uint32(end - start))
        else:
            store_u64(offsets + (i + 1) * 8, np.uint64(end - start))
    if count & 7:
        store_u8(validity + (count >> 3), np.uint8(byte))
    return nulls
