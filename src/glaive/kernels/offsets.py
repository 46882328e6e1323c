"""Byte strings with offsets: join chunks and blocks, take single values.

Strings have Arrow's layout: ``n + 1`` ascending offsets of 32 or 64 bits, and the bytes they
point into. On disk, the offsets of a chunk count from the start of the chunk and come before its
bytes; those of a block count from the start of the bytes.

Every input is checked: offsets that descend or leave their chunk raise ``CorruptFileError``.
Results have 64-bit offsets if the input has, or if they are too large for 32.

Specification: "Variable" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._bounds import check_apart, check_offset_chunks
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import offsets as compiled
from glaive.kernels.string_records import UnpackOffsets
from glaive.kernels.strings import SLACK, Strings, _gather_strings, as_offsets
from glaive.memory import allocate, as_array
from glaive.types import MAX_OFFSET, Int64s, Where

__all__ = ["exercise", "read_one", "take_variable", "unpack_blocks", "unpack_variable"]

_FEW_VALUES: Final = 8
"""Values up to which they are taken in plain Python."""

_PAIRS = {32: struct.Struct("<II"), 64: struct.Struct("<QQ")}
"""Two neighbouring offsets, by their width in bits."""


def unpack_variable(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, offset_bits: int, where: Where
) -> Strings:
    """Join the values of all chunks; a single chunk is not copied.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes, counts
        ``int64`` of shape ``(chunks,)``: first byte, bytes and values of each chunk, which has
        ``counts[i] + 1`` offsets from its start, then the bytes of the values.
    offset_bits
        Width of the stored offsets: 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, is shorter than its offsets, or they descend or leave it.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where)
    if len(starts) == 1:
        start, size, count = int(starts[0]), int(sizes[0]), int(counts[0])
        chunk = data.slice(start, size)
        offsets = data.slice(start, (count + 1) * width)
        if address(offsets) % width == 0 and size <= MAX_OFFSET:
            _check_plain(offsets, offset_bits, (count + 1) * width, size, where)
            return Strings(offsets, offset_bits, chunk)
    capacity = int((sizes - heads).sum())
    return _unpack(data, starts, starts, heads, sizes, counts, offset_bits, capacity, where)


