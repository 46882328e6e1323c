"""Compiled kernels over plain values; their wrappers are in ``glaive.kernels.flat``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from glaive.kernels.loops.bitpack import fill_zero
from glaive.kernels.loops.levels import append_bits
from glaive.kernels.loops.memory import (
    copy,
    copy8,
    copy16,
    instruction,
    kernel,
    lanes_of,
    load,
    load_i64,
    load_partial,
    load_u8,
    load_u16,
    load_u32,
    low_bits,
    set_bit,
    store,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)


@kernel
def join_bits(
    data: int, data_size: int, starts: int, counts: int, chunks: int, target: int
) -> None:
    """Append ``counts[i]`` bits from byte ``starts[i]`` on; may write 16 bytes more."""
    filled = 0
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        remaining = load_i64(counts + i * 8)
        while remaining > 0:
            part = min(remaining, 64)
            bits = load_partial(source, data + data_size) & low_bits(part)
            append_bits(target, filled, bits, part)
            filled += part
            remaining -= part
            source += 8


@kernel
def take_items(
    data: int, data_size: int, starts: int, sizes: int, chunks: int, chunk: int, index: int,
    wanted: int, bits: int, target: int,
) -> int:  # fmt: skip
    """Copy items; return the first position outside its chunk, or -1."""
    size = bits >> 3
    if bits == 1:
        fill_zero(target, (wanted + 7) >> 3)
    for i in range(wanted):
        c = load_i64(chunk + i * 8)
        at = load_i64(index + i * 8)
        if c < 0 or c >= chunks or at < 0:
            return i
        start = load_i64(starts + c * 8)
        end = load_i64(sizes + c * 8)
        if start < 0 or end > data_size - start or at >= 8 * max(end, 0) // bits:
            return i
        if bits == 1:
            if (load_u8(data + start + (at >> 3)) >> (at & 7)) & 1:
                set_bit(target, i)
            continue
        source = data + start + at * size
        to = target + i * size
        if size == 8:
            copy8(to, source)
        elif size == 4:
            store_u32(to, load_u32(source))
        elif size == 16:
            copy16(to, source)
        elif size == 2:
            store_u16(to, load_u16(source))
        elif size == 1:
            store_u8(to, load_u8(source))
        else:
            copy(to, source, size)
    return -1


# --- Compiled kernels over byte streams; their wrappers are in ``glaive.kernels.flat``
#
# 64 values at a time are vectors: one of bytes for each stream, and one of words.

LANES = 64


def _streams(builder: Any, width: int, first: Any, apart: Any) -> Iterator[tuple[Any, Any]]:
    """Return the places of the bytes of each stream, and how they move to and from a word."""
    kind = lanes_of(8 * width, LANES)
    for byte in range(width):
        yield first, ir.Constant(kind, [8 * byte] * LANES)
        first = builder.add(first, apart)


def _join_words(width: int) -> Any:
    """Store 64 words from their bytes in streams that are ``apart`` bytes apart."""

    @instruction(types.void, *(types.int64,) * 3)
    def write(builder: Any, source: Any, apart: Any, target: Any) -> Any:
        words = ir.Constant(lanes_of(8 * width, LANES), None)
        for place, shift in _streams(builder, width, source, apart):
            part = builder.zext(load(builder, place, lanes_of(8, LANES)), words.type)
            words = builder.or_(words, builder.shl(part, shift))
        store(builder, target, words)

    return write


def _split_words(width: int) -> Any:
    """Store the bytes of 64 words in streams that are ``apart`` bytes apart."""

    @instruction(types.void, *(types.int64,) * 3)
    def write(builder: Any, source: Any, target: Any, apart: Any) -> Any:
        words = load(builder, source, lanes_of(8 * width, LANES))
        for place, shift in _streams(builder, width, target, apart):
            part = builder.trunc(builder.lshr(words, shift), lanes_of(8, LANES))
            store(builder, place, part)

    return write


join_4, join_8 = _join_words(4), _join_words(8)
split_4, split_8 = _split_words(4), _split_words(8)


@kernel
def join_value(source: int, stream: int, width: int) -> np.uint64:
    """Return one value out of ``width`` streams."""
    word = np.uint64(0)
    for byte in range(width):
        part = np.uint64(load_u8(source + byte * stream))
        word |= part << np.uint64(8 * byte)
    return word


@kernel
def join(data: int, starts: int, counts: int, chunks: int, width: int, target: int) -> None:
    """Join chunk after chunk ``counts[i]`` values out of streams of as many bytes each."""
    for chunk in range(chunks):
        source = data + load_i64(starts + chunk * 8)
        count = load_i64(counts + chunk * 8)
        done = 0
        while done + LANES <= count:
            if width == 8:
                join_8(source + done, count, target + done * 8)
            else:
                join_4(source + done, count, target + done * 4)
            done += LANES
        while done < count:
            word = join_value(source + done, count, width)
            if width == 8:
                store_u64(target + done * 8, word)
            else:
                store_u32(target + done * 4, word)
            done += 1
        target += count * width


@kernel
def split(values: int, counts: int, chunks: int, width: int, target: int) -> None:
    """Split the values of chunk after chunk into streams: the inverse of ``join``."""
    for chunk in range(chunks):
        count = load_i64(counts + chunk * 8)
        done = 0
        while done + LANES <= count:
            if width == 8:
                split_8(values + done * 8, target + done, count)
            else:
                split_4(values + done * 4, target + done, count)
            done += LANES
        while done < count:
            for byte in range(width):
                store_u8(target + byte * count + done, load_u8(values + done * width + byte))
            done += 1
        values += count * width
        target += count * width


# --- Compiled copies of ranges with space between them; wrapper: ``glaive.kernels.flat``


# --- The kernel that measures blocks of LZ4. Wrapper: ``glaive.kernels.flat`` ------------

FULL_LENGTH = 15
"""A length of this size continues in the next bytes."""

MIN_COPY_BYTES = 4
"""Bytes of the shortest copy."""


@kernel
def _rest_of_length(data: int, at: int, end: int) -> tuple[int, int]:
    """Return the rest of a length in the bytes from ``at`` on, and their end; 0 if they stop."""
    count = np.int64(0)
    while at < end:
        byte = np.int64(load_u8(data + at))
        at += 1
        count += byte
        if byte != 255:
            return count, at
    return count, np.int64(0)


@kernel
def _size_of(data: int, at: int, end: int, limit: int) -> int:
    """Return the decompressed bytes of a block; -1 if it is invalid, or larger than ``limit``."""
    made = np.int64(0)
    while at < end:
        token = np.int64(load_u8(data + at))
        at += 1
        count = token >> 4
        if count == FULL_LENGTH:
            more, at = _rest_of_length(data, at, end)
            count += more
            if at == 0:
                return -1
        if count > end - at or count > limit - made:
            return -1
        at += count
        made += count
        if at == end:
            return made
        if end - at < 2:
            return -1
        back = np.int64(load_u16(data + at))
        at += 2
        if back == 0 or back > made:
            return -1
        count = (token & FULL_LENGTH) + MIN_COPY_BYTES
        if token & FULL_LENGTH == FULL_LENGTH:
            more, at = _rest_of_length(data, at, end)
            count += more
            if at == 0:
                return -1
        if count > limit - made:
            return -1
        made += count
    return -1


@kernel
def measure(
    data: int, starts: int, sizes: int, limits: int, blocks: int, found: int
) -> None:  # fmt: skip
    """Store the decompressed bytes of each block, or -1; the wrapper has checked the ranges."""
    for block in range(blocks):
        start = load_i64(starts + 8 * block)
        end = start + load_i64(sizes + 8 * block)
        limit = load_i64(limits + 8 * block)
        store_u64(found + 8 * block, _size_of(data, start, end, limit))
