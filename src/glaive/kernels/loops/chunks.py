"""Compiled kernels over chunks; their wrappers are in ``glaive.kernels.chunks``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    copy,
    kernel,
    levels_above,
    levels_equal,
    load_i64,
    load_u16,
    load_u32,
    popcount,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    wrapping_add,
)

LANES = 64
"""Levels that one vector comparison covers."""


@kernel
def load_size(address: int, width: int) -> np.int64:
    """Read the size of a buffer in a header: 2 or 4 bytes."""
    return np.int64(load_u16(address)) if width == 2 else np.int64(load_u32(address))


@kernel
def read_words(
    words: int, word_bytes: int, pages: int, chunks: int, page_starts: int, page_sizes: int,
    items: int, max_values: int, offsets: int, sizes: int, firsts: int, counts: int,
) -> int:  # fmt: skip
    """Read the chunk words of pages; return the shift of all their chunks, or -2 - p if p is bad.

    The shift is 62 where all pages have one chunk, and -1 where chunks differ.
    """
    shift, at, first = np.int64(62), np.int64(0), np.int64(0)
    for page in range(pages):
        offset = np.int64(0)
        left = load_i64(items + 8 * page)
        start, size = load_i64(page_starts + 8 * page), load_i64(page_sizes + 8 * page)
        last = at + load_i64(chunks + 8 * page) - 1
        while at <= last:
            word = load_size(words + word_bytes * at, word_bytes)
            held, log = ((word >> 4) + 1) << 3, word & 15
            count = np.int64(1) << log
            if at == last:
                if left > max(max_values, 8 * held) or (log > 0 and count != left):
                    return -2 - page
                count = left
            elif log == 0:
                return -2 - page
            elif shift != log:
                shift = log if shift == 62 else np.int64(-1)
            if not 0 <= count <= left:
                return -2 - page
            left -= count
            store_u64(offsets + 8 * at, wrapping_add(start, offset))
            store_u64(sizes + 8 * at, held)
            store_u64(firsts + 8 * at, first)
            store_u64(counts + 8 * at, count)
            offset += held
            first += count
            at += 1
        if offset != size:
            return -2 - page
        store_u64(offsets + 8 * at, wrapping_add(start, size))
    store_u64(firsts + 8 * at, first)
    return shift


@kernel
def parse_headers(
    data: int, starts: int, sizes: int, chunks: int, level_buffers: int, value_buffers: int,
    value_width: int, levels_out: int, starts_out: int, sizes_out: int,
) -> int:  # fmt: skip
    """Find the buffers of each chunk; return the first bad chunk, or -1."""
    head = 2 + 2 * level_buffers + value_width * value_buffers
    for chunk in range(chunks):
        start = load_i64(starts + 8 * chunk)
        chunk_size = load_i64(sizes + 8 * chunk)
        if head > chunk_size:
            return chunk
        at = data + start
        store_u64(levels_out + 8 * chunk, np.int64(load_u16(at)))
        at += 2
        position = np.int64((head + 7) & ~7)
        for buffer in range(level_buffers + value_buffers):
            width = 2 if buffer < level_buffers else value_width
            size = load_size(at, width)
            at += width
            if position + size > chunk_size:
                return chunk
            out = 8 * (buffer * chunks + chunk)
            store_u64(starts_out + out, start + position)
            store_u64(sizes_out + out, size)
            position += (size + 7) & ~7
    return -1


@kernel
def count_levels(
    rep: int, definition: int, entries: int, max_rep: int, visible_max: int, max_def: int
) -> tuple[np.int64, np.int64, np.int64, np.int64]:
    """Return (row starts, visible entries, too high rep, too high def levels)."""
    rows = np.int64(0)
    hidden = np.int64(0)
    bad_rep = np.int64(0)
    bad_def = np.int64(0)
    full = entries - entries % LANES
    if rep != 0:
        for i in range(0, full, LANES):
            rows += np.int64(popcount(levels_equal(rep + 2 * i, max_rep)))
            bad_rep += np.int64(popcount(levels_above(rep + 2 * i, max_rep)))
        for i in range(full, entries):
            level = np.int64(load_u16(rep + 2 * i))
            rows += level == max_rep
            bad_rep += level > max_rep
    if definition != 0:
        for i in range(0, full, LANES):
            hidden += np.int64(popcount(levels_above(definition + 2 * i, visible_max)))
            bad_def += np.int64(popcount(levels_above(definition + 2 * i, max_def)))
        for i in range(full, entries):
            level = np.int64(load_u16(definition + 2 * i))
            hidden += level > visible_max
            bad_def += level > max_def
    return rows, np.int64(entries) - hidden, bad_rep, bad_def


@kernel
def assemble(
    out: int, starts: int, chunks: int, levels: int, level_buffers: int, value_buffers: int,
    value_width: int, sources: int, sizes: int, fill: int,
) -> None:  # fmt: skip
    """Write the chunks: header, then each buffer, each padded with ``fill`` to 8 bytes.

    ``sources`` has the address of each buffer's bytes, all chunks back to back; it advances as
    they are copied.
    """
    buffers = level_buffers + value_buffers
    for chunk in range(chunks):
        at = out + load_i64(starts + 8 * chunk)
        store_u16(at, load_i64(levels + 8 * chunk))
        at += 2
        for buffer in range(buffers):
            size = load_i64(sizes + 8 * (buffer * chunks + chunk))
            if buffer < level_buffers or value_width == 2:
                store_u16(at, size)
                at += 2
            else:
                store_u32(at, size)
                at += 4
        while (at - out) & 7:
            store_u8(at, fill)
            at += 1
        for buffer in range(buffers):
            size = load_i64(sizes + 8 * (buffer * chunks + chunk))
            source = load_i64(sources + 8 * buffer)
            copy(at, source, size)
            store_u64(sources + 8 * buffer, source + size)
            at += size
            while (at - out) & 7:
                store_u8(at, fill)
                at += 1
