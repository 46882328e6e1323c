"""Run-length kernels: ``[7, 7, 7, 9] <-> values [7, 9], lengths [3, 1]``.

A run longer than 255 values is stored as several pairs of the same value. Each pair ends within
its chunk. Values are unsigned words of 8, 16, 32 or 64 bits.

Specification: "Run-length encoding" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.errors import CorruptFileError
from glaive.kernels._addresses import address
from glaive.kernels._bitpack import aligned, check_values
from glaive.kernels.chunks import CHUNK_BYTES, CHUNK_VALUES
from glaive.kernels.native import runs as runs_loops
from glaive.types import Int64s, UInt8s, allocate, as_array

MAX_RUN = 255
"""Run lengths are stored in one byte; longer runs are split."""

HEADER_BYTES = 8
"""Bytes of the size at the start of a block of runs."""


class RunPlan(NamedTuple):
    """Chunks for run-length encoding: numbers of values and pairs of each chunk."""

    counts: Int64s
    pairs: Int64s

    def bytes_of(self, word_bits: int) -> int:
        """Return the encoded size of the values and lengths of all chunks."""
        return int(self.pairs.sum()) * (word_bits // 8 + 1)


def plan_runs(values: pa.Buffer, count: int, word_bits: int, limit: int) -> RunPlan | None:
    """Cut values into chunks and count the pairs of each, reading the values once or twice.

    The length of a chunk is the largest power of two that encodes to at most 8,186 bytes, up to
    4,096 values. The last chunk may be shorter.

    Parameters
    ----------
    values, count
        ``count`` words of ``word_bits`` bits: 8, 16, 32 or 64.
    word_bits
        Width of a value.
    limit
        Maximum bytes of the pairs of all chunks; with more the result is ``None``.
    """
    _words(values, count, word_bits)
    pair = word_bits // 8 + 1
    smallest = 1 << ((CHUNK_BYTES // pair).bit_length() - 1)
    chunks = count // smallest + 1
    counts, pairs = np.empty(chunks, np.int64), np.empty(chunks, np.int64)
    used = runs_loops.plan_runs(
        address(values), count, word_bits, CHUNK_VALUES, CHUNK_BYTES, limit // pair,
        address(counts), address(pairs),
    )  # fmt: skip
    return None if used < 0 else RunPlan(counts[:used], pairs[:used])


def count_pairs(values: pa.Buffer, counts: Int64s, word_bits: int) -> Int64s:
    """Return the number of pairs of each chunk of ``counts[i]`` values."""
    counts = np.ascontiguousarray(counts, np.int64)
    _words_of_chunks(values, counts, word_bits)
    pairs = np.empty(len(counts), np.int64)
    runs_loops.count_pairs(address(values), address(counts), len(counts), word_bits, address(pairs))
    return pairs


def collapse_runs(
    values: pa.Buffer, counts: Int64s, pairs: Int64s, word_bits: int
) -> tuple[UInt8s, UInt8s]:
    """Collapse values into pairs; return the bytes of the values of all pairs, and the lengths.

    Parameters
    ----------
    values
        Words of ``word_bits`` bits: 8, 16, 32 or 64.
    counts, pairs
        ``int64`` of shape ``(chunks,)``: values and pairs of each chunk. The pairs come from
        :func:`plan_runs` or :func:`count_pairs`.
    word_bits
        Width of a value.
    """
    counts = np.ascontiguousarray(counts, np.int64)
    words = _words_of_chunks(values, counts, word_bits)
    total = int(pairs.sum())
    run_values = as_array(allocate(total * word_bits // 8))
    run_lengths = as_array(allocate(total))
    written = runs_loops.collapse_runs(
        address(values), address(counts), len(counts), word_bits,
        address(run_values), address(run_lengths), total,
    )  # fmt: skip
    if written != total:
        raise ValueError(f"{total} pairs do not match {len(words)} values")
    return run_values, run_lengths


def expand_runs(
    data: pa.Buffer,
    values: Int64s,
    lengths: Int64s,
    runs: Int64s,
    counts: Int64s,
    word_bits: int,
    where: object,
) -> pa.Buffer:
    """Expand the pairs of every chunk, back to back.

    Parameters
    ----------
    data
        Memory of all chunks.
    values, lengths
        ``int64`` of shape ``(chunks,)``: positions in ``data`` of the first value and the first
        length of each chunk.
    runs, counts
        ``int64`` of shape ``(chunks,)``: pairs of each chunk, and the sum of their lengths.
    word_bits
        Width of a value: 8, 16, 32 or 64.
    where
        File, column and page, for messages.

    Raises
    ------
    CorruptFileError
        Pairs lie outside ``data``, or the sum of lengths is wrong.
    """
    values, lengths, runs, counts = _checked(data, values, lengths, runs, word_bits, where, counts)
    too_many = (counts < 0) | (counts > runs * MAX_RUN)
    if too_many.any():
        raise wrong_sum(data, lengths, runs, counts, int(np.argmax(too_many)), where)
    total = int(counts.sum())
    target = allocate(total * word_bits // 8)
    bad = runs_loops.expand_runs(
        address(data), address(values), address(lengths), address(runs), address(counts),
        len(counts), word_bits, address(target), total,
    )  # fmt: skip
    if bad >= 0:
        raise wrong_sum(data, lengths, runs, counts, bad, where)
    return target


def take_runs(
    data: pa.Buffer,
    values: Int64s,
    lengths: Int64s,
    runs: Int64s,
    chunk: Int64s,
    index: Int64s,
    word_bits: int,
    where: object,
) -> pa.Buffer:
    """Read single values by adding up the lengths from the start of the chunk.

    Parameters
    ----------
    data, values, lengths, runs, word_bits, where
        As for :func:`expand_runs`.
    chunk, index
        ``int64`` of shape ``(values,)``: value ``index[i]`` of chunk ``chunk[i]``, in any order.
    """
    values, lengths, runs = _checked(data, values, lengths, runs, word_bits, where)
    chunk = np.ascontiguousarray(chunk, np.int64)
    index = np.ascontiguousarray(index, np.int64)
    bad = (chunk < 0) | (chunk >= len(runs)) | (index < 0)
    if len(chunk) != len(index) or bad.any():
        raise ValueError(f"chunks {chunk[bad]} and values {index[bad]} of {len(runs)} chunks")
    target = allocate(len(chunk) * word_bits // 8)
    at = runs_loops.take_runs(
        address(data), address(values), address(lengths), address(runs), address(chunk),
        address(index), len(chunk), word_bits, address(target),
    )  # fmt: skip
    if at >= 0:
        raise CorruptFileError(
            "run lengths of a chunk",
            expected=f"a sum above {index[at]}",
            found=f"{_sum_of_lengths(data, lengths, runs, int(chunk[at]))}",
            where=where,
        )
    return target


def _words_of_chunks(values: pa.Buffer, counts: Int64s, word_bits: int) -> Any:
    # Each chunk is at most as long as all values, so the sum of counts stays below 2^63.
    longest = values.size * 8 // word_bits
    if len(counts) and not (counts.min() >= 0 and counts.max() <= longest):
        raise ValueError(f"chunks of {counts.min()} to {counts.max()} of {longest} values")
    return _words(values, int(counts.sum()), word_bits)


def _words(values: pa.Buffer, count: int, word_bits: int) -> Any:
    check_values(values, count, word_bits)
    return as_array(values, f"<u{word_bits // 8}")[:count]


def _checked(
    data: pa.Buffer,
    values: Int64s,
    lengths: Int64s,
    runs: Int64s,
    word_bits: int,
    where: object,
    *more: Int64s,
) -> tuple[Int64s, ...]:
    result = aligned(word_bits, values, lengths, runs, *more)
    values, lengths, runs = result[:3]
    good = (values >= 0) & (lengths >= 0) & (runs >= 0) & (runs <= data.size - lengths)
    good &= runs <= (data.size - values) // (word_bits // 8)
    if not good.all():
        i = int(np.argmin(good))
        raise CorruptFileError(
            "pairs of a run-length chunk",
            expected=f"values and lengths within {data.size} bytes",
            found=f"{runs[i]} values at byte {values[i]}, lengths at byte {lengths[i]}",
            where=where,
        )
    return result


def _sum_of_lengths(data: pa.Buffer, lengths: Int64s, runs: Int64s, chunk: int) -> int:
    start = int(lengths[chunk])
    return int(as_array(data)[start : start + int(runs[chunk])].sum(dtype=np.int64))


def wrong_sum(
    data: pa.Buffer, lengths: Int64s, runs: Int64s, counts: Int64s, chunk: int, where: object
) -> CorruptFileError:
    """Return the error for a chunk whose sum of run lengths differs from its values."""
    return CorruptFileError(
        "run lengths of a chunk",
        expected=f"a sum of {counts[chunk]} values",
        found=f"{_sum_of_lengths(data, lengths, runs, chunk)}",
        where=where,
    )