def unpack_blocks(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, offset_bits: int, where: Where
) -> Strings:
    """Join the values of all blocks; a single block is not copied.

    Parameters
    ----------
    data
        Memory of all blocks.
    starts, sizes, counts
        ``int64`` of shape ``(blocks,)``: first byte, bytes and values of each block: the width
        of its offsets in bits, the position of the bytes, the offsets, the bytes.
    offset_bits
        Width of the stored offsets: 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A block leaves ``data``, contradicts ``offset_bits``, or its offsets descend or leave it.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where, numbers=3)
    positions = np.empty(len(starts), np.int64)
    for i, (start, head) in enumerate(zip(starts.tolist(), heads.tolist(), strict=True)):
        bits, position = struct.unpack_from("<II" if width == 4 else "<QQ", data, start)
        if bits != offset_bits == bits & 255:
            later = _without_counts(data, starts, sizes, width)
            starts = np.concatenate(([0], np.cumsum(sizes - 1)[:-1]))
            return unpack_blocks(later, starts, sizes - 1, counts, offset_bits, where)
        if bits != offset_bits:
            raise _corrupt(i, "offset width", f"{offset_bits} bits", f"{bits} bits", where)
        if not head <= position <= sizes[i]:
            rule = f"between {head} and {sizes[i]} bytes"
            raise _corrupt(i, "position of the bytes", rule, str(position), where)
        positions[i] = position
    limits = sizes - positions
    if len(starts) == 1:
        start, count = int(starts[0]), int(counts[0])
        offsets = data.slice(start + 2 * width, (count + 1) * width)
        if address(offsets) % width == 0 and int(limits[0]) <= MAX_OFFSET:
            _check_plain(offsets, offset_bits, 0, int(limits[0]), where)
            values = data.slice(start + int(positions[0]), int(limits[0]))
            return Strings(offsets, offset_bits, values)
    return _unpack(
        data, starts + 2 * width, starts + positions, np.zeros_like(starts), limits, counts,
        offset_bits, int(limits.sum()), where,
    )  # fmt: skip


def _without_counts(data: pa.Buffer, starts: Int64s, sizes: Int64s, width: int) -> pa.Buffer:
    """Blocks as Lance wrote them before 2.1 was stable, as they are today.

    The width of the offsets was a byte, before the number of values and the position of the bytes.
    """
    parts = []
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        (position,) = struct.unpack_from("<I" if width == 4 else "<Q", data, start + 1 + width)
        head = struct.pack("<II" if width == 4 else "<QQ", 8 * width, max(0, position - 1))
        parts.append(head + data.slice(start + 1 + 2 * width, size - 1 - 2 * width).to_pybytes())
    return pa.py_buffer(b"".join(parts))


def _unpack(
    data: pa.Buffer,
    offset_starts: Int64s,
    bases: Int64s,
    floors: Int64s,
    limits: Int64s,
    counts: Int64s,
    offset_bits: int,
    capacity: int,
    where: Where,
) -> Strings:
    total = int(counts.sum())
    out_bits = 64 if capacity > MAX_OFFSET else offset_bits
    offsets = allocate((total + 1) * (out_bits // 8))
    out = allocate(capacity + SLACK)
    columns = [
        np.ascontiguousarray(column, np.int64)
        for column in (offset_starts, bases, floors, limits, counts)
    ]
    if use_compiled(total):
        offset_starts, bases, floors, limits, counts = columns
        call = UnpackOffsets(
            data=address(data), offset_starts=address(offset_starts), bases=address(bases),
            floors=address(floors), limits=address(limits), counts=address(counts),
            chunks=len(counts), width=offset_bits // 8, out_width=out_bits // 8,
            out_offsets=address(offsets), out=address(out), capacity=capacity,
        )  # fmt: skip
        bad = compiled.unpack(*call)
    else:
        bad = _unpack_numpy(data, columns, offset_bits, as_offsets(offsets, out_bits), out)
    if bad >= 0:
        rule = f"ascending, from {columns[2][bad]} to at most {columns[3][bad]}"
        raise _corrupt(int(bad), "offsets", rule, "other offsets", where)
    ends = as_offsets(offsets, out_bits)
    return Strings(offsets, out_bits, out.slice(0, int(ends[-1])))


def _unpack_numpy(
    data: pa.Buffer, columns: list[Int64s], offset_bits: int, ends: NDArray[Any], out: pa.Buffer
) -> int:
    memory, target = as_array(data), as_array(out)
    item = np.dtype("<u4" if offset_bits == 32 else "<i8")
    at = done = 0
    ends[0] = 0
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (start, base, floor, limit, count) in enumerate(rows):
        offsets = np.frombuffer(memory, item, count + 1, start)
        first, last = int(offsets[0]), int(offsets[-1])
        if first < floor or not first <= last <= limit or (offsets[1:] < offsets[:-1]).any():
            return i
        if last - first > len(target) - at:
            return i
        ends[done + 1 : done + 1 + count] = offsets[1:].astype(np.int64) + (at - first)
        target[at : at + last - first] = memory[base + first : base + last]
        at += last - first
        done += count
    return -1


def read_one(
    data: pa.Buffer, start: int, size: int, count: int, index: int, bits: int, where: Where
) -> bytes:
    """Read one value of one chunk, in plain Python.

    Parameters
    ----------
    data, start, size, count
        The chunk ``data[start : start + size]`` of ``count`` values; see ``unpack_variable``.
    index, bits
        Number of the value, and width of the offsets in bits.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        The value does not lie behind the offsets and within the chunk.
    """
    width = bits // 8
    head = (count + 1) * width
    if 0 <= index < count and head <= size and start >= 0 and start + size <= data.size:
        pair = _PAIRS[bits]
        first, last = pair.unpack_from(data, start + index * width)
        if head <= first <= last <= size:
            return bytes(data.slice(start + first, last - first).to_pybytes())
        raise _corrupt(0, "offsets", f"ascending within {head}..{size}", f"{first}..{last}", where)
    raise _corrupt(0, "offsets", f"{count + 1} of {bits} bits", f"{size} bytes", where)


def take_variable(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    chunk: Int64s,
    index: Int64s,
    offset_bits: int,
    where: Where,
) -> Strings:
    """Read single values.

    Parameters
    ----------
    data, starts, sizes, counts, offset_bits, where
        As for :func:`unpack_variable`.
    chunk, index
        ``int64`` of shape ``(values,)``: value ``index[i]`` of chunk ``chunk[i]``, in any order.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, the offsets of a wanted value descend or leave the chunk, or
        wanted values overlap and have more bytes than ``data``.
    IndexError
        There is no such chunk or value.
    """
    width = offset_bits // 8
    n = len(chunk)
    if n <= _FEW_VALUES:
        return _take_tiny(data, starts, sizes, counts, chunk, index, offset_bits, where)
    check_offset_chunks(data, starts, sizes, counts, width, where)
    if chunk.min() < 0 or chunk.max() >= len(counts):
        raise IndexError(f"chunk outside 0..{len(counts) - 1}")
    if index.min() < 0 or (index >= counts[chunk]).any():
        raise IndexError("value beyond the end of its chunk")
    sources, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    tables = [np.ascontiguousarray(a, np.int64) for a in (starts, sizes, counts, chunk, index)]
    if use_compiled(n):
        args = [*map(address, tables), n, width, address(sources), address(ends)]
        bad = compiled.locate(address(data), *args)
    else:
        bad = _locate_numpy(data, tables, width, sources, ends)
    if bad >= 0:
        rule = f"ascending and within {sizes[chunk[bad]]} bytes"
        raise _corrupt(
            int(chunk[bad]), f"offsets of value {index[bad]}", rule, "other offsets", where
        )
    if ends[-1] > data.size:
        rows = (np.cumsum(counts) - counts)[chunk] + index
        check_apart("values", rows, np.diff(ends, prepend=0), data.size, where)
    return _gather_strings(data, sources, ends, offset_bits)


def _locate_numpy(
    data: pa.Buffer, tables: list[Int64s], width: int, sources: Int64s, ends: Int64s
) -> int:
    starts, sizes, counts, chunk, index = tables
    item = np.dtype("<u4" if width == 4 else "<i8")
    # A view with a number at every byte position, without a copy.
    anywhere: NDArray[Any] = np.ndarray(
        (data.size - width + 1,), item, memoryview(data), strides=(1,)
    )
    at = starts[chunk] + index * width
    low, high = anywhere[at].astype(np.int64), anywhere[at + width].astype(np.int64)
    wrong = (low < (counts[chunk] + 1) * width) | (high < low) | (high > sizes[chunk])
    if wrong.any():
        return int(wrong.argmax())
    np.add(starts[chunk], low, out=sources)
    np.cumsum(high - low, out=ends)
    return -1


def _take_tiny(
    data: pa.Buffer,
    starts: Int64s,
    sizes: Int64s,
    counts: Int64s,
    chunk: Int64s,
    index: Int64s,
    offset_bits: int,
    where: Where,
) -> Strings:
    """Take a few values in plain Python: cheaper than the calls around a kernel."""
    width = offset_bits // 8
    pair = "<II" if width == 4 else "<qq"
    memory = memoryview(data)
    values, ends, total = [], [0], 0
    for c, k in zip(chunk.tolist(), index.tolist(), strict=True):
        start, size, count = int(starts[c]), int(sizes[c]), int(counts[c])
        if not 0 <= k < count or c < 0:
            raise IndexError(f"value {k} of a chunk of {count} values")
        head = (count + 1) * width
        if start < 0 or size < head or start + size > data.size:
            raise _corrupt(c, "chunk", f"{head} bytes or more within the page", f"{size}", where)
        low, high = struct.unpack_from(pair, memory, start + k * width)
        if not head <= low <= high <= size:
            rule = f"ascending, from {head} to at most {size}"
            raise _corrupt(c, f"offsets of value {k}", rule, f"{low} and {high}", where)
        total += high - low
        values.append(memory[start + low : start + high])
        ends.append(total)
    out_bits = 64 if total > MAX_OFFSET else offset_bits
    offsets = struct.pack(f"<{len(ends)}{'i' if out_bits == 32 else 'q'}", *ends)
    return Strings(pa.py_buffer(offsets), out_bits, pa.py_buffer(b"".join(values)))


def _check_plain(offsets: pa.Buffer, bits: int, floor: int, limit: int, where: Where) -> None:
    ends = as_offsets(offsets, bits)
    if int(ends[0]) < floor or int(ends[-1]) > limit or (ends[1:] < ends[:-1]).any():
        raise _corrupt(
            0, "offsets", f"ascending, from {floor} to at most {limit}", "other offsets", where
        )


def _corrupt(chunk: int, part: str, expected: str, found: str, where: Where) -> CorruptFileError:
    return CorruptFileError(f"{part} of chunk {chunk}", expected=expected, found=found, where=where)


def exercise() -> None:
    """Call every wrapper once with little data."""
    where = Where("warm-up")
    chunk = pa.py_buffer(np.array([12, 13, 15], np.uint32).tobytes() + b"abcH")
    two = pa.py_buffer(chunk.to_pybytes() * 2)
    starts, sizes = np.array([0, 16], np.int64), np.array([16, 16], np.int64)
    counts = np.array([2, 2], np.int64)
    unpack_variable(two, starts, sizes, counts, 32, where)
    many = np.zeros(_FEW_VALUES + 1, np.int64)
    take_variable(two, starts, sizes, counts, many, many, 32, where)
