"""Compiled copies of ranges with space between them; wrapper: ``glaive.kernels.spaced``."""

from __future__ import annotations

from glaive.kernels.loops.memory import copy, kernel, load_i64


@kernel
def space_ranges(data: int, starts: int, sizes: int, count: int, alignment: int, out: int) -> None:
    """Copy ranges, each to the next multiple of ``alignment``; there is room for all of them."""
    at = 0
    for i in range(count):
        size = load_i64(sizes + 8 * i)
        copy(out + at, data + load_i64(starts + 8 * i), size)
        at += (size + alignment - 1) // alignment * alignment
