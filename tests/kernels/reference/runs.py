"""NumPy references of ``glaive.kernels.runs``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.kernels.chunks import CHUNK_BYTES, CHUNK_VALUES
from glaive.kernels.runs import (
    MAX_RUN,
    RunPlan,
    _checked,
    _sum_of_lengths,
    _words,
    _words_of_chunks,
    wrong_sum,
)
from glaive.types import Int64s, UInt8s, allocate, as_array


def plan_runs(values: pa.Buffer, count: int, word_bits: int, limit: int) -> RunPlan | None:
    """Cut values into chunks and count the pairs of each, reading the values once or twice."""
    words = _words(values, count, word_bits)
    pair = word_bits // 8 + 1
    smallest = 1 << ((CHUNK_BYTES // pair).bit_length() - 1)
    chunks = count // smallest + 1
    counts, pairs = np.empty(chunks, np.int64), np.empty(chunks, np.int64)
    used = _plan_numpy(words, limit // pair, CHUNK_BYTES // pair, counts, pairs)
    return None if used < 0 else RunPlan(counts[:used], pairs[:used])


def _plan_numpy(words: Any, limit: int, most: int, counts: Int64s, pairs: Int64s) -> int:
    used = start = total = 0
    while start < len(words):
        size = min(len(words) - start, CHUNK_VALUES)
        while (need := len(_collapse_numpy(words[start : start + size])[1])) > most:
            size = 1 << ((size - 1).bit_length() - 1)
        counts[used], pairs[used] = size, need
        total += need
        if total > limit:
            return -1
        used += 1
        start += size
    return used


def count_pairs(values: pa.Buffer, counts: Int64s, word_bits: int) -> Int64s:
    """Pairs of each chunk of ``counts[i]`` values."""
    counts = np.ascontiguousarray(counts, np.int64)
    words = _words_of_chunks(values, counts, word_bits)
    pairs = np.empty(len(counts), np.int64)
    ends = np.cumsum(counts)
    for i, (end, count) in enumerate(zip(ends.tolist(), counts.tolist(), strict=True)):
        pairs[i] = len(_collapse_numpy(words[end - count : end])[1])
    return pairs


def collapse_runs(
    values: pa.Buffer, counts: Int64s, pairs: Int64s, word_bits: int
) -> tuple[UInt8s, UInt8s]:
    """Collapse values into pairs; returns the bytes of the values of all pairs, and the lengths."""
    counts = np.ascontiguousarray(counts, np.int64)
    words = _words_of_chunks(values, counts, word_bits)
    total = int(pairs.sum())
    run_values = as_array(allocate(total * word_bits // 8))
    run_lengths = as_array(allocate(total))
    done = 0
    ends = np.cumsum(counts)
    for end, count, need in zip(ends.tolist(), counts.tolist(), pairs.tolist(), strict=True):
        chunk_values, lengths = _collapse_numpy(words[end - count : end])
        run_values.view(words.dtype)[done : done + need] = chunk_values
        run_lengths[done : done + need] = lengths
        done += need
    return run_values, run_lengths


def _collapse_numpy(words: Any) -> tuple[Any, Int64s]:
    """Values and lengths of the pairs of one chunk."""
    if len(words) == 0:
        return words, np.empty(0, np.int64)
    ends = np.append(np.flatnonzero(words[1:] != words[:-1]) + 1, len(words))
    lengths = np.diff(ends, prepend=0)
    parts = -(-lengths // MAX_RUN)
    split = np.full(int(parts.sum()), MAX_RUN, np.int64)
    split[np.cumsum(parts) - 1] = lengths - (parts - 1) * MAX_RUN
    return np.repeat(words[ends - 1], parts), split


def expand_runs(
    data: pa.Buffer,
    values: Int64s,
    lengths: Int64s,
    runs: Int64s,
    counts: Int64s,
    word_bits: int,
    where: object,
) -> pa.Buffer:
    """Expand the pairs of every chunk, back to back."""
    values, lengths, runs, counts = _checked(data, values, lengths, runs, word_bits, where, counts)
    too_many = (counts < 0) | (counts > runs * MAX_RUN)
    if too_many.any():
        raise wrong_sum(data, lengths, runs, counts, int(np.argmax(too_many)), where)
    total = int(counts.sum())
    target = allocate(total * word_bits // 8)
    source, word = as_array(data), word_bits // 8
    ends = np.cumsum(runs)
    nth = np.arange(int(runs.sum())) - np.repeat(ends - runs, runs)
    length = source[np.repeat(lengths, runs) + nth].astype(np.int64)
    sums = np.append(0, np.cumsum(length))
    right = sums[ends] - sums[ends - runs] == counts
    bad = -1 if right.all() else int(np.argmin(right))
    if bad < 0:
        value_at = np.repeat(values, runs) + nth * word
        words = source[value_at[:, None] + np.arange(word)].view(f"<u{word}")[:, 0]
        as_array(target, words.dtype)[:] = np.repeat(words, length)
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
    """Read single values without expanding a chunk, by adding up lengths from its start."""
    values, lengths, runs = _checked(data, values, lengths, runs, word_bits, where)
    chunk = np.ascontiguousarray(chunk, np.int64)
    index = np.ascontiguousarray(index, np.int64)
    bad = (chunk < 0) | (chunk >= len(runs)) | (index < 0)
    if len(chunk) != len(index) or bad.any():
        raise ValueError(f"chunks {chunk[bad]} and values {index[bad]} of {len(runs)} chunks")
    target = allocate(len(chunk) * word_bits // 8)
    source, word = as_array(data), word_bits // 8
    used, which = np.unique(chunk, return_inverse=True)
    ends = np.cumsum(runs[used])
    begins = ends - runs[used]
    nth = np.arange(int(runs[used].sum())) - np.repeat(begins, runs[used])
    sums = np.cumsum(source[np.repeat(lengths[used], runs[used]) + nth], dtype=np.int64)
    pair = np.searchsorted(sums, np.append(0, sums)[begins][which] + index, side="right")
    beyond = pair >= ends[which]
    at = int(np.argmax(beyond)) if beyond.any() else -1
    if at < 0:
        value_at = values[chunk] + (pair - begins[which]) * word
        as_array(target)[:] = source[value_at[:, None] + np.arange(word)].reshape(-1)
    if at >= 0:
        raise CorruptFileError(
            "run lengths of a chunk",
            expected=f"a sum above {index[at]}",
            found=f"{_sum_of_lengths(data, lengths, runs, int(chunk[at]))}",
            where=where,
        )
    return target
