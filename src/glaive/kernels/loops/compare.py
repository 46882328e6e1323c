"""Vector steps of selections: 64 words against one range, and words side by side that stay.

``word - low <= span``, unsigned and without regard to overflow, is one subtraction and one
compare for any range, also one that goes on at 0 behind the largest word: so signed numbers
need nothing of their own.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "FAST_NARROW",
    "FAST_WIDE",
    "compress_8",
    "compress_16",
    "compress_32",
    "compress_64",
    "in_range_8",
    "in_range_16",
    "in_range_32",
    "in_range_64",
]

_FEATURES = get_host_cpu_features()

FAST_WIDE = bool(_FEATURES.get("avx512f"))
"""Whether ``compress_32`` and ``compress_64`` are an instruction; else they are a loop."""

FAST_NARROW = bool(_FEATURES.get("avx512vbmi2"))
"""The same of ``compress_8`` and ``compress_16``."""

LANES = 64


def _splat(builder: Any, word: Any, kind: Any) -> Any:
    lane = word if kind.element.width == 64 else builder.trunc(word, kind.element)
    first = builder.insert_element(
        ir.Constant(kind, ir.Undefined), lane, ir.Constant(ir.IntType(32), 0)
    )
    every = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), every)


def _in_range(bits: int) -> Any:
    """Bit ``i`` of the result: whether word ``i`` of 64 lies in ``low … low + span``."""

    def typer(_context: Any, source: Any, low: Any, span: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = ir.VectorType(ir.IntType(bits), LANES)
            words = builder.load(builder.inttoptr(args[0], kind.as_pointer()))
            words.align = 1
            moved = builder.sub(words, _splat(builder, args[1], kind))
            found = builder.icmp_unsigned("<=", moved, _splat(builder, args[2], kind))
            return builder.bitcast(found, ir.IntType(64))

        return types.uint64(types.int64, types.uint64, types.uint64), codegen

    return intrinsic(typer)


def _compress(bits: int) -> Any:
    """Store those words of 64 bytes that have a bit in ``mask`` side by side.

    Writes 64 bytes, whatever the mask.
    """
    lanes = 512 // bits

    def typer(_context: Any, target: Any, source: Any, mask: Any) -> Any:
        def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = ir.VectorType(ir.IntType(bits), lanes)
            flags = ir.VectorType(ir.IntType(1), lanes)
            words = builder.load(builder.inttoptr(args[1], kind.as_pointer()))
            words.align = 1
            lanes_of_mask = ir.IntType(lanes)
            mask = args[2] if lanes == LANES else builder.trunc(args[2], lanes_of_mask)
            compress = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(kind, [kind, flags, kind]),
                f"llvm.experimental.vector.compress.v{lanes}i{bits}",
            )
            none = ir.Constant(kind, [0] * lanes)
            found = builder.call(compress, [words, builder.bitcast(mask, flags), none])
            builder.store(found, builder.inttoptr(args[0], kind.as_pointer())).align = 1
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64, types.uint64), codegen

    return intrinsic(typer)


in_range_8 = _in_range(8)
in_range_16 = _in_range(16)
in_range_32 = _in_range(32)
in_range_64 = _in_range(64)
compress_8 = _compress(8)
compress_16 = _compress(16)
compress_32 = _compress(32)
compress_64 = _compress(64)
