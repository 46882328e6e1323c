"""Distances of two vectors as instructions: sums of floats that no compiler may split by itself.

Vectors are padded with zeros to 64 bytes, so that there is no rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.kernels.loops.memory import kernel
from glaive.kernels.loops.rows import counted, load

SQUARED, DOT, SQUARED_BYTES = 0, 1, 2
"""Squared distance of floats; one minus their product; squared distance of bytes."""

BLOCK = 64

_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_CONTRACT = ("contract",)


def sum_of_lanes(builder: Any, vector: Any, add: Any) -> Any:
    """Add the lanes of a vector in halves."""
    lanes = vector.type.count
    while lanes > 1:
        lanes //= 2
        none = ir.Constant(vector.type, ir.Undefined)
        low, high = (
            builder.shuffle_vector(
                vector, none, ir.Constant(ir.VectorType(_I32, lanes), list(numbers))
            )
            for numbers in (range(lanes), range(lanes, 2 * lanes))
        )
        vector = add(low, high)
    return builder.extract_element(vector, ir.Constant(_I32, 0))


def _blocks(builder: Any, args: Any, step: Any) -> None:
    """Call ``step`` with the addresses of each block of two vectors."""
    first, second, size = args
    count = builder.lshr(size, ir.Constant(_I64, 6))
    with counted(builder, count) as loop_number:
        offset = builder.shl(loop_number, ir.Constant(_I64, 6))
        step(builder.add(first, offset), builder.add(second, offset))


def _of_floats(*, dot: bool) -> Any:
    kind = ir.VectorType(ir.FloatType(), BLOCK // 4)

    def typer(_context: Any, first: Any, second: Any, size: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            zero = ir.Constant(kind, [0.0] * kind.count)
            total = cgutils.alloca_once(builder, kind)
            builder.store(zero, total)

            def step(left: Any, right: Any) -> None:
                a, b = load(builder, left, kind), load(builder, right, kind)
                if not dot:
                    a = b = builder.fsub(a, b)
                product = builder.fmul(a, b, flags=_CONTRACT)
                builder.store(builder.fadd(builder.load(total), product, flags=_CONTRACT), total)

            _blocks(builder, args, step)
            return sum_of_lanes(builder, builder.load(total), builder.fadd)

        return types.float32(types.int64, types.int64, types.int64), codegen

    return intrinsic(typer)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def squared_bytes(_context: Any, first: Any, second: Any, size: Any) -> Any:
    """Squared distance of bytes, up to 32,768 of them."""
    half = BLOCK // 2
    octets = ir.VectorType(ir.IntType(8), half)
    words = ir.VectorType(ir.IntType(16), half)
    sums = ir.VectorType(_I32, half // 2)

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        total = cgutils.alloca_once(builder, sums)
        builder.store(ir.Constant(sums, [0] * sums.count), total)
        lanes = [
            ir.Constant(ir.VectorType(_I32, half // 2), list(range(start, half, 2)))
            for start in (0, 1)
        ]

        def step(left: Any, right: Any) -> None:
            for offset in (0, half):
                a, b = (
                    builder.zext(
                        load(builder, builder.add(side, ir.Constant(_I64, offset)), octets), words
                    )
                    for side in (left, right)
                )
                difference = builder.sub(a, b)
                none = ir.Constant(words, ir.Undefined)
                # Neighbours are multiplied and added by one instruction.
                even, odd = (
                    builder.sext(builder.shuffle_vector(difference, none, chosen), sums)
                    for chosen in lanes
                )
                squares = builder.add(builder.mul(even, even), builder.mul(odd, odd))
                builder.store(builder.add(builder.load(total), squares), total)

        _blocks(builder, args, step)
        whole = sum_of_lanes(builder, builder.load(total), builder.add)
        return builder.sitofp(whole, ir.FloatType())

    return types.float32(types.int64, types.int64, types.int64), codegen


squared_floats = _of_floats(dot=False)
dot_floats = _of_floats(dot=True)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def prefetch(_context: Any, address: Any) -> Any:
    """Ask for a line of memory that is read soon; any address will do."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        octet = ir.IntType(8).as_pointer()
        function_type = ir.FunctionType(ir.VoidType(), [octet, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        flags = [ir.Constant(_I32, value) for value in (0, 3, 1)]
        builder.call(function, [builder.inttoptr(args[0], octet), *flags])
        return _ctx.get_dummy_value()

    return types.void(types.int64), codegen


@kernel
def distance(first: int, second: int, size: int, kind: int) -> np.float32:
    """Distance of two vectors of ``size`` bytes, a multiple of 64."""
    if kind == SQUARED_BYTES:
        return squared_bytes(first, second, size)
    if kind == SQUARED:
        return squared_floats(first, second, size)
    return np.float32(1) - dot_floats(first, second, size)
