"""Compiled loops over plain values; their wrappers are in ``glaive.kernels.flat``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.memory import (
    copy,
    copy8,
    copy16,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    loop,
    store_u8,
    store_u16,
    store_u32,
)


@loop
def load_bits(source: int, stop: int) -> np.uint64:
    """Eight bytes, those from ``stop`` on read as 0."""
    if source + 8 <= stop:
        return load_u64(source)
    word = np.uint64(0)
    shift = 0
    while source < stop:
        word |= np.uint64(load_u8(source)) << np.uint64(shift)
        source += 1
        shift += 8
    return word


@loop
def join_bits(
    data: int, data_size: int, starts: int, counts: int, pieces: int, target: int
) -> None:
    """Append ``counts[i]`` bits from byte ``starts[i]`` on; may write 16 bytes too many."""
    filled = 0
    for i in range(pieces):
        source = data + load_i64(starts + i * 8)
        left = load_i64(counts + i * 8)
        while left > 0:
            part = min(left, 64)
            bits = load_bits(source, data + data_size) & low_bits(part)
            append_bits(target, filled, bits, part)
            filled += part
            left -= part
            source += 8


@loop
def take_items(
    data: int,
    data_size: int,
    starts: int,
    sizes: int,
    chunks: int,
    chunk: int,
    index: int,
    wanted: int,
    size: int,
    target: int,
) -> int:
    """Return the first position that lies outside its chunk, -1 when there is none."""
    for i in range(wanted):
        c = load_i64(chunk + i * 8)
        at = load_i64(index + i * 8)
        if c < 0 or c >= chunks or at < 0:
            return i
        start = load_i64(starts + c * 8)
        end = load_i64(sizes + c * 8)
        if start < 0 or end > data_size - start or at >= end // size:
            return i
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


@loop
def take_bits(
    data: int,
    data_size: int,
    starts: int,
    sizes: int,
    chunks: int,
    chunk: int,
    index: int,
    wanted: int,
    target: int,
) -> int:
    """As ``take_items`` for single bits."""
    byte = np.uint64(0)
    for i in range(wanted):
        c = load_i64(chunk + i * 8)
        at = load_i64(index + i * 8)
        if c < 0 or c >= chunks or at < 0:
            return i
        start = load_i64(starts + c * 8)
        end = load_i64(sizes + c * 8)
        if start < 0 or end > data_size - start or (at >> 3) >= end:
            return i
        bit = (np.uint64(load_u8(data + start + (at >> 3))) >> np.uint64(at & 7)) & np.uint64(1)
        byte |= bit << np.uint64(i & 7)
        if (i & 7) == 7 or i == wanted - 1:
            store_u8(target + (i >> 3), byte)
            byte = np.uint64(0)
    return -1
