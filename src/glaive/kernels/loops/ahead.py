"""Memory asked for ahead of its use.

Processors do that themselves where kernels go through memory in one direction, but not in every
virtual machine: without, words were read five times as slowly as with it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["FETCHED", "LINE", "claim", "prefetch"]

LINE = 64
"""Bytes that a processor fetches at once."""

FETCHED = 2048
"""Bytes ahead of those that are read that memory is asked for."""


def _fetch(use: int) -> Any:
    """A request for the line at an address, to be read (0) or written (1)."""

    def typer(_context: Any, address: Any) -> Any:
        def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            # Kept in all caches, data.
            how = [ir.Constant(number, option) for option in (use, 3, 1)]
            builder.call(function, [builder.inttoptr(args[0], byte), *how])
            return ctx.get_dummy_value()

        return types.void(types.int64), codegen

    return intrinsic(typer)


prefetch = _fetch(0)
"""Have the processor fetch memory that is read soon; the address may be any."""

claim = _fetch(1)
"""Have the processor fetch memory that is written soon; the address may be any."""
