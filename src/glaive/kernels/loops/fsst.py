"""Kernels that decode FSST text. Wrappers: ``glaive.kernels.fsst``.

A symbol table is passed as 256 symbols of 8 bytes and 256 lengths of 8 bytes. The length of a
missing symbol is 4096.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.codes import LANES
from glaive.kernels.loops.fsst_blocks import (
    ESCAPE,
    INSIDE,
    MIN_CODES,
    WIDEST,
    emit_any,
    emit_short,
    spread,
    uncommon,
)
from glaive.kernels.loops.memory import (
    FETCHED,
    LINE,
    claim,
    copy,
    copy16,
    kernel,
    load_i64,
    load_partial,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    low_bits,
    pick,
    prefetch,
    same_bytes,
    set_bit,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    trailing_zeros,
)
from glaive.kernels.loops.offsets import candidates_64, load_offset, store_offset
from glaive.kernels.records import Candidate, DecodeState, SymbolSlot, TrainRound, offsets_of

STATE = offsets_of(DecodeState)
NO_SYMBOL = 64
GROUP = 4


@kernel
def stream(
    p: int, stop: int, out: int, symbols: int, sizes: int, planes: int, checkpoints: int
) -> int:
    """Decode codes to ``out`` across the ends of values; return the bytes written, or -1.

    ``checkpoints`` receives, for every second code byte, where its text begins (32 bits, counted
    from ``out``); after an escape, ``INSIDE`` and where the text ends. The end of a value takes no
    branch that the processor could mispredict.

    Without ``planes``, which are 0, decode four codes at a time.
    """
    at = np.int64(0)
    start = p
    is_short = planes != 0 and load_u8(planes + WIDEST) <= 2
    while True:
        soon = stop
        if planes:
            while p + LANES <= stop and not uncommon(p, planes):
                prefetch(p + FETCHED)
                claim(out + at + FETCHED)
                claim(out + at + FETCHED + LINE)
                if is_short:
                    at = emit_short(p, out, at, planes, checkpoints)
                else:
                    at = emit_any(p, out, at, planes, checkpoints)
                checkpoints += 2 * LANES
                p += LANES
            soon = min(stop, p + LANES)
        while p + GROUP <= soon:
            a = 8 * np.int64(load_u8(p))
            b = 8 * np.int64(load_u8(p + 1))
            c = 8 * np.int64(load_u8(p + 2))
            d = 8 * np.int64(load_u8(p + 3))
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
        if p == soon:
            continue
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
    """Return where the text of the first ``k`` code bytes ends, -1 between escape and literal."""
    checkpoint = np.int64(load_u32(checkpoints + 4 * (k >> 1)))
    if checkpoint >= INSIDE:
        return (checkpoint - INSIDE) if k & 1 else np.int64(-1)
    size = load_i64(sizes + 8 * np.int64(load_u8(codes + k - (k > 0)))) & -(k & 1)
    return (checkpoint + size) if 0 <= size < NO_SYMBOL else np.int64(-1)


@kernel
def _ends_of_values(
    offsets: int, width: int, n: int, codes: int, sizes: int, checkpoints: int, target: int,
    out_width: int, at: int,
) -> int:  # fmt: skip
    """Write where ``n`` values end, counted from ``-at``; 1 when an offset is wrong."""
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
    chunks: int, width: int, symbols: int, sizes: int, planes: int, checkpoints: int,
    max_stream: int, out_width: int, out_offsets: int, out: int, capacity: int, state: int,
) -> int:  # fmt: skip
    """Decode the chunks from ``state`` on, a ``DecodeState``.

    Return -1 when all are done, -2 when the next chunk may need more than ``capacity`` bytes, else
    the number of the damaged chunk.
    """
    chunk = load_i64(state + STATE.chunk)
    done = load_i64(state + STATE.values)
    at = load_i64(state + STATE.size)
    ready = np.int64(0)
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
            if not ready and last - first >= MIN_CODES:
                ready = spread(symbols, sizes, planes)
            written = stream(p, stop, out + at, symbols, sizes, ready, checkpoints)
            if written < 0:
                return chunk
            wrong = _ends_of_values(source, width, n, p, sizes, checkpoints, target, out_width, at)
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
    ends: int, pages: int, tables: int, width: int, planes: int, checkpoints: int, max_stream: int,
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
            symbols=table, sizes=table + LENGTHS_AT, planes=planes, checkpoints=checkpoints,
            max_stream=max_stream, out_width=out_width, out_offsets=out_offsets, out=out,
            capacity=capacity, state=state,
        )  # fmt: skip
        if status != -1:
            return status
    return np.int64(-1)


# --- The compiled search of FSST text; its wrapper is in ``glaive.kernels.fsst`` --------
#
# All code bytes of a chunk are decoded as one text into ``scratch``, which is searched as in
# ``contains``. The search looks up the value around a position only if the whole pattern is there.

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
    sizes: int, planes: int, checkpoints: int, scratch: int, patterns: int, pattern_sizes: int,
    pattern_count: int, begins: int, ends: int, target: int,
) -> int:  # fmt: skip
    """Search chunk after chunk; return the number of the first damaged one, or -1.

    ``patterns`` follow each other; all bits of ``target`` are clear.
    """
    done = np.int64(0)
    planes = spread(symbols, sizes, planes)
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
            text_size = stream(codes, source + last, scratch, symbols, sizes, planes, checkpoints)
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


# --- Kernels that encode FSST text. Checked wrapper: ``glaive.kernels.fsst`` ------------
#
# The tables of an encoder are 1024 words, then 1024 slots of 64 bits, then entries of 32 bits:
# 65536 by the next two bytes, 256 by the last byte of a value.
#
# ========== =======================================================
# bits       of an entry, and of the lower half of a slot
# ========== =======================================================
# 0 to 15    the code to write, and after an escape the byte
# 16 to 19   bytes to write: 1, 2, or 0 for the stop byte
# 20 to 23   bytes to read
# 24 to 31   4 for the stop byte, else 0
# ========== =======================================================
#
# The upper half of a slot is the number of upper bits of its word to ignore.

SLOTS = 8192
"""Bytes before the slots."""

PAIRS = 16_384
"""Bytes before the entries."""

LAST = 65_536
"""Entries before the entries for a last byte."""

BLOCK = 64
"""Bytes that are copied of every value, however short."""


@kernel
def slot_of(word: int) -> int:
    """Return the slot for symbols that begin with the three low bytes of ``word``."""
    mixed = np.uint32(np.uint32(word) << np.uint32(8)) * np.uint32(0x9E3779B1)
    return np.int64(np.uint32(mixed) >> np.uint32(22))


@kernel
def _step(p: int, at: int, mark: int, tables: int) -> tuple[int, int, int]:
    """Write the code of the symbol at ``p``; return where to read, write and mark next.

    To avoid mispredicted branches, look up both candidates, and mark the end of the value at every
    step. Only the mark at the stop byte stays.
    """
    word = load_u64(p)
    slot = tables + 8 * slot_of(word)
    long = load_u64(slot + SLOTS)
    differs = (word ^ load_u64(slot)) << ((long >> np.uint64(32)) & np.uint64(63))
    short = load_u32(tables + PAIRS + 4 * np.int64(word & np.uint64(0xFFFF)))
    entry = np.int64(pick(differs, np.uint32(long), short))
    store_u16(at, entry)
    store_u32(mark, at)
    return p + ((entry >> 20) & 15), at + ((entry >> 16) & 3), mark + (entry >> 24)


@kernel
def _encode_plain(
    offsets: int, width: int, data: int, data_end: int, first: int, last: int, tables: int,
    ends: int, out: int, base: int,
) -> int:  # fmt: skip
    """Encode values one after the other; return where in ``out`` they end, from ``base`` on."""
    at = out + base
    p = data + load_offset(offsets + width * first, width)
    for i in range(first, last):
        end = data + load_offset(offsets + width * (i + 1), width)
        while p < end:
            word = load_partial(p, data_end)
            slot = tables + 8 * slot_of(word)
            long = load_u64(slot + SLOTS)
            differs = (word ^ load_u64(slot)) << ((long >> np.uint64(32)) & np.uint64(63))
            entry = np.int64(long & np.uint64(0xFFFFFFFF))
            if differs != 0 or p + (entry >> 20) > end:
                index = np.int64(word & np.uint64(0xFFFF))
                if p + 1 == end:
                    index = LAST + (index & 255)
                entry = np.int64(load_u32(tables + PAIRS + 4 * index))
            store_u16(at, entry)
            # Here the stop byte is an ordinary byte, which is escaped.
            at += ((entry >> 16) & 3) + (entry >> 25)
            p += (entry >> 20) & 15
        store_offset(ends + width * (i + 1), width, at - out)
    return at - out


@kernel
def _copy_with_stops(
    offsets: int, width: int, data: int, data_end: int, first: int, last: int, target: int,
    limit: int, stop: int,
) -> tuple[int, int]:  # fmt: skip
    """Copy values up to ``limit``, each with a stop byte; return next value and end of the copy."""
    start = load_offset(offsets + width * first, width)
    i = first
    while i < last and target < limit:
        end = load_offset(offsets + width * (i + 1), width)
        size = end - start
        p = data + start
        if p + BLOCK <= data_end:
            for k in range(0, BLOCK, 16):
                copy16(target + k, p + k)
            if size > BLOCK:
                copy(target + BLOCK, p + BLOCK, size - BLOCK)
        else:
            copy(target, p, size)
        target += size
        store_u8(target, stop)
        target += 1
        start = end
        i += 1
    return i, target


@kernel
def _store_ends(marks: int, count: int, start: int, base: int, ends: int, width: int) -> None:
    """Store the ends of values by their marks: the lower halves of addresses from ``start`` on."""
    less = np.uint32(start)
    for k in range(count):
        end = base + np.int64(np.uint32(load_u32(marks + 4 * k) - less))
        store_offset(ends + width * (k + 1), width, end)


@kernel
def _encode_lanes(
    offsets: int, width: int, data: int, data_end: int, first: int, last: int, size: int,
    tables: int, stop: int, scratch: int, batch: int, ends: int, out: int, base: int,
) -> int:  # fmt: skip
    """Encode values of ``size`` bytes in all, in four lanes that take turns.

    While one lane waits for its table, the others continue. Return where in ``out`` they end, from
    ``base`` on, or -1 if a value has the stop byte.
    """
    capacity = 2 * batch + 2 * BLOCK
    marks = scratch + 4 * capacity
    total = size + last - first
    i1, t1 = _copy_with_stops(
        offsets, width, data, data_end, first, last, scratch, scratch + total // 4, stop
    )
    i2, t2 = _copy_with_stops(
        offsets, width, data, data_end, i1, last, t1, scratch + total // 2, stop
    )
    i3, t3 = _copy_with_stops(
        offsets, width, data, data_end, i2, last, t2, scratch + total * 3 // 4, stop
    )
    _, t4 = _copy_with_stops(offsets, width, data, data_end, i3, last, t3, t3 + total, stop)
    p0, p1, p2, p3 = scratch, t1, t2, t3
    s0, s1, s2, s3 = out + base, scratch + capacity, scratch + 2 * capacity, scratch + 3 * capacity
    o0, o1, o2, o3 = s0, s1, s2, s3
    m0, m1 = marks, marks + 4 * (i1 - first)
    m2, m3 = marks + 4 * (i2 - first), marks + 4 * (i3 - first)
    k0, k1, k2, k3 = m0, m1, m2, m3
    while True:
        # A step reads 8 bytes at most: so many steps stay within a lane.
        steps = min(t1 - p0, t2 - p1, t3 - p2, t4 - p3) >> 3
        if steps <= 0:
            break
        for _ in range(steps):
            p0, o0, k0 = _step(p0, o0, k0, tables)
            p1, o1, k1 = _step(p1, o1, k1, tables)
            p2, o2, k2 = _step(p2, o2, k2, tables)
            p3, o3, k3 = _step(p3, o3, k3, tables)
    for _ in range(4):
        # Each remaining lane is finished alone; the lanes rotate through the same variables.
        while p0 < t1:
            p0, o0, k0 = _step(p0, o0, k0, tables)
        p0, p1, p2, p3 = p1, p2, p3, p0
        t1, t2, t3, t4 = t2, t3, t4, t1
        o0, o1, o2, o3 = o1, o2, o3, o0
        k0, k1, k2, k3 = k1, k2, k3, k0
    if (
        (k0 - m0 != 4 * (i1 - first))
        | (k1 - m1 != 4 * (i2 - i1))
        | (k2 - m2 != 4 * (i3 - i2))
        | (k3 - m3 != 4 * (last - i3))
    ):
        return -1
    # Put the output of the lanes back to back.
    _store_ends(m0, i1 - first, s0, base, ends + width * first, width)
    at = base + o0 - s0
    copy(out + at, s1, o1 - s1)
    _store_ends(m1, i2 - i1, s1, at, ends + width * i1, width)
    at += o1 - s1
    copy(out + at, s2, o2 - s2)
    _store_ends(m2, i3 - i2, s2, at, ends + width * i2, width)
    at += o2 - s2
    copy(out + at, s3, o3 - s3)
    _store_ends(m3, last - i3, s3, at, ends + width * i3, width)
    return at + o3 - s3


@kernel
def encode(
    offsets: int, width: int, data: int, data_end: int, first: int, values: int, tables: int,
    stop: int, scratch: int, batch: int, ends: int, out: int, capacity: int, state: int,
) -> int:  # fmt: skip
    """Encode values from ``first`` on; return ``values``, or where ``capacity`` may be too small.

    ``state`` holds the bytes written. ``ends`` are as wide as ``offsets``. Values are encoded in
    batches of at most ``batch`` bytes, with a stop byte for each value. Longer values, and values
    with the stop byte, are encoded in place. ``scratch`` has room for sixteen times the batch and
    1024 bytes.
    """
    at = load_i64(state)
    i = first
    while i < values:
        start = load_offset(offsets + width * i, width)
        j = i + 1
        while j < values and load_offset(offsets + width * (j + 1), width) - start + j - i < batch:
            j += 1
        size = load_offset(offsets + width * j, width) - start
        if 2 * size + 8 > capacity - at:
            store_u64(state, at)
            return i
        done = np.int64(-1)
        if stop >= 0 and size + j - i <= batch:
            done = _encode_lanes(
                offsets=offsets, width=width, data=data, data_end=data_end, first=i, last=j,
                size=size, tables=tables, stop=stop, scratch=scratch, batch=batch, ends=ends,
                out=out, base=at,
            )  # fmt: skip
        if done < 0:
            done = _encode_plain(offsets, width, data, data_end, i, j, tables, ends, out, at)
        at = done
        i = j
    store_u64(state, at)
    return values


# --- Kernel that finds FSST symbols. Checked wrapper: ``glaive.kernels.fsst`` -----------
#
# A *step* is the number of what is encoded at once: below 256 a literal byte, from 256 on the
# symbol of a code. All tables lie in one block of memory that begins as zeros.

MAX_SYMBOLS = 255
"""Symbols of a table."""

STEPS = 512

STEP_MASK = 511
SIZE_SHIFT = 12
"""An entry has the step in its low bits, and its number of bytes above."""

CANDIDATE = offsets_of(Candidate)
CANDIDATE_BYTES = 8 * len(CANDIDATE)
SLOT = offsets_of(SymbolSlot)
SLOT_BYTES = 8 * len(SLOT)
ROUND = offsets_of(TrainRound)
ROUND_BYTES = 8 * len(ROUND)

WORDS = 0
"""Start of the words of all steps, 8 bytes each; the other tables follow."""

SIZES = WORDS + 8 * STEPS
TRAINED_PAIRS = SIZES + 8 * STEPS
"""The entries for the next two bytes, 16 bits each; entries for a last byte follow."""

SINGLES = TRAINED_PAIRS + 2 * 65_536
TRAINED_SLOTS = SINGLES + 2 * 256
TIMES = TRAINED_SLOTS + SLOT_BYTES * 1024
PAIR_TIMES = TIMES + 4 * STEPS
HEAP = PAIR_TIMES + 4 * STEPS * STEPS
"""Start of the heap; keys of pairs, candidates and a hash table of them follow."""


@kernel
def _look_up(p: int, end: int, data_end: int, memory: int) -> int:
    """Return the entry for the text at ``p``; branches would be mispredicted."""
    word = load_partial(p, data_end)
    slot = memory + TRAINED_SLOTS + SLOT_BYTES * slot_of(word)
    long = np.int64(load_u64(slot + SLOT.entry))
    differs = (word & load_u64(slot + SLOT.mask)) ^ load_u64(slot + SLOT.word)
    misfit = differs | np.uint64(long == 0) | np.uint64(p + (long >> SIZE_SHIFT) > end)
    pair = np.int64(word & np.uint64(0xFFFF))
    single = 65_536 + np.int64(word & np.uint64(0xFF))
    short = load_u16(memory + TRAINED_PAIRS + 2 * pick(np.uint64(p + 1 < end), single, pair))
    return pick(misfit, long, np.int64(short))


@kernel
def _add(address: int, number: int) -> int:
    """Add to a count; return the old count."""
    times = np.int64(load_u32(address))
    store_u32(address, times + number)
    return times


@kernel
def _tally(entry: int, before: int, memory: int, keys: int, key_count: int) -> int:
    """Count a step, and its pair with the step before; return the number of keys.

    A long step counts as its first byte too: it might be better to stop there.
    """
    step = entry & STEP_MASK
    head = np.int64(load_u64(memory + WORDS + 8 * step) & np.uint64(0xFF))
    is_long = np.int64((entry >> SIZE_SHIFT) > 1)
    _add(memory + TIMES + 4 * step, 1)
    _add(memory + TIMES + 4 * head, is_long)
    if before >= 0:
        # Keys are written in any case; only new ones are counted and so kept.
        key = before << 9 | step
        store_u32(keys + 4 * key_count, key)
        key_count += _add(memory + PAIR_TIMES + 4 * key, 1) == 0
        key = before << 9 | head
        store_u32(keys + 4 * key_count, key)
        key_count += is_long & (_add(memory + PAIR_TIMES + 4 * key, is_long) == 0)
    return key_count


@kernel
def _count_steps(
    offsets: int, data: int, data_end: int, count: int, memory: int, keys: int
) -> tuple[int, int]:
    """Encode values and count their steps and pairs of steps.

    Return the bytes written, and the number of ``keys``: pairs that occur.
    """
    key_count = np.int64(0)
    written = np.int64(0)
    p = data + load_i64(offsets)
    for i in range(count):
        end = data + load_i64(offsets + 8 * (i + 1))
        before = np.int64(-1)
        while p < end:
            entry = _look_up(p, end, data_end, memory)
            p += entry >> SIZE_SHIFT
            key_count = _tally(entry, before, memory, keys, key_count)
            # A step of eight bytes cannot become longer, so it begins no pair.
            before = entry & STEP_MASK if entry < 8 << SIZE_SHIFT else np.int64(-1)
            written += 1 + ((entry & 256) == 0)
    return written, key_count


@kernel
def _enter(
    word: int, size: int, gain: int, count: int, candidates: int, buckets: int, bucket_count: int
) -> int:
    """Add the gain to the candidate with this word and size, which may be a new one.

    Return the number of candidates, which was ``count`` before.
    """
    mixed = (word ^ np.uint64(size)) * np.uint64(0x9E3779B97F4A7C15)
    bucket = np.int64((mixed >> np.uint64(32)) & np.uint64(bucket_count - 1))
    while True:
        number = np.int64(load_u32(buckets + 4 * bucket)) - 1
        if number < 0:
            break
        at = candidates + CANDIDATE_BYTES * number
        if load_u64(at + CANDIDATE.word) == word and load_i64(at + CANDIDATE.size) == size:
            store_u64(at + CANDIDATE.gain, load_i64(at + CANDIDATE.gain) + gain)
            return count
        bucket = (bucket + 1) & (bucket_count - 1)
    store_u32(buckets + 4 * bucket, count + 1)
    at = candidates + CANDIDATE_BYTES * count
    store_u64(at + CANDIDATE.word, word)
    store_u64(at + CANDIDATE.size, size)
    store_u64(at + CANDIDATE.gain, gain)
    return count + 1


@kernel
def _gather(
    memory: int, keys: int, key_count: int, min_count: int, pair_weight: int, candidates: int,
    buckets: int,
) -> int:  # fmt: skip
    """Make candidates of steps and pairs that occur often enough; return their number."""
    bucket_count = np.int64(1024)
    while bucket_count < 2 * (key_count + STEPS):
        bucket_count *= 2
    for bucket in range(bucket_count):
        store_u32(buckets + 4 * bucket, 0)
    count = np.int64(0)
    for step in range(STEPS):
        times = np.int64(load_u32(memory + TIMES + 4 * step))
        store_u32(memory + TIMES + 4 * step, 0)
        if times >= min_count:
            size = load_i64(memory + SIZES + 8 * step)
            gain = times * (8 if size == 1 else size)
            word = load_u64(memory + WORDS + 8 * step)
            count = _enter(word, size, gain, count, candidates, buckets, bucket_count)
    for k in range(key_count):
        key = np.int64(load_u32(keys + 4 * k))
        times = np.int64(load_u32(memory + PAIR_TIMES + 4 * key))
        store_u32(memory + PAIR_TIMES + 4 * key, 0)
        if times >= min_count:
            left, right = key >> 9, key & STEP_MASK
            size = load_i64(memory + SIZES + 8 * left)
            word = load_u64(memory + WORDS + 8 * right) << np.uint64(8 * size)
            word |= load_u64(memory + WORDS + 8 * left)
            size = min(size + load_i64(memory + SIZES + 8 * right), np.int64(8))
            gain = times * size * pair_weight // 10
            count = _enter(word, size, gain, count, candidates, buckets, bucket_count)
    return count


@kernel
def _is_better(candidates: int, first: int, second: int) -> bool:
    """Return whether the first candidate is better: more gain, then smaller word, then size."""
    a = candidates + CANDIDATE_BYTES * first
    b = candidates + CANDIDATE_BYTES * second
    more = load_i64(a + CANDIDATE.gain) - load_i64(b + CANDIDATE.gain)
    if more != 0:
        return more > 0
    if load_u64(a + CANDIDATE.word) != load_u64(b + CANDIDATE.word):
        return load_u64(a + CANDIDATE.word) < load_u64(b + CANDIDATE.word)
    return load_i64(a + CANDIDATE.size) < load_i64(b + CANDIDATE.size)


@kernel
def _sift_down(heap: int, at: int, count: int, candidates: int) -> None:
    """Move the candidate at this index of the heap below all that are better."""
    item = np.int64(load_u32(heap + 4 * at))
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        other = np.int64(load_u32(heap + 4 * child))
        if child + 1 < count:
            right = np.int64(load_u32(heap + 4 * child + 4))
            if _is_better(candidates, right, other):
                child += 1
                other = right
        if not _is_better(candidates, other, item):
            break
        store_u32(heap + 4 * at, other)
        at = child
    store_u32(heap + 4 * at, item)


@kernel
def _remove_symbols(memory: int, count: int) -> None:
    """Remove ``count`` symbols from the tables; keep symbols of two bytes."""
    for step in range(256, 256 + count):
        word = load_u64(memory + WORDS + 8 * step)
        size = load_i64(memory + SIZES + 8 * step)
        if size == 1:
            store_u16(memory + SINGLES + 2 * np.int64(word), np.int64(word) | 1 << SIZE_SHIFT)
        elif size > 2:
            store_u64(memory + TRAINED_SLOTS + SLOT_BYTES * slot_of(word) + SLOT.entry, 0)


@kernel
def _enter_pairs(memory: int, count: int) -> None:
    """Fill the entries for two bytes: the symbol of both, else the entry of the first."""
    for row in range(256):
        copy(memory + TRAINED_PAIRS + 512 * row, memory + SINGLES, 512)
    for step in range(256, 256 + count):
        if load_i64(memory + SIZES + 8 * step) == 2:
            word = np.int64(load_u64(memory + WORDS + 8 * step))
            store_u16(memory + TRAINED_PAIRS + 2 * word, step | 2 << SIZE_SHIFT)


@kernel
def _choose(memory: int, heap: int, remaining: int, candidates: int) -> int:
    """Enter the best candidates as symbols, one for each slot; return their number."""
    for k in range(remaining):
        store_u32(heap + 4 * k, k)
    for k in range(remaining // 2 - 1, -1, -1):
        _sift_down(heap, k, remaining, candidates)
    count = np.int64(0)
    while remaining > 0 and count < MAX_SYMBOLS:
        best = candidates + CANDIDATE_BYTES * np.int64(load_u32(heap))
        remaining -= 1
        store_u32(heap, np.int64(load_u32(heap + 4 * remaining)))
        _sift_down(heap, 0, remaining, candidates)
        word, size = load_u64(best + CANDIDATE.word), load_i64(best + CANDIDATE.size)
        step = 256 + count
        if size == 1:
            store_u16(memory + SINGLES + 2 * np.int64(word), step | 1 << SIZE_SHIFT)
        elif size > 2:
            slot = memory + TRAINED_SLOTS + SLOT_BYTES * slot_of(word)
            if load_u64(slot + SLOT.entry) != 0:
                continue
            store_u64(slot + SLOT.word, word)
            store_u64(slot + SLOT.mask, low_bits(8 * size))
            store_u64(slot + SLOT.entry, size << SIZE_SHIFT | step)
        store_u64(memory + WORDS + 8 * step, word)
        store_u64(memory + SIZES + 8 * step, size)
        count += 1
    _enter_pairs(memory, count)
    return count


@kernel
def _max_candidates(data_size: int) -> int:
    """Count every step, and two pairs for each byte."""
    return 2 * data_size + STEPS


@kernel
def memory_size(data_size: int) -> int:
    """Return the bytes that ``train`` needs; heap, keys and four buckets take 4 bytes each."""
    return HEAP + (CANDIDATE_BYTES + 4 + 4 + 16) * _max_candidates(data_size) + 4096


@kernel
def train(
    offsets: int, data: int, data_size: int, rounds: int, round_count: int, sample_values: int,
    memory: int, words: int, sizes: int,
) -> int:  # fmt: skip
    """Find symbols for values with 64-bit offsets; return their number.

    ``rounds`` are records of ``TrainRound``. Rounds over all ``sample_values`` are measured, and
    the best table is written to ``words`` and ``sizes``. ``memory`` are ``memory_size`` zeros.
    """
    max_candidates = _max_candidates(data_size)
    heap = memory + HEAP
    keys = heap + 4 * max_candidates
    candidates = keys + 4 * max_candidates
    buckets = candidates + CANDIDATE_BYTES * max_candidates
    for byte in range(256):
        store_u64(memory + WORDS + 8 * byte, byte)
        store_u64(memory + SIZES + 8 * byte, 1)
        store_u16(memory + SINGLES + 2 * byte, byte | 1 << SIZE_SHIFT)
    _enter_pairs(memory, 0)
    count = np.int64(0)
    best = np.int64(0)
    smallest = 2 * data_size
    for i in range(round_count):
        here = rounds + ROUND_BYTES * i
        values = load_i64(here + ROUND.values)
        min_count = load_i64(here + ROUND.min_count)
        weight = load_i64(here + ROUND.pair_weight)
        written, key_count = _count_steps(offsets, data, data + data_size, values, memory, keys)
        if values == sample_values and written < smallest:
            best, smallest = count, written
            copy(words, memory + WORDS + 8 * 256, 8 * count)
            copy(sizes, memory + SIZES + 8 * 256, 8 * count)
        if written == 0 or weight == 0:
            break
        made = _gather(memory, keys, key_count, min_count, weight, candidates, buckets)
        _remove_symbols(memory, count)
        count = _choose(memory, heap, made, candidates)
    return best
