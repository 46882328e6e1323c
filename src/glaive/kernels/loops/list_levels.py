"""Compiled kernels over pages with lists; their wrappers are in ``glaive.kernels.list_levels``.

:func:`chunk_levels` alone decodes and checks the levels of a chunk. The kernels over chunks return
a negative number at the first defect; the general path then reports the defect.

Target memory has ``SLACK`` bytes after the last level, so that kernels may unpack a block of 1,024
levels where a shorter one is wanted.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, fill_zero, inline_width, tail_is_packed
from glaive.kernels.loops.chunks import LANES, count_levels, load_size
from glaive.kernels.loops.memory import (
    copy,
    fill,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    store_u8,
    store_u16,
    store_u64,
    unpack_block,
    wrapping_sub,
)
from glaive.kernels.loops.runs import repeat_word
from glaive.kernels.records import LevelPage, offsets_of

FLAT, PACKED, INLINE, RUNS = 1, 2, 3, 4
PAGE = offsets_of(LevelPage)
BROKEN = -1
TOO_MANY = -2


@kernel
def decode_levels(
    data: int, start: int, size: int, count: int, encoding: int, width: int, target: int
) -> bool:
    """Decode one block of levels to ``target``; ``False`` when its size or lengths are wrong."""
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
            unpack_block(16, source + 2, width, target)
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
            unpack_block(16, source, width, target)
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
        if level == np.uint64(0):  # the usual level: avoid a loop whose end is hard to predict
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
    """Parse one chunk's header; return the number of levels, negative when it is broken.

    Also return positions and sizes of repetition and of definition levels, 0 for missing ones.
    Store positions and sizes of value buffers at ``buffer_starts`` and ``buffer_sizes``, ``stride``
    bytes apart.
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
    """Parse one chunk's header and decode its levels; return how many, negative when broken.

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
    # Whole vectors are counted: levels of 0 after the last are visible, but inside a row.
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
    """Return the total number of levels by the chunk headers; -1 when a chunk is outside."""
    total = np.int64(0)
    for chunk in range(chunks):
        start = load_i64(starts + 8 * chunk)
        if start < 0 or start > data_size - 2:
            return BROKEN
        total += np.int64(load_u16(data + start))
    return total


@kernel
def read_chunks(
    data: int, data_size: int, starts: int, sizes: int, counts: int, row_starts: int, enters: int,
    chunks: int, page: int, buffer_starts: int, buffer_sizes: int, firsts: int, rep: int,
    definition: int, capacity: int,
) -> int:  # fmt: skip
    """Decode the levels of all chunks; return how many, negative when a chunk is broken.

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


# --- Kernels over the rows of pages with lists; wrappers: ``glaive.kernels.list_levels``

AHEAD = 6
"""Chunks whose first bytes are fetched ahead: the processor would wait for each of them."""

HEAD = 320
"""Bytes at the start of a chunk that usually hold header and levels."""

LINE = 64


@kernel
def first_chunk_of_row(row_starts: int, chunks: int, row: int, low: int) -> np.int64:
    """Return the last chunk, from ``low`` on, that begins with a row number up to ``row``."""
    low = np.int64(low)
    # In steps that double: for ascending rows, ``low`` is the chunk of the row before.
    high, step = low + 1, np.int64(1)
    while high < chunks and load_i64(row_starts + 8 * high) <= row:
        low = high
        step += step
        high += step
    high = min(high, np.int64(chunks))
    while high - low > 1:
        middle = (low + high) >> 1
        if load_i64(row_starts + 8 * middle) <= row:
            low = middle
        else:
            high = middle
    return low


@kernel
def last_chunk_of_row(row_starts: int, enters: int, chunks: int, row: int, first: int) -> np.int64:
    """Return the chunk where a row ends: it continues in chunks that begin inside a row."""
    end = np.int64(first)
    while (
        end + 1 < chunks
        and load_u8(enters + end + 1) != 0
        and load_i64(row_starts + 8 * end + 8) == row + 1
    ):
        end += 1
    return end


@kernel
def locate_rows(
    rows: int, wanted: int, row_starts: int, enters: int, chunks: int, edges: int, begin: int,
    last: int, ids: int,
) -> int:  # fmt: skip
    """Find the chunks of each row; return how many chunks hold any of the rows.

    ``edges`` has room for ``chunks + 1`` words. ``ids`` receives the numbers of these chunks;
    ``begin`` and ``last`` receive the first and the last chunk of each row, as indices into
    ``ids``.
    """
    for chunk in range(chunks + 1):
        store_u64(edges + 8 * chunk, 0)
    before = np.int64(-1)
    first = np.int64(0)
    for i in range(wanted):
        row = load_i64(rows + 8 * i)
        first = first_chunk_of_row(row_starts, chunks, row, first if row >= before else 0)
        before = row
        end = last_chunk_of_row(row_starts, enters, chunks, row, first)
        store_u64(begin + 8 * i, first)
        store_u64(last + 8 * i, end)
        store_u64(edges + 8 * first, load_i64(edges + 8 * first) + 1)
        store_u64(edges + 8 * end + 8, load_i64(edges + 8 * end + 8) - 1)
    used = np.int64(0)
    cover = np.int64(0)
    for chunk in range(chunks):
        cover += load_i64(edges + 8 * chunk)
        store_u64(edges + 8 * chunk, used)
        if cover > 0:
            store_u64(ids + 8 * used, chunk)
            used += 1
    for i in range(wanted):
        store_u64(begin + 8 * i, load_i64(edges + 8 * load_i64(begin + 8 * i)))
        store_u64(last + 8 * i, load_i64(edges + 8 * load_i64(last + 8 * i)))
    return used


