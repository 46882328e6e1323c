"""Compiled kernels that walk levels chunk by chunk; wrappers: ``glaive.kernels.level_cuts``.

Levels are compared 64 at a time; bit ``i`` of a mask stands for level ``i``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.levels import WINDOW, above
from glaive.kernels.loops.memory import (
    kernel,
    leading_zeros,
    load_i64,
    popcount,
    store_u64,
    trailing_zeros,
)


@kernel
def cut_visible(
    definition: int, entries: int, visible_max: int, counts: int, chunks: int, cuts: int
) -> int:
    """Store the end of each chunk: the entry after the last of its ``counts[i]`` visible ones.

    Returns the chunks that were filled.
    """
    at = np.int64(0)
    left = np.uint64(0)  # visible entries of the last window that no chunk has taken
    window = np.int64(0)  # its first entry
    for i in range(chunks):
        wanted = load_i64(counts + 8 * i)
        while wanted > 0:
            if left == np.uint64(0):
                if at >= entries:
                    return i
                count = np.int64(min(entries - at, WINDOW))
                window = at
                left = ~above(definition + 2 * at, count, visible_max) & low_bits(count)
                at += count
                continue
            here = np.int64(popcount(left))
            if here <= wanted:
                wanted -= here
                last = WINDOW - 1 - np.int64(leading_zeros(left))
                left = np.uint64(0)
            else:
                last = np.int64(0)
                while wanted > 0:
                    last = np.int64(trailing_zeros(left))
                    left &= left - np.uint64(1)
                    wanted -= 1
            if wanted == 0:
                store_u64(cuts + 8 * i, window + last + 1)
    return chunks


@kernel
def count_starts(rep: int, cuts: int, chunks: int, max_rep: int, starts: int, behind: int) -> None:
    """Store for each chunk, entries ``cuts[i]`` to ``cuts[i + 1]``, how many rows start in it.

    ``behind`` gets its entries from the last of these starts on, all of them without one.
    """
    for i in range(chunks):
        begin = load_i64(cuts + 8 * i)
        end = load_i64(cuts + 8 * i + 8)
        last = begin
        seen = np.int64(0)
        at = begin
        while at < end:
            count = np.int64(min(end - at, WINDOW))
            found = above(rep + 2 * at, count, max_rep - 1)
            if found != np.uint64(0):
                seen += np.int64(popcount(found))
                last = at + WINDOW - 1 - np.int64(leading_zeros(found))
            at += count
        store_u64(starts + 8 * i, seen)
        store_u64(behind + 8 * i, end - last)
