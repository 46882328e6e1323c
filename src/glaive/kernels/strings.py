"""Byte strings in Arrow's layout: their lengths, copies of strings, chunks and blocks.

Specification: "Variable" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple
from glaive.errors import SchemaError
from glaive.kernels._addresses import address, allocate_with_slack, outside
from glaive.kernels.native import offsets as offsets_loops
from glaive.types import MAX_OFFSET, Int64s, UInt8s, allocate, as_array

CHUNK_BYTES: Final = 4096
"""Size in bytes, with offsets, at which a chunk stops doubling."""

CHUNK_VALUES: Final = 4096
"""Largest number of values in a chunk."""

PADDING: Final = 0x48
"""Fills a chunk up to a multiple of the offset width; counts in the chunk's size."""

SLACK: Final = 32
"""Bytes that kernels may write after an output."""


class Strings(NamedTuple):
    """Offsets of ``offset_bits`` bits, and the bytes they point into."""

    offsets: pa.Buffer
    offset_bits: int
    data: pa.Buffer


class Packed(NamedTuple):
    """Chunks back to back, with the size and the number of values of each."""

    data: UInt8s
    sizes: Int64s
    counts: Int64s


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
    """Cut values into chunks: offsets from the start of the chunk, bytes, padding.

    A chunk has 2 values, doubled while offsets and bytes stay within ``target`` bytes and
    the values within ``max_values``. The last chunk has the remaining values.

    Parameters
    ----------
    offsets, offset_bits, data, count
        Strings in Arrow's layout: ``count + 1`` offsets of ``offset_bits``, and the bytes.
    out_bits
        Width of the offsets in the chunks: 32 or 64.
    target, max_values
        Largest number of bytes and of values in a chunk.

    Raises
    ------
    SchemaError
        Two neighbouring values are too large for offsets of ``out_bits``.
    """
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
    sizes, counts = np.empty(chunks, np.int64), np.empty(chunks, np.int64)
    chunks = offsets_loops.pack(
        address(offsets), offset_bits // 8, address(data), count, width, target, max_values,
        address(out), address(sizes), address(counts),
    )  # fmt: skip
    sizes, counts = sizes[:chunks].copy(), counts[:chunks].copy()
    return Packed(as_array(out)[: int(sizes.sum())], sizes, counts)


def pack_blocks(
    offsets: pa.Buffer, offset_bits: int, data: pa.Buffer, counts: Int64s, out_bits: int
) -> tuple[UInt8s, Int64s]:
    """Write blocks of ``counts`` values each; return the bytes, and the size of each block.

    Parameters
    ----------
    offsets, offset_bits, data
        Strings in Arrow's layout: offsets of ``offset_bits``, and the bytes.
    counts
        ``int64`` of shape ``(blocks,)``: values of each block.
    out_bits
        Width of the offsets in the blocks: 32 or 64.
    """
    width = out_bits // 8
    stops = [*accumulate(counts.tolist(), initial=0)]
    check_offsets(offsets, offset_bits, data, stops[-1])
    ends, memory = as_offsets(offsets, offset_bits), memoryview(data)
    item = np.dtype("<u4" if width == 4 else "<u8")
    parts: list[Any] = []
    sizes = []
    for (begin, stop), (first, last) in zip(
        pairwise(stops), pairwise(ends[stops].tolist()), strict=True
    ):
        head = (stop - begin + 3) * width
        sizes.append(head + last - first)
        parts += [out_bits.to_bytes(width, "little"), head.to_bytes(width, "little")]
        parts += [(ends[begin : stop + 1] - first).astype(item), memory[first:last]]
    if out_bits == 32 and sizes and max(sizes) > MAX_OFFSET:
        raise SchemaError(
            f"a block of {max(sizes)} bytes does not fit 32-bit offsets: "
            "use large_utf8 or large_binary"
        )
    return np.frombuffer(b"".join(parts), np.uint8), np.array(sizes, np.int64)


_FRAME_BYTES: Final = 64
"""Bytes of a frame of offsets besides 16 for each offset."""


