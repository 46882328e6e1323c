"""The compiled search of FSST text; its wrapper is in ``glaive.kernels.fsst_search``.

All code bytes of a chunk are decoded as one text into ``scratch``. Of 64 places at a time the
first, the second and the last byte of the word are compared; the values around a place are
looked up only where the whole word is.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.blocks import low_bits
from glaive.kernels.loops.compare import in_range_8
from glaive.kernels.loops.contains import same_bytes
from glaive.kernels.loops.fsst import end_of_value, stream
from glaive.kernels.loops.memory import load_i64, load_u8, loop, loop_of, store_u8, trailing_zeros
from glaive.kernels.loops.offsets import load_offset
from glaive.kernels.string_records import SearchFsst

WINDOW = 64


@loop
def search_text(
    text: int,
    grown: int,
    source: int,
    width: int,
    count: int,
    codes: int,
    sizes: int,
    marks: int,
    word: int,
    size: int,
    begins: int,
    ends: int,
    target: int,
    done: int,
) -> int:
    """Set the bits of the values of one decoded chunk that hold a word; 1 for a bad offset."""
    none = np.uint64(0)
    first = np.uint64(load_u8(word))
    second = min(1, size - 1)
    following = np.uint64(load_u8(word + second))
    last = np.uint64(load_u8(word + size - 1))
    base = load_offset(source, width)
    final = load_offset(source + count * width, width)
    value = np.int64(-1)
    begin = np.int64(0)
    end = np.int64(0)
    before = base
    at = np.int64(0)
    while at <= grown - size:
        places = grown - size - at + 1
        found = in_range_8(text + at, first, none)
        found &= in_range_8(text + at + second, following, none)
        found &= in_range_8(text + at + size - 1, last, none)
        if places < WINDOW:
            found &= low_bits(places)
        after = at + WINDOW
        while found != none:
            here = at + np.int64(trailing_zeros(found))
            found &= found - np.uint64(1)
            if size > 2 and not same_bytes(text + here + 1, word + 1, size - 2):
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
                end = end_of_value(offset - base, codes, sizes, marks)
                if end < begin:
                    return 1
            if here + size > end:
                continue
            if (begins and here != begin) or (ends and here + size != end):
                continue
            byte = target + ((done + value) >> 3)
            bit = np.uint64(1) << np.uint64((done + value) & 7)
            store_u8(byte, np.uint64(load_u8(byte)) | bit)
            # On with the next value.
            if end >= after:
                after = end
                found = none
            else:
                found &= ~low_bits(end - at)
        at = after
    return 0


@loop_of(SearchFsst)
def search_chunks(
    data: int,
    starts: int,
    chunk_sizes: int,
    counts: int,
    chunks: int,
    width: int,
    symbols: int,
    sizes: int,
    marks: int,
    scratch: int,
    words: int,
    word_sizes: int,
    number: int,
    begins: int,
    ends: int,
    target: int,
) -> int:
    """Search chunk after chunk; returns the number of the first damaged one, or -1.

    ``words`` follow each other; all bits of ``target`` are clear.
    """
    done = np.int64(0)
    for i in range(chunks):
        source = data + load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        first = load_offset(source, width)
        last = load_offset(source + count * width, width)
        if first < (count + 1) * width or last < first or last > load_i64(chunk_sizes + i * 8):
            return i
        codes = source + first
        grown = np.int64(0)
        if first < last:
            grown = stream(codes, source + last, scratch, symbols, sizes, marks)
            if grown < 0:
                return i
        word = words
        for j in range(number):
            size = load_i64(word_sizes + j * 8)
            if (
                grown >= size
                and search_text(
                    text=scratch,
                    grown=grown,
                    source=source,
                    width=width,
                    count=count,
                    codes=codes,
                    sizes=sizes,
                    marks=marks,
                    word=word,
                    size=size,
                    begins=begins,
                    ends=ends,
                    target=target,
                    done=done,
                )
                != 0
            ):
                return i
            word += size
        done += count
    return -1
