"""Lower bounds of the distances of 64 codes at a time, by tables of bytes held in registers.

The entries of a table become bytes, rounded down; a table of 256 bytes is four registers, from
which one instruction picks 64 bytes out of two. What that leaves out only lowers the sums, so that
a row whose bound is beyond a limit need not be compared. Wrapper: ``glaive.kernels.code_scan``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.kernels.loops.memory import (
    item_f32,
    kernel,
    load_f32,
    put_u8,
    store_f32,
)
from glaive.kernels.loops.rows import counted, load
from glaive.kernels.machine import processor

LANES = 64
"""Codes that are bounded at a time."""

_ENTRIES = 256
_EPSILON = np.float32(1.2e-7)
_LARGEST = np.float32(1e30)

_HAS_PERMUTES = "+avx512vbmi" in processor()[1].split(",")
_I64, _I32 = ir.IntType(64), ir.IntType(32)
_BYTES, _PAIRS = ir.VectorType(ir.IntType(8), LANES), ir.VectorType(ir.IntType(16), LANES // 2)
_WORDS, _FLOATS = ir.VectorType(_I32, LANES // 2), ir.VectorType(ir.FloatType(), LANES // 2)


def pick(builder: Any, first: Any, second: Any, numbers: Any) -> Any:
    """The bytes with the numbers, of which the low seven bits count, out of two registers."""
    if not _HAS_PERMUTES:
        return pick_one_by_one(builder, first, second, numbers)
    kind = ir.FunctionType(_BYTES, [_BYTES] * 3)
    name = "llvm.x86.avx512.vpermi2var.qi.512"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [first, numbers, second])


def pick_one_by_one(builder: Any, first: Any, second: Any, numbers: Any) -> Any:
    """The same as :func:`pick` on any processor."""
    found = ir.Constant(_BYTES, ir.Undefined)
    both = cgutils.alloca_once(builder, ir.ArrayType(_BYTES, 2))
    for at, part in enumerate((first, second)):
        builder.store(part, cgutils.gep_inbounds(builder, both, 0, at))
    table = builder.bitcast(both, ir.ArrayType(ir.IntType(8), 2 * LANES).as_pointer())
    for lane in range(LANES):
        place = ir.Constant(_I32, lane)
        number = builder.zext(builder.extract_element(numbers, place), _I32)
        number = builder.and_(number, ir.Constant(_I32, 2 * LANES - 1))
        value = builder.load(cgutils.gep_inbounds(builder, table, 0, number))
        found = builder.insert_element(found, value, place)
    return found


def _splat(builder: Any, value: Any) -> Any:
    """Put a float into every lane."""
    none = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(none, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, none, ir.Constant(_WORDS, [0] * _WORDS.count))


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def rows_within(
    _context: Any, codes: Any, width: Any, tables: Any, terms: Any, weight: Any, offset: Any,
    step: Any, limit: Any,
) -> Any:  # fmt: skip
    """Bits of those of 64 rows whose bound is not beyond a limit.

    The bound of a row is ``offset + weight * term`` and ``step`` times its sum of bytes. Codes lie
    part by part; the rows 0, 32, 1, 33 and so on side by side.
    """

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        code_at, parts, table_at, terms_at, weight_of, start, step_of, most = args
        zero = ir.Constant(_PAIRS, [0] * _PAIRS.count)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(2)]
        for total in sums:
            builder.store(zero, total)
        low_byte = ir.Constant(_PAIRS, [255] * _PAIRS.count)
        eight = ir.Constant(_PAIRS, [8] * _PAIRS.count)
        with counted(builder, parts) as part:
            here = builder.add(code_at, builder.mul(part, ir.Constant(_I64, LANES)))
            table = builder.add(table_at, builder.mul(part, ir.Constant(_I64, _ENTRIES)))
            numbers = load(builder, here, _BYTES)
            quarters = [
                load(builder, builder.add(table, ir.Constant(_I64, at * LANES)), _BYTES)
                for at in range(4)
            ]
            low = pick(builder, quarters[0], quarters[1], numbers)
            high = pick(builder, quarters[2], quarters[3], numbers)
            is_high = builder.icmp_signed("<", numbers, ir.Constant(_BYTES, [0] * LANES))
            entries = builder.bitcast(builder.select(is_high, high, low), _PAIRS)
            halves = builder.and_(entries, low_byte), builder.lshr(entries, eight)
            for total, half in zip(sums, halves, strict=True):
                builder.store(builder.add(builder.load(total), half), total)
        step_of, most, weight_of, start = (
            _splat(builder, value) for value in (step_of, most, weight_of, start)
        )
        mask = ir.Constant(_I64, 0)
        for number, total in enumerate(sums):
            bound = builder.uitofp(builder.zext(builder.load(total), _WORDS), _FLOATS)
            bound = builder.fmul(bound, step_of)
            at = builder.add(terms_at, ir.Constant(_I64, number * LANES * 2))
            term = builder.fmul(load(builder, at, _FLOATS), weight_of)
            # Rounding of the term, which may be large.
            size = builder.fmul(term, _splat(builder, ir.Constant(ir.FloatType(), 1e-6)))
            is_less = builder.fcmp_ordered("<", size, ir.Constant(_FLOATS, [0.0] * _FLOATS.count))
            size = builder.select(is_less, builder.fneg(size), size)
            bound = builder.fadd(bound, builder.fsub(builder.fadd(start, term), size))
            within = builder.fcmp_unordered("<=", bound, most)
            bits = builder.zext(builder.bitcast(within, ir.IntType(LANES // 2)), _I64)
            mask = builder.or_(mask, builder.shl(bits, ir.Constant(_I64, number * LANES // 2)))
        return mask

    addresses, floats = (types.int64,) * 4, (types.float32,) * 4
    return types.uint64(*addresses, *floats), codegen


@kernel
def permutes_bytes() -> int:
    """Whether the processor has an instruction that picks bytes."""
    return 1 if _HAS_PERMUTES else 0


@kernel
def lesser(kept: np.float32, other: np.float32) -> np.float32:
    """The lesser of two numbers, the first of which is not NaN."""
    if other < kept:
        return other
    return kept


@kernel
def greater(kept: np.float32, other: np.float32) -> np.float32:
    """The greater of two numbers, the first of which is not NaN."""
    if other > kept:
        return other
    return kept


@kernel
def round_tables(tables: int, width: int, numbers: int, out: int) -> bool:
    """Make tables of bytes: an entry is ``least + step * byte`` and less than one step more.

    Stores step, the sum of the least entries less what rounding may add up to, and the least entry
    of each table. Bytes for NaN may be any: no sum with one is near. False where entries are too
    far apart, or too near.
    """
    span = base = large = np.float32(0)
    for part in range(width):
        table = tables + part * _ENTRIES * 4
        # Four at a time, none of which waits for another.
        a = b = c = d = _LARGEST
        e = f = g = h = -_LARGEST
        for i in range(0, _ENTRIES, 4):
            first, second = item_f32(table, i), item_f32(table, i + 1)
            third, fourth = item_f32(table, i + 2), item_f32(table, i + 3)
            a, e = lesser(a, first), greater(e, first)
            b, f = lesser(b, second), greater(f, second)
            c, g = lesser(c, third), greater(g, third)
            d, h = lesser(d, fourth), greater(h, fourth)
        least, most = min(a, b, c, d), max(e, f, g, h)
        store_f32(numbers + 8 + part * 4, least)
        base += least
        large += max(abs(least), abs(most))
        span = max(span, most - least)
    step = span / np.float32(255)
    if not (np.float32(1e-30) < step < _LARGEST) or not (large < _LARGEST):
        return False
    inverse = np.float32(1) / step
    for part in range(width):
        table, bytes_of = tables + part * _ENTRIES * 4, out + part * _ENTRIES
        least = load_f32(numbers + 8 + part * 4)
        for i in range(_ENTRIES):
            number = (item_f32(table, i) - least) * inverse
            number = lesser(np.float32(255), number)
            put_u8(bytes_of, i, np.int32(number))
    store_f32(numbers, step)
    store_f32(numbers + 4, base - large * _EPSILON * np.float32(4 * width + 64))
    return True
