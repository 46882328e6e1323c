"""Kernels over byte strings: unpack, take, pack, expand.

Wrappers: ``glaive.kernels.offsets`` and ``strings``.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.bitpack import load_word
from glaive.kernels.loops.memory import (
    copy,
    copy16,
    in_range,
    kernel,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    low_bits,
    same_bytes,
    set_bit,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    trailing_zeros,
    wrapping_add,
)


@kernel
def load_offset(address: int, width: int) -> int:
    """Read one offset of 4 (unsigned) or 8 (signed) bytes."""
    if width == 4:
        return np.int64(load_u32(address))
    return np.int64(load_i64(address))


@kernel
def arrow_offset(offsets: int, width: int, i: int) -> int:
    """Read offset ``i`` of 4 or 8 bytes, both signed, so that negative ones are damage."""
    if width == 4:
        return np.int64(load_i32(offsets + i * 4))
    return load_i64(offsets + i * 8)


@kernel
def store_offset(address: int, width: int, value: int) -> None:
    """Write one offset of 4 or 8 bytes."""
    if width == 4:
        store_u32(address, value)
    else:
        store_u64(address, value)


@kernel
def _rebase32(source: int, n: int, shift: int, target: int) -> int:
    """Write ``n`` ends of 32 bits moved by ``shift``; return whether the source descends."""
    wrong = 0
    for j in range(n):
        low = np.int64(load_u32(source + 4 * j))
        high = np.int64(load_u32(source + 4 * j + 4))
        wrong |= high < low
        store_u32(target + 4 * j, high + shift)
    return wrong


@kernel
def _rebase(source: int, width: int, n: int, shift: int, target: int, out_width: int) -> int:
    wrong = 0
    low = load_offset(source, width)
    for j in range(n):
        high = load_offset(source + width * (j + 1), width)
        wrong |= high < low
        # Offsets that descend may be any number; their results are dropped.
        store_offset(target + out_width * j, out_width, wrapping_add(high, shift))
        low = high
    return wrong


@kernel
def unpack(
    data: int, offset_starts: int, bases: int, floors: int, limits: int, counts: int, chunks: int,
    width: int, out_width: int, out_offsets: int, out: int, capacity: int,
) -> int:  # fmt: skip
    """Join the values of all chunks; return the first chunk whose offsets are wrong, or -1."""
    at = np.int64(0)
    store_offset(out_offsets, out_width, 0)
    target = out_offsets + out_width
    for i in range(chunks):
        n = load_i64(counts + 8 * i)
        source = data + load_i64(offset_starts + 8 * i)
        base = load_i64(bases + 8 * i)
        first = load_offset(source, width)
        last = load_offset(source + n * width, width)
        if (
            first < load_i64(floors + 8 * i)
            or last < first
            or last > load_i64(limits + 8 * i)
            or last - first > capacity - at
        ):
            return i
        if width == 4 and out_width == 4:
            wrong = _rebase32(source, n, at - first, target)
        else:
            wrong = _rebase(source, width, n, at - first, target, out_width)
        if wrong:
            return i
        copy(out + at, data + base + first, last - first)
        at += last - first
        target += n * out_width
    return -1


@kernel
def locate(
    data: int, starts: int, sizes: int, counts: int, chunk: int, index: int, n: int, width: int,
    sources: int, ends: int,
) -> int:  # fmt: skip
    """Find the bytes of wanted values: start in ``data``, running end; return bad item or -1."""
    total = np.int64(0)
    for i in range(n):
        c = load_i64(chunk + 8 * i)
        k = load_i64(index + 8 * i)
        start = load_i64(starts + 8 * c)
        a = load_offset(data + start + k * width, width)
        b = load_offset(data + start + k * width + width, width)
        floor = (load_i64(counts + 8 * c) + 1) * width
        if a < floor or b < a or b > load_i64(sizes + 8 * c):
            return i
        total += b - a
        store_u64(sources + 8 * i, start + a)
        store_u64(ends + 8 * i, total)
    return -1


@kernel
def _copy_value(target: int, data: int, start: int, size: int, data_size: int) -> None:
    """Copy a value; a short one as 32 bytes where ``data`` has them."""
    if size <= 32 and start + 32 <= data_size:
        copy16(target, data + start)
        copy16(target + 16, data + start + 16)
    else:
        copy(target, data + start, size)


@kernel
def gather(
    data: int, size: int, sources: int, ends: int, n: int, out_width: int, out_offsets: int,
    out: int,
) -> None:  # fmt: skip
    """Copy located values back to back; ``out`` has 32 bytes of slack."""
    at = np.int64(0)
    store_offset(out_offsets, out_width, 0)
    for i in range(n):
        end = load_i64(ends + 8 * i)
        store_offset(out_offsets + out_width * (i + 1), out_width, end)
        _copy_value(out + at, data, load_i64(sources + 8 * i), end - at, size)
        at = end


@kernel
def descend(offsets: int, width: int, n: int) -> int:
    """Return whether any of ``n + 1`` offsets is below its predecessor."""
    signs = np.int64(0)
    before = load_offset(offsets, width)
    if width == 4:
        for i in range(1, n + 1):
            here = np.int64(load_u32(offsets + 4 * i))
            signs |= here - before
            before = here
    else:
        for i in range(1, n + 1):
            here = np.int64(load_i64(offsets + 8 * i))
            # Compare them: their difference may be too large.
            signs |= -np.int64(here < before)
            before = here
    return np.int64(signs < 0)


@kernel
def pack(
    offsets: int, width: int, data: int, count: int, out_width: int, target: int, max_values: int,
    out: int, sizes: int, counts: int,
) -> int:  # fmt: skip
    """Cut values into chunks and write them; return the number of chunks."""
    at = out
    chunks = np.int64(0)
    done = np.int64(0)
    while done < count:
        first = load_offset(offsets + done * width, width)
        remaining = count - done
        n = min(remaining, np.int64(2))
        while n < remaining and n < max_values:
            doubled = min(2 * n, remaining)
            end = load_offset(offsets + (done + doubled) * width, width)
            if doubled > max_values or end - first + (doubled + 1) * out_width > target:
                break
            n = doubled
        source = offsets + done * width
        header = (n + 1) * out_width
        shift = header - first
        for j in range(n + 1):
            store_offset(
                at + out_width * j, out_width, load_offset(source + width * j, width) + shift
            )
        size = load_offset(source + width * n, width) - first
        copy(at + header, data + first, size)
        end = header + size
        while end % out_width:
            store_u8(at + end, 0x48)
            end += 1
        store_u64(sizes + 8 * chunks, end)
        store_u64(counts + 8 * chunks, n)
        at += end
        chunks += 1
        done += n
    return chunks


# --- Offsets as frames of zstd ----------------------------------------------------------
#
# Offsets ascend in small steps, so most of them differ from the one before in the lowest byte only.
# Compressors find this pattern by search, at twice the size. Here each run of such offsets is a
# block with sequences of one literal, the lowest byte, and 3 bytes from 4 bytes back. As all its
# sequences have equal codes, they take no bits. Exception: the first sequences of a frame state the
# distance, in two bits each.
#
# Specification: RFC 8878, section 3.1.1.

_MAX_SEQUENCES = 120
"""Sequences of a block at most: their number takes one byte."""


@kernel
def zip_offsets(data: int, starts: int, counts: int, chunks: int, out: int, sizes: int) -> int:
    """Write a frame of zstd of some offsets of 4 bytes from each start; return all their bytes."""
    at = out
    for i in range(chunks):
        begin = at
        source = data + load_i64(starts + 8 * i)
        count = load_i64(counts + 8 * i)
        store_u32(at, 0xFD2FB528)
        store_u16(at + 4, 0x3800)  # no size; a window of 128 KiB
        store_u16(at + 6, 4 << 3 | np.int64(count == 1))  # a block of 4 plain bytes
        store_u8(at + 8, 0)
        store_u32(at + 9, load_u32(source))
        at += 13
        done = np.int64(1)
        blocks = np.int64(0)
        while done < count:
            before = load_u32(source + 4 * (done - 1))
            most = min(count - done, np.int64(_MAX_SEQUENCES))
            n = np.int64(0)
            while n < most and load_u32(source + 4 * (done + n)) ^ before < 256:
                n += 1
            plain = np.int64(done + n < count)  # the offset after the run
            head = at
            at += 3
            if n:
                store_u16(at, (n + 4 * plain) << 4 | 4)
                at += 2
                for j in range(n):
                    store_u8(at + j, load_u8(source + 4 * (done + j)))
                at += n
            done += n
            if plain:
                store_u32(at, load_u32(source + 4 * done))
                at += 4
                done += 1
            if n:
                store_u8(at, n)
                bits = np.int64(0)
                if blocks == 0:
                    store_u32(at + 1, 0x00020154)  # codes: one literal, any distance, 3 bytes
                    bits = 2 * n
                    at += 5
                elif blocks == 1:
                    store_u16(at + 1, 0x00DC)  # the same, and the latest distance
                    at += 3
                else:
                    store_u8(at + 1, 0xFC)  # the same
                    at += 2
                blocks += 1
                while bits >= 8:
                    store_u8(at, 0xFF)
                    at += 1
                    bits -= 8
                store_u8(at, (2 << bits) - 1)
                at += 1
            header = (at - head - 3) << 3 | 4 * np.int64(n > 0) | np.int64(done == count)
            store_u16(head, header & 0xFFFF)
            store_u8(head + 2, header >> 16)
        store_u64(sizes + 8 * i, at - begin)
    return at - out


@kernel
def expand_short(
    indices: int, word: int, n: int, offsets: int, width: int, items: int, out_offsets: int,
    data: int, out: int,
) -> int:  # fmt: skip
    """Copy the items of all indices with 16 bytes each; return their bytes.

    Each item has 16 bytes at most, and 16 bytes can be read from its first one on. ``out`` has room
    for 16 bytes after the last value. Return -1 for an invalid index.
    """
    at = np.int64(0)
    store_offset(out_offsets, width, 0)
    for i in range(n):
        k = np.int64(load_word(8 * word, indices + word * i))
        if k < 0 or k >= items:
            return np.int64(-1)
        first = load_offset(offsets + width * k, width)
        copy16(out + at, data + first)
        at += load_offset(offsets + width * (k + 1), width) - first
        store_offset(out_offsets + width * (i + 1), width, at)
    return at


@kernel
def take_items(
    indices: int, word: int, n: int, offsets: int, width: int, items: int, out_offsets: int,
    data: int, size: int, out: int, room: int,
) -> int:  # fmt: skip
    """Copy items by index, and check each index; return their bytes, -1 for an invalid index.

    Indices have ``word`` bytes. If ``room`` is too small, store only the offsets of the other
    items. ``out`` has 32 bytes of slack.
    """
    at = np.int64(0)
    store_offset(out_offsets, width, 0)
    for i in range(n):
        k = np.int64(load_word(8 * word, indices + word * i))
        if k < 0 or k >= items:
            return np.int64(-1)
        first, last = arrow_offset(offsets, width, k), arrow_offset(offsets, width, k + 1)
        if first < 0 or last < first or last > size:
            return np.int64(-1)
        if last - first <= room - at:
            _copy_value(out + at, data, first, last - first, size)
        at += last - first
        store_offset(out_offsets + width * (i + 1), width, at)
    return at


# --- The compiled search for a substring; its wrapper is in ``glaive.kernels.offsets`` --
#
# All strings are searched as the one text that they are in memory. The search compares 64 positions
# at a time with the first, the second and the last byte of the pattern. Where all three are equal,
# it compares the rest.

WINDOW = 64


@kernel
def candidates_64(
    text: int, first: np.uint64, second: np.uint64, last: np.uint64, size: int
) -> np.uint64:
    """Return bits: whether a pattern of ``size`` bytes may begin at position ``i`` of 64.

    Its first, second and last byte are there. For one byte, the second byte is the first.
    """
    none = np.uint64(0)
    candidates = in_range(8, text, first, none)
    candidates &= in_range(8, text + min(1, size - 1), second, none)
    return candidates & in_range(8, text + size - 1, last, none)


@kernel
def contains(
    offsets: int, width: int, count: int, data: int, pattern: int, size: int, target: int
) -> None:
    """Set the bit of every string that contains the pattern of ``size`` ≥ 1 bytes.

    The wrapper has checked the offsets, and all bits of ``target`` are clear.
    """
    first = np.uint64(load_u8(pattern))
    second = np.uint64(load_u8(pattern + min(1, size - 1)))
    last = np.uint64(load_u8(pattern + size - 1))
    none = np.uint64(0)
    at = arrow_offset(offsets, width, 0)
    end = arrow_offset(offsets, width, count) - size
    row = 0
    row_end = arrow_offset(offsets, width, 1)
    while at <= end:
        positions = end - at + 1
        candidates = none
        if positions >= WINDOW:
            candidates = candidates_64(data + at, first, second, last, size)
        else:
            for i in range(positions):
                if load_u8(data + at + i) == first and load_u8(data + at + i + size - 1) == last:
                    candidates |= np.uint64(1) << np.uint64(i)
        after = at + WINDOW
        while candidates != none:
            here = at + np.int64(trailing_zeros(candidates))
            candidates &= candidates - np.uint64(1)
            if size > 2 and not same_bytes(data + here + 1, pattern + 1, size - 2):
                continue
            while row_end <= here:
                row += 1
                row_end = arrow_offset(offsets, width, row + 1)
            if here + size > row_end:
                continue
            set_bit(target, row)
            # Continue with the next string.
            if row_end >= after:
                after = row_end
                candidates = none
            else:
                candidates &= ~low_bits(row_end - at)
        at = after


# --- Compiled kernels over stored ends; their wrappers are in ``glaive.kernels.offsets``


@kernel
def resolve(
    stored: int, count: int, start: int, adjustment: int, width: int, offsets: int, validity: int,
) -> int:  # fmt: skip
    """Turn stored ends into offsets; return the nulls, -1 when an end descends or is too large."""
    before = start
    nulls = 0
    byte = np.uint64(0)
    if width == 4:
        store_u32(offsets, np.uint32(0))
    else:
        store_u64(offsets, np.uint64(0))
    for i in range(count):
        end = load_i64(stored + i * 8)
        valid = 1
        if end >= adjustment:
            end -= adjustment
            valid = 0
        if end < before or end >= adjustment:
            return -1
        before = end
        nulls += 1 - valid
        byte |= np.uint64(valid) << np.uint64(i & 7)
        if (i & 7) == 7:
            store_u8(validity + (i >> 3), np.uint8(byte))
            byte = np.uint64(0)
        if width == 4:
            store_u32(offsets + (i + 1) * 4, np.uint32(end - start))
        else:
            store_u64(offsets + (i + 1) * 8, np.uint64(end - start))
    if count & 7:
        store_u8(validity + (count >> 3), np.uint8(byte))
    return nulls


# --- The compiled search for members of JSONB; its wrapper is in ``glaive.kernels.offsets``

SIZE = 0x0FFF_FFFF


@kernel
def big_word(at: int) -> int:
    """Return the big-endian word of 4 bytes."""
    word = np.int64(load_u32(at))
    return (
        ((word & 0xFF) << 24)
        | ((word & 0xFF00) << 8)
        | ((word >> 8) & 0xFF00)
        | ((word >> 24) & 0xFF)
    )


@kernel
def find_members(
    raw: int, begins: int, ends: int, count: int, key: int, size: int, words: int, positions: int
) -> int:
    """Write the entry and the position of the member, for each object that has it.

    The wrapper has checked that each object has 4 bytes, inside the memory. Return the number of
    the first object that ends too soon, or -1.
    """
    for i in range(count):
        begin = load_i64(begins + 8 * i)
        end = load_i64(ends + 8 * i)
        members = big_word(raw + begin) & SIZE
        entry = raw + begin + 4
        at = begin + 4 + 8 * members
        if at > end:
            return i
        matching = np.int64(-1)
        for k in range(members):
            length = big_word(entry) & SIZE
            if at + length > end:
                return i
            if length == size and matching < 0 and same_bytes(raw + at, key, size):
                matching = k
            at += length
            entry += 4
        for k in range(members):
            word = big_word(entry)
            length = word & SIZE
            if at + length > end:
                return i
            if k == matching:
                store_u64(words + 8 * i, np.uint64(word))
                store_u64(positions + 8 * i, np.uint64(at))
            at += length
            entry += 4
    return -1
