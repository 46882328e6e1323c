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
# Lane L of a vector gets the symbols 2 L and 2 L + 1 of a group of eight: 16 bytes.
_GROUPS = (0, 4, 2, 6, 1, 5, 3, 7)  # as ``_transposed`` orders its vectors
_ORDER = [8 * group + 2 * lane + odd for lane in range(4) for group in _GROUPS for odd in (0, 1)]


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
    for i in range(PLANE):
        size = load_i64(sizes + 8 * i)
        whole = 0 <= size <= SYMBOL_BYTES
        put_u8(planes + PLANE * SYMBOL_BYTES, i, ((1 << (size & 15)) - 1) & -np.int64(whole))
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
    """Return nonzero if :func:`emit` cannot decode 64 codes: some are wrong, or escape an escape.

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


@instruction(types.int64, *(types.int64,) * 5)
def emit(builder: Any, p: Any, out: Any, at: Any, planes: Any, checkpoints: Any) -> Any:
    """Decode 64 codes to ``out + at`` as in :func:`stream`; return the new ``at``."""
    if not HAS_PERMUTES:
        return at
    codes = load(builder, p, _BYTES)
    literals = builder.bitcast(_escapes(builder, codes)[1], lanes_of(1, 64))
    present = _bytes_of(builder, planes, SYMBOL_BYTES, codes)
    present = builder.select(literals, _constant(_BYTES, 1), present)
    store(builder, checkpoints, _begins_of_pairs(builder, present, literals, at))
    order = ir.Constant(lanes_of(32, 64), _ORDER)
    codes, literals = (
        builder.shuffle_vector(vector, vector, order)
        for vector in (codes, builder.sext(literals, _BYTES))
    )
    is_literal = builder.icmp_signed("<", literals, _constant(_BYTES, 0))
    planes_of = [_bytes_of(builder, planes, j, codes) for j in range(SYMBOL_BYTES)]
    planes_of[0] = builder.select(is_literal, codes, planes_of[0])
    masks = builder.bitcast(present, lanes_of(64, 8))
    for group, symbols in enumerate(_transposed(builder, planes_of)):
        mask = builder.extract_element(masks, ir.Constant(_I32, group))
        store(builder, builder.add(out, at), compressed(builder, symbols, mask))
        at = builder.add(at, builder.ctpop(mask))
    return at


def _transposed(builder: Any, planes: list[Any]) -> list[Any]:
    """Turn vectors of byte ``j`` of 64 symbols into vectors of eight symbols."""
    vectors = planes
    for bits in (8, 16, 32):
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
