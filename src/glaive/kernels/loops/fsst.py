"""Kernels that decode FSST text. Wrappers: ``glaive.kernels.fsst``.

A symbol table is passed as 256 symbols of 8 bytes and 256 lengths of 8 bytes, 4096 where
there is no symbol.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    low_bits,
    same_bytes,
    set_bit,
    store_u8,
    store_u32,
    store_u64,
    trailing_zeros,
)
from glaive.kernels.loops.offsets import candidates_64, load_offset, store_offset
from glaive.kernels.records import DecodeState, offsets_of

STATE = offsets_of(DecodeState)
ESCAPE = 255
NO_SYMBOL = 64
INSIDE = 0x80000000
GROUP = 4
LONGEST = 8
LENGTH_AT = np.uint64(56)
TEXT = np.uint64((1 << 56) - 1)
ALONE = np.uint64(1 << 63)
SAMPLE = 1024
MANY_CODES = 16_384
RARE = 64
NOT_CHOSEN = -1


@kernel
def pack_symbols(symbols: int, sizes: int, codes: int, count: int, packed: int) -> int:
    """Write the symbols with their lengths in the top byte, if that pays; returns where, or 0.

    Symbols of eight bytes leave no room for a length and are decoded one by one, which pays only
    where few of ``codes``, a sample, stand for them.
    """
    long = np.int64(0)
    count = min(count, SAMPLE)
    for j in range(count):
        long += load_i64(sizes + 8 * np.int64(load_u8(codes + j))) == LONGEST
    if RARE * long > count:
        return np.int64(0)
    for code in range(256):
        size = np.uint64(load_i64(sizes + 8 * code))
        word = (load_u64(symbols + 8 * code) & TEXT) | (size << LENGTH_AT)
        store_u64(packed + 8 * code, word if size < LONGEST else ALONE)
    return packed


@kernel
def stream(
    p: int, stop: int, out: int, symbols: int, sizes: int, packed: int, checkpoints: int
) -> int:
    """Decode codes to ``out`` across the ends of values; returns the bytes written, or -1.

    ``packed`` is what ``pack_symbols`` returned, or ``NOT_CHOSEN``. ``checkpoints`` receives, for
    every second code byte, where its text begins (32 bits, counted from ``out``); behind an escape,
    ``INSIDE`` and where the text ends. The end of a value costs no branch that the processor could
    mispredict.
    """
    at = np.int64(0)
    start = p
    while True:
        if packed > 0:
            # Fewer loads. Codes are loaded as bytes: cutting a word up costs more.
            while p + GROUP <= stop:
                first_word = load_u64(packed + 8 * np.int64(load_u8(p)))
                second_word = load_u64(packed + 8 * np.int64(load_u8(p + 1)))
                third_word = load_u64(packed + 8 * np.int64(load_u8(p + 2)))
                fourth_word = load_u64(packed + 8 * np.int64(load_u8(p + 3)))
                if (first_word | second_word | third_word | fourth_word) >= ALONE:
                    break
                store_u32(checkpoints, at)
                store_u64(out + at, first_word)
                at += np.int64(first_word >> LENGTH_AT)
                store_u64(out + at, second_word)
                at += np.int64(second_word >> LENGTH_AT)
                store_u32(checkpoints + 4, at)
                store_u64(out + at, third_word)
                at += np.int64(third_word >> LENGTH_AT)
                store_u64(out + at, fourth_word)
                at += np.int64(fourth_word >> LENGTH_AT)
                checkpoints += 8
                p += GROUP
        else:
            while p + GROUP <= stop:
                word = np.int64(load_u32(p))
                a = 8 * (word & 255)
                b = 8 * ((word >> 8) & 255)
                c = 8 * ((word >> 16) & 255)
                d = 8 * (word >> 24)
                one = load_i64(sizes + a)
                two = load_i64(sizes + b)
                three = load_i64(sizes + c)
                four = load_i64(sizes + d)
                if not 0 <= (one | two | three | four) < NO_SYMBOL:
                    break
                second = at + one
                third = second + two
                fourth = third + three
                store_u64(checkpoints, at | (third << 32))
                store_u64(out + at, load_u64(symbols + a))
                store_u64(out + second, load_u64(symbols + b))
                store_u64(out + third, load_u64(symbols + c))
                store_u64(out + fourth, load_u64(symbols + d))
                at = fourth + four
                checkpoints += 8
                p += GROUP
        if p >= stop:
            break
        while True:
            odd = (p - start) & 1
            code = np.int64(load_u8(p))
            p += 1
            if not odd:
                store_u32(checkpoints, at)
                checkpoints += 4
            size = load_i64(sizes + 8 * code)
            if 0 <= size < NO_SYMBOL:
                store_u64(out + at, load_u64(symbols + 8 * code))
                at += size
            elif code == ESCAPE and p < stop:
                store_u8(out + at, load_u8(p))
                p += 1
                at += 1
                if odd:
                    store_u32(checkpoints, at | INSIDE)
                    checkpoints += 4
            else:
                return np.int64(-1)
            if p >= stop or not (p - start) & 1:
                break
    store_u32(checkpoints, at)
    return at


@kernel
def end_of_value(k: int, codes: int, sizes: int, checkpoints: int) -> int:
    """Where the text of the first ``k`` code bytes ends, or -1 between escape and literal."""
    checkpoint = np.int64(load_u32(checkpoints + 4 * (k >> 1)))
    if checkpoint >= INSIDE:
        return (checkpoint - INSIDE) if k & 1 else np.int64(-1)
    size = load_i64(sizes + 8 * np.int64(load_u8(codes + k - (k > 0)))) & -(k & 1)
    return (checkpoint + size) if 0 <= size < NO_SYMBOL else np.int64(-1)


@kernel
def _ends_of_values32(
    offsets: int, n: int, codes: int, sizes: int, checkpoints: int, target: int, at: int
) -> int:
    """Write where ``n`` values end, counted from ``-at``; 1 when an offset is wrong."""
    first = np.int64(load_u32(offsets))
    size = np.int64(load_u32(offsets + 4 * n)) - first
    before = np.int64(0)
    wrong = 0
    for j in range(1, n + 1):
        k = np.int64(load_u32(offsets + 4 * j)) - first
        if k < before or k > size:
            return 1
        end = end_of_value(k, codes, sizes, checkpoints)
        wrong |= end < 0
        store_u32(target + 4 * j, at + end)
        before = k
    return wrong


@kernel
def _ends_of_values(
    offsets: int, width: int, n: int, codes: int, sizes: int, checkpoints: int, target: int,
    out_width: int, at: int,
) -> int:  # fmt: skip
    """As ``_ends_of_values32``, for other widths of offsets."""
    first = load_offset(offsets, width)
    last = load_offset(offsets + width * n, width)
    before = first
    wrong = 0
    for j in range(1, n + 1):
        offset = load_offset(offsets + width * j, width)
        # Compare before subtracting: an offset of 64 bits may be any number.
        if offset < before or offset > last:
            return 1
        end = end_of_value(offset - first, codes, sizes, checkpoints)
        wrong |= end < 0
        store_offset(target + out_width * j, out_width, at + end)
        before = offset
    return wrong


@kernel
def decode(
    offsets: int, data: int, offset_starts: int, bases: int, floors: int, limits: int, counts: int,
    chunks: int, width: int, symbols: int, sizes: int, packed: int, checkpoints: int,
    max_stream: int, out_width: int, out_offsets: int, out: int, capacity: int, state: int,
) -> int:  # fmt: skip
    """Decode the chunks from ``state`` on, a ``DecodeState``.

    Returns -1 when all are done, -2 when the next chunk might not fit in ``capacity`` bytes, else
    the number of the damaged chunk.
    """
    chunk = load_i64(state + STATE.chunk)
    done = load_i64(state + STATE.values)
    at = load_i64(state + STATE.size)
    chosen = np.int64(NOT_CHOSEN)
    while chunk < chunks:
        n = load_i64(counts + 8 * chunk)
        source = offsets + load_i64(offset_starts + 8 * chunk)
        base = data + load_i64(bases + 8 * chunk)
        first = load_offset(source, width)
        last = load_offset(source + n * width, width)
        if (
            first < load_i64(floors + 8 * chunk)
            or last < first
            or last > load_i64(limits + 8 * chunk)
        ):
            return chunk
        if 8 * (last - first) + 8 > capacity - at:
            store_u64(state + STATE.chunk, chunk)
            store_u64(state + STATE.values, done)
            store_u64(state + STATE.size, at)
            return -2
        target = out_offsets + done * out_width
        p = base + first
        stop = base + last
        if first < last <= first + max_stream:
            if chosen == NOT_CHOSEN and (last - first) * (chunks - chunk) >= MANY_CODES:
                chosen = pack_symbols(symbols, sizes, p, last - first, packed)
            written = stream(p, stop, out + at, symbols, sizes, chosen, checkpoints)
            if written < 0:
                return chunk
            if width == 4 and out_width == 4:
                wrong = _ends_of_values32(source, n, p, sizes, checkpoints, target, at)
            else:
                wrong = _ends_of_values(
                    source, width, n, p, sizes, checkpoints, target, out_width, at
                )
            if wrong:
                return chunk
            at += written
            done += n
            chunk += 1
            continue
        before = first
        for j in range(n):
            offset = load_offset(source + (j + 1) * width, width)
            if offset < before or offset > last:
                return chunk
            before = offset
            end = base + offset
            while p < end:
                code = np.int64(load_u8(p))
                p += 1
                size = load_i64(sizes + 8 * code)
                if 0 <= size < NO_SYMBOL:
                    store_u64(out + at, load_u64(symbols + 8 * code))
                    at += size
                elif code == ESCAPE and p < end:
                    store_u8(out + at, load_u8(p))
                    p += 1
                    at += 1
                else:
                    return chunk
            target += out_width
            store_offset(target, out_width, at)
        done += n
        chunk += 1
    store_u64(state + STATE.chunk, chunk)
    store_u64(state + STATE.values, done)
    store_u64(state + STATE.size, at)
    return -1


# --- Kernels that decode FSST text of many pages, each with symbols of its own ----------
# Wrappers: ``glaive.kernels.fsst``.

TABLE_BYTES = 4096
LENGTHS_AT = 2048


@kernel
def decode_pages(
    offsets: int, data: int, offset_starts: int, bases: int, floors: int, limits: int, counts: int,
    ends: int, pages: int, tables: int, width: int, packed: int, checkpoints: int, max_stream: int,
    out_width: int, out_offsets: int, out: int, capacity: int, state: int,
) -> int:  # fmt: skip
    """Decode the chunks of page after page; see ``decode`` for ``state`` and the result.

    The chunks of page ``p`` end before chunk ``ends[p]``; its symbols and their lengths are
    the table number ``p`` of ``tables``.
    """
    for page in range(pages):
        table = tables + TABLE_BYTES * page
        status = decode(
            offsets=offsets, data=data, offset_starts=offset_starts, bases=bases, floors=floors,
            limits=limits, counts=counts, chunks=load_i64(ends + 8 * page), width=width,
            symbols=table, sizes=table + LENGTHS_AT, packed=packed, checkpoints=checkpoints,
            max_stream=max_stream, out_width=out_width, out_offsets=out_offsets, out=out,
            capacity=capacity, state=state,
        )  # fmt: skip
        if status != -1:
            return status
    return np.int64(-1)


# --- The compiled search of FSST text; its wrapper is in ``glaive.kernels.fsst`` -
# All code bytes of a chunk are decoded as one text into ``scratch``, which is searched as in
# ``contains``; the value around a position is looked up only where the whole pattern is.

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


@kernel
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
