"""The kernel that measures blocks of LZ4. Wrapper: ``glaive.kernels.lz4``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, load_i64, load_u8, load_u16, store_u64

__all__ = ["measure"]

FULL = 15
"""A length of so much goes on in the bytes that follow."""

SHORTEST = 4
"""Bytes of the shortest copy."""


@kernel
def _rest_of_length(data: int, at: int, end: int) -> tuple[int, int]:
    """What a length has in the bytes from ``at`` on, and the place behind them; 0 if they end."""
    count = np.int64(0)
    while at < end:
        byte = np.int64(load_u8(data + at))
        at += 1
        count += byte
        if byte != 255:
            return count, at
    return count, np.int64(0)


@kernel
def _size_of(data: int, at: int, end: int, limit: int) -> int:
    """Bytes that a block decompresses to; -1 if it is none, or they are more than ``limit``."""
    made = np.int64(0)
    while at < end:
        token = np.int64(load_u8(data + at))
        at += 1
        count = token >> 4
        if count == FULL:
            more, at = _rest_of_length(data, at, end)
            count += more
            if at == 0:
                return -1
        if count > end - at or count > limit - made:
            return -1
        at += count
        made += count
        if at == end:
            return made
        if end - at < 2:
            return -1
        back = np.int64(load_u16(data + at))
        at += 2
        if back == 0 or back > made:
            return -1
        count = (token & FULL) + SHORTEST
        if token & FULL == FULL:
            more, at = _rest_of_length(data, at, end)
            count += more
            if at == 0:
                return -1
        if count > limit - made:
            return -1
        made += count
    return -1


@kernel
def measure(
    data: int, starts: int, sizes: int, limits: int, blocks: int, found: int
) -> None:  # fmt: skip
    """Store what each block decompresses to, or -1: see the wrapper, which checked the ranges."""
    for block in range(blocks):
        start = load_i64(starts + 8 * block)
        end = start + load_i64(sizes + 8 * block)
        limit = load_i64(limits + 8 * block)
        store_u64(found + 8 * block, _size_of(data, start, end, limit))
