"""Loads, stores and copies at integer addresses: the instructions that kernels are written in.

Addresses may have any alignment; numbers are little-endian. Each name is an LLVM instruction or
two, so that loops are as fast as in C. One compiled signature (all ``int64``) serves all types,
also read-only ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from glaive.config import settings
from glaive.kernels.loops.build import CheckedCompiler, WrappingCompiler
from glaive.kernels.machine import processor


def instruction(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Turn a function that writes LLVM instructions into a function that kernels call.

    Parameters
    ----------
    result, arguments
        Types. A number stands for the type that the argument of this number has.
    """

    def made(write: Callable[..., Any]) -> Any:
        def typer(_context: Any, *given: Any) -> Any:
            def codegen(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
                made = write(builder, *values)
                return context.get_dummy_value() if made is None else made

            made_of, *taken = (
                given[kind] if isinstance(kind, int) else kind for kind in (result, *arguments)
            )
            return made_of(*taken), codegen

        # numba reads the names of arguments here; the first one is not counted.
        typer.__signature__ = signature(write)  # type: ignore[attr-defined]  # of functions
        typer.__name__ = write.__name__
        return intrinsic(typer)

    return made


def load(builder: Any, address: Any, kind: Any) -> Any:
    """Load a number or a vector from any address."""
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def store(builder: Any, address: Any, value: Any) -> None:
    """Store a number or a vector at any address."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


# --- Memory fetched ahead of its use ----------------------------------------------------
#
# Processors fetch memory ahead by themselves where kernels go through it in one direction. Some
# virtual machines prevent that: words were then read five times as slowly.

LINE = 64
"""Bytes that a processor fetches at once."""

FETCHED = 2048
"""Distance in bytes from the memory that is read to the memory that is fetched."""


def _fetch(use: int) -> Any:
    """Make a request for the line at an address, to be read (0) or written (1)."""

    @instruction(types.void, types.int64)
    def write(builder: Any, address: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # Kept in all caches, data.
        how = [ir.Constant(number, option) for option in (use, 3, 1)]
        builder.call(function, [builder.inttoptr(address, byte), *how])

    return write


prefetch = _fetch(0)
"""Have the processor fetch memory that is read soon; the address may be any."""

claim = _fetch(1)
"""Have the processor fetch memory that is written soon; the address may be any."""


F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Mark a function as a kernel; ``glaive.kernels.native`` makes it callable.

    Other kernels call the function itself. Python calls it in the checked build only, otherwise
    the entry of ``native``. Signed arithmetic wraps: see ``build.py``.
    """
    return _compiled(function)


def kernel_with_sums(function: F) -> F:
    """Mark a function as a kernel whose sums of floats are added up in any order, many at a time.

    Products may be fused with sums. Infinities and NaN stay as they are; a division by zero gives
    one of them.
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


def by_width(make: Callable[[int], Any]) -> Any:
    """Make a kernel for words of 8, 16, 32 or 64 bits; the bits are its first argument.

    Parameters
    ----------
    make
        Makes the kernel or instruction for words of so many bits.
    """
    of_8, of_16, of_32, of_64 = map(make, (8, 16, 32, 64))

    @kernel
    def chosen(word_bits: int, *arguments: Any) -> Any:
        if word_bits == 64:
            return of_64(*arguments)
        if word_bits == 32:
            return of_32(*arguments)
        if word_bits == 16:
            return of_16(*arguments)
        return of_8(*arguments)

    return chosen


def _load(kind: Any, result: Any) -> Any:
    @instruction(result, types.int64)
    def write(builder: Any, address: Any) -> Any:
        return load(builder, address, kind)

    return write


def _store(bits: int) -> Any:
    """Store the low bits of an integer, or all of a narrower one with zeros above."""

    @instruction(types.void, types.int64, 1)
    def write(builder: Any, address: Any, value: Any) -> Any:
        kind = ir.IntType(bits)
        convert = builder.trunc if value.type.width > bits else builder.zext
        store(builder, address, value if value.type == kind else convert(value, kind))

    return write


load_u8 = _load(ir.IntType(8), types.uint8)
load_u16 = _load(ir.IntType(16), types.uint16)
load_u32 = _load(ir.IntType(32), types.uint32)
load_u64 = _load(ir.IntType(64), types.uint64)
load_i32 = _load(ir.IntType(32), types.int32)
load_i64 = _load(ir.IntType(64), types.int64)
load_f32 = _load(ir.FloatType(), types.float32)
load_f64 = _load(ir.DoubleType(), types.float64)


def _item_pointer(builder: Any, kind: Any, first: Any, number: Any) -> Any:
    """Return where item ``number`` from a first one on is, in a form that loops vectorise."""
    if settings.kernels == "checked":  # which recognises integers that become pointers
        size = {"half": 2, "float": 4, "double": 8}.get(str(kind)) or kind.width // 8
        at = builder.add(first, builder.mul(number, ir.Constant(ir.IntType(64), size)))
        return builder.inttoptr(at, kind.as_pointer())
    return builder.gep(builder.inttoptr(first, kind.as_pointer()), [number])


def _item(kind: Any, result: Any) -> Any:
    @instruction(result, types.int64, types.int64)
    def write(builder: Any, first: Any, number: Any) -> Any:
        value = builder.load(_item_pointer(builder, kind, first, number))
        value.align = 1
        return value

    return write


item_f32 = _item(ir.FloatType(), types.float32)
item_f64 = _item(ir.DoubleType(), types.float64)
item_u8 = _item(ir.IntType(8), types.uint8)
item_u16 = _item(ir.IntType(16), types.uint16)


def _put(kind: Any, value: Any) -> Any:
    """Store item ``number`` from a first one on; of integers, store the low bits."""

    @instruction(types.void, types.int64, types.int64, value)
    def write(builder: Any, first: Any, number: Any, word: Any) -> Any:
        item = builder.trunc(word, kind) if isinstance(kind, ir.IntType) else word
        builder.store(item, _item_pointer(builder, kind, first, number)).align = 1

    return write


put_f32 = _put(ir.FloatType(), types.float32)
put_u8 = _put(ir.IntType(8), types.int32)
put_u16 = _put(ir.IntType(16), types.int32)


@instruction(types.void, types.int64, types.float32)
def store_f32(builder: Any, address: Any, value: Any) -> Any:
    """Store a ``float32``."""
    store(builder, address, value)


@instruction(types.void, types.int64, types.float64)
def store_f64(builder: Any, address: Any, value: Any) -> Any:
    """Store a ``float64``."""
    store(builder, address, value)


store_u8 = _store(8)
store_u16 = _store(16)
store_u32 = _store(32)
store_u64 = _store(64)
store_word = by_width(_store)


def _copy_fixed(size: int) -> Any:
    @instruction(types.void, types.int64, types.int64)
    def write(builder: Any, target: Any, source: Any) -> Any:
        store(builder, target, load(builder, source, ir.IntType(size * 8)))

    return write


copy8 = _copy_fixed(8)
copy16 = _copy_fixed(16)


@instruction(types.void, types.int64, types.int64, types.int64)
def copy(builder: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy ``size`` bytes between disjoint ranges."""
    byte = ir.IntType(8).as_pointer()
    to, of = (builder.inttoptr(one, byte) for one in (target, source))
    cgutils.raw_memcpy(builder, to, of, size, 1)


@instruction(types.float32, types.uint32)
def float_of_bits(builder: Any, word: Any) -> Any:
    """Return the ``float32`` with the bits of a ``uint32``."""
    return builder.bitcast(word, ir.FloatType())


@instruction(0, 0)
def square_root(builder: Any, number: Any) -> Any:
    """Return the root of a float by an instruction; ``math.sqrt`` would call the library."""
    root = builder.module.declare_intrinsic("llvm.sqrt", [number.type])
    return builder.call(root, [number])


@instruction(1, 0, 1, 2)
def pick(builder: Any, word: Any, zero: Any, other: Any) -> Any:
    """Return ``zero`` where ``word`` is 0, else ``other``; avoid a branch.

    The compiler makes a branch of most Python conditions whose sides load memory. A mispredicted
    branch costs more than loading both.
    """
    is_zero = builder.icmp_unsigned("==", word, ir.Constant(word.type, 0))
    chosen = builder.select(is_zero, zero, other)
    chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
    return chosen


@instruction(types.uint64, types.uint64)
def popcount(builder: Any, word: Any) -> Any:
    """Count the set bits of a ``uint64``."""
    return builder.ctpop(word)


@instruction(types.uint64, types.uint64)
def trailing_zeros(builder: Any, word: Any) -> Any:
    """Count the zero bits below the lowest set bit of a ``uint64``; 64 for zero."""
    return builder.cttz(word, ir.Constant(ir.IntType(1), 0))


@instruction(types.uint64, types.uint64)
def leading_zeros(builder: Any, word: Any) -> Any:
    """Count the zero bits above the highest set bit of a ``uint64``; 64 for zero."""
    return builder.ctlz(word, ir.Constant(ir.IntType(1), 0))


@kernel
def load_partial(source: int, stop: int) -> np.uint64:
    """Load up to eight bytes before ``stop``; the others are 0."""
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
    """Return whether two ranges of ``size`` bytes are equal."""
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
    """Return ``a + b`` modulo 2^64, for sums that are dropped where they overflow."""
    return np.int64(np.uint64(a) + np.uint64(b))


@kernel
def wrapping_sub(a: int, b: int) -> int:
    """Return ``a - b`` modulo 2^64, for numbers of a file that may lie far apart."""
    return np.int64(np.uint64(a) - np.uint64(b))


# --- Vector rows: 1,024 bits at once, the step of the encoding of FastLanes blocks ------
#
# A FastLanes block of ``T``-bit words lays its 1,024 values out in ``T`` rows of ``1024 / T``
# values. They are adjacent, packed and unpacked. One row is one LLVM vector, which the compiler
# splits into the registers of the machine. numba fails to vectorise plain loops over the same rows,
# because memory might overlap: they are 4 to 11 times slower.
#
# Shifts are given in bits, below the word width.

ROW_BITS = 1024
LANES_OF_MASK = 64


def lanes_of(bits: int, lanes: int) -> Any:
    """Return the type of a vector of so many lanes."""
    return ir.VectorType(ir.IntType(bits), lanes)


def _row(bits: int) -> Any:
    return lanes_of(bits, ROW_BITS // bits)


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

    numba's own loops remember the last block of their body, but checks of the sanitizer move it.
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

    @instruction(types.void, types.int64, types.int64, types.int64, types.uint64)
    def write(builder: Any, target: Any, source: Any, shift: Any, mask: Any) -> Any:
        kind = _row(bits)
        row = builder.lshr(load(builder, source, kind), splat(builder, shift, kind))
        store(builder, target, builder.and_(row, splat(builder, mask, kind)))

    return write


def unpack_straddling_row(bits: int) -> Any:
    """Unpack like ``unpack_row``, with the high bits from the next row of words."""

    @instruction(types.void, types.int64, types.int64, types.int64, types.uint64)
    def write(builder: Any, target: Any, source: Any, shift: Any, mask: Any) -> Any:
        kind = _row(bits)
        low = builder.lshr(load(builder, source, kind), splat(builder, shift, kind))
        left = builder.sub(ir.Constant(ir.IntType(64), bits), shift)
        above = load(builder, _offset(builder, source, ROW_BITS // 8), kind)
        row = builder.or_(low, builder.shl(above, splat(builder, left, kind)))
        store(builder, target, builder.and_(row, splat(builder, mask, kind)))

    return write


def pack_row(bits: int, part: str) -> Any:
    """Put a row of values into a row of words, at ``shift``.

    ``first`` overwrites the words, ``more`` keeps the bits that are set, ``rest`` overwrites them
    with the bits of the values that remain above ``shift``. Values are cut to ``mask``.
    """

    @instruction(types.void, types.int64, types.int64, types.int64, types.uint64)
    def write(builder: Any, target: Any, source: Any, shift: Any, mask: Any) -> Any:
        kind = _row(bits)
        row = builder.and_(load(builder, source, kind), splat(builder, mask, kind))
        by = splat(builder, shift, kind)
        row = builder.lshr(row, by) if part == "rest" else builder.shl(row, by)
        if part == "more":
            row = builder.or_(row, load(builder, target, kind))
        store(builder, target, row)

    return write


def _changes(bits: int) -> Any:
    """Return bits: whether value ``i`` of 64 differs from value ``i + 1``."""

    @instruction(types.uint64, types.int64)
    def write(builder: Any, source: Any) -> Any:
        kind = lanes_of(bits, LANES_OF_MASK)
        here = load(builder, source, kind)
        there = load(builder, _offset(builder, source, bits // 8), kind)
        return builder.bitcast(builder.icmp_unsigned("!=", here, there), ir.IntType(64))

    return write


@instruction(types.void, types.int64, types.uint64)
def fill(builder: Any, target: Any, word: Any) -> Any:
    """Store 64 bytes that repeat one 64-bit word."""
    store(builder, target, splat(builder, word, lanes_of(64, 8)))


@instruction(types.void, types.int64, types.int64)
def copy_row(builder: Any, target: Any, source: Any) -> Any:
    """Copy 64 bytes."""
    store(builder, target, load(builder, source, lanes_of(64, 8)))


@instruction(types.uint64, types.int64, types.int64)
def bit_of_row(builder: Any, source: Any, bit: Any) -> Any:
    """Return bit ``bit`` of each of 64 16-bit words, as one 64-bit word."""
    kind = _row(16)
    one = ir.Constant(ir.IntType(64), 1)
    mask = splat(builder, builder.shl(one, bit), kind)
    row = builder.and_(load(builder, source, kind), mask)
    return builder.bitcast(builder.icmp_unsigned("==", row, mask), ir.IntType(64))


def _levels(condition: str) -> Any:
    """Return bits: how the 16-bit word ``i`` of 64 compares with a level."""

    @instruction(types.uint64, types.int64, types.int64)
    def write(builder: Any, source: Any, level: Any) -> Any:
        kind = _row(16)
        levels, level = load(builder, source, kind), splat(builder, level, kind)
        return builder.bitcast(builder.icmp_unsigned(condition, levels, level), ir.IntType(64))

    return write


levels_above = _levels(">")
levels_equal = _levels("==")

changes = by_width(_changes)


# --- One FastLanes block of 1,024 values, packed and unpacked, per word width -----------
#
# The rows of a packed block are adjacent in memory. Unpacked, row ``r`` begins at value
# ``ORDER[r // 8] * 16 + (r % 8) * 128``. ``ORDER`` (0 4 2 6 1 5 3 7) has the three bits of its
# index backwards. Specification: "FastLanes" in ``docs/format/encodings.md``.

ROW = 128
"""Bytes of a row, packed or unpacked."""


@kernel
def low_bits(width: int) -> np.uint64:
    """Return a word with the lowest ``width`` bits set, 1 ≤ width ≤ 64."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)


@kernel
def row_start(row: int) -> int:
    """Return the index of the first value of a row."""
    part = row >> 3
    backwards = ((part & 1) << 2) | (part & 2) | (part >> 2)
    return (backwards << 4) + ((row & 7) << 7)


def _unpack_block(bits: int, *, claims: bool = False) -> Any:
    """Unpack a block of one width of words; ``claims`` as in ``unpack_in_turn``."""
    unpack_plain, unpack_straddling = unpack_row(bits), unpack_straddling_row(bits)
    last, log, size = bits - 1, bits.bit_length() - 1, bits // 8

    @kernel
    def unpack_words(source: int, width: int, target: int) -> None:
        mask = low_bits(width)
        for row in range(bits):
            bit = row * width
            shift = bit & last
            words = source + (bit >> log) * ROW
            values = target + row_start(row) * size
            if bits == 64:
                prefetch(words + FETCHED)
                prefetch(words + FETCHED + LINE)
            if claims:
                claim(values + bits * ROW)
                claim(values + bits * ROW + LINE)
            if shift + width > bits:
                unpack_straddling(values, words, shift, mask)
            else:
                unpack_plain(values, words, shift, mask)

    return unpack_words


def _pack_block(bits: int) -> Any:
    """Pack a block of one width of words."""
    pack_first, pack_more, pack_rest = (pack_row(bits, part) for part in ("first", "more", "rest"))
    last, log, size = bits - 1, bits.bit_length() - 1, bits // 8

    @kernel
    def pack_words(source: int, width: int, target: int) -> None:
        mask = low_bits(width)
        for row in range(bits):
            bit = row * width
            shift = bit & last
            words = target + (bit >> log) * ROW
            values = source + row_start(row) * size
            if shift == 0:
                pack_first(words, values, shift, mask)
            else:
                pack_more(words, values, shift, mask)
            if shift + width > bits:
                pack_rest(words + ROW, values, bits - shift, mask)

    return pack_words


unpack_block, pack_block = by_width(_unpack_block), by_width(_pack_block)
unpack_in_turn = by_width(partial(_unpack_block, claims=True))
"""Unpack a block as ``unpack_block``, and claim the memory of the next block.

A block that is written to uncached memory would wait for it: a sixth of its time.
"""


# --- Vector steps of selections: 64 words compared with one range, and selected words compacted
#
# ``word - low <= span``, unsigned and modulo the word, is one subtraction and one comparison. It
# serves any range, also a range that wraps around from the largest word to 0, such as a range of
# signed numbers.

_FEATURES = processor()[1].split(",")

FAST_WIDE = "+avx512f" in _FEATURES
"""Whether ``compress`` of 32 and 64 bits is an instruction, or a loop."""

FAST_NARROW = "+avx512vbmi2" in _FEATURES
"""Whether ``compress`` of 8 and 16 bits is an instruction, or a loop."""

LANES = 64


def _in_range(bits: int) -> Any:
    """Return bits: whether word ``i`` of 64 lies in ``low … low + span``."""

    @instruction(types.uint64, types.int64, types.uint64, types.uint64)
    def write(builder: Any, source: Any, low: Any, span: Any) -> Any:
        kind = lanes_of(bits, LANES)
        moved = builder.sub(load(builder, source, kind), splat(builder, low, kind))
        passing = builder.icmp_unsigned("<=", moved, splat(builder, span, kind))
        return builder.bitcast(passing, ir.IntType(64))

    return write


def compressed(builder: Any, words: Any, mask: Any) -> Any:
    """Return the words of 64 bytes that have a bit in ``mask``, back to back, then zeros."""
    kind = words.type
    lanes, bits = kind.count, kind.element.width
    mask = mask if lanes == LANES else builder.trunc(mask, ir.IntType(lanes))
    flags = lanes_of(1, lanes)
    compress = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(kind, [kind, flags, kind]),
        f"llvm.experimental.vector.compress.v{lanes}i{bits}",
    )
    none = ir.Constant(kind, [0] * lanes)
    return builder.call(compress, [words, builder.bitcast(mask, flags), none])


def _compress(bits: int) -> Any:
    """Store the words of 64 bytes that have a bit in ``mask``, back to back.

    Write 64 bytes for any mask.
    """

    @instruction(types.void, types.int64, types.int64, types.uint64)
    def write(builder: Any, target: Any, source: Any, mask: Any) -> Any:
        words = load(builder, source, lanes_of(bits, 512 // bits))
        store(builder, target, compressed(builder, words, mask))

    return write


in_range, compress = by_width(_in_range), by_width(_compress)
