"""Kernels over the rows of pages with lists; wrappers: ``glaive.kernels.list_levels``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.chunks import count_levels, find_row
from glaive.kernels.loops.list_levels import BROKEN, PAGE, chunk_levels
from glaive.kernels.loops.memory import (
    copy,
    kernel,
    kernel_of,
    load_i64,
    load_u8,
    load_u16,
    prefetch,
    store_u64,
    wrapping_add,
    wrapping_sub,
)
from glaive.kernels.records import ReorderRows, SelectRows

AHEAD = 6
"""Chunks whose first bytes are fetched ahead: the processor would wait for each of them."""

HEAD = 320
"""Bytes of a chunk in which header and levels usually lie."""

LINE = 64


@kernel
def first_chunk_of_row(row_starts: int, chunks: int, row: int, low: int) -> np.int64:
    """The last chunk that begins with a row number of at most ``row``, from ``low`` on."""
    low = np.int64(low)
    # In steps that double: ascending rows are searched for from the chunk of the row before on.
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
    """The chunk in which a row ends: it goes on in those that begin in the middle of it."""
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
    """Find the chunks of each row; returns how many chunks hold any of the rows.

    ``edges`` has room for ``chunks + 1`` words. ``ids`` receives the numbers of those chunks;
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


@kernel
def put_entries(
    rep: int, definition: int, begin: int, end: int, value: int, visible_max: int, chunk: int,
    done: int, seen: int, rep_out: int, def_out: int, slots: int, index: int,
) -> int:  # fmt: skip
    """Append entries ``begin`` to ``end`` of a chunk; returns all visible ones so far."""
    copy(rep_out + 2 * done, rep + 2 * begin, 2 * (end - begin))
    if definition == 0:
        for i in range(end - begin):
            store_u64(slots + 8 * (seen + i), chunk)
            store_u64(index + 8 * (seen + i), value + i)
        return seen + end - begin
    copy(def_out + 2 * done, definition + 2 * begin, 2 * (end - begin))
    for i in range(begin, end):
        # Always stored, but only visible ones are counted: there is room for one more.
        store_u64(slots + 8 * seen, chunk)
        store_u64(index + 8 * seen, value)
        visible = np.int64(np.int64(load_u16(definition + 2 * i)) <= visible_max)
        seen += visible
        value += visible
    return seen


@kernel_of(SelectRows)
def select_rows(
    data: int, data_size: int, sizes: int, counts: int, row_starts: int, enters: int,
    table_chunks: int, ids: int, starts: int, chunks: int, page: int, rows: int, begin: int,
    last: int, wanted: int, scratch_rep: int, scratch_def: int, scratch_capacity: int,
    buffer_starts: int, buffer_sizes: int, lengths: int, values: int, rep_out: int, def_out: int,
    slots: int, positions: int, capacity: int,
) -> tuple[int, int]:  # fmt: skip
    """Collect the levels of rows, and where their values lie; returns (entries, visible).

    The chunks ``ids`` of the table lie at ``starts``; ``begin`` and ``last`` give those in which
    each row begins and ends. The number of entries is negative when a chunk is broken. Nothing is
    written beyond ``capacity`` entries; when there are more, their number is the capacity needed.
    """
    max_rep = load_i64(page + PAGE.max_rep)
    visible_max = load_i64(page + PAGE.visible_max)
    definition = scratch_def if load_i64(page + PAGE.definition) != 0 else 0
    current = np.int64(-1)
    first_row = np.int64(0)
    levels = np.int64(0)
    # Of the row found last in this chunk: where it begins, visible entries and rows before it.
    found, found_value, found_nth = np.int64(0), np.int64(0), np.int64(0)
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
                if chunk < chunks - AHEAD:
                    coming = wrapping_add(data, load_i64(starts + at + 8 * AHEAD))
                    for line in range(0, HEAD, LINE):
                        prefetch(wrapping_add(coming, line))
                levels = chunk_levels(
                    data=data, data_size=data_size, start=load_i64(starts + at),
                    chunk_size=load_i64(sizes + 8 * number), page=page,
                    count=load_i64(counts + 8 * number),
                    rows=wrapping_sub(load_i64(row_starts + 8 * number + 8), first_row),
                    enters=np.int64(load_u8(enters + number)), buffer_starts=buffer_starts + at,
                    buffer_sizes=buffer_sizes + at, stride=8 * chunks, rep=scratch_rep,
                    definition=scratch_def, level_capacity=scratch_capacity,
                )  # fmt: skip
                if levels < 0:
                    return levels, seen
                current = chunk
                found, found_value, found_nth = np.int64(0), np.int64(0), np.int64(0)
            low = np.int64(0)
            value = np.int64(0)
            if fresh:
                if load_i64(rows + 8 * i) < first_row:
                    return np.int64(BROKEN), seen
                nth = wrapping_sub(load_i64(rows + 8 * i), first_row)
                if nth < found_nth:
                    found, found_value, found_nth = np.int64(0), np.int64(0), np.int64(0)
                low = found + find_row(
                    scratch_rep + 2 * found, levels - found, max_rep, nth - found_nth
                )
                if low >= levels:
                    return np.int64(BROKEN), seen
                value = low
                if definition != 0:
                    _, value, _, _ = count_levels(
                        np.int64(0), definition + 2 * found, low - found, max_rep, visible_max,
                        max_rep,
                    )  # fmt: skip
                    value += found_value
                found, found_value, found_nth = low, value, nth
                after = low + 1
                high = after + find_row(scratch_rep + 2 * after, levels - after, max_rep, 0)
            else:
                high = find_row(scratch_rep, levels, max_rep, 0)
            fresh = False
            if done + high - low <= capacity:
                seen = put_entries(
                    rep=scratch_rep, definition=definition, begin=low, end=high, value=value,
                    visible_max=visible_max, chunk=chunk, done=done, seen=seen, rep_out=rep_out,
                    def_out=def_out, slots=slots, index=positions,
                )  # fmt: skip
            done += high - low
            if chunk == end:
                break
            if high < levels:
                return np.int64(BROKEN), seen
            chunk += 1
        store_u64(lengths + 8 * i, done - before)
        store_u64(values + 8 * i, seen - before_seen)
    return done, seen


@kernel_of(ReorderRows)
def reorder_rows(
    order: int, lengths: int, values: int, wanted: int, rep: int, definition: int, slots: int,
    positions: int, begins: int, rep_out: int, def_out: int, slots_out: int, index_out: int,
) -> None:  # fmt: skip
    """Put selected rows into another order: row ``i`` becomes row ``order[i]``.

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
        copy(index_out + 8 * seen, positions + 8 * value, 8 * visible)
        done += length
        seen += visible
