"""Compiled kernels over plain values; their wrappers are in ``glaive.kernels.flat``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.level_bits import append_bits
from glaive.kernels.loops.memory import (
    copy,
    copy8,
    copy16,
    kernel,
    load_i64,
    load_partial,
    load_u8,
    load_u16,
    load_u32,
    store_u8,
    store_u16,
    store_u32,
)


@kernel
def join_bits(
    data: int, data_size: int, starts: int, counts: int, chunks: int, target: int
) -> None:
    """Append ``counts[i]`` bits from byte ``starts[i]`` on; may write 16 bytes too many."""
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
    wanted: int, size: int, target: int,
) -> int:  # fmt: skip
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


@kernel
def take_bits(
    data: int, data_size: int, starts: int, sizes: int, chunks: int, chunk: int, index: int,
    wanted: int, target: int,
) -> int:  # fmt: skip
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
