"""Compiled scan of the codes of partitions; its wrapper is in ``glaive.kernels.code_scan``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.code_bounds import LANES, round_tables, rows_within
from glaive.kernels.loops.codes import dot_code, gap_code, sum_entries
from glaive.kernels.loops.distances import dot_f32, squared_f32
from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    kernel_with_sums,
    load_f32,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    prefetch,
    trailing_zeros,
)
from glaive.kernels.loops.nearest_heap import keep_near, sort_heap
from glaive.kernels.vector_records import ScanCodes

_SQUARED, _PRODUCT, _GAP, _BYTES = 0, 1, 2, 3
_FIELDS = 9
_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)
_WIDE, _AHEAD = 256, 4096
"""Rows of so many bytes come from memory; those so far ahead are asked for."""


@kernel_with_sums
def compared(code: int, kind: int, width: int, query: int) -> np.float32:
    """Compare a code with the query, in the way of its kind."""
    if kind == _SQUARED:
        return squared_f32(code, query, width)
    if kind == _PRODUCT:
        return dot_f32(code, query, width)
    if kind == _GAP:
        return gap_code(code, query, width)
    if kind == _BYTES:
        return dot_code(code, query, width)
    return sum_entries(code, width, query)


@kernel
def is_allowed(fragment: int, row: int, starts: int, sizes: int, fragments: int, bits: int) -> bool:
    """Whether the bit of a row is set; not of one that has none."""
    if fragment < 0 or fragment >= fragments:
        return False
    if row < 0 or row >= load_i64(sizes + fragment * 8):
        return False
    at = load_i64(starts + fragment * 8) + row
    return (load_u8(bits + (at >> 3)) >> (at & 7)) & 1 != 0


@kernel_of(ScanCodes, sums=True)
def scan_codes(
    parts: int, offsets: int, weights: int, part_count: int, kind: int, width: int,
    code_bytes: int, query: int, numbers: int, starts: int, sizes: int, fragments: int, bits: int,
    capacity: int, heap: int, keys: int, places: int, scratch: int,
) -> tuple[int, int]:  # fmt: skip
    """Keep the nearest rows of partitions; returns how many, and how many were compared.

    ``numbers`` are the least and the greatest distance, factor and shift. The nearest row is the
    first; ``places`` are of fragments, then of rows. With ``scratch``, which has room for
    ``2 + width`` numbers and tables of bytes, rows of partitions with blocks are bounded first.
    """
    rows_out = places + 8 * capacity
    low, limit = load_f32(numbers), load_f32(numbers + 4)
    factor, shift = load_f32(numbers + 8), load_f32(numbers + 12)
    size = 0
    searched = 0
    bounds = False
    if scratch:
        bounds = round_tables(query, width, scratch, scratch + 8 + width * 4)
    for part in range(part_count):
        at = parts + part * _FIELDS * 8
        code, terms, scales, blocks = (
            load_i64(at), load_i64(at + 8), load_i64(at + 16), load_i64(at + 24),
        )  # fmt: skip
        rows, live, fragment_of = load_i64(at + 32), load_i64(at + 40), load_i64(at + 48)
        row_of, key_of = load_i64(at + 56), load_i64(at + 64)
        offset, weight = load_f32(offsets + part * 4), load_f32(weights + part * 4)
        for first in range(0, rows, LANES):
            chosen = _EVERY
            if rows - first < LANES:
                chosen = _EVERY >> np.uint64(LANES - (rows - first))
            elif bounds and blocks and size == capacity and not live:
                base = offset + load_f32(scratch + 4)
                base -= abs(offset) * np.float32(1e-6)
                chosen = rows_within(
                    blocks + first * width, width, scratch + 8 + width * 4, terms + first * 4,
                    weight, base, load_f32(scratch), limit,
                )  # fmt: skip
                searched += LANES - np.int64(popcount(chosen))
            while chosen:
                i = first + np.int64(trailing_zeros(chosen))
                chosen &= chosen - np.uint64(1)
                if live and not load_u8(live + i):
                    continue
                if bits and not is_allowed(
                    load_i64(fragment_of + i * 8), load_i64(row_of + i * 8), starts, sizes,
                    fragments, bits,
                ):  # fmt: skip
                    continue
                searched += 1
                here = code + i * code_bytes
                if code_bytes >= _WIDE:
                    for line in range(0, code_bytes, 64):
                        prefetch(here + _AHEAD + line)
                start, scale = offset, factor
                if terms:
                    start += weight * load_f32(terms + i * 4)
                if scales:
                    scale = load_f32(scales + i * 4)
                far = start + (compared(here, kind, width, query) - shift) * scale
                # NaN is neither.
                if not (far <= limit) or not (far >= low):
                    continue
                size = keep_near(
                    heap, keys, places, rows_out, size, capacity, far, load_u64(key_of + i * 8),
                    fragment_of + i * 8, row_of + i * 8,
                )  # fmt: skip
                if size == capacity:
                    limit = load_f32(heap)
    sort_heap(heap, keys, places, rows_out, size)
    return size, searched
