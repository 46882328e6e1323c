"""Byte streams: the first bytes of all values of a chunk, then their second bytes, …

Specification: "Byte stream split" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import bytesplit as compiled
from glaive.memory import allocate, as_array, as_buffer
from glaive.types import Int64s, UInt8s

__all__ = ["WORD_BITS", "exercise", "join_bytes", "split_bytes", "take_bytes"]

WORD_BITS = (32, 64)
"""Widths of values that can be split."""


def split_bytes(values: pa.Buffer, counts: Int64s, word_bits: int) -> UInt8s:
    """Split the values of each chunk into streams, lowest byte first; sizes do not change.

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
    if (len(counts) and int(counts.min()) < 0) or total > values.size // width:
        raise ValueError(f"chunks of {total} values out of {values.size // width}")
    out = as_array(allocate(total * width))
    if use_compiled(total):
        compiled.split(address(values), address(counts), len(counts), width, address(out))
        return out
    at = _positions(np.cumsum(counts) - counts, counts, width)
    out[at.reshape(-1)] = as_array(values)[: total * width]
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
        A chunk does not lie within ``data``.
    """
    starts, counts = _checked(data, starts, counts, word_bits, where)
    width = word_bits // 8
    total = int(counts.sum())
    target = allocate(total * width)
    if use_compiled(total):
        compiled.join(
            address(data), address(starts), address(counts), len(counts), width, address(target)
        )
        return target
    first = np.cumsum(counts) - counts
    at = _positions(first, counts, width) + np.repeat(starts - first * width, counts)[:, None]
    as_array(target)[:] = as_array(data)[at.reshape(-1)]
    return target


def take_bytes(
    data: pa.Buffer,
    starts: Int64s,
    counts: Int64s,
    chunk: Int64s,
    index: Int64s,
    word_bits: int,
    where: object,
) -> pa.Buffer:
    """Join the bytes of single values.

    Parameters
    ----------
    data, starts, counts, word_bits, where
        Chunks as for :func:`join_bytes`.
    chunk, index
        ``int64`` of shape ``(values,)``: value ``index[i]`` of chunk ``chunk[i]``, in any order.

    Raises
    ------
    CorruptFileError
        A chunk does not lie within ``data``, or a value not within its chunk.
    """
    starts, counts = _checked(data, starts, counts, word_bits, where)
    chunk = np.ascontiguousarray(chunk, np.int64)
    index = np.ascontiguousarray(index, np.int64)
    if len(chunk) != len(index):
        raise ValueError(f"{len(chunk)} chunks and {len(index)} positions")
    wanted, width = len(chunk), word_bits // 8
    target = allocate(wanted * width)
    if use_compiled(wanted):
        bad = compiled.take(
            address(data), address(starts), address(counts), len(counts), address(chunk),
            address(index), wanted, width, address(target),
        )  # fmt: skip
    else:
        bad = _take_numpy(data, starts, counts, chunk, index, width, target)
    if bad >= 0:
        raise CorruptFileError(
            "byte streams of a chunk",
            expected=f"value {index[bad]} in chunk {chunk[bad]} of {len(starts)}",
            found="a chunk that ends before it",
            where=where,
        )
    return target


def _take_numpy(
    data: pa.Buffer,
    starts: Int64s,
    counts: Int64s,
    chunk: Int64s,
    index: Int64s,
    width: int,
    target: pa.Buffer,
) -> int:
    good = (chunk >= 0) & (chunk < len(counts)) & (index >= 0)
    if good.all():
        good = index < counts[chunk]
    if not good.all():
        return int(np.argmin(good))
    at = (starts[chunk] + index)[:, None] + counts[chunk][:, None] * np.arange(width)
    as_array(target)[:] = as_array(data)[at.reshape(-1)]
    return -1


def _positions(first: Int64s, counts: Int64s, width: int) -> Int64s:
    """Positions of the bytes of each value, shape ``(values, width)``, in adjacent chunks."""
    within = np.arange(int(counts.sum())) - np.repeat(first, counts)
    start = np.repeat(first * width, counts) + within
    positions: Int64s = start[:, None] + np.repeat(counts, counts)[:, None] * np.arange(width)
    return positions


def _width(word_bits: int) -> int:
    if word_bits not in WORD_BITS:
        raise ValueError(f"values of {word_bits} bits; expected one of {WORD_BITS}")
    return word_bits // 8


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


def exercise() -> None:
    """Call every wrapper once with little data."""
    zero, nine = np.zeros(1, np.int64), np.full(1, 9, np.int64)
    values = as_buffer(np.arange(18, dtype="<u4"))
    for bits in WORD_BITS:
        data = as_buffer(split_bytes(values, nine, bits))
        join_bytes(data, zero, nine, bits, "warm-up")
        take_bytes(data, zero, nine, zero, zero, bits, "warm-up")
