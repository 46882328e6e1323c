"""Compiled decoding of posting lists; the wrappers are in ``glaive.kernels.postings``.

All functions return 0 or more where the bytes are sound, else -1.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_i64,
    load_u8,
    load_u32,
    store_u32,
)
from glaive.kernels.text_records import DecodePositions, DecodePostings

LANE = 32
MAX_BITS = 32
MAX_NUMBER = 0xFFFF_FFFF


@kernel
def unpack_4(source: int, bits: int, target: int) -> None:
    """Unpack 128 numbers of ``bits`` bits, 1 to 32, that lie in four lanes."""
    mask = np.uint64(0xFFFF_FFFF) >> np.uint64(32 - bits)
    for row in range(LANE):
        bit = row * bits
        shift = np.uint64(bit & 31)
        words = source + (bit >> 5) * 16
        into = target + row * 16
        if (bit & 31) + bits > 32:
            for lane in range(4):
                low, high = load_u32(words + lane * 4), load_u32(words + 16 + lane * 4)
                both = np.uint64(low) | (np.uint64(high) << np.uint64(32))
                store_u32(into + lane * 4, np.uint32((both >> shift) & mask))
        else:
            for lane in range(4):
                word = np.uint64(load_u32(words + lane * 4))
                store_u32(into + lane * 4, np.uint32((word >> shift) & mask))


@kernel
def unpack_8(source: int, bits: int, target: int) -> None:
    """Unpack 256 numbers of ``bits`` bits, 1 to 32, that lie in eight lanes."""
    mask = np.uint64(0xFFFF_FFFF) >> np.uint64(32 - bits)
    for row in range(LANE):
        bit = row * bits
        shift = np.uint64(bit & 31)
        words = source + (bit >> 5) * 32
        into = target + row * 32
        if (bit & 31) + bits > 32:
            for lane in range(8):
                low, high = load_u32(words + lane * 4), load_u32(words + 32 + lane * 4)
                both = np.uint64(low) | (np.uint64(high) << np.uint64(32))
                store_u32(into + lane * 4, np.uint32((both >> shift) & mask))
        else:
            for lane in range(8):
                word = np.uint64(load_u32(words + lane * 4))
                store_u32(into + lane * 4, np.uint32((word >> shift) & mask))


@kernel
def unpack(source: int, stop: int, bits: int, lanes: int, target: int) -> int:
    """Unpack the numbers of all lanes; returns where they end, or -1."""
    size = bits * lanes * 4
    if bits > MAX_BITS or size > stop - source:
        return -1
    if bits == 0:
        for i in range(LANE * lanes):
            store_u32(target + i * 4, np.uint32(0))
    elif lanes == 4:
        unpack_4(source, bits, target)
    else:
        unpack_8(source, bits, target)
    return source + size


@kernel
def varint_end(source: int, stop: int) -> int:
    """Where the varint at ``source`` ends, or -1: it has at most five bytes."""
    at = source
    while at < stop and at - source < 5:
        if load_u8(at) < 128:
            return at + 1
        at += 1
    return -1


@kernel
def varint(source: int, end: int) -> int:
    """The varint that ends before ``end``."""
    value = 0
    for i in range(end - source):
        value |= np.int64(load_u8(source + i) & 127) << (7 * i)
    return value


@kernel
def numbers(source: int, stop: int, count: int, fixed: int, target: int) -> int:
    """Store numbers of 32 bits, or varints; returns where they end, or -1."""
    if fixed:
        if count > (stop - source) >> 2:
            return -1
        for i in range(count):
            store_u32(target + i * 4, load_u32(source + i * 4))
        return source + count * 4
    at = source
    for i in range(count):
        end = varint_end(at, stop)
        if end < 0:
            return -1
        value = varint(at, end)
        if value > MAX_NUMBER:
            return -1
        store_u32(target + i * 4, np.uint32(value))
        at = end
    return at


@kernel
def full_block(at: int, stop: int, lanes: int, documents: int, frequencies: int) -> int:
    """Decode a full block, from its first document on; steps are not summed yet."""
    if stop - at < 7:
        return -1
    first = load_u32(at)
    at = unpack(at + 5, stop, np.int64(load_u8(at + 4)), lanes, documents)
    scored = lanes == 4
    if at < 0 or stop - at < 2 - scored:
        return -1
    store_u32(documents, first)
    bits = np.int64(load_u8(at))
    exceptions = 0
    if not scored:
        exceptions = np.int64(load_u8(at + 1))
    at = unpack(at + 2 - scored, stop, bits, lanes, frequencies)
    for _ in range(exceptions):
        if at < 0 or at >= stop:
            return -1
        into = frequencies + np.int64(load_u8(at)) * 4
        end = varint_end(at + 1, stop)
        if end < 0:
            return -1
        upper = varint(at + 1, end)
        if upper > (MAX_NUMBER >> bits):
            return -1
        store_u32(into, np.uint32(np.int64(load_u32(into)) | (upper << bits)))
        at = end
    return at


@kernel_of(DecodePostings)
def postings(
    data: int, offsets: int, blocks: int, length: int, block: int, fixed_tail: int, limit: int,
    documents: int, frequencies: int,
) -> int:  # fmt: skip
    """Decode one list; all blocks but the last are full. Returns the bad block, or ``blocks``."""
    lanes = block // LANE
    scored = lanes == 4
    before = -1
    for number in range(blocks):
        at = data + load_i64(offsets + number * 8)
        stop = data + load_i64(offsets + number * 8 + 8)
        first = number * block
        count = min(block, length - first)
        into, often = documents + first * 4, frequencies + first * 4
        prefix = 4 if scored or (count < block and fixed_tail) else 0
        if stop - at < prefix:
            return number
        absolute = 0
        if count == block:
            at = full_block(at + prefix, stop, lanes, into, often)
        else:
            at = numbers(at + prefix, stop, count, fixed_tail, into)
            if at >= 0:
                at = numbers(at, stop, count, fixed_tail, often)
            absolute = fixed_tail
        if at != stop:
            return number
        document = 0
        for i in range(count):
            step = np.int64(load_u32(into + i * 4))
            document = step if absolute else document + step
            if document <= before or document >= limit or load_u32(often + i * 4) == 0:
                return number
            store_u32(into + i * 4, np.uint32(document))
            before = document
    return blocks


@kernel_of(DecodePositions)
def positions(
    data: int, offsets: int, blocks: int, length: int, block: int, group: int, frequencies: int,
    into: int,
) -> int:  # fmt: skip
    """Decode the positions of one list. Returns the bad block, or ``blocks``.

    The wrapper has summed the frequencies, which is the memory there is.
    """
    document = 0
    target = into
    for number in range(blocks):
        at = data + load_i64(offsets + number * 8)
        stop = data + load_i64(offsets + number * 8 + 8)
        left = 0
        for i in range(min(block, length - number * block)):
            left += np.int64(load_u32(frequencies + (number * block + i) * 4))
        begin = target
        while left >= group:
            if at >= stop:
                return number
            at = unpack(at + 1, stop, np.int64(load_u8(at)), 4, target)
            if at < 0:
                return number
            target += group * 4
            left -= group
        if numbers(at, stop, left, 0, target) != stop:
            return number
        target += left * 4
        # Steps within each document become positions.
        here = begin
        for _ in range(min(block, length - number * block)):
            position = 0
            for _ in range(np.int64(load_u32(frequencies + document * 4))):
                position += np.int64(load_u32(here))
                if position > MAX_NUMBER:
                    return number
                store_u32(here, np.uint32(position))
                here += 4
            document += 1
    return blocks
