"""Levels of 0 and 1 straight into validity bits; the wrapper is in ``glaive.kernels.bitpack``.

Bit ``r`` of the 64 words of a one-bit block is 64 neighbouring levels: sixteen stores make the
bitmap of 1,024 levels.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, inline_width, tail_is_packed
from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.memory import load_i64, load_u16, load_u64, loop, popcount, store_u64
from glaive.kernels.loops.rows import bit_of_row, levels_above


@loop
def append_bits(target: int, filled: int, bits: np.uint64, count: int) -> None:
    """Append ``count`` ≤ 64 bits at bit ``filled``; the partial last word is kept whole.

    Bits of ``bits`` from ``count`` on must be 0. Writes at most 16 bytes from the word of
    bit ``filled`` on.
    """
    at = target + (filled >> 6) * 8
    used = filled & 63
    if used == 0:
        store_u64(at, bits)
        return
    store_u64(at, load_u64(at) | (bits << np.uint64(used)))
    if used + count > 64:
        store_u64(at + 8, bits >> np.uint64(64 - used))


@loop
def level_bits_of_block(source: int, width: int, count: int, target: int, filled: int) -> int:
    """Append the validity of one packed level block; return how many are not 0."""
    nulls = 0
    done = 0
    while done < count:
        take = min(count - done, 64)
        levels = np.uint64(0)
        if width == 1:
            part = done >> 6
            levels = bit_of_row(source, (part >> 1) + ((part & 1) << 3)) & low_bits(take)
        nulls += np.int64(popcount(levels))
        append_bits(target, filled + done, levels ^ low_bits(take), take)
        done += take
    return nulls


@loop
def level_bits_of_words(source: int, count: int, target: int, filled: int) -> int:
    """Append the validity of plain levels; return how many are 1, -1 if any is above."""
    nulls = 0
    done = 0
    while done < count:
        take = min(count - done, 64)
        levels = np.uint64(0)
        if take == 64:
            if levels_above(source + done * 2, 1) != np.uint64(0):
                return -1
            levels = levels_above(source + done * 2, 0)
        else:
            for i in range(take):
                level = np.uint64(load_u16(source + (done + i) * 2))
                if level > np.uint64(1):
                    return -1
                levels |= level << np.uint64(i)
        nulls += np.int64(popcount(levels))
        append_bits(target, filled + done, levels ^ low_bits(take), take)
        done += take
    return nulls


@loop
def validity_inline(
    data: int,
    data_size: int,
    starts: int,
    sizes: int,
    counts: int,
    chunks: int,
    target: int,
    values: int,
    result: int,
) -> int:
    """Store the null count at ``result``, -1 when a chunk has wider levels."""
    done = 0
    nulls = 0
    for i in range(chunks):
        start = load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        width = inline_width(data, data_size, start, load_i64(sizes + i * 8), 16)
        if width < 0 or count < 0 or count > BLOCK or count > values - done:
            return i
        if width > 1:
            store_u64(result, -1)
            return -1
        nulls += level_bits_of_block(data + start + 2, width, count, target, done)
        done += count
    store_u64(result, nulls)
    return -1


@loop
def validity_out_of_line(
    data: int, starts: int, counts: int, chunks: int, width: int, target: int, result: int
) -> None:
    """As ``validity_inline`` for blocks of width 0 or 1, or of plain levels (width 16)."""
    done = 0
    nulls = 0
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        left = load_i64(counts + i * 8)
        while width < 16 and (left >= BLOCK or tail_is_packed(left, 16, width)):
            part = min(left, BLOCK)
            nulls += level_bits_of_block(source, width, part, target, done)
            source += width * 128
            done += part
            left -= part
        found = level_bits_of_words(source, left, target, done)
        if found < 0:
            store_u64(result, -1)
            return
        nulls += found
        done += left
    store_u64(result, nulls)
