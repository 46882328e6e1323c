"""NumPy references of ``glaive.kernels.flat``."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import check_within, outside
from glaive.kernels.flat import _width
from glaive.types import Int64s, UInt8s, allocate, as_array, as_buffer


def join_bits(data: pa.Buffer, starts: Int64s, counts: Int64s, where: object) -> pa.Buffer:
    """Join the bits of chunks."""
    starts = np.ascontiguousarray(starts, np.int64)
    counts = np.ascontiguousarray(counts, np.int64)
    good = (starts >= 0) & (starts <= data.size) & (counts >= 0)
    # The difference is exact for starts within the data.
    good &= counts <= (data.size - starts) * 8
    if not good.all():
        i = int(np.argmin(good))
        raise CorruptFileError(
            "bits of a chunk",
            expected=f"{counts[i]} bits within {data.size} bytes",
            found=f"byte {starts[i]} as their start",
            where=where,
        )
    total = int(counts.sum())
    chunk = np.repeat(np.arange(len(counts)), counts)
    bit = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    bits = as_array(data)[starts[chunk] + bit // 8] >> (bit % 8).astype(np.uint8) & np.uint8(1)
    return as_buffer(np.packbits(bits, bitorder="little"))


def take_flat(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    chunk: Int64s,
    index: Int64s,
    bits: int,
    where: object,
) -> pa.Buffer:
    """Copy single values; only their chunks are checked."""
    starts = np.ascontiguousarray(starts, np.int64)
    sizes = np.ascontiguousarray(sizes, np.int64)
    chunk = np.ascontiguousarray(chunk, np.int64)
    index = np.ascontiguousarray(index, np.int64)
    if (
        len(starts) != len(sizes)
        or len(chunk) != len(index)
        or bits < 1
        or (bits != 1 and bits % 8)
    ):
        raise ValueError(f"{len(chunk)} chunks, {len(index)} positions, values of {bits} bits")
    wanted = len(chunk)
    longest = 8 * int(sizes.max(initial=0))
    if wanted and bits > longest:
        # Nothing is allocated for values that no chunk can hold.
        raise CorruptFileError(
            "plain values of a chunk",
            expected=f"values of at most {longest} bits, the longest chunk",
            found=f"{bits} bits",
            where=where,
        )
    target = allocate((wanted * bits + 7) // 8)
    bad = _take_numpy(data, starts, sizes, chunk, index, bits, target)
    if bad >= 0:
        raise CorruptFileError(
            "plain values of a chunk",
            expected=f"value {index[bad]} of {bits} bits in chunk {chunk[bad]} of {len(starts)}",
            found="a chunk that ends before it",
            where=where,
        )
    return target


def split_bytes(values: pa.Buffer, counts: Int64s, word_bits: int) -> UInt8s:
    """Split the values of each chunk into streams, lowest byte first; sizes do not change."""
    counts = np.ascontiguousarray(counts, np.int64)
    width = _width(word_bits)
    total = int(counts.sum())
    if (len(counts) and int(counts.min()) < 0) or total > values.size // width:
        raise ValueError(f"chunks of {total} values out of {values.size // width}")
    out = as_array(allocate(total * width))
    at = _positions(np.cumsum(counts) - counts, counts, width)
    out[at.reshape(-1)] = as_array(values)[: total * width]
    return out


def join_bytes(
    data: pa.Buffer, starts: Int64s, counts: Int64s, word_bits: int, where: object
) -> pa.Buffer:
    """Join the streams of each chunk to values."""
    starts, counts = _checked(data, starts, counts, word_bits, where)
    width = word_bits // 8
    total = int(counts.sum())
    target = allocate(total * width)
    first = np.cumsum(counts) - counts
    at = _positions(first, counts, width) + np.repeat(starts - first * width, counts)[:, None]
    as_array(target)[:] = as_array(data)[at.reshape(-1)]
    return target


def _positions(first: Int64s, counts: Int64s, width: int) -> Int64s:
    """Positions of the bytes of each value, shape ``(values, width)``, in adjacent chunks."""
    within = np.arange(int(counts.sum())) - np.repeat(first, counts)
    start = np.repeat(first * width, counts) + within
    positions: Int64s = start[:, None] + np.repeat(counts, counts)[:, None] * np.arange(width)
    return positions


_FULL: Final = 15


_SHORTEST: Final = 4


def lz4_sizes(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, limits: Int64s, where: object
) -> Int64s:
    """What ``data[starts[i] : starts[i] + sizes[i]]`` decompresses to, for every i, in bytes."""
    check_within("blocks of LZ4", starts, sizes, data.size, where)
    starts, sizes, limits = (
        np.ascontiguousarray(numbers, np.int64) for numbers in (starts, sizes, limits)
    )
    found = np.full(min(map(len, (starts, sizes, limits))), -1, np.int64)
    content = as_array(data)
    for at, (start, size, limit) in enumerate(
        zip(starts.tolist(), sizes.tolist(), limits.tolist(), strict=False)
    ):
        found[at] = _size_of(content[start : start + size], limit)
    return found


def _size_of(block: UInt8s, limit: int) -> int:
    """The size of one block: a step for each sequence."""
    data, at, made = block.tobytes(), 0, 0
    try:
        while True:
            token, at = data[at], at + 1
            count, at = _length(token >> 4, data, at)
            at, made = at + count, made + count
            if at > len(data) or made > limit:
                return -1
            if at == len(data):
                return made
            back, at = data[at] | data[at + 1] << 8, at + 2
            if not 0 < back <= made:
                return -1
            count, at = _length(token & _FULL, data, at)
            made += count + _SHORTEST
            if made > limit:
                return -1
    except IndexError:
        return -1


def _length(count: int, data: bytes, at: int) -> tuple[int, int]:
    """A length, of which a token has the first 4 bits, and the place behind it."""
    if count == _FULL:
        while (byte := data[at]) == 255:
            count, at = count + byte, at + 1
        count, at = count + byte, at + 1
    return count, at


def _take_numpy(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    chunk: Int64s,
    index: Int64s,
    bits: int,
    target: pa.Buffer,
) -> int:
    known = (chunk >= 0) & (chunk < len(starts)) & (index >= 0)
    if not known.all():
        return int(np.argmin(known))
    starts, sizes = starts[chunk], sizes[chunk]
    inside = ~outside(starts, sizes, data.size) & (index < sizes * 8 // bits)
    if not inside.all():
        return int(np.argmin(inside))
    source = as_array(data)
    if bits == 1:
        flags = source[starts + index // 8] >> (index % 8).astype(np.uint8) & np.uint8(1)
        as_array(target)[:] = np.packbits(flags, bitorder="little")
    else:
        at = (starts + index * (bits // 8))[:, None] + np.arange(bits // 8)
        as_array(target)[:] = source[at].reshape(-1)
    return -1


def _checked(
    data: pa.Buffer, starts: Int64s, counts: Int64s, word_bits: int, where: object
) -> tuple[Int64s, Int64s]:
    width = _width(word_bits)
    starts = np.ascontiguousarray(starts, np.int64)
    counts = np.ascontiguousarray(counts, np.int64)
    if len(starts) != len(counts):
        raise ValueError(f"{len(starts)} starts and {len(counts)} counts of chunks")
    good = (starts >= 0) & (counts >= 0) & (counts <= (data.size - starts) // width)
    if not good.all():
        i = int(np.argmin(good))
        raise CorruptFileError(
            "byte streams of a chunk",
            expected=f"{width} streams of {counts[i]} bytes within {data.size}",
            found=f"byte {starts[i]} as their start",
            where=where,
        )
    return starts, counts
