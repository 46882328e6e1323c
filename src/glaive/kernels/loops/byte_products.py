"""Compiled selection of likely pairs by products of bytes; wrapper: ``kernels.byte_products``.

As in ``products``, six rows are multiplied with up to 64 queries at a time. Rows become bytes in
the cache, a chunk at a time; four products of bytes are one instruction, where the processor
has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import initialize_native_asmparser
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.kernels.loops.memory import (
    float_of_bits,
    item_f32,
    item_u32,
    kernel,
    kernel_of,
    kernel_with_sums,
    load_f32,
    put_u8,
    square_root,
    store_f32,
)
from glaive.kernels.loops.nearest import splat_f32
from glaive.kernels.loops.products import FLOATS, I64, LANES, ROWS, constant, list_pairs
from glaive.kernels.loops.rows import counted, load, splat, store
from glaive.kernels.machine import processor
from glaive.kernels.vector_records import SelectLikely

ROW_NUMBERS = 16
"""Bytes of the numbers of a row: an offset, what a product stands for, and two bounds."""

_LEAST, _MOST = np.float32(1e-15), np.float32(1e15)
_SLACK = np.float32(1.001)

_HAS_PRODUCTS = "+avx512vnni" in processor()[1].split(",")
if _HAS_PRODUCTS:
    initialize_native_asmparser()  # the instruction is written by its name
_WORDS = ir.VectorType(ir.IntType(32), LANES)


def _add_products(builder: Any, sums: Any, row: Any, query: Any) -> Any:
    """Add four products, of bytes without and with a sign, to each sum."""
    if _HAS_PRODUCTS:
        kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS, _WORDS])
        # The intrinsic has other types in each version of LLVM.
        step = ir.InlineAsm(kind, "vpdpbusd $3, $2, $0", "=v,0,v,v")
        return builder.call(step, [sums, row, query])
    bytes_of, wide = ir.VectorType(ir.IntType(8), 4 * LANES), ir.VectorType(ir.IntType(32), 64)
    products = builder.mul(
        builder.zext(builder.bitcast(row, bytes_of), wide),
        builder.sext(builder.bitcast(query, bytes_of), wide),
    )
    for part in range(4):
        picks = ir.Constant(_WORDS, [4 * lane + part for lane in range(LANES)])
        sums = builder.add(sums, builder.shuffle_vector(products, products, picks))
    return sums


def _tile(vectors: int) -> Any:
    """Store for each of six rows which of ``16 * vectors`` queries it may be near to, as bits."""

    def typer(
        _context: Any, codes: Any, line: Any, numbers: Any, table: Any, lanes: Any, padded: Any,
        masks: Any,
    ) -> Any:  # fmt: skip
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            first_row, row_bytes, numbers_at, begin, lanes_at, lane_count, into = args
            lane_bytes = builder.mul(lane_count, constant(4))

            def lane(kind: Any, number: int, vector: int) -> Any:
                at = builder.add(lanes_at, builder.mul(lane_bytes, constant(number)))
                return load(builder, builder.add(at, constant(vector * LANES * 4)), kind)

            begins = [lane(_WORDS, 0, vector) for vector in range(vectors)]
            sums = [
                [cgutils.alloca_once_value(builder, begins[vector]) for vector in range(vectors)]
                for _ in range(ROWS)
            ]
            for row in range(ROWS):
                for vector in range(vectors):
                    builder.store(begins[vector], sums[row][vector])
            starts = [
                builder.add(first_row, builder.mul(row_bytes, constant(row))) for row in range(ROWS)
            ]
            block_bytes = builder.mul(row_bytes, constant(LANES))
            heads = [
                builder.add(begin, builder.mul(block_bytes, constant(vector)))
                for vector in range(vectors)
            ]
            with counted(builder, builder.lshr(row_bytes, constant(2))) as at_word:
                here = builder.mul(at_word, constant(LANES * 4))
                queries = [load(builder, builder.add(head, here), _WORDS) for head in heads]
                offset = builder.mul(at_word, constant(4))
                for row in range(ROWS):
                    place = builder.add(starts[row], offset)
                    word = splat(
                        builder,
                        builder.zext(load(builder, place, ir.IntType(32)), I64),
                        _WORDS,
                    )
                    for vector in range(vectors):
                        total = builder.load(sums[row][vector])
                        total = _add_products(builder, total, word, queries[vector])
                        builder.store(total, sums[row][vector])
            scales, lengths, errors, limits = (
                [lane(FLOATS, number, vector) for vector in range(vectors)]
                for number in (1, 2, 3, 4)
            )
            for row in range(ROWS):
                at = builder.add(numbers_at, constant(row * ROW_NUMBERS))
                offset, factor, by_length, by_error = (
                    splat_f32(
                        builder,
                        load(builder, builder.add(at, constant(4 * number)), ir.FloatType()),
                    )
                    for number in range(4)
                )
                mask = constant(0)
                for vector in range(vectors):
                    value = builder.sitofp(builder.load(sums[row][vector]), FLOATS)
                    value = builder.fmul(builder.fmul(value, scales[vector]), factor)
                    value = builder.fadd(value, offset)
                    value = builder.fadd(value, builder.fmul(lengths[vector], by_length))
                    value = builder.fadd(value, builder.fmul(errors[vector], by_error))
                    within = builder.fcmp_unordered("<=", value, limits[vector])
                    bits = builder.zext(builder.bitcast(within, ir.IntType(LANES)), I64)
                    mask = builder.or_(mask, builder.shl(bits, constant(vector * LANES)))
                store(builder, builder.add(into, constant(row * 8)), mask)
            return _ctx.get_dummy_value()

        return types.void(*(types.int64,) * 7), codegen

    return intrinsic(typer)


tile_1, tile_2, tile_3, tile_4 = map(_tile, (1, 2, 3, 4))


@kernel
def multiplies_bytes() -> int:
    """Whether the processor has an instruction for products of bytes."""
    return 1 if _HAS_PRODUCTS else 0


@kernel_with_sums
def encode_row(
    row: int, dimension: int, offset: np.float32, factor: np.float32, codes: int, numbers: int
) -> None:
    """Store a row as bytes around 128, and what its products stand for.

    A row that bytes cannot stand for gets numbers that are NaN: it may be near to any query.
    """
    most = np.uint32(0)
    for j in range(dimension):
        most = max(most, np.uint32(item_u32(row, j) & np.uint32(0x7FFFFFFF)))
    largest = float_of_bits(most)
    scale = inverse = error = squares = np.float32(0)
    within = _LEAST < largest < _MOST
    if within:
        scale, inverse = largest / np.float32(127), np.float32(127) / largest
    if not within and largest != np.float32(0):
        factor = np.float32(np.nan)
    else:
        for j in range(dimension):
            number = item_f32(row, j)
            code = np.int32(number * inverse + np.float32(128.5))
            put_u8(codes, j, code)
            gap = number - (np.float32(code) - np.float32(128)) * scale
            error += gap * gap
            squares += number * number
    error = square_root(error)
    store_f32(numbers, offset)
    store_f32(numbers + 4, factor * scale)
    bound = -abs(factor) * _SLACK
    store_f32(numbers + 8, bound * error)
    store_f32(numbers + 12, bound * (square_root(squares) + error))


@kernel_of(SelectLikely)
def select_likely(
    rows: int, row_count: int, present: int, dimension: int, line: int, table: int, queries: int,
    offsets: int, factors: int, lanes: int, padded: int, start: int, chunk: int, capacity: int,
    codes: int, numbers: int, masks: int, query_out: int, row_out: int,
) -> tuple[int, int]:  # fmt: skip
    """List pairs for which ``offset + factor * product`` may not exceed the query's limit.

    Begins with row ``start``, and ends before rows whose pairs might not fit: returns how
    many there are, and the next row. Six rows at least are ``present``; ``codes`` and ``numbers``
    have room for six more than a chunk.
    """
    stride = dimension * 4
    blocks = (queries + LANES - 1) // LANES
    found = 0
    at = start
    while at < row_count:
        stop = min(at + chunk, row_count)
        if (stop - at) * queries > capacity - found:
            return found, at
        base = min(at, present - ROWS)
        for number in range(base, max(stop, base + ROWS)):
            encode_row(
                rows + number * stride, dimension, load_f32(offsets + number * 4),
                load_f32(factors + number * 4), codes + (number - base) * line,
                numbers + (number - base) * ROW_NUMBERS,
            )  # fmt: skip
        block = 0
        while block < blocks:
            count = min(4, blocks - block)
            head = table + block * LANES * line
            lane = lanes + block * LANES * 4
            row = at
            while row < stop:
                # The last six rows overlap those before them.
                first = min(row, present - ROWS)
                vector = codes + (first - base) * line
                number = numbers + (first - base) * ROW_NUMBERS
                if count == 4:
                    tile_4(vector, line, number, head, lane, padded, masks)
                elif count == 3:
                    tile_3(vector, line, number, head, lane, padded, masks)
                elif count == 2:
                    tile_2(vector, line, number, head, lane, padded, masks)
                else:
                    tile_1(vector, line, number, head, lane, padded, masks)
                found = list_pairs(
                    masks, first, row, min(first + ROWS, stop), block * LANES, queries, query_out,
                    row_out, found,
                )  # fmt: skip
                row = first + ROWS
            block += count
        at = stop
    return found, row_count
