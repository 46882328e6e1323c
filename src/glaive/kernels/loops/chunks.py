"""Loops behind ``glaive.kernels.chunks``."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glaive.kernels.loops.memory import (
    copy,
    load_i64,
    load_u16,
    load_u32,
    loop,
    popcount,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    trailing_zeros,
)

LANES = 64
"""Levels that one vector compare looks at."""


def _compare(condition: str) -> Any:
    def typer(_context: Any, address: Any, value: Any) -> Any:
        def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            lane, row = ir.IntType(16), ir.VectorType(ir.IntType(16), LANES)
            levels = builder.load(builder.inttoptr(args[0], row.as_pointer()))
            levels.align = 2
            one = builder.insert_element(
                ir.Constant(row, ir.Undefined),
                builder.trunc(args[1], lane),
                ir.Constant(ir.IntType(32), 0),
            )
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            splat = builder.shuffle_vector(one, ir.Constant(row, ir.Undefined), zeros)
            return builder.bitcast(builder.icmp_unsigned(condition, levels, splat), ir.IntType(64))

        return types.uint64(types.int64, types.int64), codegen

    return intrinsic(typer)


equal_levels = _compare("==")
"""Bit ``i`` says whether level ``i`` of the 64 at an address equals the value."""

above_levels = _compare(">")
"""Bit ``i`` says whether level ``i`` of the 64 at an address is greater than the value."""


@loop
def parse_headers(
    data: int,
    starts: int,
    sizes: int,
    chunks: int,
    level_pieces: int,
    value_pieces: int,
    value_width: int,
    levels_out: int,
    starts_out: int,
    sizes_out: int,
) -> int:
    """Find the pieces of each chunk; returns the first bad chunk, or -1."""
    head = 2 + 2 * level_pieces + value_width * value_pieces
    for chunk in range(chunks):
        start = load_i64(starts + 8 * chunk)
        room = load_i64(sizes + 8 * chunk)
        if head > room:
            return chunk
        at = data + start
        store_u64(levels_out + 8 * chunk, np.int64(load_u16(at)))
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
                return chunk
            out = 8 * (piece * chunks + chunk)
            store_u64(starts_out + out, start + position)
            store_u64(sizes_out + out, size)
            position += (size + 7) & ~7
    return -1


@loop
def count_levels(
    rep: int, definition: int, entries: int, max_rep: int, visible_max: int, max_def: int
) -> tuple[np.int64, np.int64, np.int64, np.int64]:
    """Return (row starts, visible entries, too high rep, too high def levels)."""
    rows = np.int64(0)
    hidden = np.int64(0)
    bad_rep = np.int64(0)
    bad_def = np.int64(0)
    whole = entries - entries % LANES
    if rep != 0:
        for i in range(0, whole, LANES):
            rows += np.int64(popcount(equal_levels(rep + 2 * i, max_rep)))
            bad_rep += np.int64(popcount(above_levels(rep + 2 * i, max_rep)))
        for i in range(whole, entries):
            level = np.int64(load_u16(rep + 2 * i))
            rows += level == max_rep
            bad_rep += level > max_rep
    if definition != 0:
        for i in range(0, whole, LANES):
            hidden += np.int64(popcount(above_levels(definition + 2 * i, visible_max)))
            bad_def += np.int64(popcount(above_levels(definition + 2 * i, max_def)))
        for i in range(whole, entries):
            level = np.int64(load_u16(definition + 2 * i))
            hidden += level > visible_max
            bad_def += level > max_def
    return rows, np.int64(entries) - hidden, bad_rep, bad_def


@loop
def find_row(rep: int, entries: int, max_rep: int, row: int) -> np.int64:
    """Return the entry at which row number ``row`` begins, ``entries`` if there is none."""
    left = np.int64(row)
    whole = entries - entries % LANES
    for i in range(0, whole, LANES):
        mask = equal_levels(rep + 2 * i, max_rep)
        here = np.int64(popcount(mask))
        if left >= here:
            left -= here
            continue
        while left > 0:
            mask &= mask - np.uint64(1)
            left -= 1
        return np.int64(i) + np.int64(trailing_zeros(mask))
    for i in range(whole, entries):
        if np.int64(load_u16(rep + 2 * i)) == max_rep:
            if left == 0:
                return np.int64(i)
            left -= 1
    return np.int64(entries)


@loop
def assemble(
    out: int,
    starts: int,
    chunks: int,
    levels: int,
    level_pieces: int,
    value_pieces: int,
    value_width: int,
    sources: int,
    sizes: int,
    fill: int,
) -> None:
    """Write the chunks: header, then each piece, each padded with ``fill`` to 8 bytes.

    ``sources`` has the address of each piece's bytes, all chunks back to back; it is moved
    on as they are copied.
    """
    pieces = level_pieces + value_pieces
    for chunk in range(chunks):
        at = out + load_i64(starts + 8 * chunk)
        store_u16(at, load_i64(levels + 8 * chunk))
        at += 2
        for piece in range(pieces):
            size = load_i64(sizes + 8 * (piece * chunks + chunk))
            if piece < level_pieces or value_width == 2:
                store_u16(at, size)
                at += 2
            else:
                store_u32(at, size)
                at += 4
        while (at - out) & 7:
            store_u8(at, fill)
            at += 1
        for piece in range(pieces):
            size = load_i64(sizes + 8 * (piece * chunks + chunk))
            source = load_i64(sources + 8 * piece)
            copy(at, source, size)
            store_u64(sources + 8 * piece, source + size)
            at += size
            while (at - out) & 7:
                store_u8(at, fill)
                at += 1
