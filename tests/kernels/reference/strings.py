"""NumPy references of ``glaive.kernels.strings``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import SchemaError
from glaive.kernels.strings import (
    CHUNK_BYTES,
    CHUNK_VALUES,
    PADDING,
    SLACK,
    Packed,
    Strings,
    _offsets_of,
    _refuse,
    as_offsets,
    value_lengths,
)
from glaive.types import MAX_OFFSET, Int64s, UInt8s, allocate, as_array, as_buffer

_LONG_BYTES = 1024
"""Minimum average size of ranges that NumPy copies one by one."""


def pack_variable(
    offsets: pa.Buffer,
    offset_bits: int,
    data: pa.Buffer,
    count: int,
    out_bits: int,
    *,
    target: int = CHUNK_BYTES,
    max_values: int = CHUNK_VALUES,
) -> Packed:
    """Cut values into chunks: offsets from the start of the chunk, bytes, padding."""
    width = out_bits // 8
    check_offsets(offsets, offset_bits, data, count)
    ends = as_offsets(offsets, offset_bits)
    if out_bits == 32 and 2 * (int(ends[count]) - int(ends[0]) + 2 * width) > MAX_OFFSET:
        _, longest = value_lengths(offsets, offset_bits, data, count)
        if 2 * (longest + 2 * width) > MAX_OFFSET:
            raise SchemaError(
                f"a value of {longest} bytes does not fit a page with 32-bit offsets: "
                "use large_utf8 or large_binary"
            )
    chunks = (count + 1) // 2
    capacity = int(ends[count]) - int(ends[0]) + (count + chunks) * width + chunks * (width - 1)
    out = allocate(capacity + SLACK)
    sizes, counts = _pack_numpy(ends, as_array(data), count, width, target, max_values, out)
    return Packed(as_array(out)[: int(sizes.sum())], sizes, counts)


def _pack_numpy(
    ends: NDArray[Any],
    data: UInt8s,
    count: int,
    width: int,
    target: int,
    max_values: int,
    out: pa.Buffer,
) -> tuple[Int64s, Int64s]:
    memory = as_array(out)
    item = np.dtype("<u4" if width == 4 else "<i8")
    sizes, counts = [], []
    at = done = 0
    while done < count:
        remaining = count - done
        first = int(ends[done])
        n = min(remaining, 2)
        while n < remaining:
            more = min(2 * n, remaining)
            if more > max_values or int(ends[done + more]) - first + (more + 1) * width > target:
                break
            n = more
        head = (n + 1) * width
        last = int(ends[done + n])
        size = head + last - first
        padded = -(-size // width) * width
        starts = ends[done : done + n + 1].astype(np.int64) + (head - first)
        memory[at : at + head] = starts.astype(item).view(np.uint8)
        memory[at + head : at + size] = data[first:last]
        memory[at + size : at + padded] = PADDING
        sizes.append(padded)
        counts.append(n)
        at += padded
        done += n
    return np.array(sizes, np.int64), np.array(counts, np.int64)


def check_offsets(offsets: pa.Buffer, offset_bits: int, data: pa.Buffer, count: int) -> None:
    """Raise ``SchemaError`` unless offsets ascend within their data."""
    ends = _offsets_of(offsets, offset_bits, count)
    if count == 0:
        return
    wrong = bool((ends[1 : count + 1] < ends[:count]).any())
    _refuse(ends, count, data, descend=wrong)


def _gather_strings(data: pa.Buffer, starts: Int64s, ends: Int64s, offset_bits: int) -> Strings:
    """Copy ranges of ``data`` as strings; the caller has checked that they lie within it."""
    starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
    count, total = len(starts), int(ends[-1]) if len(ends) else 0
    bits = 64 if total > MAX_OFFSET else offset_bits
    offsets = allocate((count + 1) * (bits // 8))
    written = as_offsets(offsets, bits)
    written[0], written[1:] = 0, ends
    sizes = np.diff(ends, prepend=0)
    if total < _LONG_BYTES * count:
        places = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
        return Strings(offsets, bits, as_buffer(as_array(data)[places]))
    memory, bounds = memoryview(data), zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    return Strings(offsets, bits, pa.py_buffer(b"".join([memory[a:b] for a, b in bounds])))


def zip_offsets(data: pa.Buffer, starts: Int64s, counts: Int64s) -> tuple[bytes, Int64s]:
    """Compress offsets of 32 bits: return frames of zstd, and the bytes of each frame."""
    memory = data.to_pybytes()
    if any(
        count < 1 or start < 0 or start > len(memory) - 4 * count
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ):
        raise ValueError(f"offsets leave their data of {len(memory)} bytes")
    frames = [
        _offset_frame([memory[at : at + 4] for at in range(start, start + 4 * count, 4)])
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    return b"".join(frames), np.array([len(frame) for frame in frames], np.int64)


def _offset_frame(words: list[bytes]) -> bytes:
    blocks, tables = [(0, words[0])], [bytes([0x54, 1, 2, 0]), bytes([0xDC, 0]), b"\xfc"]
    done = 1
    while done < len(words):
        n = 0
        while n < min(len(words) - done, 120) and words[done + n][1:] == words[done - 1][1:]:
            n += 1
        plain = b"".join(word[:1] for word in words[done : done + n])
        after = words[done + n : done + n + 1]
        body = b"".join([plain, *after])
        if n:
            bits = 2 * n if len(tables) == 3 else 0
            stream = ((2 << bits) - 1).to_bytes(bits // 8 + 1, "little")
            literals = (len(body) << 4 | 4).to_bytes(2, "little")
            body = literals + body + bytes([n]) + tables[0] + stream
            tables = tables[1:] or tables
        blocks.append((2 if n else 0, body))
        done += n + len(after)
    frame = bytes([0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38])
    for at, (kind, body) in enumerate(blocks):
        header = len(body) << 3 | kind << 1 | (at == len(blocks) - 1)
        frame += header.to_bytes(3, "little") + body
    return frame
