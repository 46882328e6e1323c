"""Bitmaps: join, gather, make from flags; Arrow arrays over numbers.

Bits count from the least significant of each byte on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.memory import as_buffer, items_of

__all__ = [
    "align_bits",
    "all_set",
    "flags_of",
    "inverse_permutation",
    "join_bits",
    "number_array",
    "pack_flags",
    "take_bits",
]


def number_array(numbers: NDArray[Any]) -> pa.Array:
    """An Arrow array over the memory of int64 or uint64 numbers.

    ``pyarrow.array`` would do the same, but loads pandas first, to see whether it was given
    something of it: 0.15 s in a fresh process.
    """
    kind = pa.uint64() if numbers.dtype == np.uint64 else pa.int64()
    numbers = np.ascontiguousarray(numbers, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(numbers), [None, as_buffer(numbers)])


def inverse_permutation(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each number stands: what was put into ``order`` is put back by taking these."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def flags_of(bitmap: pa.Buffer, count: int, start: int = 0) -> NDArray[np.bool_]:
    """One boolean per bit, from bit ``start`` on; a copy of eight times the size."""
    first, skip = divmod(start, 8)
    size = (start + count + 7) // 8 - first
    data = items_of(bitmap, np.uint8, size, first)
    return np.unpackbits(data, count=skip + count, bitorder="little")[skip:].view(np.bool_)


def pack_flags(flags: NDArray[np.bool_]) -> pa.Buffer:
    """Make a bitmap; bits behind the last flag are 0."""
    return as_buffer(np.packbits(flags, bitorder="little"))


def all_set(count: int) -> pa.Buffer:
    """Make a bitmap of ``count`` set bits."""
    return as_buffer(np.full((count + 7) // 8, 0xFF, np.uint8))


def join_bits(bitmaps: Sequence[pa.Buffer], counts: Sequence[int]) -> pa.Buffer:
    """Join the first ``counts[i]`` bits of every bitmap.

    Bytes are copied while the bits so far end on a byte; bits from there on.
    """
    if any(count % 8 for count in counts[:-1]):
        pieces = [flags_of(*part) for part in zip(bitmaps, counts, strict=True)]
        return pack_flags(np.concatenate(pieces))
    parts = [
        items_of(bitmap, np.uint8, (count + 7) // 8)
        for bitmap, count in zip(bitmaps, counts, strict=True)
    ]
    return as_buffer(np.concatenate(parts) if parts else np.empty(0, np.uint8))


def align_bits(bitmap: pa.Buffer, begin: int, count: int) -> pa.Buffer:
    """``count`` bits from bit ``begin`` on as a bitmap of their own; 0 behind the last."""
    first, skip = divmod(begin, 8)
    size = (count + 7) // 8
    data = items_of(bitmap, np.uint8, min(bitmap.size - first, size + 1), first)
    if skip:
        moved = data >> np.uint8(skip)
        moved[: len(data) - 1] |= data[1:] << np.uint8(8 - skip)
        data = moved[:size]
    elif count % 8:
        data = data[:size].copy()
    else:
        return bitmap.slice(first, size)
    if count % 8:
        data[-1] &= np.uint8((1 << count % 8) - 1)
    return as_buffer(data)


def take_bits(bitmap: pa.Buffer, positions: NDArray[np.int64]) -> pa.Buffer:
    """Gather bits; the caller has checked the positions."""
    bits = items_of(bitmap, np.uint8, bitmap.size)[positions >> 3] >> (positions & 7).astype(
        np.uint8
    )
    return as_buffer(np.packbits(bits & np.uint8(1), bitorder="little"))
