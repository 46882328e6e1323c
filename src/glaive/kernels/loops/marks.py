"""Vector steps of sets: 64 words looked up in a bitmap, all at once.

A gather of 32-bit words is an instruction on processors with wide vectors; elsewhere the
compiler makes loads of it, which is what a loop would be.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.kernels.loops.compare import LANES, _splat

__all__ = [
    "hashed_32",
    "hashed_64",
    "marked_32",
    "marked_64",
]

_SMALL, _WIDE = (ir.VectorType(ir.IntType(bits), LANES) for bits in (32, 64))
_FLAGS = ir.VectorType(ir.IntType(1), LANES)
HASH = 0x9E3779B97F4A7C15


def _each(kind: Any, number: int) -> Any:
    return ir.Constant(kind, [number] * LANES)


def _words(builder: Any, source: Any, bits: int) -> Any:
    kind = ir.VectorType(ir.IntType(bits), LANES)
    words = builder.load(builder.inttoptr(source, kind.as_pointer()))
    words.align = 1
    return words


def _bits_at(builder: Any, bitmap: Any, places: Any) -> Any:
    """Bit ``i`` of the result: the bit of a bitmap at place ``i`` of 64, each of 32 bits."""
    at = builder.shl(builder.lshr(places, _each(_SMALL, 5)), _each(_SMALL, 2))
    addresses = builder.add(builder.zext(at, _WIDE), _splat(builder, bitmap, _WIDE))
    pointers = ir.VectorType(ir.IntType(32).as_pointer(), LANES)
    gather = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(_SMALL, [pointers, ir.IntType(32), _FLAGS, _SMALL]),
        f"llvm.masked.gather.v{LANES}i32.v{LANES}p0",
    )
    every = [builder.inttoptr(addresses, pointers), ir.IntType(32)(4), _each(_FLAGS, 1)]
    found = builder.call(gather, [*every, _each(_SMALL, 0)])
    bit = builder.lshr(found, builder.and_(places, _each(_SMALL, 31)))
    return builder.bitcast(builder.trunc(bit, _FLAGS), ir.IntType(64))


def _marked(bits: int) -> Any:
    """Bit ``i``: the bit of a bitmap at ``word - base`` of word ``i``, or at ``top`` if beyond."""

    def typer(_context: Any, source: Any, bitmap: Any, base: Any, top: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            words = _words(builder, args[0], bits)
            moved = builder.sub(words, _splat(builder, args[2], words.type))
            top = _splat(builder, args[3], words.type)
            places = builder.select(builder.icmp_unsigned("<", moved, top), moved, top)
            if bits > 32:
                places = builder.trunc(places, _SMALL)
            return _bits_at(builder, args[1], places)

        return types.uint64(types.int64, types.int64, types.uint64, types.uint64), codegen

    return intrinsic(typer)


def _hashed(bits: int) -> Any:
    """Bit ``i``: the bit of a bitmap at the hash of word ``i``, its upper bits."""

    def typer(_context: Any, source: Any, bitmap: Any, shift: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            words = _words(builder, args[0], bits)
            if bits < 64:
                words = builder.zext(words, _WIDE)
            mixed = builder.mul(words, _each(_WIDE, HASH))
            places = builder.lshr(mixed, _splat(builder, args[2], _WIDE))
            return _bits_at(builder, args[1], builder.trunc(places, _SMALL))

        return types.uint64(types.int64, types.int64, types.uint64), codegen

    return intrinsic(typer)


marked_32 = _marked(32)
marked_64 = _marked(64)
hashed_32 = _hashed(32)
hashed_64 = _hashed(64)
