"""Vector rows: 1,024 bits at once, the step in which FastLanes blocks are encoded.

A FastLanes block of ``T``-bit words lays its 1,024 values out in ``T`` rows of ``1024 / T``
values that lie side by side both packed and unpacked. One row is one LLVM vector, which the
compiler splits into whatever registers the machine has. Plain loops over the same rows are
not vectorised (numba cannot prove that memory does not overlap) and 4 to 11 times slower.

Shifts are given in bits, below the word width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ROW_BITS = 1024
LANES_OF_MASK = 64


def lanes_of(bits: int, lanes: int) -> Any:
    """The type of a vector of so many lanes."""
    return ir.VectorType(ir.IntType(bits), lanes)


def _row(bits: int) -> Any:
    return lanes_of(bits, ROW_BITS // bits)


def load(builder: Any, address: Any, kind: Any) -> Any:
    """A vector at any address."""
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def store(builder: Any, address: Any, value: Any) -> None:
    """Store a vector at any address."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def _offset(builder: Any, address: Any, size: int) -> Any:
    return builder.add(address, ir.Constant(ir.IntType(64), size))


def splat(builder: Any, word: Any, kind: Any) -> Any:
    """Put the low bits of a 64-bit word into every lane."""
    lane = word if kind.element.width == 64 else builder.trunc(word, kind.element)
    first = builder.insert_element(
        ir.Constant(kind, ir.Undefined), lane, ir.Constant(ir.IntType(32), 0)
    )
    every = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), every)


@contextmanager
def counted(builder: Any, count: Any) -> Iterator[Any]:
    """Write a loop: the block is its body and gets the number of the round.

    numba's own loops know which block ends their body, which checks of the sanitizer move.
    """
    number = ir.IntType(64)
    place = cgutils.alloca_once(builder, number)
    builder.store(ir.Constant(number, 0), place)
    head, body, end = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    at = builder.load(place)
    builder.cbranch(builder.icmp_signed("<", at, count), body, end)
    builder.position_at_end(body)
    yield at
    builder.store(builder.add(at, ir.Constant(number, 1)), place)
    builder.branch(head)
    builder.position_at_end(end)


def unpack_row(bits: int) -> Any:
    """``target[:] = (source >> shift) & mask``."""

    def typer(_context: Any, target: Any, source: Any, shift: Any, mask: Any) -> Any:
        def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = _row(bits)
            row = builder.lshr(load(builder, args[1], kind), splat(builder, args[2], kind))
            store(builder, args[0], builder.and_(row, splat(builder, args[3], kind)))
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.uint64), codegen

    return intrinsic(typer)


def unpack_straddling_row(bits: int) -> Any:
    """As ``unpack_row``, with the high bits from the row of words that follows."""

    def typer(_context: Any, target: Any, source: Any, shift: Any, mask: Any) -> Any:
        def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = _row(bits)
            low = builder.lshr(load(builder, args[1], kind), splat(builder, args[2], kind))
            left = builder.sub(ir.Constant(ir.IntType(64), bits), args[2])
            above = load(builder, _offset(builder, args[1], ROW_BITS // 8), kind)
            row = builder.or_(low, builder.shl(above, splat(builder, left, kind)))
            store(builder, args[0], builder.and_(row, splat(builder, args[3], kind)))
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.uint64), codegen

    return intrinsic(typer)


def pack_row(bits: int, part: str) -> Any:
    """Put a row of values into a row of words, at ``shift``.

    ``first`` overwrites the words, ``more`` keeps the bits that are set, ``rest`` overwrites them
    with the bits of the values that remain above ``shift``. Values are cut to ``mask``.
    """

    def typer(_context: Any, target: Any, source: Any, shift: Any, mask: Any) -> Any:
        def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = _row(bits)
            row = builder.and_(load(builder, args[1], kind), splat(builder, args[3], kind))
            by = splat(builder, args[2], kind)
            row = builder.lshr(row, by) if part == "rest" else builder.shl(row, by)
            if part == "more":
                row = builder.or_(row, load(builder, args[0], kind))
            store(builder, args[0], row)
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.uint64), codegen

    return intrinsic(typer)


def _changes(bits: int) -> Any:
    """Bit ``i`` of the result: whether value ``i`` of 64 differs from value ``i + 1``."""

    def typer(_context: Any, source: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = lanes_of(bits, LANES_OF_MASK)
            here = load(builder, args[0], kind)
            there = load(builder, _offset(builder, args[0], bits // 8), kind)
            return builder.bitcast(builder.icmp_unsigned("!=", here, there), ir.IntType(64))

        return types.uint64(types.int64), codegen

    return intrinsic(typer)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def fill(_context: Any, target: Any, word: Any) -> Any:
    """Store 64 bytes that repeat one 64-bit word."""

    def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        store(builder, args[0], splat(builder, args[1], lanes_of(64, 8)))
        return ctx.get_dummy_value()

    return types.void(types.int64, types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def copy_row(_context: Any, target: Any, source: Any) -> Any:
    """Copy 64 bytes."""

    def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        store(builder, args[0], load(builder, args[1], lanes_of(64, 8)))
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def bit_of_row(_context: Any, source: Any, bit: Any) -> Any:
    """Bit ``bit`` of each of 64 16-bit words, as one 64-bit word."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        kind = _row(16)
        one = ir.Constant(ir.IntType(64), 1)
        mask = splat(builder, builder.shl(one, args[1]), kind)
        row = builder.and_(load(builder, args[0], kind), mask)
        return builder.bitcast(builder.icmp_unsigned("==", row, mask), ir.IntType(64))

    return types.uint64(types.int64, types.int64), codegen


def _levels(condition: str) -> Any:
    """Bit ``i`` of the result: how the 16-bit word ``i`` of 64 compares with a level."""

    def typer(_context: Any, source: Any, level: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = _row(16)
            levels, level = load(builder, args[0], kind), splat(builder, args[1], kind)
            return builder.bitcast(builder.icmp_unsigned(condition, levels, level), ir.IntType(64))

        return types.uint64(types.int64, types.int64), codegen

    return intrinsic(typer)


levels_above = _levels(">")
levels_equal = _levels("==")

changes_8 = _changes(8)
changes_16 = _changes(16)
changes_32 = _changes(32)
changes_64 = _changes(64)