# --- Compiled kernels over the entries of nested arrays; wrappers: ----------------------
# ``glaive.kernels.list_levels``
#
# ``outer`` and ``ended`` have one byte per entry. In ``outer`` it is above 0 for entries without a
# slot, in ``ended`` for entries that have ended. An address of 0 stands for zeros. ``valid`` has
# one byte per slot; an address of 0 means that all are valid.

ZEROS = 8
"""Entries that are tested together: most continue."""


@kernel
def has_slot(outer: int, entry: int) -> bool:
    """Return whether an entry has a slot in the array of this layer."""
    return outer == 0 or load_u8(outer + entry) == 0


@kernel
def measure_lists(
    ended: int, outer: int, entries: int, lengths: int, valid: int, slots: int, limit: int,
    result: int,
) -> int:  # fmt: skip
    """Count the entries that the lists of a layer become; store the counts at ``result``.

    The order is: entries inside, null lists, empty lists, lists that have ended outside, lists
    with items that are dropped. Return the number of slots; -1 when there are more than ``slots``,
    or a list has fewer than 0 items, or more than the rest of ``limit``.
    """
    slot = np.int64(0)
    total = np.int64(0)
    nulls = np.int64(0)
    empties = np.int64(0)
    ended_outside = np.int64(0)
    dropped = np.int64(0)
    for entry in range(entries):
        if not has_slot(outer, entry):
            total += 1
            continue
        if slot == slots:
            return -1
        length = load_i64(lengths + 8 * slot)
        goes_on = np.int64(ended == 0 or load_u8(ended + entry) == 0)
        is_valid = np.int64(valid == 0 or load_u8(valid + slot) != 0)
        kept = goes_on & is_valid
        has_items = np.int64(length > 0)
        if length < 0 or length * kept > limit - total:
            return -1
        total += max(length * kept, 1)
        ended_outside += 1 - goes_on
        nulls += goes_on & (1 - is_valid)
        empties += kept & (1 - has_items)
        dropped += has_items & (1 - kept)
        slot += 1
    store_u64(result, total)
    store_u64(result + 8, nulls)
    store_u64(result + 16, empties)
    store_u64(result + 24, ended_outside)
    store_u64(result + 32, dropped)
    return slot


@kernel
def spread_lists(
    rep: int, ended: int, outer: int, entries: int, lengths: int, valid: int, null_code: int,
    empty_code: int, rep_out: int, ended_out: int,
) -> None:  # fmt: skip
    """Store the first entry of each list; the wrapper has filled in the others.

    The lists have been measured: there is room for all entries.
    """
    slot = np.int64(0)
    at = np.int64(0)
    for entry in range(entries):
        level = np.int64(0)
        end = np.int64(0)
        size = np.int64(1)
        if rep != 0:
            level = np.int64(load_u16(rep + 2 * entry))
        if ended != 0:
            end = np.int64(load_u8(ended + entry))
        if has_slot(outer, entry):
            if end == 0:
                if valid != 0 and load_u8(valid + slot) == 0:
                    end = null_code
                else:
                    size = load_i64(lengths + 8 * slot)
                    if size == 0:
                        end = empty_code
                        size = np.int64(1)
            slot += 1
        store_u16(rep_out + 2 * at, level)
        if ended_out != 0:
            store_u8(ended_out + at, end)
        at += size


@kernel
def end_slots(
    ended: int, outer: int, entries: int, valid: int, slots: int, code: int, ended_out: int
) -> int:
    """Store ``code`` for entries whose slot is null, else the old code.

    Return the number of slots, -1 when there are more than ``slots``.
    """
    slot = np.int64(0)
    for entry in range(entries):
        end = np.int64(0)
        if ended != 0:
            end = np.int64(load_u8(ended + entry))
        if has_slot(outer, entry):
            if slot == slots:
                return -1
            if end == 0 and load_u8(valid + slot) == 0:
                end = code
            slot += 1
        store_u8(ended_out + entry, end)
    return slot


@kernel
def number_ends(ended: int, entries: int, table: int, levels: int) -> None:
    """Store the level of each entry, by its code in a ``table`` of 256 levels."""
    at = np.int64(0)
    while at < entries:
        if at + ZEROS <= entries and load_u64(ended + at) == np.uint64(0):
            store_u64(levels + 2 * at, np.uint64(0))
            store_u64(levels + 2 * at + 8, np.uint64(0))
            at += ZEROS
            continue
        stop = np.int64(min(at + ZEROS, entries))
        while at < stop:
            store_u16(levels + 2 * at, load_u16(table + 2 * np.int64(load_u8(ended + at))))
            at += 1
