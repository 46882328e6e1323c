"""Steps of the decoder of FSST text: 64 codes at a time, by tables of bytes held in registers.

Table ``j`` has byte ``j`` of each symbol, so 64 lookups give byte ``j`` of 64 symbols. Shuffles
then join the eight bytes of each symbol, and one instruction stores the bytes of eight symbols
without gaps. The last table has a bit for each byte of a symbol.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glaive.kernels.loops.codes import HAS_PERMUTES, LANES, pick
from glaive.kernels.loops.memory import (
    compressed,
    instruction,
    kernel,
    lanes_of,
    load,
    load_i64,
    put_u8,
    splat,
    store,
)

ESCAPE = 255
INSIDE = 0x80000000
"""Bit of a checkpoint between an escape and its byte; see ``stream`` of ``loops.fsst``."""

SYMBOL_BYTES = 8
PLANE = 256
MIN_CODES = 512
"""Minimum codes of a run that make up for the time to write the tables."""

_BYTES, _PAIRS = lanes_of(8, 64), lanes_of(16, 32)
_I32, _I64 = ir.IntType(32), ir.IntType(64)

WIDEST = PLANE * (SYMBOL_BYTES + 1)
"""Where, after the tables, the length of the longest symbol is."""


@kernel
def spread(symbols: int, sizes: int, planes: int) -> int:
    """Write the tables of bytes of the symbols; return where they are.

    If the processor lacks the instructions to use the tables, return 0.
    """
    if not HAS_PERMUTES:
        return np.int64(0)
    for j in range(SYMBOL_BYTES):
        for i in range(PLANE):
            word = np.uint64(load_i64(symbols + 8 * i)) >> np.uint64(8 * j)
            put_u8(planes + PLANE * j, i, word)
    widest = np.int64(0)
    for i in range(PLANE):
        size = load_i64(sizes + 8 * i)
        whole = 0 <= size <= SYMBOL_BYTES
        put_u8(planes + PLANE * SYMBOL_BYTES, i, ((1 << (size & 15)) - 1) & -np.int64(whole))
        widest = max(widest, size * whole)
    put_u8(planes, WIDEST, widest)
    return planes


def _constant(kind: Any, number: int) -> Any:
    return ir.Constant(kind, [number] * kind.count)


def _bytes_of(builder: Any, planes: Any, number: int, codes: Any) -> Any:
    """Look 64 codes up in a table of 256 bytes."""
    start = builder.add(planes, ir.Constant(_I64, PLANE * number))
    parts = [
        load(builder, builder.add(start, ir.Constant(_I64, at)), _BYTES)
        for at in range(0, PLANE, LANES)
    ]
    low = pick(builder, parts[0], parts[1], codes)
    high = pick(builder, parts[2], parts[3], codes)
    is_high = builder.icmp_signed("<", codes, _constant(_BYTES, 0))
    return builder.select(is_high, high, low)


def _escapes(builder: Any, codes: Any) -> tuple[Any, Any]:
    """Return bits: which codes are escapes, and which are bytes after one."""
    is_escape = builder.icmp_unsigned("==", codes, _constant(_BYTES, ESCAPE))
    escapes = builder.bitcast(is_escape, _I64)
    return escapes, builder.shl(escapes, ir.Constant(_I64, 1))


@instruction(types.uint64, types.int64, types.int64)
def uncommon(builder: Any, p: Any, planes: Any) -> Any:
    """Return nonzero if :func:`_emit` cannot decode 64 codes: some are wrong, or escape an escape.

    Or the last code escapes the first code after them, or the processor lacks the instructions.
    """
    if not HAS_PERMUTES:
        return ir.Constant(_I64, 1)
    codes = load(builder, p, _BYTES)
    present = _bytes_of(builder, planes, SYMBOL_BYTES, codes)
    missing = builder.bitcast(builder.icmp_unsigned("==", present, _constant(_BYTES, 0)), _I64)
    escapes, literals = _escapes(builder, codes)
    wrong = builder.xor(builder.and_(missing, builder.not_(literals)), escapes)
    wrong = builder.or_(wrong, builder.and_(escapes, literals))
    return builder.or_(wrong, builder.lshr(escapes, ir.Constant(_I64, 63)))


def _emit(width: int) -> Any:
    """Decode 64 codes of symbols of up to ``width`` bytes to ``out + at``; return the new ``at``.

    ``checkpoints`` receives what :func:`glaive.kernels.loops.fsst.stream` says.
    """
    digits = width.bit_length() - 1
    places = [int(f"{at:0{digits}b}"[::-1], 2) for at in range(width)]  # see ``_transposed``
    # Lane L of a vector gets ``part`` symbols, 16 bytes, from part * L on of its symbols.
    part = 16 // width
    lanes = [
        64 // width * place + part * lane + at
        for lane in range(4)
        for place in places
        for at in range(part)
    ]

    @instruction(types.int64, *(types.int64,) * 5)
    def write(builder: Any, p: Any, out: Any, at: Any, planes: Any, checkpoints: Any) -> Any:
        if not HAS_PERMUTES:
            return at
        codes = load(builder, p, _BYTES)
        literals = builder.bitcast(_escapes(builder, codes)[1], lanes_of(1, 64))
        present = _bytes_of(builder, planes, SYMBOL_BYTES, codes)
        present = builder.select(literals, _constant(_BYTES, 1), present)
        store(builder, checkpoints, _begins_of_pairs(builder, present, literals, at))
        order = ir.Constant(lanes_of(32, 64), lanes)
        codes, literals = (
            builder.shuffle_vector(vector, vector, order)
            for vector in (codes, builder.sext(literals, _BYTES))
        )
        is_literal = builder.icmp_signed("<", literals, _constant(_BYTES, 0))
        bytes_of = [_bytes_of(builder, planes, j, codes) for j in range(width)]
        bytes_of[0] = builder.select(is_literal, codes, bytes_of[0])
        masks = _masks(builder, present, width)
        for number, symbols in enumerate(_transposed(builder, bytes_of)):
            mask = builder.extract_element(masks, ir.Constant(_I32, number))
            store(builder, builder.add(out, at), compressed(builder, symbols, mask))
            at = builder.add(at, builder.ctpop(mask))
        return at

    return write


emit_short, emit_any = map(_emit, (2, SYMBOL_BYTES))


def _masks(builder: Any, present: Any, width: int) -> Any:
    """Join the low ``width`` bits of 64 bytes to words."""
    bits = width
    while bits < 8:
        lanes = present.type.count // 2
        pairs = builder.bitcast(present, lanes_of(16, lanes))
        moved = builder.lshr(pairs, _constant(pairs.type, 8 - bits))
        present = builder.trunc(builder.or_(pairs, moved), lanes_of(8, lanes))
        bits *= 2
    return builder.bitcast(present, lanes_of(64, width))


def _transposed(builder: Any, planes: list[Any]) -> list[Any]:
    """Turn vectors of byte ``j`` of 64 symbols into vectors of whole symbols.

    The vector number ``i`` has part ``i`` of each lane of 16 symbols, with the bits of ``i``
    reversed.
    """
    vectors, bits = planes, 8
    while bits < 8 * len(planes):
        kind, lane = lanes_of(bits, 512 // bits), 128 // bits
        halves = [
            ir.Constant(
                lanes_of(32, kind.count),
                [
                    start + at + from_second
                    for start in range(half, kind.count, lane)
                    for at in range(lane // 2)
                    for from_second in (0, kind.count)
                ],
            )
            for half in (0, lane // 2)
        ]
        wide = [builder.bitcast(vector, kind) for vector in vectors]
        pairs = list(zip(wide[::2], wide[1::2], strict=True))
        vectors = [builder.shuffle_vector(*pair, half) for half in halves for pair in pairs]
        bits *= 2
    return [builder.bitcast(vector, _BYTES) for vector in vectors]


def _begins_of_pairs(builder: Any, present: Any, literals: Any, at: Any) -> Any:
    """Return the checkpoints of 64 codes."""
    words, entries = lanes_of(64, 8), lanes_of(32, 32)
    kind = ir.FunctionType(_BYTES, [_BYTES])
    count = cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.v64i8")
    sizes = builder.bitcast(builder.call(count, [present]), _PAIRS)
    low, eight = _constant(_PAIRS, 255), _constant(_PAIRS, 8)
    pairs = builder.add(builder.and_(sizes, low), builder.lshr(sizes, eight))
    # Four sums of pairs in a word, then sums of words.
    sums = builder.mul(builder.bitcast(pairs, words), _constant(words, 0x0001000100010001))
    totals = builder.lshr(sums, _constant(words, 48))
    before = _constant(words, 0)
    begins = totals
    for step in (1, 2, 4):
        lanes = [8] * step + list(range(8 - step))
        moved = builder.shuffle_vector(begins, before, ir.Constant(lanes_of(32, 8), lanes))
        begins = builder.add(begins, moved)
    begins = builder.add(builder.sub(begins, totals), splat(builder, at, words))
    begins = builder.trunc(begins, lanes_of(32, 8))
    four = ir.Constant(entries, [lane // 4 for lane in range(32)])
    begins = builder.shuffle_vector(begins, begins, four)
    inside = builder.bitcast(builder.shl(sums, _constant(words, 16)), _PAIRS)
    begins = builder.add(begins, builder.zext(inside, entries))
    first = builder.and_(builder.bitcast(builder.sext(literals, _BYTES), _PAIRS), low)
    is_literal = builder.icmp_unsigned("!=", first, _constant(_PAIRS, 0))
    after = builder.add(begins, _constant(entries, 1))
    after = builder.or_(after, _constant(entries, INSIDE))
    return builder.select(is_literal, after, begins)
