"""Loops behind ``glaive.kernels.list_levels``.

A chunk's levels are decoded and checked by :func:`chunk_levels` alone; the loops over chunks
and rows give up (and return a negative number) at the first thing that is not as it should
be, and leave it to the slower way to say what that is.

Target memory has ``SLACK`` bytes behind the last level, so that a block of 1,024 levels may
be unpacked where a shorter one is wanted.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width, tail_is_packed
from glaive.kernels.loops.blocks import unpack_block_16
from glaive.kernels.loops.chunks import count_levels, find_row
from glaive.kernels.loops.memory import (
    copy,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    loop,
    store_u64,
)
from glaive.kernels.loops.rows import fill
from glaive.kernels.loops.runs import repeat_word

FLAT, PACKED, INLINE, RUNS = 1, 2, 3, 4
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
    form: int,
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

    ``form`` is the address of what the page says: level form and width of repetition and of
    definition, value pieces, their width, ``max_rep``, ``visible_max``, ``max_def``.
    Positions and sizes of value pieces are stored at ``piece_starts`` and ``piece_sizes``,
    ``stride`` bytes apart. The chunk must have ``count`` visible entries, ``rows`` starts of
    rows, and begin with one unless ``enters``.
    """
    rep_form = load_i64(form)
    def_form = load_i64(form + 16)
    value_pieces = load_i64(form + 32)
    value_width = load_i64(form + 40)
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
            width = load_i64(form + 8)
            good = decode_levels(data, start + position, size, levels, rep_form, width, rep)
        elif piece < level_pieces:
            width = load_i64(form + 24)
            good = decode_levels(data, start + position, size, levels, def_form, width, definition)
        else:
            out = stride * (piece - level_pieces)
            store_u64(piece_starts + out, start + position)
            store_u64(piece_sizes + out, size)
        if not good:
            return BROKEN
        position += (size + 7) & ~7
    max_rep = load_i64(form + 48)
    found, visible, bad_rep, bad_def = count_levels(
        rep,
        definition if def_form != 0 else 0,
        levels,
        max_rep,
        load_i64(form + 56),
        load_i64(form + 64),
    )
    if bad_rep != 0 or bad_def != 0 or found != rows or visible != count or levels < 1:
        return BROKEN
    if (np.int64(load_u16(rep)) != max_rep) != (enters != 0):
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


