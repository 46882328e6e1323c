"""Byte strings with offsets: join chunks and blocks, take single values.

Strings have Arrow's layout: ``n + 1`` ascending offsets of 32 or 64 bits, and the bytes they
point into. On disk, the offsets of a chunk come before its bytes and count from the start of the
chunk. The offsets of a block count from the start of the bytes.

Every input is checked: offsets that descend or leave their chunk raise ``CorruptFileError``.
Results have 64-bit offsets if the input has, or if they are too large for 32.

Specification: "Variable" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.config import MAX_IMPLIED_BYTES
from glaive.dataclass import NamedTuple
from glaive.errors import CapacityError, CorruptFileError, RowIndexError
from glaive.kernels._addresses import address, allocate_with_slack, check_apart, check_offset_chunks
from glaive.kernels.native import offsets as offsets_loops
from glaive.kernels.strings import SLACK, Strings, _gather_strings, as_offsets, check_offsets
from glaive.types import (
    MAX_OFFSET,
    Flags,
    Int64s,
    UInt8s,
    UInt64s,
    Where,
    allocate,
    as_array,
    as_buffer,
)


def unpack_variable(
    data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, offset_bits: int, where: Where
) -> Strings:
    """Join the values of all chunks; return a view of a single chunk.

    Parameters
    ----------
    data
        Memory of all chunks.
    starts, sizes, counts
        ``int64`` of shape ``(chunks,)``: first byte, bytes and values of each chunk. It has
        ``counts[i] + 1`` offsets from its start, then the bytes of the values.
    offset_bits
        Width of the stored offsets: 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A chunk leaves ``data``, is shorter than its offsets, or has offsets that descend or
        leave it.
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
    """Join the values of all blocks; return a view of a single block.

    Parameters
    ----------
    data
        Memory of all blocks.
    starts, sizes, counts
        ``int64`` of shape ``(blocks,)``: first byte, bytes and values of each block. A block is
        the width of its offsets in bits, the position of the bytes, the offsets, the bytes.
    offset_bits
        Width of the stored offsets: 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        A block leaves ``data`` or contradicts ``offset_bits``. Or its offsets descend or
        leave it.
    """
    width = offset_bits // 8
    heads = check_offset_chunks(data, starts, sizes, counts, width, where, numbers=3)
    positions = np.empty(len(starts), np.int64)
    for i, (start, head) in enumerate(zip(starts.tolist(), heads.tolist(), strict=True)):
        bits, position = struct.unpack_from("<II" if width == 4 else "<QQ", data, start)
        if bits != offset_bits == bits & 255:
            later = _without_counts(data, starts, sizes, width)
            starts = np.concatenate(([0], (sizes - 1).cumsum()[:-1]))
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
    """Convert blocks as Lance wrote them before 2.1 was stable to the stable layout.

    They had the width of the offsets in one byte, before the number of values and the position
    of the bytes.
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
    offset_starts, bases, floors, limits, counts = columns
    bad = offsets_loops.unpack(
        data=address(data), offset_starts=address(offset_starts), bases=address(bases),
        floors=address(floors), limits=address(limits), counts=address(counts),
        chunks=len(counts), width=offset_bits // 8, out_width=out_bits // 8,
        out_offsets=address(offsets), out=address(out), capacity=capacity,
    )  # fmt: skip
    if bad >= 0:
        rule = f"ascending, from {columns[2][bad]} to at most {columns[3][bad]}"
        raise _corrupt(int(bad), "offsets", rule, "other offsets", where)
    ends = as_offsets(offsets, out_bits)
    return Strings(offsets, out_bits, out.slice(0, int(ends[-1])))


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
        A chunk leaves ``data``, or the offsets of a wanted value descend or leave the chunk. Or
        wanted values overlap and have more bytes than ``data``.
    IndexError
        The chunk or the value is missing.
    """
    width = offset_bits // 8
    n = len(chunk)
    check_offset_chunks(data, starts, sizes, counts, width, where)
    if n and (chunk.min() < 0 or chunk.max() >= len(counts)):
        raise IndexError(f"chunk outside 0..{len(counts) - 1}")
    if (index < 0).any() or (index >= counts[chunk]).any():
        raise IndexError("value beyond the end of its chunk")
    sources, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    tables = [np.ascontiguousarray(a, np.int64) for a in (starts, sizes, counts, chunk, index)]
    args = [*map(address, tables), n, width, address(sources), address(ends)]
    bad = offsets_loops.locate(address(data), *args)
    if bad >= 0:
        rule = f"ascending and within {sizes[chunk[bad]]} bytes"
        raise _corrupt(
            int(chunk[bad]), f"offsets of value {index[bad]}", rule, "other offsets", where
        )
    if n and ends[-1] > data.size:
        rows = (counts.cumsum() - counts)[chunk] + index
        check_apart("values", rows, np.diff(ends, prepend=0), data.size, where)
    return _gather_strings(data, sources, ends, offset_bits)


