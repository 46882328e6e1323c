"""Decode levels of 0 and 1 to validity bits; wrappers: ``glaive.kernels.level_bits``.

Bit ``r`` of the 64 words of a one-bit block is 64 neighbouring levels: sixteen stores make the
bitmap of 1,024 levels.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import BLOCK, inline_width, tail_is_packed
from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.memory import (
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u64,
    popcount,
    store_u64,
)
from glaive.kernels.loops.rows import bit_of_row, levels_above


@kernel
def append_bits(target: int, filled: int, bits: np.uint64, count: int) -> None:
    """Append ``count`` ≤ 64 bits at bit ``filled``; stores whole words.

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


@kernel
def copy_bits(source: int, first: int, count: int, target: int, filled: int) -> None:
    """Append bits of another bitmap, which has a word behind its last bit."""
    while count > 0:
        part = min(count, 64)
        shift = first & 63
        at = source + 8 * (first >> 6)
        bits = load_u64(at) >> np.uint64(shift)
        if shift + part > 64:
            bits |= load_u64(at + 8) << np.uint64(64 - shift)
        append_bits(target, filled, bits & low_bits(part), part)
        first += part
        filled += part
        count -= part


@kernel
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


@kernel
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


@kernel
def validity_inline(
    data: int, data_size: int, starts: int, sizes: int, counts: int, chunks: int, target: int,
    values: int, result: int,
) -> int:  # fmt: skip
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


@kernel
def validity_out_of_line(
    data: int, starts: int, counts: int, chunks: int, width: int, target: int, result: int
) -> None:
    """As ``validity_inline`` for blocks of width 0 or 1, or of plain levels (width 16)."""
    done = 0
    nulls = 0
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        remaining = load_i64(counts + i * 8)
        while width < 16 and (remaining >= BLOCK or tail_is_packed(remaining, 16, width)):
            part = min(remaining, BLOCK)
            nulls += level_bits_of_block(source, width, part, target, done)
            source += width * 128
            done += part
            remaining -= part
        chunk_nulls = level_bits_of_words(source, remaining, target, done)
        if chunk_nulls < 0:
            store_u64(result, -1)
            return
        nulls += chunk_nulls
        done += remaining
    store_u64(result, nulls)


@kernel
def validity_of_runs(
    data: int, values: int, lengths: int, runs: int, counts: int, chunks: int, target: int,
    result: int,
) -> int:  # fmt: skip
    """Append the validity of runs of levels; returns the first chunk that does not add up.

    Stores the null count at ``result``, -1 when there are levels above 1.
    """
    done = np.int64(0)
    nulls = np.int64(0)
    for i in range(chunks):
        value_at = data + load_i64(values + i * 8)
        length_at = data + load_i64(lengths + i * 8)
        remaining = load_i64(counts + i * 8)
        for j in range(load_i64(runs + i * 8)):
            length = np.int64(load_u8(length_at + j))
            level = np.int64(load_u16(value_at + 2 * j))
            remaining -= length
            if remaining < 0:
                return i
            if level > 1:
                store_u64(result, -1)
                return -1
            nulls += level * length
            while length > 0:
                part = np.int64(min(length, 64))
                bits = np.uint64(0)
                if level == 0:
                    bits = low_bits(part)
                append_bits(target, done, bits, part)
                done += part
                length -= part
        if remaining != 0:
            return i
    store_u64(result, nulls)
    return -1
