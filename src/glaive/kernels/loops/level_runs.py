"""Loop behind ``glaive.kernels.level_runs``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.memory import load_i64, load_u8, load_u16, loop, store_u64


@loop
def validity_of_runs(
    data: int,
    values: int,
    lengths: int,
    runs: int,
    counts: int,
    chunks: int,
    target: int,
    result: int,
) -> int:
    """Append the validity of runs of levels; returns the first chunk that does not add up.

    Stores the null count at ``result``, -1 when there are levels above 1.
    """
    done = np.int64(0)
    nulls = np.int64(0)
    for i in range(chunks):
        value_at = data + load_i64(values + i * 8)
        length_at = data + load_i64(lengths + i * 8)
        left = load_i64(counts + i * 8)
        for j in range(load_i64(runs + i * 8)):
            length = np.int64(load_u8(length_at + j))
            level = np.int64(load_u16(value_at + 2 * j))
            left -= length
            if left < 0:
                return i
            if level > 1:
                store_u64(result, -1)
                return -1
            nulls += level * length
            while length > 0:
                part = np.int64(min(length, 64))
                bits = np.uint64(0)
                if level == 0:
                    bits = low_bits(part)
                append_bits(target, done, bits, part)
                done += part
                length -= part
        if left != 0:
            return i
    store_u64(result, nulls)
    return -1
