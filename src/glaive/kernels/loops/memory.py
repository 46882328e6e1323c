"""Loads, stores and copies at integer addresses: the instructions that kernels are written in.

Addresses need no alignment; numbers are little-endian. Each name is an LLVM instruction or
two, so a loop over them costs what the same loop costs in C, and one compiled signature
(all ``int64``) serves every type, writable or not.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.config import settings
from glaive.kernels.loops.ahead import claim, prefetch
from glaive.kernels.loops.build import CheckedCompiler, WrappingCompiler

__all__ = [
    "claim",
    "copy",
    "copy8",
    "copy16",
    "float_of_bits",
    "item_f32",
    "item_f64",
    "item_u8",
    "item_u16",
    "item_u32",
    "kernel",
    "kernel_of",
    "kernel_with_sums",
    "leading_zeros",
    "load_f32",
    "load_f64",
    "load_i32",
    "load_i64",
    "load_partial",
    "load_u8",
    "load_u16",
    "load_u32",
    "load_u64",
    "pick",
    "popcount",
    "prefetch",
    "put_f32",
    "put_u8",
    "same_bytes",
    "set_bit",
    "square_root",
    "store_f32",
    "store_f64",
    "store_u8",
    "store_u16",
    "store_u32",
    "store_u64",
    "trailing_zeros",
    "wrapping_add",
    "wrapping_sub",
]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Mark a function as a kernel; ``glaive.kernels.native`` makes it callable.

    Other kernels call it as it is. Python must not, but in the checked build: there is no entry.
    Signed arithmetic wraps: see ``build.py``.
    """
    return _compiled(function)


def kernel_of(record: type[tuple[int, ...]], *, sums: bool = False) -> Callable[[F], F]:
    """Compile a kernel that is called with the members of a record: ``function(*record)``.

    ``sums`` as for :func:`kernel_with_sums`.

    Raises
    ------
    TypeError
        Its parameters are not the members of the record, in their order.
    """

    def compiled(function: F) -> F:
        names, members = tuple(signature(function).parameters), getattr(record, "_fields", ())
        if names != members:
            raise TypeError(f"{function.__name__}{names} is to be called with {members}")
        return kernel_with_sums(function) if sums else kernel(function)

    return compiled


def kernel_with_sums(function: F) -> F:
    """A kernel whose sums of floats may be added up in any order, so many at a time.

    Products may be fused with sums. Infinities and NaN stay what they are, and a division by
    zero gives one of them.
    """
    return _compiled(function, fastmath={"reassoc", "contract"}, error_model="numpy")


def _compiled(function: F, **options: Any) -> F:
    checked = settings.kernels == "checked"
    compiler = CheckedCompiler if checked else WrappingCompiler
    made = njit(
        pipeline_class=compiler,
        nogil=True,
        boundscheck=False,
        # Python calls an entry of ours: see ``entry.py``. They take a sixth of the time.
        no_cpython_wrapper=not checked,
        no_cfunc_wrapper=True,
        **options,
    )(function)
    return cast("F", made)


def _load(bits: int, result: Any) -> Any:
    def typer(_context: Any, address: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()))
            value.align = 1
            return value

        return result(types.int64), codegen

    return intrinsic(typer)


def _store(bits: int) -> Any:
    def typer(_context: Any, address: Any, value: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            word = args[1]
            if word.type.width > bits:
                word = builder.trunc(word, kind)
            elif word.type.width < bits:
                word = builder.zext(word, kind)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            builder.store(word, pointer).align = 1
            return _ctx.get_dummy_value()

        return types.void(types.int64, value), codegen

    return intrinsic(typer)


load_u8 = _load(8, types.uint8)
load_u16 = _load(16, types.uint16)
load_u32 = _load(32, types.uint32)
load_u64 = _load(64, types.uint64)
load_i32 = _load(32, types.int32)
load_i64 = _load(64, types.int64)


def _load_float(kind: Any, result: Any) -> Any:
    def typer(_context: Any, address: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()))
            value.align = 1
            return value

        return result(types.int64), codegen

    return intrinsic(typer)


load_f32 = _load_float(ir.FloatType(), types.float32)
load_f64 = _load_float(ir.DoubleType(), types.float64)


def _item_pointer(builder: Any, kind: Any, first: Any, number: Any) -> Any:
    """Where item ``number`` from a first one on is, in a form that loops do many at a time."""
    if settings.kernels == "checked":  # which recognises integers that become pointers
        size = {"half": 2, "float": 4, "double": 8}.get(str(kind)) or kind.width // 8
        at = builder.add(first, builder.mul(number, ir.Constant(ir.IntType(64), size)))
        return builder.inttoptr(at, kind.as_pointer())
    return builder.gep(builder.inttoptr(first, kind.as_pointer()), [number])


