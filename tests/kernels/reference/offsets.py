"""NumPy references of ``glaive.kernels.offsets``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CapacityError, RowIndexError
from glaive.kernels._addresses import check_apart, check_offset_chunks
from glaive.kernels.offsets import (
    _MAX_ADJUSTMENT,
    SIZE,
    NullableOffsets,
    _check_adjustment,
    _corrupt,
    _corrupt_ends,
    _corrupt_member,
)
from glaive.kernels.strings import SLACK, Strings, _gather_strings, as_offsets, check_offsets
from glaive.types import MAX_OFFSET, Int64s, UInt8s, UInt64s, Where, allocate, as_array, as_buffer


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
    """Read single values."""
    width = offset_bits // 8
    n = len(chunk)
    check_offset_chunks(data, starts, sizes, counts, width, where)
    if n and (chunk.min() < 0 or chunk.max() >= len(counts)):
        raise IndexError(f"chunk outside 0..{len(counts) - 1}")
    if (index < 0).any() or (index >= counts[chunk]).any():
        raise IndexError("value beyond the end of its chunk")
    sources, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    tables = [np.ascontiguousarray(a, np.int64) for a in (starts, sizes, counts, chunk, index)]
    bad = _locate_numpy(data, tables, width, sources, ends)
    if bad >= 0:
        rule = f"ascending and within {sizes[chunk[bad]]} bytes"
        raise _corrupt(
            int(chunk[bad]), f"offsets of value {index[bad]}", rule, "other offsets", where
        )
    if n and ends[-1] > data.size:
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


def decode_end_offsets(
    stored: UInt64s, skip: int, adjustment: int, bits: int, where: Where
) -> NullableOffsets:
    """Turn stored ends into offsets and validity."""
    _check_adjustment(adjustment, where)
    count = len(stored) - skip
    if count <= 0:
        return NullableOffsets(pa.py_buffer(bytes(bits // 8)), bits, None, 0, 0, 0)
    limit = np.uint64(adjustment)
    start = int(stored[0] % limit) if skip else 0
    stop = int(stored[-1] % limit)
    if not 0 <= stop - start <= (MAX_OFFSET if bits == 32 else _MAX_ADJUSTMENT):
        if stop < start:
            raise _corrupt_ends(adjustment, where)
        unit, instead = "items or bytes", "one of a large type"
        raise CapacityError.of(stop - start, unit, where=where, instead=instead)
    offsets = allocate((count + 1) * (bits // 8))
    validity = allocate((count + 7) // 8)
    null = stored[skip:] >= limit
    ends = (stored[skip:] - limit * null).astype(np.int64)
    wrong = (ends >= adjustment) | (ends < np.append(start, ends[:-1]))
    nulls = -1 if wrong.any() else int(null.sum())
    into = as_array(offsets, np.int32 if bits == 32 else np.int64)
    into[0], into[1:] = 0, ends - start
    as_array(validity)[:] = np.packbits(~null, bitorder="little")
    if nulls < 0:
        raise _corrupt_ends(adjustment, where)
    return NullableOffsets(offsets, bits, validity if nulls else None, nulls, start, stop)


def contains(strings: Strings, count: int, pattern: bytes) -> pa.Buffer:
    """Which of ``count`` strings contain the bytes of ``pattern``, one bit each."""
    check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
    ends = as_offsets(strings.offsets, strings.offset_bits)[: count + 1]
    bits = np.zeros((count + 7) // 8, np.uint8)
    if not pattern:
        return as_buffer(~bits)
    if not count:
        return as_buffer(bits)
    first, last = int(ends[0]), int(ends[-1])
    text = as_array(strings.data)[first:last].tobytes()
    flags = np.zeros(count, np.bool_)
    at = text.find(pattern)
    while at >= 0:
        row = int(np.searchsorted(ends, first + at, side="right")) - 1
        inside = first + at + len(pattern) <= ends[row + 1]
        flags[row] |= inside
        at = text.find(pattern, int(ends[row + 1]) - first if inside else at + 1)
    return as_buffer(np.packbits(flags, bitorder="little"))


def find_members(raw: UInt8s, begin: Int64s, end: Int64s, key: bytes) -> tuple[Int64s, Int64s]:
    """Entries of the members called ``key``, and where their values begin."""
    begin, end = np.ascontiguousarray(begin, np.int64), np.ascontiguousarray(end, np.int64)
    wrong = (begin < 0) | (end > len(raw)) | (end < begin)
    # The difference of positions within the memory is exact.
    if np.any(wrong | (end - begin < 4)):
        raise _corrupt_member("objects of 4 bytes or more within the values", "another range")
    words, positions = np.zeros(len(begin), np.int64), np.full(len(begin), -1)
    _find_numpy(raw, begin, end, key, words, positions)
    return words, positions


def _find_numpy(
    raw: UInt8s, begin: Int64s, end: Int64s, key: bytes, words: Int64s, positions: Int64s
) -> None:
    if not len(begin):
        return
    # A view with a word at every byte position: words need no alignment.
    word_at = np.ndarray(len(raw) - 3, ">u4", raw, strides=(1,))
    counts = word_at[begin].astype(np.int64) & SIZE
    if np.any(begin + 4 + 8 * counts > end):
        raise _corrupt_member("an entry for each key and value", "a shorter object")
    owner = np.repeat(np.arange(len(begin)), 2 * counts)
    last = np.cumsum(2 * counts)
    first = last - 2 * counts
    number = np.arange(len(owner)) - first[owner]
    entries = word_at[begin[owner] + 4 + 4 * number].astype(np.int64)
    sizes = entries & SIZE
    before = np.concatenate([[0], np.cumsum(sizes)])
    base = begin + 4 + 8 * counts
    if np.any(base + before[last] - before[first] > end):
        raise _corrupt_member("keys and values inside an object", "a shorter object")
    at = before[:-1] - before[first][owner] + base[owner]
    keys = np.flatnonzero((number < counts[owner]) & (sizes == len(key)))
    if len(keys) < len(key):  # also none, of a name of megabytes
        same = [raw[start : start + len(key)].tobytes() == key for start in at[keys].tolist()]
        keys = keys[np.array(same, np.bool_)]
    else:
        for i, byte in enumerate(key):
            keys = keys[raw[at[keys] + i] == byte]
    values = (keys + counts[owner[keys]])[::-1]  # of equal keys, the first counts
    words[owner[values]], positions[owner[values]] = entries[values], at[values]


def expand_dictionary(indices: pa.Buffer, bits: int, count: int, items: Strings) -> Strings:
    """Replace indices by the strings they refer to."""
    ends = as_offsets(items.offsets, items.offset_bits)
    number = len(ends) - 1
    check_offsets(items.offsets, items.offset_bits, items.data, number)
    rows = as_array(indices, np.dtype(f"<u{bits // 8}"))[:count]
    if len(rows) < count:
        raise RowIndexError(f"{count} indices of {bits} bits need more than {indices.size} bytes")
    if count and int(rows.max()) >= number:
        raise RowIndexError(f"index {rows.max()} of a dictionary of {number} items")
    stops = np.append(0, np.cumsum(np.diff(ends).astype(np.int64)[rows]))
    return _gather_strings(items.data, ends[rows], stops[1:], items.offset_bits)
