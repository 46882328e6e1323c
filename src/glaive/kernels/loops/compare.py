"""Vector steps of selections: 64 words compared with one range, and selected words compacted.

``word - low <= span``, unsigned and modulo the word, is one subtraction and one comparison for
any range, also one that wraps around from the largest word to 0: so signed numbers need no
case of their own.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.kernels.loops.rows import lanes_of, load, splat, store

_FEATURES = get_host_cpu_features()

FAST_WIDE = bool(_FEATURES.get("avx512f"))
"""Whether ``compress_32`` and ``compress_64`` are an instruction; else they are a loop."""

FAST_NARROW = bool(_FEATURES.get("avx512vbmi2"))
"""The same of ``compress_8`` and ``compress_16``."""

LANES = 64


def _in_range(bits: int) -> Any:
    """Bit ``i`` of the result: whether word ``i`` of 64 lies in ``low … low + span``."""

    def typer(_context: Any, source: Any, low: Any, span: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = lanes_of(bits, LANES)
            moved = builder.sub(load(builder, args[0], kind), splat(builder, args[1], kind))
            passing = builder.icmp_unsigned("<=", moved, splat(builder, args[2], kind))
            return builder.bitcast(passing, ir.IntType(64))

        return types.uint64(types.int64, types.uint64, types.uint64), codegen

    return intrinsic(typer)


def _compress(bits: int) -> Any:
    """Store side by side those words of 64 bytes that have a bit in ``mask``.

    Writes 64 bytes, whatever the mask.
    """
    lanes = 512 // bits

    def typer(_context: Any, target: Any, source: Any, mask: Any) -> Any:
        def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind, flags = lanes_of(bits, lanes), lanes_of(1, lanes)
            mask = args[2] if lanes == LANES else builder.trunc(args[2], ir.IntType(lanes))
            compress = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(kind, [kind, flags, kind]),
                f"llvm.experimental.vector.compress.v{lanes}i{bits}",
            )
            none = ir.Constant(kind, [0] * lanes)
            words = [load(builder, args[1], kind), builder.bitcast(mask, flags), none]
            store(builder, args[0], builder.call(compress, words))
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
