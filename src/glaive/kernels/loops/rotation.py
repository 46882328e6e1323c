"""Compiled rotation of vectors, and codes of rotated ones; wrappers: ``glaive.kernels.products``.

All steps take eight numbers at a time: dimensions are multiples of eight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glaive.kernels.loops.memory import (
    counted,
    instruction,
    kernel,
    load,
    load_f32,
    store,
    store_f32,
)

LANES = 8
ROUNDS = 4

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_NUMBERS = ir.VectorType(ir.IntType(32), LANES)
_I64 = ir.IntType(64)
_CONTRACT = ("contract",)


def _splat(builder: Any, value: Any) -> Any:
    none = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(none, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, none, ir.Constant(_NUMBERS, [0] * LANES))


def _sum_of_lanes(builder: Any, vector: Any, add: Any) -> Any:
    """Add the lanes of a vector in halves."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        none = ir.Constant(vector.type, ir.Undefined)
        low, high = (
            builder.shuffle_vector(
                vector, none, ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(numbers))
            )
            for numbers in (range(lanes), range(lanes, 2 * lanes))
        )
        vector = add(low, high)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@instruction(types.void, types.int64, types.int64)
def butterfly(builder: Any, first: Any, second: Any) -> Any:
    """Replace eight numbers and eight others by their sums and differences."""
    a, b = (load(builder, address, _FLOATS) for address in (first, second))
    store(builder, first, builder.fadd(a, b))
    store(builder, second, builder.fsub(a, b))


@instruction(types.void, types.int64)
def hadamard_8(builder: Any, address: Any) -> Any:
    """Compute the Walsh-Hadamard transform of eight numbers."""
    numbers = load(builder, address, _FLOATS)
    for stride in (1, 2, 4):
        others = builder.shuffle_vector(
            numbers,
            ir.Constant(_FLOATS, ir.Undefined),
            ir.Constant(_NUMBERS, [lane ^ stride for lane in range(LANES)]),
        )
        signs = [-1.0 if lane & stride else 1.0 for lane in range(LANES)]
        numbers = builder.fadd(others, builder.fmul(numbers, ir.Constant(_FLOATS, signs)))
    store(builder, address, numbers)


@instruction(types.void, types.int64, types.int64)
def multiply_8(builder: Any, address: Any, factors: Any) -> Any:
    """Multiply eight numbers with eight others."""
    a, b = load(builder, address, _FLOATS), load(builder, factors, _FLOATS)
    store(builder, address, builder.fmul(a, b))


@instruction(types.void, types.int64, types.float32)
def scale_8(builder: Any, address: Any, factor: Any) -> Any:
    """Multiply eight numbers with one."""
    scaled = builder.fmul(load(builder, address, _FLOATS), _splat(builder, factor))
    store(builder, address, scaled)


@instruction(types.float32, types.int64, types.int64, types.float32, types.float32)
def fit(builder: Any, address: Any, count: Any, by: Any, limit: Any) -> Any:
    """Return how well codes fit: the squared cosine between numbers and their codes plus 1/2."""
    zero = ir.Constant(_FLOATS, [0.0] * LANES)
    half = ir.Constant(_FLOATS, [0.5] * LANES)
    product, square = (cgutils.alloca_once(builder, _FLOATS) for _ in range(2))
    builder.store(zero, product)
    builder.store(zero, square)
    factors, limits = _splat(builder, by), _splat(builder, limit)
    with counted(builder, builder.lshr(count, ir.Constant(_I64, 3))) as loop_number:
        at = builder.add(address, builder.shl(loop_number, ir.Constant(_I64, 5)))
        number = load(builder, at, _FLOATS)
        scaled = builder.fmul(number, factors)
        clipped = builder.select(builder.fcmp_ordered("<", scaled, limits), scaled, limits)
        code = builder.sitofp(builder.fptosi(clipped, _NUMBERS), _FLOATS)
        value = builder.fadd(code, half)
        for total, left in ((product, number), (square, value)):
            term = builder.fmul(left, value, flags=_CONTRACT)
            builder.store(builder.fadd(builder.load(total), term, flags=_CONTRACT), total)
    dot = _sum_of_lanes(builder, builder.load(product), builder.fadd)
    norm = _sum_of_lanes(builder, builder.load(square), builder.fadd)
    return builder.fdiv(builder.fmul(dot, dot), norm)


@instruction(types.void, types.int64, types.float32, types.float32, types.int64)
def encode_8(builder: Any, numbers: Any, factor: Any, limit: Any, codes: Any) -> Any:
    """Store the codes of eight numbers, a byte each."""
    scaled = builder.fmul(load(builder, numbers, _FLOATS), _splat(builder, factor))
    limits = _splat(builder, limit)
    clipped = builder.select(builder.fcmp_ordered("<", scaled, limits), scaled, limits)
    octets = ir.VectorType(ir.IntType(8), LANES)
    store(builder, codes, builder.trunc(builder.fptosi(clipped, _NUMBERS), octets))


@kernel
def hadamard(numbers: int, size: int, factor: np.float32) -> None:
    """Compute the scaled Walsh-Hadamard transform of ``size`` numbers, a power of two from 8 on."""
    for at in range(0, size, LANES):
        hadamard_8(numbers + at * 4)
    stride = LANES
    while stride < size:
        for first in range(0, size, 2 * stride):
            for at in range(first, first + stride, LANES):
                butterfly(numbers + at * 4, numbers + (at + stride) * 4)
        stride *= 2
    for at in range(0, size, LANES):
        scale_8(numbers + at * 4, factor)


@kernel
def rotate(
    rows: int, count: int, dimension: int, signs: int, size: int, factor: np.float32
) -> None:
    """Rotate vectors in place; ``size`` is the largest power of two up to the dimension."""
    half = dimension // 2
    for i in range(count):
        row = rows + i * dimension * 4
        for turn in range(ROUNDS):
            for at in range(0, dimension, LANES):
                multiply_8(row + at * 4, signs + (turn * dimension + at) * 4)
            if size == dimension:
                hadamard(row, size, factor)
                continue
            start = row
            if turn % 2 == 1:
                start = row + (dimension - size) * 4
            hadamard(start, size, factor)
            even = half // LANES * LANES
            for at in range(0, even, LANES):
                butterfly(row + at * 4, row + (half + at) * 4)
            for at in range(even, half):
                a, b = load_f32(row + at * 4), load_f32(row + (half + at) * 4)
                store_f32(row + at * 4, a + b)
                store_f32(row + (half + at) * 4, a - b)
        if size != dimension:
            for at in range(0, dimension, LANES):
                scale_8(row + at * 4, np.float32(0.25))


@kernel
def quantize_rotated(
    rows: int, row_count: int, dimension: int, factors: int, factor_count: int, max_code: int,
    codes: int,
) -> None:  # fmt: skip
    """Encode numbers from 0 on with the factor that fits best, for each row."""
    limit = np.float32(max_code)
    for i in range(row_count):
        row = rows + i * dimension * 4
        best = np.float32(-1)
        chosen = load_f32(factors)
        for k in range(factor_count):
            factor = load_f32(factors + k * 4)
            quality = fit(row, dimension, factor, limit)
            if quality > best:
                best = quality
                chosen = factor
        for at in range(0, dimension, LANES):
            encode_8(row + at * 4, chosen, limit, codes + i * dimension + at)