def _check_plain(offsets: pa.Buffer, bits: int, floor: int, limit: int, where: Where) -> None:
    ends = as_offsets(offsets, bits)
    if int(ends[0]) < floor or int(ends[-1]) > limit or np.count_nonzero(ends[1:] < ends[:-1]):
        raise _corrupt(
            0, "offsets", f"ascending, from {floor} to at most {limit}", "other offsets", where
        )


def _corrupt(chunk: int, part: str, expected: str, found: str, where: Where) -> CorruptFileError:
    return CorruptFileError(f"{part} of chunk {chunk}", expected=expected, found=found, where=where)


# --- Decode and encode the end offsets of lists and strings of format 2.0 ---------------
#
# Each stored number is the end of a value; the value starts at the end of the value before. For
# a null, the *adjustment*, which is larger than any end, is added to the end of the value before.
#
# Specification: "Ends" in ``docs/format/arrays.md``.

_MAX_ADJUSTMENT: Final = 2**62


class NullableOffsets(NamedTuple):
    """Offsets of ``bits`` bits that count from ``start``, and the validity of the values.

    The values span ``start`` to ``stop``. ``offsets`` has one entry more than the values, from 0 to
    ``stop - start``.
    """

    offsets: pa.Buffer
    bits: int
    validity: pa.Buffer | None
    null_count: int
    start: int
    stop: int


class Spans(NamedTuple):
    """Start and size of single values, and flags of the valid values (``None``: all)."""

    starts: Int64s
    sizes: Int64s
    valid: Flags | None


def decode_end_offsets(
    stored: UInt64s, skip: int, adjustment: int, bits: int, where: Where
) -> NullableOffsets:
    """Turn stored ends into offsets and validity.

    Parameters
    ----------
    stored
        ``uint64``: end offsets of consecutive values.
    skip
        1 if the first end belongs to the value before them, 0 if the first value starts at 0.
    adjustment
        The number added to the end of null values; larger than any end.
    bits
        Width of the resulting offsets: 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        An end is not below the adjustment, or below the end before it.
    CapacityError
        The values span more than 32-bit offsets can represent.
    """
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
    nulls = offsets_loops.resolve(
        address(stored[skip:]), count, start, adjustment, bits // 8,
        address(offsets), address(validity),
    )  # fmt: skip
    if nulls < 0:
        raise _corrupt_ends(adjustment, where)
    return NullableOffsets(offsets, bits, validity if nulls else None, nulls, start, stop)


def pair_end_offsets(
    before: UInt64s, stored: UInt64s, follows: Flags, adjustment: int, where: Where
) -> Spans:
    """Turn the stored ends of single values, and of the values before them, into spans.

    Parameters
    ----------
    before, stored
        ``uint64`` of shape ``(values,)``: ends of the preceding values, and of the values.
    follows
        ``bool`` of shape ``(values,)``: false for the first values of a chunk; they start at 0.
    adjustment, where
        As for :func:`decode_end_offsets`.

    Raises
    ------
    CorruptFileError
        An end is not below the adjustment, or below the end before it.
    """
    _check_adjustment(adjustment, where)
    limit = np.uint64(adjustment)
    null = stored >= limit
    ends = stored - limit * null
    starts = np.where(follows, before - limit * (before >= limit), np.uint64(0))
    if (ends >= limit).any() or (starts > ends).any():
        raise _corrupt_ends(adjustment, where)
    valid = ~null if null.any() else None
    return Spans(starts.astype(np.int64), (ends - starts).astype(np.int64), valid)


