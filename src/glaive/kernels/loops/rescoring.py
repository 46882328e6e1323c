"""Compiled rescoring of rows; its wrapper is in ``glaive.kernels.rescoring``."""

from __future__ import annotations

from glaive.kernels.loops.distances import measure
from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    load_f32,
    load_i64,
    load_u64,
    prefetch,
    store_u64,
)
from glaive.kernels.loops.nearest_heap import keep_near, sort_heap
from glaive.kernels.vector_records import RescoreRows

_MOST_LINES = 8
"""Lines of a vector that are asked for; the processor finds those behind."""


@kernel
def place_of(
    number: int, ends: int, starts: int, pages: int, width: int, last_start: int
) -> int:  # fmt: skip
    """Where the value of a row begins that has a number below the last end; -1: nowhere."""
    low, high = 0, pages - 1
    while low < high:
        middle = (low + high) >> 1
        if load_i64(ends + middle * 8) <= number:
            low = middle + 1
        else:
            high = middle
    before = 0
    if low:
        before = load_i64(ends + low * 8 - 8)
    start = load_i64(starts + low * 8)
    if before < 0 or number < before or start < 0 or start > last_start:
        return -1
    if number - before > (last_start - start) // width:
        return -1
    return start + (number - before) * width


@kernel_of(RescoreRows, sums=True)
def rescore_rows(
    fragments: int, rows: int, row_keys: int, bounds: int, query_count: int, first_rows: int,
    row_counts: int, fragment_count: int, ends: int, page_starts: int, pages: int, memory: int,
    size: int, width: int, dimension: int, element: int, metric: int, queries: int,
    query_bytes: int, norms: int, limits: int, low: int, capacity: int, widened: int, starts: int,
    measured: int, heap: int, keys: int, places: int, sizes: int,
) -> int:  # fmt: skip
    """Keep the rows of each query that are nearest; returns whether all rows have a place.

    ``starts`` and ``measured`` have room for all rows; ``heap``, ``keys`` and ``places`` (of
    fragments, then of rows) for ``capacity`` rows of each query.
    """
    end = load_i64(ends + (pages - 1) * 8)
    last_start = size - width
    least = load_f32(low)
    for i in range(load_i64(bounds + query_count * 8)):
        fragment, row = load_i64(fragments + i * 8), load_i64(rows + i * 8)
        if fragment < 0 or fragment >= fragment_count or row < 0:
            return 0
        if row >= load_i64(row_counts + fragment * 8):
            return 0
        first = load_i64(first_rows + fragment * 8)
        if first < 0 or first >= end or row >= end - first:
            return 0
        start = place_of(first + row, ends, page_starts, pages, width, last_start)
        if start < 0:
            return 0
        for line in range(0, min(width, 64 * _MOST_LINES), 64):
            prefetch(memory + start + line)
        store_u64(starts + i * 8, start)
    all_rows = places + query_count * capacity * 8
    for query in range(query_count):
        begin, stop = load_i64(bounds + query * 8), load_i64(bounds + query * 8 + 8)
        norm = 0
        if norms:
            norm = norms + query * 4
        measure(
            values=memory, rows=starts + begin * 8, step=1, pairs=stop - begin,
            dimension=dimension, element=element, metric=metric,
            queries=queries + query * query_bytes, query_of=0, norms=norm, scratch=widened,
            out=measured + begin * 4,
        )  # fmt: skip
        limit = load_f32(limits + query * 4)
        at_heap, at_keys = heap + query * capacity * 4, keys + query * capacity * 8
        at_fragments = places + query * capacity * 8
        at_rows = all_rows + query * capacity * 8
        count = 0
        for i in range(begin, stop):
            far = load_f32(measured + i * 4)
            # NaN is neither.
            if not (far <= limit) or not (far >= least):
                continue
            count = keep_near(
                at_heap, at_keys, at_fragments, at_rows, count, capacity, far,
                load_u64(row_keys + i * 8), fragments + i * 8, rows + i * 8,
            )  # fmt: skip
        sort_heap(at_heap, at_keys, at_fragments, at_rows, count)
        store_u64(sizes + query * 8, count)
    return 1
