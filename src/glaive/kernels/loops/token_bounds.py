"""Kernels that find tokens in texts. Wrappers: ``glaive.kernels.token_bounds``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, kernel_of, load_u8, load_u64, store_u32, store_u64
from glaive.kernels.loops.offsets import arrow_offset
from glaive.kernels.string_records import FindTokens

__all__ = ["find_tokens"]

CHARACTERS = 0x110000


@kernel
def _size_of(lead: int) -> int:
    """Bytes of the character that begins with ``lead``; 1 for bytes that begin none."""
    if lead < 0xC0:
        return 1
    if lead < 0xE0:
        return 2
    if lead < 0xF0:
        return 3
    return 4 if lead < 0xF8 else 1


@kernel
def _is_wide_part(at: int, size: int, parts: int) -> bool:
    """Whether the character of ``size`` bytes from ``at`` is part of a token."""
    lead = np.int64(load_u8(at))
    if size == 1:
        return False
    number = lead & (0x7F >> size)
    for i in range(1, size):
        number = (number << 6) | (np.int64(load_u8(at + i)) & 0x3F)
    if number >= CHARACTERS:
        return False
    return (np.int64(load_u8(parts + (number >> 3))) >> (number & 7)) & 1 == 1


@kernel_of(FindTokens)
def find_tokens(
    offsets: int, width: int, data: int, documents: int, parts: int, starts: int, sizes: int,
    counts: int,
) -> int:  # fmt: skip
    """Find the longest runs of characters that are parts of tokens; how many there are.

    Characters that leave their text, and bytes that are none, end a token. There is room for
    half of the bytes and of the documents, rounded up.
    """
    low, high = load_u64(parts), load_u64(parts + 8)
    found = np.int64(0)
    at = arrow_offset(offsets, width, 0)
    for document in range(documents):
        stop = arrow_offset(offsets, width, document + 1)
        before = found
        start = np.int64(-1)
        while at < stop:
            lead = np.int64(load_u8(data + at))
            size = np.int64(1)
            if lead < 128:
                word = low if lead < 64 else high
                part = (word >> np.uint64(lead & 63)) & np.uint64(1) != np.uint64(0)
            else:
                size = _size_of(lead)
                if size > stop - at:
                    size = np.int64(1)
                part = _is_wide_part(data + at, size, parts)
            if part:
                if start < 0:
                    start = at
            elif start >= 0:
                store_u64(starts + 8 * found, start)
                store_u32(sizes + 4 * found, at - start)
                found += 1
                start = np.int64(-1)
            at += size
        if start >= 0:
            store_u64(starts + 8 * found, start)
            store_u32(sizes + 4 * found, stop - start)
            found += 1
        store_u64(counts + 8 * document, found - before)
    return found