def encode_end_offsets(ends: NullableOffsets) -> tuple[pa.Buffer, int]:
    """Turn offsets and validity into stored ends, as ``uint64``; return the adjustment too.

    Null values must be empty.
    """
    dtype: Any = np.int32 if ends.bits == 32 else np.int64
    offsets = as_array(ends.offsets, dtype)
    stored = as_array(allocate((len(offsets) - 1) * 8), np.uint64)
    np.subtract(offsets[1:], offsets[0], out=stored.view(np.int64), dtype=np.int64)
    adjustment = ends.stop - ends.start + 1
    if ends.validity is not None:
        flags = np.unpackbits(as_array(ends.validity), count=len(stored), bitorder="little")
        stored[flags == 0] += np.uint64(adjustment)
    return as_buffer(stored), adjustment


def _check_adjustment(adjustment: int, where: Where) -> None:
    if not 0 < adjustment <= _MAX_ADJUSTMENT:
        raise CorruptFileError(
            "null adjustment", expected="one more than the last end", found=f"{adjustment}",
            where=where,
        )  # fmt: skip


def _corrupt_ends(adjustment: int, where: Where) -> CorruptFileError:
    return CorruptFileError(
        "ends of values",
        expected=f"ascending ends below {adjustment}",
        found="an end out of order or too large",
        where=where,
    )


# --- Search strings for a pattern -------------------------------------------------------