def zip_offsets(data: pa.Buffer, starts: Int64s, counts: Int64s) -> tuple[bytes, Int64s]:
    """Compress offsets of 32 bits: return frames of zstd, and the bytes of each frame.

    Parameters
    ----------
    data
        Memory of all offsets.
    starts, counts
        ``int64`` of shape ``(frames,)``: first byte of the offsets of each frame, and their number,
        at least 1.

    Raises
    ------
    ValueError
        Offsets leave ``data``.
    """
    starts, counts = np.ascontiguousarray(starts), np.ascontiguousarray(counts)
    if ((counts < 1) | (counts > data.size) | outside(starts, 4 * counts, data.size)).any():
        raise ValueError(f"offsets leave their data of {data.size} bytes")
    out = as_array(allocate(int((16 * counts + _FRAME_BYTES).sum())))
    sizes = np.empty(len(counts), np.int64)
    size = offsets_loops.zip_offsets(
        address(data), address(starts), address(counts), len(counts), address(out), address(sizes)
    )
    return out[:size].tobytes(), sizes


def value_lengths(
    offsets: pa.Buffer, offset_bits: int, data: pa.Buffer, count: int
) -> tuple[int, int]:
    """Return the shortest and the longest value in bytes; (0, 0) if ``count`` is 0.

    Parameters
    ----------
    offsets, offset_bits, data, count
        Strings in Arrow's layout: ``count + 1`` offsets of ``offset_bits``, and the bytes.

    Raises
    ------
    SchemaError
        The offsets descend or leave ``data``: the Arrow array they came from is damaged.
    """
    ends = _offsets_of(offsets, offset_bits, count)
    if count == 0:
        return 0, 0
    sizes = np.diff(ends[: count + 1])
    shortest, longest = int(sizes.min()), int(sizes.max())
    _refuse(ends, count, data, descend=shortest < 0)
    return shortest, longest


def check_offsets(offsets: pa.Buffer, offset_bits: int, data: pa.Buffer, count: int) -> None:
    """Raise ``SchemaError`` unless offsets ascend within their data.

    Parameters
    ----------
    offsets, offset_bits, data, count
        Strings in Arrow's layout: ``count + 1`` offsets of ``offset_bits``, and the bytes.
    """
    ends = _offsets_of(offsets, offset_bits, count)
    if count == 0:
        return
    wrong = bool(offsets_loops.descend(address(offsets), offset_bits // 8, count))
    _refuse(ends, count, data, descend=wrong)


def _offsets_of(offsets: pa.Buffer, offset_bits: int, count: int) -> NDArray[Any]:
    ends = as_offsets(offsets, offset_bits)
    if len(ends) <= count:
        raise SchemaError(f"{count} strings need {count + 1} offsets, found {len(ends)}")
    return ends


def _refuse(ends: NDArray[Any], count: int, data: pa.Buffer, *, descend: bool) -> None:
    """Raise ``SchemaError`` if offsets descend, begin below 0 or end after ``data``."""
    if descend or not 0 <= int(ends[0]) <= int(ends[count]) <= data.size:
        raise SchemaError(
            f"offsets of {count} strings must ascend within 0..{data.size} bytes and do not: "
            "validate the array with array.validate(full=True)"
        )


_VALUE_BYTES: Final = 64
"""Bytes that take about as long to copy as one value."""


def _gather_strings(data: pa.Buffer, starts: Int64s, ends: Int64s, offset_bits: int) -> Strings:
    """Copy ranges of ``data`` as strings; the caller has checked that they lie within it.

    Parameters
    ----------
    data
        Memory of all strings.
    starts, ends
        ``int64`` of shape ``(strings,)``: first byte of each string, and its end in the result.
    offset_bits
        Width of the offsets; 64 is used where 32 is too little.
    """
    starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
    count, total = len(starts), int(ends[-1]) if len(ends) else 0
    bits = 64 if total > MAX_OFFSET else offset_bits
    offsets = allocate((count + 1) * (bits // 8))
    out = allocate_with_slack(total, SLACK)
    offsets_loops.gather(
        address(data), data.size, address(starts), address(ends), count, bits // 8,
        address(offsets), address(out),
    )  # fmt: skip
    return Strings(offsets, bits, out)


def as_offsets(buffer: pa.Buffer, bits: int) -> NDArray[Any]:
    """View offsets as signed integers."""
    return as_array(buffer, np.int32 if bits == 32 else np.int64)
