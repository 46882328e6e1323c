"""Lists of candidates of searches in graphs: nodes in order of distance, and which were looked at.

A list is two rows of 32-bit words: numbers of nodes, and distances.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glaive.kernels.loops.memory import kernel, load_f32, load_i32, store_f32, store_u32
from glaive.kernels.loops.rows import lanes_of, load, store

EXPANDED = 1 << 30
"""Added to the number of a node in a list of candidates once its neighbours were looked at."""


@kernel
def put(target: int, value: int) -> None:
    """Store one 32-bit word."""
    store_u32(target, np.uint32(value))


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def shift_16(_context: Any, address: Any) -> Any:
    """Move 16 words by one place."""
    words = lanes_of(32, 16)

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        moved = builder.add(args[0], ir.Constant(ir.IntType(64), 4))
        store(builder, moved, load(builder, args[0], words))
        return _ctx.get_dummy_value()

    return types.void(types.int64), codegen


@kernel
def insert(ids: int, distances: int, count: int, most: int, node: int, far: np.float32) -> int:
    """Insert into a list in order of distance, behind equal ones; returns the place.

    NaN comes last: nothing is behind it but NaN.
    """
    low = 0
    if math.isnan(far):  # numpy's is lowered to a loop, which cannot be checked
        low = min(count, most - 1)
    while low + 16 <= count and load_f32(distances + low * 4 + 60) <= far:
        low += 16
    while low < count and load_f32(distances + low * 4) <= far:
        low += 1
    end = min(count, most - 1)
    while end - low >= 16:
        end -= 16
        shift_16(ids + end * 4)
        shift_16(distances + end * 4)
    while end > low:
        end -= 1
        put(ids + end * 4 + 4, load_i32(ids + end * 4))
        store_f32(distances + end * 4 + 4, load_f32(distances + end * 4))
    put(ids + low * 4, node)
    store_f32(distances + low * 4, far)
    return low