def contains(strings: Strings, count: int, pattern: bytes) -> pa.Buffer:
    """Test which of ``count`` strings contain the bytes of ``pattern``, one bit each.

    Search at about the speed of memory, several times faster than one string at a time.

    Raises
    ------
    CorruptFileError
        Offsets descend, or leave the data.
    """
    check_offsets(strings.offsets, strings.offset_bits, strings.data, count)
    bits = np.zeros((count + 7) // 8, np.uint8)
    if not pattern:
        return as_buffer(~bits)
    if not count:
        return as_buffer(bits)
    wanted = np.frombuffer(pattern, np.uint8)
    offsets_loops.contains(
        address(strings.offsets), strings.offset_bits // 8, count, address(strings.data),
        address(wanted), len(pattern), address(bits),
    )  # fmt: skip
    return as_buffer(bits)


# --- Members of JSONB objects by their name ---------------------------------------------
#
# An object begins with a header word, which has the number of its members. Then come an entry word
# for each key, an entry word for each value, the keys, and the values. Words are big-endian; the
# lower 28 bits of an entry are the size of its key or value in bytes.
#
# Specification: "JSON" in ``docs/format/jsonb.md``.

SIZE = 0x0FFF_FFFF
"""The bits of a word that hold a number of members or of bytes."""

_WHERE = "a JSON column"


def find_members(raw: UInt8s, begin: Int64s, end: Int64s, key: bytes) -> tuple[Int64s, Int64s]:
    """Return the entries of the members called ``key``, and the start of their values.

    Parameters
    ----------
    raw
        ``uint8``: memory of all objects.
    begin, end
        ``int64`` of shape ``(objects,)``: start and end of each object.
    key
        UTF-8 name of the member.

    Returns
    -------
    tuple
        Entry words, and positions in ``raw``, -1 for objects that lack the member.

    Raises
    ------
    CorruptFileError
        An object ends before its entries, its keys or its values do.
    """
    begin, end = np.ascontiguousarray(begin, np.int64), np.ascontiguousarray(end, np.int64)
    wrong = (begin < 0) | (end > len(raw)) | (end < begin)
    # The difference of positions within the memory is exact.
    if np.any(wrong | (end - begin < 4)):
        raise _corrupt_member("objects of 4 bytes or more within the values", "another range")
    words, positions = np.zeros(len(begin), np.int64), np.full(len(begin), -1)
    raw, wanted = np.ascontiguousarray(raw), np.frombuffer(key or b"\0", np.uint8)
    bad = offsets_loops.find_members(
        address(raw), address(begin), address(end), len(begin), address(wanted), len(key),
        address(words), address(positions),
    )  # fmt: skip
    if bad >= 0:
        raise _corrupt_member("entries, keys and values inside an object", "a shorter object")
    return words, positions


def _corrupt_member(expected: str, found: str) -> CorruptFileError:
    return CorruptFileError("JSONB", expected=expected, found=found, where=_WHERE)


# --- Dictionary-encoded strings: replace indices by their items -------------------------

_MAX_EXPANDED_BYTES: Final = min(MAX_OFFSET, MAX_IMPLIED_BYTES)

_FIRST_ITEM_BYTES: Final = 32, 256
"""Least and largest number of bytes allocated first for each item."""

_MAX_SINGLE_VALUES: Final = 1024
"""Largest number of values for which only their own items are read."""

_ITEMS_PER_VALUE: Final = 4
"""Largest number of items per value for which all are read, which makes each value cheaper."""

SHORT: Final = 16
"""Longest item in bytes that is copied with one load and one store of this size."""


def expand_dictionary(indices: pa.Buffer, bits: int, count: int, items: Strings) -> Strings:
    """Replace indices by the strings they refer to.

    Parameters
    ----------
    indices
        ``count`` unsigned integers of ``bits`` bits.
    bits
        8, 16, 32 or 64.
    count
        Number of values.
    items
        The dictionary.

    Raises
    ------
    CapacityError
        Two or more values take more than ``MAX_IMPLIED_BYTES``; the function allocated less.
    RowIndexError
        An index is the number of items or more.
    SchemaError
        The offsets of items descend or leave their data.
    """
    offsets, width, word = items.offsets, items.offset_bits // 8, bits // 8
    ends, data = as_offsets(offsets, items.offset_bits), items.data
    number = len(ends) - 1
    if indices.size < count * word:
        raise RowIndexError(f"{count} indices of {bits} bits need more than {indices.size} bytes")
    into, capacity = allocate((count + 1) * width), _FIRST_ITEM_BYTES[0] * count
    common = {
        "indices": address(indices), "word": word, "n": count, "offsets": address(offsets),
        "width": width, "items": number, "out_offsets": address(into),
    }  # fmt: skip
    if count > _MAX_SINGLE_VALUES and number <= _ITEMS_PER_VALUE * count:
        check_offsets(offsets, items.offset_bits, data, number)
        longest = int(np.diff(ends).max(initial=0))
        if longest <= SHORT and longest * count <= _MAX_EXPANDED_BYTES:
            padded, out = allocate(data.size + SHORT), allocate(longest * count + SLACK)
            as_array(padded)[: data.size] = as_array(data)
            used = offsets_loops.expand_short(**common, data=address(padded), out=address(out))
            if used >= 0:
                return Strings(into, items.offset_bits, out.slice(0, used))
        low, high = _FIRST_ITEM_BYTES
        capacity = count * min(max(low, 5 * data.size // (4 * max(number, 1))), high)
    while True:
        out = allocate_with_slack(capacity, SLACK)
        used = offsets_loops.take_items(
            **common, data=address(data), size=data.size, out=address(out), room=capacity
        )
        if used < 0:
            check_offsets(offsets, items.offset_bits, data, number)
            worst = as_array(indices, np.dtype(f"<u{word}"))[:count].max()
            raise RowIndexError(f"index {worst} of a dictionary of {number} items")
        if used > _MAX_EXPANDED_BYTES and count > 1:
            raise CapacityError(
                f"{used} bytes of {count} dictionary values in one array exceed the limit of "
                f"{_MAX_EXPANDED_BYTES}; read or take fewer rows at a time",
                parts=-(-used // _MAX_EXPANDED_BYTES),
            )
        if used <= capacity:
            return Strings(into, items.offset_bits, out.slice(0, used))
        capacity = used
