"""Plain values in chunks: take single values, join the bits of several chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address, allocate_bits, check_within
from glaive.kernels.native import flat as flat_loops
from glaive.types import Int64s, UInt8s, allocate, as_array


def join_bits(data: pa.Buffer, starts: Int64s, counts: Int64s, where: object) -> pa.Buffer:
    """Join the bits of all chunks.

    Bits are numbered from the least significant; bits after the last are 0.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, counts
        ``int64`` of shape ``(chunks,)``: first byte and number of bits of each chunk.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk lies outside ``data``.
    """
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
    target = allocate_bits(total)
    flat_loops.join_bits(
        address(data), data.size, address(starts), address(counts), len(starts), address(target)
    )
    return target


def take_flat(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    chunk: Int64s,
    index: Int64s,
    bits: int,
    where: object,
) -> pa.Buffer:
    """Copy single values; only their chunks are checked.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes
        ``int64`` of shape ``(chunks,)``: first byte and bytes of each chunk.
    chunk, index
        ``int64`` of shape ``(values,)``: value ``index[i]`` of chunk ``chunk[i]``, in any order.
    bits
        Width of a value: 1, with a packed result, or a multiple of 8.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A value lies outside its chunk.
    """
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
        # Check before the allocation: all chunks are shorter.
        raise CorruptFileError(
            "plain values of a chunk",
            expected=f"values of at most {longest} bits, the longest chunk",
            found=f"{bits} bits",
            where=where,
        )
    target = allocate((wanted * bits + 7) // 8)
    bad = flat_loops.take_items(
        address(data), data.size, address(starts), address(sizes), len(starts), address(chunk),
        address(index), wanted, bits, address(target),
    )  # fmt: skip
    if bad >= 0:
        raise CorruptFileError(
            "plain values of a chunk",
            expected=f"value {index[bad]} of {bits} bits in chunk {chunk[bad]} of {len(starts)}",
            found="a chunk that ends before it",
            where=where,
        )
    return target


# --- Byte streams: the first bytes of all values of a chunk, then their second bytes, … -
#
# Specification: "Byte stream split" in ``docs/format/encodings.md``.

WORD_BITS = (32, 64)
"""Widths of values that can be split."""


def split_bytes(values: pa.Buffer, counts: Int64s, word_bits: int) -> UInt8s:
    """Split the values of each chunk into streams, lowest byte first; sizes stay the same.

    Parameters
    ----------
    values
        Values of ``word_bits`` bits.
    counts
        ``int64`` of shape ``(chunks,)``: values of each chunk.
    word_bits
        Width of a value: 32 or 64.
    """
    counts = np.ascontiguousarray(counts, np.int64)
    width = _width(word_bits)
    total = int(counts.sum())
    capacity = values.size // width
    if not 0 <= counts.min(initial=0) <= counts.max(initial=0) <= capacity or total > capacity:
        raise ValueError(f"chunks of {total} values out of {capacity}")
    out = as_array(allocate(total * width))
    flat_loops.split(address(values), address(counts), len(counts), width, address(out))
    return out


def join_bytes(
    data: pa.Buffer, starts: Int64s, counts: Int64s, word_bits: int, where: object
) -> pa.Buffer:
    """Join the streams of each chunk to values.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, counts
        ``int64`` of shape ``(chunks,)``: first byte and values of each chunk.
    word_bits
        Width of a value: 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk lies outside ``data``.
    """
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
    total = int(counts.sum())
    target = allocate(total * width)
    flat_loops.join(
        address(data), address(starts), address(counts), len(counts), width, address(target)
    )
    return target


def _width(word_bits: int) -> int:
    if word_bits not in WORD_BITS:
        raise ValueError(f"values of {word_bits} bits; expected one of {WORD_BITS}")
    return word_bits // 8


# --- Copy many ranges of bytes to aligned positions, with padding between them ----------
#
# Specification: "Where values lie" in ``docs/format/blobs.md``.


def space_ranges(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, alignment: int, padding: int, where: object
) -> pa.Buffer:
    """Copy ranges in order, each to a multiple of ``alignment``; the last ends the result.

    Parameters
    ----------
    data
        Memory of all ranges.
    starts, sizes
        ``int64`` of shape ``(ranges,)``: first byte and bytes of each range.
    alignment
        Bytes, at least 1.
    padding
        The byte between ranges.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A range leaves ``data``.
    """
    if alignment < 1 or len(starts) != len(sizes):
        raise ValueError(f"{len(starts)} starts, {len(sizes)} sizes, alignment {alignment}")
    check_within("values", starts, sizes, data.size, where)
    if not len(sizes):
        return pa.py_buffer(b"")
    spaces = -(-sizes // alignment) * alignment
    total = int(spaces.sum()) - int(spaces[-1] - sizes[-1])
    out = allocate(total)
    target = as_array(out)
    target[:] = padding
    source, places = as_array(data), spaces.cumsum() - spaces
    ranges = zip(places.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    for at, start, size in ranges:
        target[at : at + size] = source[start : start + size]
    return out


# --- Measure blocks of LZ4: Arrow keeps to itself how many bytes it decompressed --------
#
# It decompresses some blocks to more bytes than they have. The bytes after the end come from the
# earlier contents of the memory.


def lz4_sizes(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, limits: Int64s, where: object
) -> Int64s:
    """Return the decompressed size of ``data[starts[i] : starts[i] + sizes[i]]``, for every i.

    The size is -1 for other data than a block, and for blocks of more than ``limits[i]`` bytes.

    Raises
    ------
    CorruptFileError
        A range leaves ``data``.
    """
    check_within("blocks of LZ4", starts, sizes, data.size, where)
    starts, sizes, limits = (
        np.ascontiguousarray(numbers, np.int64) for numbers in (starts, sizes, limits)
    )
    found = np.full(min(map(len, (starts, sizes, limits))), -1, np.int64)
    flat_loops.measure(
        address(data), address(starts), address(sizes), address(limits), len(found),
        address(found),
    )  # fmt: skip
    return found
