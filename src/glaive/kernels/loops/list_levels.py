"""Loops behind ``glaive.kernels.list_levels``.

A chunk's levels are decoded and checked by :func:`chunk_levels` alone; the loops over chunks
(and over rows, in ``list_rows``) give up at the first thing that is not as it should be, with
a negative number, and leave it to the slower way to say what that is.

Target memory has ``SLACK`` bytes behind the last level, so that a block of 1,024 levels may
be unpacked where a shorter one is wanted.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width, tail_is_packed
from glaive.kernels.loops.blocks import unpack_block_16
from glaive.kernels.loops.chunks import count_levels
from glaive.kernels.loops.memory import (
    copy,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    loop,
    loop_of,
    store_u64,
    wrapping_sub,
)
from glaive.kernels.loops.rows import fill
from glaive.kernels.loops.runs import repeat_word
from glaive.kernels.records import LevelPage, ReadChunks, offsets_of

FLAT, PACKED, INLINE, RUNS = 1, 2, 3, 4
PAGE = offsets_of(LevelPage)
BROKEN = -1
NO_ROOM = -2


@loop
def decode_levels(
    data: int, start: int, size: int, count: int, form: int, width: int, target: int
) -> bool:
    """Decode one block of levels to ``target``; False when it is not what it should be."""
    source = data + start
    if form == FLAT:
        if size != 2 * count:
            return False
        copy(target, source, size)
        return True
    if form == INLINE:
        # The caller has checked that the block lies within the data.
        width = inline_width(data, start + size, start, size, 16)
        if width < 0 or count > BLOCK:
            return False
        if width == 0:
            fill_zero(target, 2 * count)
        else:
            unpack_block_16(source + 2, width, target)
        return True
    if form == PACKED:
        whole = count >> 10
        tail = count & (BLOCK - 1)
        packed = tail_is_packed(tail, 16, width)
        if size != (whole + packed) * width * 128 + (0 if packed else 2 * tail):
            return False
        if width == 0:
            fill_zero(target, 2 * count)
            return True
        for _ in range(whole + packed):
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
    left = count
    for run in range(head >> 1):
        length = np.int64(load_u8(lengths + run))
        if length > left:
            return False
        value = repeat_word(16, np.uint64(load_u16(source + 8 + 2 * run)))
        end = at + 2 * length
        # Writes up to 64 bytes too many; the next run overwrites them.
        while at < end:
            fill(at, value)
            at += 64
        at = end
        left -= length
    return left == 0


@loop
def chunk_levels(
    data: int,
    data_size: int,
    start: int,
    room: int,
    page: int,
    count: int,
    rows: int,
    enters: int,
    piece_starts: int,
    piece_sizes: int,
    stride: int,
    rep: int,
    definition: int,
    levels_room: int,
) -> int:
    """Parse one chunk's header and decode its levels; returns how many, negative when broken.

    Positions and sizes of value pieces are stored at ``piece_starts`` and ``piece_sizes``,
    ``stride`` bytes apart. The chunk must have ``count`` visible entries, ``rows`` starts of
    rows, and begin with one unless ``enters``.
    """
    rep_form, def_form = load_i64(page + PAGE.rep), load_i64(page + PAGE.definition)
    value_pieces = load_i64(page + PAGE.value_pieces)
    value_width = load_i64(page + PAGE.value_width)
    level_pieces = 1 + np.int64(def_form != 0)
    head = 2 + 2 * level_pieces + value_width * value_pieces
    if start < 0 or room < head or start > data_size - room:
        return BROKEN
    at = data + start
    levels = np.int64(load_u16(at))
    if levels > levels_room:
        return NO_ROOM
    at += 2
    position = np.int64((head + 7) & ~7)
    for piece in range(level_pieces + value_pieces):
        if piece < level_pieces or value_width == 2:
            size = np.int64(load_u16(at))
            at += 2
        else:
            size = np.int64(load_u32(at))
            at += 4
        if position + size > room:
            return BROKEN
        good = True
        if piece == 0:
            width = load_i64(page + PAGE.rep_width)
            good = decode_levels(data, start + position, size, levels, rep_form, width, rep)
        elif piece < level_pieces:
            width = load_i64(page + PAGE.def_width)
            good = decode_levels(data, start + position, size, levels, def_form, width, definition)
        else:
            out = stride * (piece - level_pieces)
            store_u64(piece_starts + out, start + position)
            store_u64(piece_sizes + out, size)
        if not good:
            return BROKEN
        position += (size + 7) & ~7
    found, visible, bad_rep, bad_def = count_levels(
        rep,
        definition if def_form != 0 else 0,
        levels,
        load_i64(page + PAGE.max_rep),
        load_i64(page + PAGE.visible_max),
        load_i64(page + PAGE.max_def),
    )
    if bad_rep != 0 or bad_def != 0 or found != rows or visible != count or levels < 1:
        return BROKEN
    if (np.int64(load_u16(rep)) != load_i64(page + PAGE.max_rep)) != (enters != 0):
        return BROKEN
    return levels


@loop
def count_entries(data: int, data_size: int, starts: int, chunks: int) -> int:
    """Levels of all chunks together, as their headers say; -1 when one is outside."""
    total = np.int64(0)
    for chunk in range(chunks):
        start = load_i64(starts + 8 * chunk)
        if start < 0 or start > data_size - 2:
            return BROKEN
        total += np.int64(load_u16(data + start))
    return total


@loop_of(ReadChunks)
def read_chunks(
    data: int,
    data_size: int,
    starts: int,
    sizes: int,
    counts: int,
    row_starts: int,
    enters: int,
    chunks: int,
    page: int,
    piece_starts: int,
    piece_sizes: int,
    firsts: int,
    rep: int,
    definition: int,
    room: int,
) -> int:
    """Decode the levels of all chunks; returns how many, negative when one is broken.

    ``firsts`` takes the first entry of each chunk.
    """
    done = np.int64(0)
    for chunk in range(chunks):
        at = 8 * chunk
        rows = wrapping_sub(load_i64(row_starts + at + 8), load_i64(row_starts + at))
        levels = chunk_levels(
            data=data,
            data_size=data_size,
            start=load_i64(starts + at),
            room=load_i64(sizes + at),
            page=page,
            count=load_i64(counts + at),
            rows=rows,
            enters=np.int64(load_u8(enters + chunk)),
            piece_starts=piece_starts + at,
            piece_sizes=piece_sizes + at,
            stride=8 * chunks,
            rep=rep + 2 * done,
            definition=definition + 2 * done,
            levels_room=room - done,
        )
        if levels < 0:
            return levels
        store_u64(firsts + at, done)
        done += levels
    return done
