"""Plain values in chunks: take single values, join the bits of several chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address, allocate_bits
from glaive.kernels._bounds import outside
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import flat as compiled
from glaive.memory import allocate, as_array, as_buffer
from glaive.types import Int64s

__all__ = ["exercise", "join_bits", "take_flat"]


def join_bits(data: pa.Buffer, starts: Int64s, counts: Int64s, where: object) -> pa.Buffer:
    """Join the bits of chunks.

    Bits are numbered from the least significant on; bits behind the last are 0.

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
        A chunk does not lie within ``data``.
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
    if use_compiled(total):
        target = allocate_bits(total)
        compiled.join_bits(
            address(data), data.size, address(starts), address(counts), len(starts), address(target)
        )
        return target
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
        A value does not lie within its chunk.
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
        # Nothing is allocated for values that no chunk can hold.
        raise CorruptFileError(
            "plain values of a chunk",
            expected=f"values of at most {longest} bits, the longest chunk",
            found=f"{bits} bits",
            where=where,
        )
    target = allocate((wanted * bits + 7) // 8)
    if use_compiled(wanted):
        values = (
            address(data), data.size, address(starts), address(sizes), len(starts),
            address(chunk), address(index), wanted,
        )  # fmt: skip
        if bits == 1:
            bad = compiled.take_bits(*values, address(target))
        else:
            bad = compiled.take_items(*values, bits // 8, address(target))
    else:
        bad = _take_numpy(data, starts, sizes, chunk, index, bits, target)
    if bad >= 0:
        raise CorruptFileError(
            "plain values of a chunk",
            expected=f"value {index[bad]} of {bits} bits in chunk {chunk[bad]} of {len(starts)}",
            found="a chunk that ends before it",
            where=where,
        )
    return target


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


def exercise() -> None:
    """Call every wrapper once with little data."""
    data = as_buffer(np.zeros(16, np.uint8))
    zeros, eights = np.zeros(2, np.int64), np.full(2, 8, np.int64)
    join_bits(data, zeros, np.array([3, 5], np.int64), "warm-up")
    for bits in (1, 64):
        take_flat(data, zeros, eights, zeros, zeros, bits, "warm-up")
