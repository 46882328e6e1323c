"""Kernels behind ``glaive.kernels.list_levels``.

A chunk's levels are decoded and checked by :func:`chunk_levels` alone. The kernels over chunks
(and over rows, in ``list_rows``) return a negative number at the first defect; the general path
then reports what it is.

Target memory has ``SLACK`` bytes behind the last level, so that a block of 1,024 levels may
be unpacked where a shorter one is wanted.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width, tail_is_packed
from glaive.kernels.loops.blocks import unpack_block_16
from glaive.kernels.loops.chunks import LANES, count_levels, load_size
from glaive.kernels.loops.memory import (
    copy,
    kernel,
    kernel_of,
    load_i64,
    load_u8,
    load_u16,
    store_u64,
    wrapping_sub,
)
from glaive.kernels.loops.rows import fill
from glaive.kernels.loops.runs import repeat_word
from glaive.kernels.records import LevelPage, ReadChunks, offsets_of

FLAT, PACKED, INLINE, RUNS = 1, 2, 3, 4
PAGE = offsets_of(LevelPage)
BROKEN = -1
TOO_MANY = -2


@kernel
def decode_levels(
    data: int, start: int, size: int, count: int, encoding: int, width: int, target: int
) -> bool:
    """Decode one block of levels to ``target``; False when its size or lengths are wrong."""
    source = data + start
    if encoding == FLAT:
        if size != 2 * count:
            return False
        copy(target, source, size)
        return True
    if encoding == INLINE:
        # The caller has checked that the block lies within the data.
        width = inline_width(data, start + size, start, size, 16)
        if width < 0 or count > BLOCK:
            return False
        if width == 0:
            fill_zero(target, 2 * count)
        else:
            unpack_block_16(source + 2, width, target)
        return True
    if encoding == PACKED:
        blocks = count >> 10
        tail = count & (BLOCK - 1)
        packed = tail_is_packed(tail, 16, width)
        if size != (blocks + packed) * width * 128 + (0 if packed else 2 * tail):
            return False
        if width == 0:
            fill_zero(target, 2 * count)
            return True
        for _ in range(blocks + packed):
            unpack_block_16(source, width, target)
            source += width * 128
            target += 2 * BLOCK
        if not packed:
            copy(target, source, 2 * tail)
        return True
    if size < 8:
        return False
    head = load_i64(source)
    if head < 0 or head > size - 8 or head != 2 * (size - 8 - head):
        return False
    lengths = source + 8 + head
    at = target
    remaining = count
    fill_zero(target, 2 * count)
    for run in range(head >> 1):
        length = np.int64(load_u8(lengths + run))
        if length > remaining:
            return False
        level = np.uint64(load_u16(source + 8 + 2 * run))
        end = at + 2 * length
        # Writes up to 64 bytes too many; the next run overwrites them.
        if level == np.uint64(0):  # the usual level: no loop whose end is hard to predict
            fill(at, level)
        else:
            value = repeat_word(16, level)
            while at < end:
                fill(at, value)
                at += 64
        at = end
        remaining -= length
    return remaining == 0


@kernel
def fill_vector(target: int) -> None:
    """Store 64 levels of 0."""
    fill(target, np.uint64(0))
    fill(target + 64, np.uint64(0))


@kernel
def chunk_buffers(
    data: int, data_size: int, start: int, chunk_size: int, page: int, buffer_starts: int,
    buffer_sizes: int, stride: int,
) -> tuple[np.int64, np.int64, np.int64, np.int64, np.int64]:  # fmt: skip
    """Parse one chunk's header; returns the number of levels, negative when it is broken.

    Beside it, positions and sizes of repetition and of definition levels, 0 where a page has none.
    Those of value buffers are stored at ``buffer_starts`` and ``buffer_sizes``, ``stride`` bytes
    apart.
    """
    zero = np.int64(0)
    value_buffers = load_i64(page + PAGE.value_buffers)
    value_width = load_i64(page + PAGE.value_width)
    level_buffers = 1 + np.int64(load_i64(page + PAGE.definition) != 0)
    head = 2 + 2 * level_buffers + value_width * value_buffers
    if start < 0 or chunk_size < head or start > data_size - chunk_size:
        return np.int64(BROKEN), zero, zero, zero, zero
    at = data + start
    levels = np.int64(load_u16(at))
    rep_size, def_size, def_at = np.int64(load_u16(at + 2)), zero, zero
    position = np.int64((head + 7) & ~7)
    rep_at = start + position
    position += (rep_size + 7) & ~7
    used = rep_at - start + rep_size
    at += 4
    if level_buffers > 1:
        def_size = np.int64(load_u16(at))
        def_at = start + position
        used = position + def_size
        position += (def_size + 7) & ~7
        at += 2
    for buffer in range(value_buffers):
        size = load_size(at, value_width)
        at += value_width
        store_u64(buffer_starts + stride * buffer, start + position)
        store_u64(buffer_sizes + stride * buffer, size)
        used = position + size
        position += (size + 7) & ~7
    if used > chunk_size:
        return np.int64(BROKEN), zero, zero, zero, zero
    return levels, rep_at, rep_size, def_at, def_size


@kernel
def chunk_levels(
    data: int, data_size: int, start: int, chunk_size: int, page: int, count: int, rows: int,
    enters: int, buffer_starts: int, buffer_sizes: int, stride: int, rep: int, definition: int,
    level_capacity: int,
) -> int:  # fmt: skip
    """Parse one chunk's header and decode its levels; returns how many, negative when broken.

    Positions and sizes of value buffers are stored at ``buffer_starts`` and ``buffer_sizes``,
    ``stride`` bytes apart. The chunk must have ``count`` visible entries and ``rows`` row starts;
    it must begin with one unless ``enters``.
    """
    rep_encoding, def_encoding = load_i64(page + PAGE.rep), load_i64(page + PAGE.definition)
    levels, rep_at, rep_size, def_at, def_size = chunk_buffers(
        data=data, data_size=data_size, start=start, chunk_size=chunk_size, page=page,
        buffer_starts=buffer_starts, buffer_sizes=buffer_sizes, stride=stride,
    )  # fmt: skip
    if levels < 1:
        return BROKEN
    if levels > level_capacity:
        return TOO_MANY
    width = load_i64(page + PAGE.rep_width)
    if not decode_levels(data, rep_at, rep_size, levels, rep_encoding, width, rep):
        return BROKEN
    width = load_i64(page + PAGE.def_width)
    if def_encoding != 0 and not decode_levels(
        data, def_at, def_size, levels, def_encoding, width, definition
    ):
        return BROKEN
    # Whole vectors are counted: the levels of 0 behind the last begin no rows, and are visible.
    padded = (levels + LANES - 1) & ~(LANES - 1)
    fill_vector(rep + 2 * levels)
    if def_encoding != 0:
        fill_vector(definition + 2 * levels)
    row_count, visible, bad_rep, bad_def = count_levels(
        rep, definition if def_encoding != 0 else 0, padded, load_i64(page + PAGE.max_rep),
        load_i64(page + PAGE.visible_max), load_i64(page + PAGE.max_def),
    )  # fmt: skip
    visible -= padded - levels
    if bad_rep != 0 or bad_def != 0 or row_count != rows or visible != count:
        return BROKEN
    if (np.int64(load_u16(rep)) != load_i64(page + PAGE.max_rep)) != (enters != 0):
        return BROKEN
    return levels


@kernel
def count_entries(data: int, data_size: int, starts: int, chunks: int) -> int:
    """Total number of levels according to the chunk headers; -1 when a chunk is outside."""
    total = np.int64(0)
    for chunk in range(chunks):
        start = load_i64(starts + 8 * chunk)
        if start < 0 or start > data_size - 2:
            return BROKEN
        total += np.int64(load_u16(data + start))
    return total


@kernel_of(ReadChunks)
def read_chunks(
    data: int, data_size: int, starts: int, sizes: int, counts: int, row_starts: int, enters: int,
    chunks: int, page: int, buffer_starts: int, buffer_sizes: int, firsts: int, rep: int,
    definition: int, capacity: int,
) -> int:  # fmt: skip
    """Decode the levels of all chunks; returns how many, negative when a chunk is broken.

    ``firsts`` receives the first entry of each chunk.
    """
    done = np.int64(0)
    for chunk in range(chunks):
        at = 8 * chunk
        rows = wrapping_sub(load_i64(row_starts + at + 8), load_i64(row_starts + at))
        levels = chunk_levels(
            data=data, data_size=data_size, start=load_i64(starts + at),
            chunk_size=load_i64(sizes + at), page=page, count=load_i64(counts + at), rows=rows,
            enters=np.int64(load_u8(enters + chunk)), buffer_starts=buffer_starts + at,
            buffer_sizes=buffer_sizes + at, stride=8 * chunks, rep=rep + 2 * done,
            definition=definition + 2 * done, level_capacity=capacity - done,
        )  # fmt: skip
        if levels < 0:
            return levels
        store_u64(firsts + at, done)
        done += levels
    return done
