"""The compiled search of FSST text; its wrapper is in ``glaive.kernels.fsst_search``.

All code bytes of a chunk are decoded as one text into ``scratch``, which is searched as in
``contains``; the value around a position is looked up only where the whole pattern is.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.contains import candidates_64
from glaive.kernels.loops.fsst import (
    MANY_CODES,
    NOT_CHOSEN,
    end_of_value,
    pack_symbols,
    stream,
)
from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_i64,
    load_u8,
    same_bytes,
    set_bit,
    trailing_zeros,
)
from glaive.kernels.loops.offsets import load_offset
from glaive.kernels.string_records import SearchFsst

WINDOW = 64


@kernel
def search_text(
    text: int, text_size: int, source: int, width: int, count: int, codes: int, sizes: int,
    checkpoints: int, pattern: int, size: int, begins: int, ends: int, target: int, done: int,
) -> int:  # fmt: skip
    """Set the bits of the values of one decoded chunk that match; 1 for a bad offset."""
    none = np.uint64(0)
    first = np.uint64(load_u8(pattern))
    second = np.uint64(load_u8(pattern + min(1, size - 1)))
    last = np.uint64(load_u8(pattern + size - 1))
    base = load_offset(source, width)
    final = load_offset(source + count * width, width)
    value = np.int64(-1)
    begin = np.int64(0)
    end = np.int64(0)
    before = base
    at = np.int64(0)
    while at <= text_size - size:
        positions = text_size - size - at + 1
        candidates = candidates_64(text + at, first, second, last, size)
        if positions < WINDOW:
            candidates &= low_bits(positions)
        after = at + WINDOW
        while candidates != none:
            here = at + np.int64(trailing_zeros(candidates))
            candidates &= candidates - np.uint64(1)
            if size > 2 and not same_bytes(text + here + 1, pattern + 1, size - 2):
                continue
            while end <= here:
                value += 1
                if value >= count:
                    return 1
                offset = load_offset(source + (value + 1) * width, width)
                if offset < before or offset > final:
                    return 1
                before = offset
                begin = end
                end = end_of_value(offset - base, codes, sizes, checkpoints)
                if end < begin:
                    return 1
            if here + size > end:
                continue
            if (begins and here != begin) or (ends and here + size != end):
                continue
            set_bit(target, done + value)
            # Continue with the next value.
            if end >= after:
                after = end
                candidates = none
            else:
                candidates &= ~low_bits(end - at)
        at = after
    return 0


@kernel_of(SearchFsst)
def search_chunks(
    data: int, starts: int, chunk_sizes: int, counts: int, chunks: int, width: int, symbols: int,
    sizes: int, packed: int, checkpoints: int, scratch: int, patterns: int, pattern_sizes: int,
    pattern_count: int, begins: int, ends: int, target: int,
) -> int:  # fmt: skip
    """Search chunk after chunk; returns the number of the first damaged one, or -1.

    ``patterns`` follow each other; all bits of ``target`` are clear.
    """
    done = np.int64(0)
    chosen = np.int64(NOT_CHOSEN)
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        first = load_offset(source, width)
        last = load_offset(source + count * width, width)
        if first < (count + 1) * width or last < first or last > load_i64(chunk_sizes + i * 8):
            return i
        codes = source + first
        text_size = np.int64(0)
        if first < last:
            if chosen == NOT_CHOSEN and (last - first) * (chunks - i) >= MANY_CODES:
                chosen = pack_symbols(symbols, sizes, codes, last - first, packed)
            text_size = stream(codes, source + last, scratch, symbols, sizes, chosen, checkpoints)
            if text_size < 0:
                return i
        pattern = patterns
        for j in range(pattern_count):
            size = load_i64(pattern_sizes + j * 8)
            if text_size >= size:
                wrong = search_text(
                    text=scratch, text_size=text_size, source=source, width=width, count=count,
                    codes=codes, sizes=sizes, checkpoints=checkpoints, pattern=pattern, size=size,
                    begins=begins, ends=ends, target=target, done=done,
                )  # fmt: skip
                if wrong != 0:
                    return i
            pattern += size
        done += count
    return -1
