"""Compiled search for the best of many centroids; its wrapper is in ``glaive.kernels.nearest``.

Four rows are multiplied with 32 centroids at a time, which lie in the table dimension by
dimension, so that each number of a row meets two vectors of 16 centroids. A loop over numbers
would be a sum in order, which no compiler may split: the step is written as instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.kernels.loops.memory import kernel, kernel_of, load_f32, load_i32, store_f32, store_u32
from glaive.kernels.loops.rows import counted, load, splat, store
from glaive.kernels.vector_records import FindNearest

LANES = 16
BLOCK = 32
ROWS = 4

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_NUMBERS = ir.VectorType(ir.IntType(32), LANES)
_I64 = ir.IntType(64)
_CONTRACT = ("contract",)


def _number(value: int) -> Any:
    return ir.Constant(_I64, value)


def splat_f32(builder: Any, value: Any) -> Any:
    """Put a float into every lane."""
    first = builder.insert_element(
        ir.Constant(_FLOATS, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
    )
    every = ir.Constant(_NUMBERS, [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_FLOATS, ir.Undefined), every)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def score_rows(
    _context: Any, rows: Any, stride: Any, dimension: Any, table: Any, blocks: Any, scratch: Any
) -> Any:
    """Store the best score of four rows in each lane, and the first centroid of its vector."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        first_row, row_bytes, dims, begin, count, into = args
        halves = BLOCK // LANES
        sums = [[cgutils.alloca_once(builder, _FLOATS) for _ in range(halves)] for _ in range(ROWS)]
        lowest = ir.Constant(_FLOATS, [float("-inf")] * LANES)
        best = [cgutils.alloca_once_value(builder, lowest) for _ in range(ROWS)]
        zeros = ir.Constant(_NUMBERS, [0] * LANES)
        chosen = [cgutils.alloca_once_value(builder, zeros) for _ in range(ROWS)]
        for row in range(ROWS):
            builder.store(lowest, best[row])
            builder.store(zeros, chosen[row])
        starts = [
            builder.add(first_row, builder.mul(row_bytes, _number(row))) for row in range(ROWS)
        ]
        line = BLOCK * 4
        block_bytes = builder.mul(builder.add(dims, _number(1)), _number(line))
        with counted(builder, count) as block_number:
            head = builder.add(begin, builder.mul(block_number, block_bytes))
            for half in range(halves):
                bias = load(builder, builder.add(head, _number(half * LANES * 4)), _FLOATS)
                for row in range(ROWS):
                    builder.store(bias, sums[row][half])
            with counted(builder, dims) as at_number:
                here = builder.add(
                    head, builder.mul(builder.add(at_number, _number(1)), _number(line))
                )
                numbers = [
                    load(builder, builder.add(here, _number(half * LANES * 4)), _FLOATS)
                    for half in range(halves)
                ]
                offset = builder.mul(at_number, _number(4))
                for row in range(ROWS):
                    address = builder.add(starts[row], offset)
                    value = splat_f32(builder, load(builder, address, ir.FloatType()))
                    for half in range(halves):
                        product = builder.fmul(value, numbers[half], flags=_CONTRACT)
                        total = builder.fadd(
                            builder.load(sums[row][half]), product, flags=_CONTRACT
                        )
                        builder.store(total, sums[row][half])
            for half in range(halves):
                first = builder.add(
                    builder.mul(block_number, _number(BLOCK)), _number(half * LANES)
                )
                ids = splat(builder, first, _NUMBERS)
                for row in range(ROWS):
                    score, before = builder.load(sums[row][half]), builder.load(best[row])
                    better = builder.fcmp_ordered(">", score, before)
                    builder.store(builder.select(better, score, before), best[row])
                    kept = builder.select(better, ids, builder.load(chosen[row]))
                    builder.store(kept, chosen[row])
        for row in range(ROWS):
            to = builder.add(into, _number(row * LANES * 8))
            store(builder, to, builder.load(best[row]))
            store(builder, builder.add(to, _number(LANES * 4)), builder.load(chosen[row]))
        return _ctx.get_dummy_value()

    return types.void(*(types.int64,) * 6), codegen


@kernel
def best_lane(lanes: int, id_to: int, score_to: int) -> None:
    """Choose among the lanes of a row: the best score, and of equal ones the first centroid."""
    score = load_f32(lanes)
    chosen = np.int64(load_i32(lanes + LANES * 4))
    for lane in range(1, LANES):
        other = load_f32(lanes + lane * 4)
        number = np.int64(load_i32(lanes + (LANES + lane) * 4)) + lane
        if other > score or (other == score and number < chosen):
            score, chosen = other, number
    store_u32(id_to, np.uint32(chosen))
    store_f32(score_to, score)


@kernel_of(FindNearest)
def find_nearest(
    rows: int, row_count: int, dimension: int, table: int, blocks: int, scratch: int, ids: int,
    scores: int,
) -> None:  # fmt: skip
    """Find the best centroid of each of at least four rows."""
    stride = dimension * 4
    at = 0
    while at < row_count:
        # The last four rows overlap those before them.
        first = min(at, row_count - ROWS)
        score_rows(rows + first * stride, stride, dimension, table, blocks, scratch)
        for row in range(ROWS):
            best_lane(
                scratch + row * LANES * 8, ids + (first + row) * 4, scores + (first + row) * 4
            )
        at += ROWS


@kernel
def add_rows(rows: int, count: int, dimension: int, ids: int, sums: int) -> None:
    """Add each row to the sums of its cluster."""
    for i in range(count):
        source = rows + i * dimension * 4
        target = sums + np.int64(load_i32(ids + i * 4)) * dimension * 4
        for j in range(dimension):
            store_f32(target + j * 4, load_f32(target + j * 4) + load_f32(source + j * 4))