@loop
def read_chunks(
    data: int,
    data_size: int,
    starts: int,
    sizes: int,
    counts: int,
    row_starts: int,
    enters: int,
    chunks: int,
    form: int,
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
        rows = load_i64(row_starts + at + 8) - load_i64(row_starts + at)
        levels = chunk_levels(
            data,
            data_size,
            load_i64(starts + at),
            load_i64(sizes + at),
            form,
            load_i64(counts + at),
            rows,
            np.int64(load_u8(enters + chunk)),
            piece_starts + at,
            piece_sizes + at,
            8 * chunks,
            rep + 2 * done,
            definition + 2 * done,
            room - done,
        )
        if levels < 0:
            return levels
        store_u64(firsts + at, done)
        done += levels
    return done


@loop
def locate_rows(
    rows: int,
    wanted: int,
    row_starts: int,
    enters: int,
    chunks: int,
    edges: int,
    begin: int,
    last: int,
    ids: int,
) -> int:
    """Find the chunks of each row; returns how many are touched.

    ``edges`` has room for ``chunks + 1`` words. ``begin`` and ``last`` take the first and
    the last chunk of each row, counted among the touched ones, whose numbers go to ``ids``.
    """
    for chunk in range(chunks + 1):
        store_u64(edges + 8 * chunk, 0)
    before = np.int64(-1)
    first = np.int64(0)
    for i in range(wanted):
        row = load_i64(rows + 8 * i)
        # The last chunk that begins with a row number of at most `row`: rows that ascend
        # are looked for from the one before on, in steps that double.
        low = np.int64(0)
        high = np.int64(chunks)
        if row >= before:
            low = first
            step = np.int64(1)
            while low + step < chunks and load_i64(row_starts + 8 * (low + step)) <= row:
                low += step
                step += step
            high = min(low + step, high)
        while high - low > 1:
            middle = (low + high) >> 1
            if load_i64(row_starts + 8 * middle) <= row:
                low = middle
            else:
                high = middle
        first = low
        before = row
        end = low
        # It goes on in the chunks that enter with it: up to the first that starts a row.
        while (
            end + 1 < chunks
            and load_u8(enters + end + 1) != 0
            and load_i64(row_starts + 8 * end + 8) == row + 1
        ):
            end += 1
        store_u64(begin + 8 * i, low)
        store_u64(last + 8 * i, end)
        store_u64(edges + 8 * low, load_i64(edges + 8 * low) + 1)
        store_u64(edges + 8 * end + 8, load_i64(edges + 8 * end + 8) - 1)
    touched = np.int64(0)
    cover = np.int64(0)
    for chunk in range(chunks):
        cover += load_i64(edges + 8 * chunk)
        store_u64(edges + 8 * chunk, touched)
        if cover > 0:
            store_u64(ids + 8 * touched, chunk)
            touched += 1
    for i in range(wanted):
        store_u64(begin + 8 * i, load_i64(edges + 8 * load_i64(begin + 8 * i)))
        store_u64(last + 8 * i, load_i64(edges + 8 * load_i64(last + 8 * i)))
    return touched


@loop
def put_entries(
    rep: int,
    definition: int,
    begin: int,
    end: int,
    value: int,
    visible_max: int,
    chunk: int,
    done: int,
    seen: int,
    rep_out: int,
    def_out: int,
    slots: int,
    index: int,
) -> int:
    """Append entries ``begin`` to ``end`` of a chunk; returns the visible ones in all."""
    copy(rep_out + 2 * done, rep + 2 * begin, 2 * (end - begin))
    if definition == 0:
        for i in range(end - begin):
            store_u64(slots + 8 * (seen + i), chunk)
            store_u64(index + 8 * (seen + i), value + i)
        return seen + end - begin
    copy(def_out + 2 * done, definition + 2 * begin, 2 * (end - begin))
    for i in range(begin, end):
        # Stored always, moved on only past visible ones: there is room for one more.
        store_u64(slots + 8 * seen, chunk)
        store_u64(index + 8 * seen, value)
        visible = np.int64(np.int64(load_u16(definition + 2 * i)) <= visible_max)
        seen += visible
        value += visible
    return seen


@loop
def pick_rows(
    data: int,
    data_size: int,
    sizes: int,
    counts: int,
    row_starts: int,
    enters: int,
    table_chunks: int,
    ids: int,
    starts: int,
    chunks: int,
    form: int,
    rows: int,
    begin: int,
    last: int,
    wanted: int,
    scratch_rep: int,
    scratch_def: int,
    scratch_room: int,
    piece_starts: int,
    piece_sizes: int,
    lengths: int,
    values: int,
    rep_out: int,
    def_out: int,
    slots: int,
    index: int,
    room: int,
) -> tuple[int, int]:
    """Collect the levels of rows, and where their values lie; returns (entries, visible).

    The chunks ``ids`` of the table lie at ``starts``; rows say in which of those they begin
    and end. The entries are negative when a chunk is broken. Nothing is written beyond ``room``
    entries; when there are more, their number tells how much room is needed.
    """
    max_rep = load_i64(form + 48)
    visible_max = load_i64(form + 56)
    definition = scratch_def if load_i64(form + 16) != 0 else 0
    current = np.int64(-1)
    first_row = np.int64(0)
    levels = np.int64(0)
    done = np.int64(0)
    seen = np.int64(0)
    for i in range(wanted):
        chunk = load_i64(begin + 8 * i)
        end = load_i64(last + 8 * i)
        before = done
        before_seen = seen
        fresh = True
        while True:
            if chunk != current:
                if chunk < 0 or chunk >= chunks or end >= chunks:
                    return np.int64(BROKEN), seen
                at = 8 * chunk
                number = load_i64(ids + at)
                if number < 0 or number >= table_chunks:
                    return np.int64(BROKEN), seen
                first_row = load_i64(row_starts + 8 * number)
                levels = chunk_levels(
                    data,
                    data_size,
                    load_i64(starts + at),
                    load_i64(sizes + 8 * number),
                    form,
                    load_i64(counts + 8 * number),
                    load_i64(row_starts + 8 * number + 8) - first_row,
                    np.int64(load_u8(enters + number)),
                    piece_starts + at,
                    piece_sizes + at,
                    8 * chunks,
                    scratch_rep,
                    scratch_def,
                    scratch_room,
                )
                if levels < 0:
                    return levels, seen
                current = chunk
            low = np.int64(0)
            value = np.int64(0)
            if fresh:
                nth = load_i64(rows + 8 * i) - first_row
                if nth < 0:
                    return np.int64(BROKEN), seen
                low = find_row(scratch_rep, levels, max_rep, nth)
                if low >= levels:
                    return np.int64(BROKEN), seen
                value = low
                if definition != 0:
                    _, value, _, _ = count_levels(
                        np.int64(0), definition, low, max_rep, visible_max, max_rep
                    )
                after = low + 1
                high = after + find_row(scratch_rep + 2 * after, levels - after, max_rep, 0)
            else:
                high = find_row(scratch_rep, levels, max_rep, 0)
            fresh = False
            if done + high - low <= room:
                seen = put_entries(
                    scratch_rep,
                    definition,
                    low,
                    high,
                    value,
                    visible_max,
                    chunk,
                    done,
                    seen,
                    rep_out,
                    def_out,
                    slots,
                    index,
                )
            done += high - low
            if chunk == end:
                break
            if high < levels:
                return np.int64(BROKEN), seen
            chunk += 1
        store_u64(lengths + 8 * i, done - before)
        store_u64(values + 8 * i, seen - before_seen)
    return done, seen


@loop
def reorder_rows(
    order: int,
    lengths: int,
    values: int,
    wanted: int,
    rep: int,
    definition: int,
    slots: int,
    index: int,
    begins: int,
    rep_out: int,
    def_out: int,
    slots_out: int,
    index_out: int,
) -> None:
    """Put picked rows into another order: row ``i`` comes to place ``order[i]``.

    ``begins`` has room for three words per row.
    """
    done = np.int64(0)
    seen = np.int64(0)
    for i in range(wanted):
        store_u64(begins + 8 * load_i64(order + 8 * i), i)
        store_u64(begins + 8 * (wanted + i), done)
        store_u64(begins + 8 * (2 * wanted + i), seen)
        done += load_i64(lengths + 8 * i)
        seen += load_i64(values + 8 * i)
    done = np.int64(0)
    seen = np.int64(0)
    for at in range(wanted):
        i = load_i64(begins + 8 * at)
        entry = load_i64(begins + 8 * (wanted + i))
        value = load_i64(begins + 8 * (2 * wanted + i))
        length = load_i64(lengths + 8 * i)
        visible = load_i64(values + 8 * i)
        copy(rep_out + 2 * done, rep + 2 * entry, 2 * length)
        if definition != 0:
            copy(def_out + 2 * done, definition + 2 * entry, 2 * length)
        copy(slots_out + 8 * seen, slots + 8 * value, 8 * visible)
        copy(index_out + 8 * seen, index + 8 * value, 8 * visible)
        done += length
        seen += visible
