"""Vector steps of sets: 64 words looked up in a bitset at once.

A gather of 32-bit words is an instruction on processors with wide vectors; elsewhere the
compiler makes single loads of it, as a loop would.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.kernels.loops.compare import LANES
from glaive.kernels.loops.rows import lanes_of, load, splat

_SMALL, _WIDE, _FLAGS = (lanes_of(bits, LANES) for bits in (32, 64, 1))
HASH = 0x9E3779B97F4A7C15


def _each(kind: Any, number: int) -> Any:
    return ir.Constant(kind, [number] * LANES)


def _bits_at(builder: Any, bitmap: Any, positions: Any) -> Any:
    """Bit ``i`` of the result: the bit of a bitmap at position ``i`` of 64, each of 32 bits."""
    at = builder.shl(builder.lshr(positions, _each(_SMALL, 5)), _each(_SMALL, 2))
    addresses = builder.add(builder.zext(at, _WIDE), splat(builder, bitmap, _WIDE))
    pointers = ir.VectorType(ir.IntType(32).as_pointer(), LANES)
    gather = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(_SMALL, [pointers, ir.IntType(32), _FLAGS, _SMALL]),
        f"llvm.masked.gather.v{LANES}i32.v{LANES}p0",
    )
    every = [builder.inttoptr(addresses, pointers), ir.IntType(32)(4), _each(_FLAGS, 1)]
    words = builder.call(gather, [*every, _each(_SMALL, 0)])
    bit = builder.lshr(words, builder.and_(positions, _each(_SMALL, 31)))
    return builder.bitcast(builder.trunc(bit, _FLAGS), ir.IntType(64))


def _in_bitset(bits: int) -> Any:
    """Bit ``i``: the bit of a bitmap at ``word - base`` of word ``i``, or at ``top`` if beyond."""

    def typer(_context: Any, source: Any, bitmap: Any, base: Any, top: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            words = load(builder, args[0], lanes_of(bits, LANES))
            moved = builder.sub(words, splat(builder, args[2], words.type))
            top = splat(builder, args[3], words.type)
            positions = builder.select(builder.icmp_unsigned("<", moved, top), moved, top)
            if bits > 32:
                positions = builder.trunc(positions, _SMALL)
            return _bits_at(builder, args[1], positions)

        return types.uint64(types.int64, types.int64, types.uint64, types.uint64), codegen

    return intrinsic(typer)


def _in_prefilter(bits: int) -> Any:
    """Bit ``i``: the bit of a bitmap at the hash of word ``i``, its upper bits."""

    def typer(_context: Any, source: Any, bitmap: Any, shift: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            words = load(builder, args[0], lanes_of(bits, LANES))
            if bits < 64:
                words = builder.zext(words, _WIDE)
            mixed = builder.mul(words, _each(_WIDE, HASH))
            positions = builder.lshr(mixed, splat(builder, args[2], _WIDE))
            return _bits_at(builder, args[1], builder.trunc(positions, _SMALL))

        return types.uint64(types.int64, types.int64, types.uint64), codegen

    return intrinsic(typer)


in_bitset_32 = _in_bitset(32)
in_bitset_64 = _in_bitset(64)
in_prefilter_32 = _in_prefilter(32)
in_prefilter_64 = _in_prefilter(64)
