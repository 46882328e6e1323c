"""Vector compares: 64 words at a time against one range, as 64 bits.

``word - low <= span``, unsigned and without regard to overflow, is one subtraction and one
compare for any range, also one that goes on at 0 behind the largest word: so signed numbers
need nothing of their own.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["in_range_8", "in_range_16", "in_range_32", "in_range_64"]

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


in_range_8 = _in_range(8)
in_range_16 = _in_range(16)
in_range_32 = _in_range(32)
in_range_64 = _in_range(64)
