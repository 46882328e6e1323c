"""One FastLanes block compared with a range or two while it is unpacked.

Values of a row lie side by side, and so do the bits that their comparisons give: words never leave
the registers. A loop over any number of ranges takes as long as unpacking first. Called by
``glaive.kernels.loops.match``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glaive.kernels.loops.ahead import FETCHED, LINE, prefetch
from glaive.kernels.loops.blocks import ROW, low_bits, row_start
from glaive.kernels.loops.memory import kernel
from glaive.kernels.loops.rows import ROW_BITS, lanes_of, load, splat

__all__ = ["match_block"]


def _match_row(bits: int, ranges: int, *, straddles: bool) -> Any:
    """Store one bit for each value of a row: whether it lies in one of the ranges."""
    lanes = ROW_BITS // bits

    def typer(
        _context: Any, target: Any, source: Any, shift: Any, mask: Any, low: Any, span: Any,
        low2: Any, span2: Any,
    ) -> Any:  # fmt: skip
        def codegen(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = lanes_of(bits, lanes)
            row = builder.lshr(load(builder, args[1], kind), splat(builder, args[2], kind))
            if straddles:
                left = builder.sub(ir.Constant(ir.IntType(64), bits), args[2])
                following = builder.add(args[1], ir.Constant(ir.IntType(64), ROW_BITS // 8))
                above = load(builder, following, kind)
                row = builder.or_(row, builder.shl(above, splat(builder, left, kind)))
            row = builder.and_(row, splat(builder, args[3], kind))
            passing = ir.Constant(lanes_of(1, lanes), [0] * lanes)
            for i in range(ranges):
                moved = builder.sub(row, splat(builder, args[4 + 2 * i], kind))
                within = builder.icmp_unsigned("<=", moved, splat(builder, args[5 + 2 * i], kind))
                passing = builder.or_(passing, within) if i else within
            number = ir.IntType(lanes)
            flags = builder.bitcast(passing, number)
            builder.store(flags, builder.inttoptr(args[0], number.as_pointer())).align = 1
            return ctx.get_dummy_value()

        number, word = types.int64, types.uint64
        return types.void(number, number, number, word, word, word, word, word), codegen

    return intrinsic(typer)


def _match_block(bits: int, ranges: int) -> Any:
    """As ``match_block``, for one width of words and one number of ranges."""
    match_plain = _match_row(bits, ranges, straddles=False)
    match_straddling = _match_row(bits, ranges, straddles=True)
    last, log = bits - 1, bits.bit_length() - 1

    @kernel
    def match_words(
        source: int, width: int, target: int, low: np.uint64, span: np.uint64, low2: np.uint64,
        span2: np.uint64,
    ) -> None:  # fmt: skip
        mask = low_bits(width)
        for row in range(bits):
            bit = row * width
            shift = bit & last
            words = source + (bit >> log) * ROW
            flags = target + (row_start(row) >> 3)
            prefetch(words + FETCHED)
            prefetch(words + FETCHED + LINE)
            if shift + width > bits:
                match_straddling(flags, words, shift, mask, low, span, low2, span2)
            else:
                match_plain(flags, words, shift, mask, low, span, low2, span2)

    return match_words


one_8, one_16, one_32, one_64 = (_match_block(bits, 1) for bits in (8, 16, 32, 64))
two_8, two_16, two_32, two_64 = (_match_block(bits, 2) for bits in (8, 16, 32, 64))


@kernel
def match_block(
    word_bits: int, source: int, width: int, target: int, ranges: int, low: np.uint64,
    span: np.uint64, low2: np.uint64, span2: np.uint64,
) -> None:  # fmt: skip
    """Write 1,024 bits: which values of one block lie in one of 1 or 2 ranges.

    1 ≤ width ≤ word_bits. A range is ``low … low + span``, modulo the word.
    """
    if ranges == 1:
        if word_bits == 64:
            one_64(source, width, target, low, span, low2, span2)
        elif word_bits == 32:
            one_32(source, width, target, low, span, low2, span2)
        elif word_bits == 16:
            one_16(source, width, target, low, span, low2, span2)
        else:
            one_8(source, width, target, low, span, low2, span2)
    elif word_bits == 64:
        two_64(source, width, target, low, span, low2, span2)
    elif word_bits == 32:
        two_32(source, width, target, low, span, low2, span2)
    elif word_bits == 16:
        two_16(source, width, target, low, span, low2, span2)
    else:
        two_8(source, width, target, low, span, low2, span2)