def _item(kind: Any, result: Any) -> Any:
    def typer(_context: Any, first: Any, number: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            value = builder.load(_item_pointer(builder, kind, *args))
            value.align = 1
            return value

        return result(types.int64, types.int64), codegen

    return intrinsic(typer)


item_f32 = _item(ir.FloatType(), types.float32)
item_f64 = _item(ir.DoubleType(), types.float64)
item_u8 = _item(ir.IntType(8), types.uint8)
item_u16 = _item(ir.IntType(16), types.uint16)
item_u32 = _item(ir.IntType(32), types.uint32)


def _put(kind: Any, value: Any) -> Any:
    """Store item ``number`` from a first one on: of integers the low bits."""

    def typer(_context: Any, first: Any, number: Any, word: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            item = builder.trunc(args[2], kind) if isinstance(kind, ir.IntType) else args[2]
            builder.store(item, _item_pointer(builder, kind, *args[:2])).align = 1
            return _ctx.get_dummy_value()

        return types.void(types.int64, types.int64, value), codegen

    return intrinsic(typer)


put_f32 = _put(ir.FloatType(), types.float32)
put_u8 = _put(ir.IntType(8), types.int32)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def store_f32(_context: Any, address: Any, value: Any) -> Any:
    """Store a ``float32``."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.FloatType().as_pointer())).align = 1
        return _ctx.get_dummy_value()

    return types.void(types.int64, types.float32), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def store_f64(_context: Any, address: Any, value: Any) -> Any:
    """Store a ``float64``."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.DoubleType().as_pointer())).align = 1
        return _ctx.get_dummy_value()

    return types.void(types.int64, types.float64), codegen


store_u8 = _store(8)
store_u16 = _store(16)
store_u32 = _store(32)
store_u64 = _store(64)


def _copy_fixed(size: int) -> Any:
    def typer(_context: Any, target: Any, source: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = ir.IntType(size * 8)
            value = builder.load(builder.inttoptr(args[1], kind.as_pointer()))
            value.align = 1
            builder.store(value, builder.inttoptr(args[0], kind.as_pointer())).align = 1
            return _ctx.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return intrinsic(typer)


copy8 = _copy_fixed(8)
copy16 = _copy_fixed(16)


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def copy(_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy ``size`` bytes between ranges that do not overlap."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(args[i], byte) for i in (0, 1))
        cgutils.raw_memcpy(builder, to, of, args[2], 1)
        return _ctx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def float_of_bits(_context: Any, word: Any) -> Any:
    """The ``float32`` with the bits of a ``uint32``."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def square_root(_context: Any, number: Any) -> Any:
    """The root of a float: an instruction, where ``math.sqrt`` calls the library."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        root = builder.module.declare_intrinsic("llvm.sqrt", [args[0].type])
        return builder.call(root, args)

    return number(number), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def pick(_context: Any, word: Any, zero: Any, other: Any) -> Any:
    """Return ``zero`` where ``word`` is 0, else ``other``, without a branch.

    The compiler makes a branch of most Python conditions whose sides load memory. Where the
    processor cannot predict it, a branch costs more than loading both.
    """

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        is_zero = builder.icmp_unsigned("==", args[0], ir.Constant(args[0].type, 0))
        chosen = builder.select(is_zero, args[1], args[2])
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return zero(word, zero, other), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def popcount(_context: Any, word: Any) -> Any:
    """Number of set bits of a ``uint64``."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def trailing_zeros(_context: Any, word: Any) -> Any:
    """Number of zero bits below the lowest set bit of a ``uint64``; 64 for zero."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def leading_zeros(_context: Any, word: Any) -> Any:
    """Number of zero bits above the highest set bit of a ``uint64``; 64 for zero."""

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@kernel
def load_partial(source: int, stop: int) -> np.uint64:
    """Eight bytes; those from ``stop`` on are 0 and are not read."""
    if source + 8 <= stop:
        return load_u64(source)
    word = np.uint64(0)
    shift = np.uint64(0)
    while source < stop:
        word |= np.uint64(load_u8(source)) << shift
        shift += np.uint64(8)
        source += 1
    return word


@kernel
def same_bytes(first: int, second: int, size: int) -> bool:
    """Whether two ranges of ``size`` bytes are equal."""
    at = 0
    while at + 8 <= size:
        if load_u64(first + at) != load_u64(second + at):
            return False
        at += 8
    while at < size:
        if load_u8(first + at) != load_u8(second + at):
            return False
        at += 1
    return True


@kernel
def set_bit(bits: int, number: int) -> None:
    """Set one bit of a bitmap."""
    byte = bits + (number >> 3)
    store_u8(byte, np.uint64(load_u8(byte)) | (np.uint64(1) << np.uint64(number & 7)))


@kernel
def wrapping_add(a: int, b: int) -> int:
    """Return ``a + b`` modulo 2^64, for sums that are not used where they overflow."""
    return np.int64(np.uint64(a) + np.uint64(b))


@kernel
def wrapping_sub(a: int, b: int) -> int:
    """Return ``a - b`` modulo 2^64, for numbers of a file that may lie far apart."""
    return np.int64(np.uint64(a) - np.uint64(b))
