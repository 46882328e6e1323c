"""Compiled bit-packing kernels; their wrappers are in ``glaive.kernels.bitpack``.

``starts``, ``sizes``, ``counts``, ``chunk`` and ``index`` are addresses of ``int64`` arrays.
Kernels over inline chunks read each width once and check it, with the chunk, on the way. They
return the number of the first bad chunk or value, or -1. ``scratch`` has room for a block of
8 KiB.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    FETCHED,
    LINE,
    copy,
    fill,
    kernel,
    leading_zeros,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    low_bits,
    pack_block,
    prefetch,
    store_u8,
    store_u64,
    store_word,
    unpack_block,
    unpack_in_turn,
)

BLOCK = 1024
ROW = 128
"""Bytes from a word of a packed block to the next one of the same lane."""

WORD = 64

AHEAD = 32
"""Values whose memory is fetched at once: about as much as a processor waits for."""


@kernel
def load_word(word_bits: int, source: int) -> np.uint64:
    """Read one word of 8, 16, 32 or 64 bits."""
    if word_bits == 64:
        return load_u64(source)
    if word_bits == 32:
        return np.uint64(load_u32(source))
    if word_bits == 16:
        return np.uint64(load_u16(source))
    return np.uint64(load_u8(source))


@kernel
def fill_zero(target: int, size: int) -> None:
    """Write ``size`` zero bytes."""
    at = 0
    # The compiler would scatter words one by one: it misses that addresses are adjacent.
    while at + LINE <= size:
        fill(target + at, np.uint64(0))
        at += LINE
    while at + 8 <= size:
        store_u64(target + at, np.uint64(0))
        at += 8
    while at < size:
        store_u8(target + at, np.uint64(0))
        at += 1


@kernel
def inline_width(data: int, data_size: int, start: int, size: int, word_bits: int) -> int:
    """Return the width of the inline block at ``start``, -1 if it is invalid."""
    word = word_bits >> 3
    if start < 0 or size < word or start > data_size - size:
        return -1
    width = np.int64(load_word(word_bits, data + start))
    if width < 0 or width > word_bits or size != word + width * 128:
        return -1
    return width


@kernel
def unpack_inline(
    data: int, data_size: int, starts: int, sizes: int, counts: int, chunks: int, word_bits: int,
    target: int, values: int, scratch: int,
) -> int:  # fmt: skip
    """Unpack ``counts[i]`` values of every chunk; ``target`` has room for ``values``."""
    word = word_bits >> 3
    done = 0
    for i in range(chunks):
        start = load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        width = inline_width(data, data_size, start, load_i64(sizes + i * 8), word_bits)
        if width < 0 or count < 0 or count > BLOCK or count > values - done:
            return i
        at = target + done * word
        if width == 0:
            fill_zero(at, count * word)
        elif count == BLOCK:
            unpack_in_turn(word_bits, data + start + word, width, at)
        else:
            unpack_block(word_bits, data + start + word, width, scratch)
            copy(at, scratch, count * word)
        done += count
    return -1


@kernel
def place_of_value(word_bits: int, width: int, index: int) -> tuple[np.int64, np.int64]:
    """Return where value ``index`` of a packed block begins: byte of its word, bit within it."""
    within = index & 127
    if word_bits == 64:
        lanes, log = 16, 6
    elif word_bits == 32:
        lanes, log = 32, 5
    elif word_bits == 16:
        lanes, log = 64, 4
    else:
        lanes, log = 128, 3
    lane = within & (lanes - 1)
    part = (within - lane) >> 4
    backwards = ((part & 1) << 2) | (part & 2) | (part >> 2)
    bit = ((backwards << 3) + (index >> 7)) * width
    return ((bit >> log) << 7) + lane * (word_bits >> 3), bit & (word_bits - 1)


@kernel
def value_of_block(word_bits: int, block: int, width: int, index: int) -> np.uint64:
    """Return value ``index`` of a packed block, 1 ≤ width ≤ word_bits."""
    byte, shift = place_of_value(word_bits, width, index)
    at = block + byte
    # A branch on whether the value continues in the next row would be unpredictable. The processor
    # would then wait for the memory of one value before it fetches the next.
    more = at + ROW * np.int64(shift + width > word_bits)
    rest = load_word(word_bits, more) << np.uint64((word_bits - shift) & 63)
    # Otherwise the rest lies above the bits of the value.
    return (load_word(word_bits, at) >> np.uint64(shift) | rest) & low_bits(width)


@kernel
def prefetch_values(
    data: int, starts: int, chunks: int, widths: int, chunk: int, index: int, values: int,
    word_bits: int,
) -> None:  # fmt: skip
    """Fetch the words of all values at once, because the processor would wait for each of them."""
    for i in range(values):
        c = load_i64(chunk + i * 8)
        at = load_i64(index + i * 8)
        if c < 0 or c >= chunks or at < 0 or at >= BLOCK:
            return
        width = np.int64(load_u8(widths + c))
        if width > WORD:
            return
        byte, _ = place_of_value(word_bits, width, at)
        prefetch(data + load_i64(starts + c * 8) + (word_bits >> 3) + byte)


@kernel
def take_inline(
    data: int, data_size: int, starts: int, sizes: int, chunks: int, chunk: int, index: int,
    values: int, word_bits: int, target: int,
) -> int:  # fmt: skip
    """Unpack one value of a chunk for each pair of ``chunk`` and ``index``.

    After the values, ``target`` has room for a byte per chunk: its width. Widths are read in a
    pass of their own, because the place of a value depends on its width.
    """
    word = word_bits >> 3
    widths = target + values * word
    for c in range(chunks):
        start, size = load_i64(starts + c * 8), load_i64(sizes + c * 8)
        store_u8(widths + c, np.uint64(inline_width(data, data_size, start, size, word_bits)))
    for i in range(values):
        if i % AHEAD == 0:
            prefetch_values(
                data=data, starts=starts, chunks=chunks, widths=widths, chunk=chunk + i * 8,
                index=index + i * 8, values=min(AHEAD, values - i), word_bits=word_bits,
            )  # fmt: skip
        c = load_i64(chunk + i * 8)
        at = load_i64(index + i * 8)
        if c < 0 or c >= chunks or at < 0 or at >= BLOCK:
            return i
        width = np.int64(load_u8(widths + c))
        if width > WORD:  # none: -1 as a byte
            return i
        value = np.uint64(0)
        if width > 0:
            block = data + load_i64(starts + c * 8) + word
            value = value_of_block(word_bits, block, width, at)
        store_word(word_bits, target + i * word, value)
    return -1


@kernel
def tail_is_packed(tail: int, word_bits: int, width: int) -> bool:
    """Return whether the last ``tail`` < 1,024 values of a block are packed or raw."""
    return tail > 0 and width * (BLOCK - tail) < (word_bits - width) * tail


@kernel
def block_values(
    data_size: int, starts: int, sizes: int, counts: int, blocks: int, word_bits: int, width: int,
    limit: int,
) -> int:  # fmt: skip
    """Return the values of all out-of-line blocks, at most ``limit``; -1 - i if block i is bad."""
    total = np.int64(0)
    for i in range(blocks):
        start = load_i64(starts + i * 8)
        size = load_i64(sizes + i * 8)
        count = load_i64(counts + i * 8)
        if start < 0 or size < 0 or size > data_size or start > data_size - size:
            return -1 - i
        if count < 0 or count > limit - total:
            return -1 - i
        tail = count & (BLOCK - 1)
        packed, raw = count >> 10, tail * (word_bits >> 3)
        if tail_is_packed(tail, word_bits, width):
            packed, raw = packed + 1, 0
        if size != packed * width * 128 + raw:
            return -1 - i
        total += count
    return total


@kernel
def unpack_out_of_line(
    data: int, starts: int, counts: int, blocks: int, word_bits: int, width: int, target: int,
    scratch: int,
) -> None:  # fmt: skip
    """Unpack blocks that the wrapper has checked."""
    word = word_bits >> 3
    at = target
    for i in range(blocks):
        source = data + load_i64(starts + i * 8)
        count = load_i64(counts + i * 8)
        if width == 0:
            fill_zero(at, count * word)
            at += count * word
            continue
        for _ in range(count >> 10):
            unpack_in_turn(word_bits, source, width, at)
            source += width * 128
            at += BLOCK * word
        tail = count & (BLOCK - 1)
        if tail_is_packed(tail, word_bits, width):
            unpack_block(word_bits, source, width, scratch)
            copy(at, scratch, tail * word)
        else:
            copy(at, source, tail * word)
        at += tail * word


@kernel
def pack_out_of_line(
    source: int, counts: int, blocks: int, word_bits: int, width: int, target: int, scratch: int,
) -> None:  # fmt: skip
    """Pack blocks of ``counts[i]`` values each."""
    word = word_bits >> 3
    here = source
    at = target
    for i in range(blocks):
        count = load_i64(counts + i * 8)
        tail = count & (BLOCK - 1)
        if width == 0:
            here += count * word
            continue
        for _ in range(count >> 10):
            pack_block(word_bits, here, width, at)
            here += BLOCK * word
            at += width * 128
        if tail_is_packed(tail, word_bits, width):
            copy(scratch, here, tail * word)
            fill_zero(scratch + tail * word, (BLOCK - tail) * word)
            pack_block(word_bits, scratch, width, at)
            at += width * 128
        else:
            copy(at, here, tail * word)
            at += tail * word
        here += tail * word


@kernel
def width_of(source: int, size: int, word_bits: int) -> int:
    """Return the bits that the largest word in ``size`` bytes needs."""
    a = np.uint64(0)
    b = np.uint64(0)
    c = np.uint64(0)
    d = np.uint64(0)
    at = 0
    while at + 32 <= size:
        prefetch(source + at + FETCHED)
        a |= load_u64(source + at)
        b |= load_u64(source + at + 8)
        c |= load_u64(source + at + 16)
        d |= load_u64(source + at + 24)
        at += 32
    a |= b | c | d
    if word_bits < 64:
        a |= a >> np.uint64(32)
    if word_bits < 32:
        a |= a >> np.uint64(16)
    if word_bits < 16:
        a |= a >> np.uint64(8)
    while at < size:
        a |= load_word(word_bits, source + at)
        at += word_bits >> 3
    if word_bits < 64:
        a &= low_bits(word_bits)
    return WORD - np.int64(leading_zeros(a))


@kernel
def chunk_widths(source: int, count: int, word_bits: int, target: int) -> None:
    """Store one byte per 1,024 values: the bits that their largest value needs."""
    word = word_bits >> 3
    chunk = 0
    done = 0
    while done < count:
        width = width_of(source + done * word, min(count - done, BLOCK) * word, word_bits)
        store_u8(target + chunk, np.uint64(width))
        chunk += 1
        done += BLOCK


@kernel
def pack_inline(
    source: int, count: int, word_bits: int, target: int, sizes: int, scratch: int
) -> int:
    """Pack each 1,024 values in the bits that they need; store the ``sizes`` of the chunks.

    Return the bytes stored.
    """
    word = word_bits >> 3
    at = target
    for done in range(0, count, BLOCK):
        here = source + done * word
        size = min(count - done, BLOCK) * word
        width = width_of(here, size, word_bits)
        store_word(word_bits, at, np.uint64(width))
        store_u64(sizes + (done >> 7), word + width * 128)
        at += word
        if width > 0:
            if size < BLOCK * word:
                copy(scratch, here, size)
                fill_zero(scratch + size, BLOCK * word - size)
                here = scratch
            pack_block(word_bits, here, width, at)
            at += width * 128
    return at - target
