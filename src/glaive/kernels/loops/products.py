"""Compiled selection of near pairs by products; its wrapper is in ``glaive.kernels.products``.

Six rows are multiplied with up to 64 queries at a time. The table stores queries dimension by
dimension in blocks of 16. The sums stay in registers; the kernel stores which sums are within the
limits. It is written as instructions for the reason that ``score_rows`` of ``distances`` has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glaive.kernels.loops.distances import splat_f32
from glaive.kernels.loops.memory import (
    counted,
    instruction,
    kernel,
    load,
    load_u64,
    store,
    store_u32,
    trailing_zeros,
)

LANES = 16
ROWS = 6

FLOATS = ir.VectorType(ir.FloatType(), LANES)
I64 = ir.IntType(64)
_CONTRACT = ("contract",)


def constant(value: int) -> Any:
    """Make a 64-bit number in code."""
    return ir.Constant(I64, value)


def _tile(vectors: int) -> Any:
    """Store bits for each of six rows: which of ``16 * vectors`` queries it may be near to."""

    @instruction(types.void, *(types.int64,) * 8)
    def write(
        builder: Any, first_row: Any, row_bytes: Any, dims: Any, begin: Any, offset_at: Any,
        factor_at: Any, limit_at: Any, into: Any,
    ) -> Any:  # fmt: skip
        zero = ir.Constant(FLOATS, [0.0] * LANES)
        sums = [
            [cgutils.alloca_once_value(builder, zero) for _ in range(vectors)] for _ in range(ROWS)
        ]
        starts = [
            builder.add(first_row, builder.mul(row_bytes, constant(row))) for row in range(ROWS)
        ]
        block_bytes = builder.mul(dims, constant(LANES * 4))
        heads = [
            builder.add(begin, builder.mul(block_bytes, constant(vector)))
            for vector in range(vectors)
        ]
        with counted(builder, dims) as at_number:
            line = builder.mul(at_number, constant(LANES * 4))
            numbers = [load(builder, builder.add(head, line), FLOATS) for head in heads]
            offset = builder.mul(at_number, constant(4))
            for row in range(ROWS):
                place = builder.add(starts[row], offset)
                value = splat_f32(builder, load(builder, place, ir.FloatType()))
                for vector in range(vectors):
                    product = builder.fmul(value, numbers[vector], flags=_CONTRACT)
                    total = builder.load(sums[row][vector])
                    total = builder.fadd(total, product, flags=_CONTRACT)
                    builder.store(total, sums[row][vector])
        for row in range(ROWS):
            at = constant(row * 4)
            start = load(builder, builder.add(offset_at, at), ir.FloatType())
            factor = load(builder, builder.add(factor_at, at), ir.FloatType())
            start, factor = splat_f32(builder, start), splat_f32(builder, factor)
            mask = constant(0)
            for vector in range(vectors):
                value = builder.fmul(builder.load(sums[row][vector]), factor)
                value = builder.fadd(value, start)
                there = builder.add(limit_at, constant(vector * LANES * 4))
                within = builder.fcmp_unordered("<=", value, load(builder, there, FLOATS))
                bits = builder.zext(builder.bitcast(within, ir.IntType(LANES)), I64)
                mask = builder.or_(mask, builder.shl(bits, constant(vector * LANES)))
            store(builder, builder.add(into, constant(row * 8)), mask)

    return write


tile_1, tile_2, tile_3, tile_4 = map(_tile, (1, 2, 3, 4))


@kernel
def list_pairs(
    masks: int, first: int, row: int, stop: int, query: int, queries: int, query_out: int,
    row_out: int, found: int,
) -> int:  # fmt: skip
    """Add the pairs of rows ``row`` to ``stop`` with 64 queries whose bits are set.

    The first mask belongs to row ``first``, the first bit of each mask to ``query``. Return the new
    number of pairs.
    """
    for number in range(row, stop):
        word = load_u64(masks + (number - first) * 8)
        while word:
            near = query + np.int64(trailing_zeros(word))
            word &= word - np.uint64(1)
            if near < queries:
                store_u32(query_out + found * 4, np.uint32(near))
                store_u32(row_out + found * 4, np.uint32(number))
                found += 1
    return found


@kernel
def select_near(
    rows: int, row_count: int, present: int, dimension: int, table: int, queries: int,
    offsets: int, factors: int, limits: int, start: int, chunk: int, capacity: int, masks: int,
    query_out: int, row_out: int,
) -> tuple[int, int]:  # fmt: skip
    """List pairs for which ``offset + factor * product`` is within the query's limit.

    Stored numbers have 32 bits. Begin with row ``start``, and end before rows whose pairs may need
    more room. Return the number of pairs, and the next row. At least six rows are ``present``.
    """
    stride = dimension * 4
    blocks = (queries + LANES - 1) // LANES
    found = 0
    at = start
    while at < row_count:
        stop = min(at + chunk, row_count)
        if (stop - at) * queries > capacity - found:
            return found, at
        block = 0
        while block < blocks:
            count = min(4, blocks - block)
            head = table + block * LANES * stride
            limit = limits + block * LANES * 4
            row = at
            while row < stop:
                # The last six rows overlap those before them.
                first = min(row, present - ROWS)
                vector = rows + first * stride
                offset, factor = offsets + first * 4, factors + first * 4
                if count == 4:
                    tile_4(vector, stride, dimension, head, offset, factor, limit, masks)
                elif count == 3:
                    tile_3(vector, stride, dimension, head, offset, factor, limit, masks)
                elif count == 2:
                    tile_2(vector, stride, dimension, head, offset, factor, limit, masks)
                else:
                    tile_1(vector, stride, dimension, head, offset, factor, limit, masks)
                found = list_pairs(
                    masks, first, row, min(first + ROWS, stop), block * LANES, queries, query_out,
                    row_out, found,
                )  # fmt: skip
                row = first + ROWS
            block += count
        at = stop
    return found, row_count
