"""Compiled comparisons of words with ranges; their wrappers are in ``glaive.kernels.match``.

Packed blocks are compared while they are unpacked, or unpacked into ``scratch``, which has room
for 8 KiB and stays in the first-level cache. Most of the column stays packed at any time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width, load_word
from glaive.kernels.loops.hashing import number_of
from glaive.kernels.loops.levels import append_bits
from glaive.kernels.loops.memory import (
    FETCHED,
    LANES,
    LINE,
    ROW,
    ROW_BITS,
    by_width,
    in_range,
    instruction,
    kernel,
    lanes_of,
    load,
    load_i64,
    load_partial,
    load_u8,
    load_u64,
    low_bits,
    popcount,
    prefetch,
    row_start,
    splat,
    store,
    store_u64,
    trailing_zeros,
    unpack_block,
)
from glaive.kernels.records import WordRanges, offsets_of

# --- Vector steps of sets: 64 words looked up in a bitset at once -----------------------
#
# A gather of 32-bit words is an instruction on processors with wide vectors. Elsewhere the compiler
# makes single loads of it, as a loop would.

_SMALL, _WIDE, _FLAGS = (lanes_of(bits, LANES) for bits in (32, 64, 1))
HASH = 0x9E3779B97F4A7C15


def _each(kind: Any, number: int) -> Any:
    return ir.Constant(kind, [number] * LANES)


def _bits_at(builder: Any, bitmap: Any, positions: Any) -> Any:
    """Return the bits of a bitmap at 64 positions, which have 32 bits each."""
    at = builder.shl(builder.lshr(positions, _each(_SMALL, 5)), _each(_SMALL, 2))
    addresses = builder.add(builder.zext(at, _WIDE), splat(builder, bitmap, _WIDE))
    pointers = ir.VectorType(ir.IntType(32).as_pointer(), LANES)
    gather = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(_SMALL, [pointers, ir.IntType(32), _FLAGS, _SMALL]),
        f"llvm.masked.gather.v{LANES}i32.v{LANES}p0",
    )
    every = [builder.inttoptr(addresses, pointers), ir.IntType(32)(4), _each(_FLAGS, 1)]
    words = builder.call(gather, [*every, _each(_SMALL, 0)])
    bit = builder.lshr(words, builder.and_(positions, _each(_SMALL, 31)))
    return builder.bitcast(builder.trunc(bit, _FLAGS), ir.IntType(64))


def _in_bitset(bits: int) -> Any:
    """Return the bits of a bitmap at ``word - base`` of 64 words, or at ``top`` if beyond."""

    @instruction(types.uint64, types.int64, types.int64, types.uint64, types.uint64)
    def write(builder: Any, source: Any, bitmap: Any, base: Any, top: Any) -> Any:
        words = load(builder, source, lanes_of(bits, LANES))
        moved = builder.sub(words, splat(builder, base, words.type))
        top = splat(builder, top, words.type)
        positions = builder.select(builder.icmp_unsigned("<", moved, top), moved, top)
        resize = builder.trunc if bits > 32 else builder.zext
        return _bits_at(builder, bitmap, resize(positions, _SMALL))

    return write


def _in_prefilter(bits: int) -> Any:
    """Return the bits of a bitmap at the upper bits of the hashes of 64 words."""

    @instruction(types.uint64, types.int64, types.int64, types.uint64)
    def write(builder: Any, source: Any, bitmap: Any, shift: Any) -> Any:
        words = load(builder, source, lanes_of(bits, LANES))
        if bits < 64:
            words = builder.zext(words, _WIDE)
        mixed = builder.mul(words, _each(_WIDE, HASH))
        positions = builder.lshr(mixed, splat(builder, shift, _WIDE))
        return _bits_at(builder, bitmap, builder.trunc(positions, _SMALL))

    return write


in_bitset, in_prefilter = by_width(_in_bitset), by_width(_in_prefilter)


# --- Compiled tests of words, 64 at a time ----------------------------------------------
#
# A test is the address of a :class:`glaive.kernels.records.WordRanges`.

TEST = offsets_of(WordRanges)
WINDOW = 64
MAX_COMPARED_RANGES = 16
"""Maximum ranges that are compared with each word; among more, each word searches its range."""


@kernel
def _passes(word_bits: int, word: np.uint64, test: int) -> bool:
    """Return whether one word lies in one of the ranges."""
    slots = load_i64(test + TEST.slots)
    if slots != 0:
        words, bits = load_i64(test + TEST.words), load_i64(test + TEST.slot_bits)
        return number_of(words, slots, bits, word, load_i64(test + TEST.secret)) >= 0
    lows = load_i64(test + TEST.lows)
    spans = load_i64(test + TEST.spans)
    ranges = load_i64(test + TEST.ranges)
    if ranges == 0:
        return False
    below = 0
    above = ranges
    while below < above:
        middle = (below + above) >> 1
        if load_u64(lows + middle * 8) <= word:
            below = middle + 1
        else:
            above = middle
    at = below - 1 if below > 0 else ranges - 1
    moved = (word - load_u64(lows + at * 8)) & low_bits(word_bits)
    return moved <= load_u64(spans + at * 8)


@kernel
def pass_64(word_bits: int, source: int, test: int) -> np.uint64:
    """Return bits: whether word ``i`` of 64 passes."""
    word = word_bits >> 3
    passing = np.uint64(0)
    table = load_i64(test + TEST.table)
    if table != 0:
        for i in range(WINDOW):
            flag = np.uint64(load_u8(table + np.int64(load_word(word_bits, source + i * word))))
            passing |= flag << np.uint64(i)
        return passing
    bitset = load_i64(test + TEST.bitset)
    if bitset != 0:
        return in_bitset(
            word_bits, source, bitset, load_u64(test + TEST.base), load_u64(test + TEST.top)
        )
    lows = load_i64(test + TEST.lows)
    spans = load_i64(test + TEST.spans)
    ranges = load_i64(test + TEST.ranges)
    if ranges <= MAX_COMPARED_RANGES:
        for i in range(ranges):
            low = load_u64(lows + i * 8)
            passing |= in_range(word_bits, source, low, load_u64(spans + i * 8))
        return passing
    near = np.uint64(0)
    prefilter = load_i64(test + TEST.prefilter)
    if prefilter != 0:
        near = in_prefilter(word_bits, source, prefilter, load_u64(test + TEST.shift))
    else:
        first = load_u64(lows)
        last = load_u64(lows + ranges * 8 - 8) + load_u64(spans + ranges * 8 - 8)
        near = in_range(word_bits, source, first, (last - first) & low_bits(word_bits))
    while near != np.uint64(0):
        i = np.int64(trailing_zeros(near))
        near &= near - np.uint64(1)
        if _passes(word_bits, load_word(word_bits, source + i * word), test):
            passing |= np.uint64(1) << np.uint64(i)
    return passing


@kernel
def pass_some(word_bits: int, source: int, count: int, test: int) -> np.uint64:
    """Return bits as ``pass_64``, for less than 64 words."""
    word = word_bits >> 3
    table = load_i64(test + TEST.table)
    passing = np.uint64(0)
    for i in range(count):
        value = load_word(word_bits, source + i * word)
        flag = np.uint64(0)
        if table != 0:
            flag = np.uint64(load_u8(table + np.int64(value)))
        elif _passes(word_bits, value, test):
            flag = np.uint64(1)
        passing |= flag << np.uint64(i)
    return passing


@kernel
def any_above(word_bits: int, source: int, count: int, limit: int) -> bool:
    """Return whether one of ``count`` ≤ 64 words is above ``limit``."""
    if count == WINDOW:
        low = np.uint64(limit) + np.uint64(1)
        return in_range(word_bits, source, low, low_bits(word_bits) - low) != np.uint64(0)
    word = word_bits >> 3
    top = np.uint64(0)
    for i in range(count):
        top = max(top, load_word(word_bits, source + i * word))
    return top > np.uint64(limit)


@kernel
def none_up_to(word_bits: int, top: np.uint64, test: int) -> bool:
    """Return whether all words up to ``top`` fail."""
    ranges = load_i64(test + TEST.ranges)
    if ranges == 0:
        return True
    lows = load_i64(test + TEST.lows)
    last = load_u64(lows + ranges * 8 - 8)
    wraps = load_u64(load_i64(test + TEST.spans) + ranges * 8 - 8) > low_bits(word_bits) - last
    return load_u64(lows) > top and not wraps


# --- One FastLanes block compared with a range or two while it is unpacked --------------
#
# The values of a row are adjacent, and so are the bits of their comparisons: words stay in
# registers. A loop over any number of ranges takes as long as unpacking first.


def _match_row(bits: int, ranges: int, *, straddles: bool) -> Any:
    """Store one bit for each value of a row: whether it lies in one of the ranges."""
    lanes = ROW_BITS // bits

    @instruction(types.void, *(types.int64,) * 3, *(types.uint64,) * 5)
    def write(
        builder: Any, target: Any, source: Any, shift: Any, mask: Any, low: Any, span: Any,
        low2: Any, span2: Any,
    ) -> Any:  # fmt: skip
        ends = low, span, low2, span2
        kind = lanes_of(bits, lanes)
        row = builder.lshr(load(builder, source, kind), splat(builder, shift, kind))
        if straddles:
            left = builder.sub(ir.Constant(ir.IntType(64), bits), shift)
            following = builder.add(source, ir.Constant(ir.IntType(64), ROW_BITS // 8))
            above = load(builder, following, kind)
            row = builder.or_(row, builder.shl(above, splat(builder, left, kind)))
        row = builder.and_(row, splat(builder, mask, kind))
        passing = ir.Constant(lanes_of(1, lanes), [0] * lanes)
        for i in range(ranges):
            moved = builder.sub(row, splat(builder, ends[2 * i], kind))
            within = builder.icmp_unsigned("<=", moved, splat(builder, ends[2 * i + 1], kind))
            passing = builder.or_(passing, within) if i else within
        store(builder, target, builder.bitcast(passing, ir.IntType(lanes)))

    return write


def _match_block(bits: int, ranges: int) -> Any:
    """Compare a block as ``match_block``, for one width of words and one number of ranges."""
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


match_one, match_two = (by_width(partial(_match_block, ranges=ranges)) for ranges in (1, 2))


MAX_FUSED_RANGES = 2
"""Maximum ranges that are compared with a block while it is unpacked."""


@kernel
def append_none(target: int, filled: int, count: int) -> None:
    """Append ``count`` bits that are 0."""
    done = 0
    while done < count:
        take = min(count - done, WINDOW)
        append_bits(target, filled + done, np.uint64(0), take)
        done += take


@kernel
def match_words(
    word_bits: int, source: int, count: int, test: int, limit: int, target: int, done: int
) -> bool:
    """Append one bit per word; ``False`` when a word is above ``limit`` ≥ 0."""
    word = word_bits >> 3
    at = 0
    while at < count:
        take = min(count - at, WINDOW)
        here = source + at * word
        if limit >= 0 and any_above(word_bits, here, take, limit):
            return False
        passing = np.uint64(0)
        if take == WINDOW:
            passing = pass_64(word_bits, here, test)
        else:
            passing = pass_some(word_bits, here, take, test)
        append_bits(target, done + at, passing, take)
        at += take
    return True


@kernel
def match_inline(
    data: int, data_size: int, starts: int, sizes: int, counts: int, chunks: int, test: int,
    target: int, values: int, scratch: int,
) -> int:  # fmt: skip
    """Append one bit per value of inline chunks; return a bad chunk, plus ``chunks`` for a limit.

    The kernel skips a chunk if all words of its width fail.
    """
    word_bits = load_i64(test + TEST.bits)
    word = word_bits >> 3
    limit = load_i64(test + TEST.limit)
    ranges = load_i64(test + TEST.ranges)
    few = 1 <= ranges <= MAX_FUSED_RANGES
    low, span, low2, span2 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    if few:
        lows, spans = load_i64(test + TEST.lows), load_i64(test + TEST.spans)
        low, span = load_u64(lows), load_u64(spans)
        low2, span2 = load_u64(lows + 8 * (ranges - 1)), load_u64(spans + 8 * (ranges - 1))
    done = 0
    for i in range(chunks):
        start = load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        width = inline_width(data, data_size, start, load_i64(sizes + i * 8), word_bits)
        if width < 0 or count < 0 or count > BLOCK or count > values - done:
            return i
        top = np.uint64(0)
        if width > 0:
            top = low_bits(width)
        checked = limit >= 0 and top > np.uint64(limit)
        if not checked and none_up_to(word_bits, top, test):
            append_none(target, done, count)
            done += count
            continue
        if few and not checked and width > 0 and count == BLOCK and done & 7 == 0:
            source, flags = data + start + word, target + (done >> 3)
            if ranges == 1:
                match_one(word_bits, source, width, flags, low, span, low2, span2)
            else:
                match_two(word_bits, source, width, flags, low, span, low2, span2)
            done += count
            continue
        if width == 0:
            fill_zero(scratch, ((count + 63) & ~63) * word)
        else:
            unpack_block(word_bits, data + start + word, width, scratch)
        if not match_words(word_bits, scratch, count, test, limit if checked else -1, target, done):
            return chunks + i
        done += count
    return -1


@kernel
def match_plain(
    data: int, starts: int, counts: int, chunks: int, test: int, target: int,
) -> int:  # fmt: skip
    """Append one bit per word of chunks that the wrapper has checked; return a bad chunk, or -1."""
    word_bits = load_i64(test + TEST.bits)
    limit = load_i64(test + TEST.limit)
    if limit >= 0 and low_bits(word_bits) <= np.uint64(limit):
        limit = np.int64(-1)
    done = 0
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        if not match_words(word_bits, source, count, test, limit, target, done):
            return i
        done += count
    return -1


@kernel
def set_bits(bits: int, begin: int, stop: int, at: int) -> np.uint64:
    """Return the 64 bits from byte ``at`` on; clear bits outside of ``begin`` to ``stop``."""
    word = load_partial(bits + at, bits + ((stop + 7) >> 3))
    if at * 8 < begin:
        word &= ~np.uint64(0) << np.uint64(begin - at * 8)
    remaining = stop - at * 8
    if remaining < WINDOW:
        word &= low_bits(remaining)
    return word


@kernel
def count_set(bits: int, begin: int, stop: int) -> int:
    """Count the set bits from ``begin`` to ``stop``."""
    count = 0
    at = begin >> 3
    while at * 8 < stop:
        count += np.int64(popcount(set_bits(bits, begin, stop, at)))
        at += 8
    return count


@kernel
def list_set(bits: int, begin: int, stop: int, first: int, target: int) -> None:
    """Store ``first`` plus the distance from ``begin`` of every set bit, ascending."""
    to = target
    at = begin >> 3
    base = first - begin
    while at * 8 < stop:
        word = set_bits(bits, begin, stop, at)
        row = base + at * 8
        if word == ~np.uint64(0):
            for i in range(WINDOW):
                store_u64(to + i * 8, np.uint64(row + i))
            to += WINDOW * 8
        else:
            while word != np.uint64(0):
                store_u64(to, np.uint64(row + np.int64(trailing_zeros(word))))
                word &= word - np.uint64(1)
                to += 8
        at += 8
