"""Compiled kernels for distances of vectors; their wrappers are in ``glaive.kernels.distances``.

``element`` and ``metric`` are the numbers that the wrapper gives them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glaive.kernels.loops.memory import (
    counted,
    float_of_bits,
    instruction,
    item_f32,
    item_f64,
    item_u16,
    kernel,
    kernel_with_sums,
    lanes_of,
    load,
    load_f32,
    load_i32,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    prefetch,
    put_f32,
    splat,
    square_root,
    store,
    store_f32,
    store_u32,
    store_u64,
)

# --- The nearest rows that a search has met: a heap, the farthest first, in four arrays
#
# Distances are ``float32``; keys, places (of fragments) and rows have eight bytes. Of equal
# distances the higher key is farther.


@kernel
def is_farther(
    distance: np.float32, key: np.uint64, other: np.float32, other_key: np.uint64
) -> bool:
    """Return whether a row is farther: compare distances, then keys."""
    return distance > other or (distance == other and key > other_key)


@kernel
def copy_entry(heap: int, keys: int, places: int, rows: int, to: int, source: int) -> None:
    """Copy a row within the heap."""
    store_f32(heap + to * 4, load_f32(heap + source * 4))
    store_u64(keys + to * 8, load_u64(keys + source * 8))
    store_u64(places + to * 8, load_u64(places + source * 8))
    store_u64(rows + to * 8, load_u64(rows + source * 8))


@kernel
def sift_down(
    heap: int, keys: int, places: int, rows: int, size: int, far: np.float32, key: np.uint64
) -> int:
    """Remove the farthest row; return the place in the heap for a row that replaces it."""
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and is_farther(
            load_f32(heap + child * 4 + 4), load_u64(keys + child * 8 + 8),
            load_f32(heap + child * 4), load_u64(keys + child * 8),
        ):  # fmt: skip
            child += 1
        if not is_farther(load_f32(heap + child * 4), load_u64(keys + child * 8), far, key):
            break
        copy_entry(heap, keys, places, rows, at, child)
        at = child
        child = 2 * at + 1
    return at


@kernel
def sift_up(
    heap: int, keys: int, places: int, rows: int, size: int, far: np.float32, key: np.uint64
) -> int:
    """Make room for one row more; return the place in the heap."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not is_farther(far, key, load_f32(heap + parent * 4), load_u64(keys + parent * 8)):
            break
        copy_entry(heap, keys, places, rows, at, parent)
        at = parent
    return at


@kernel
def sort_heap(heap: int, keys: int, places: int, rows: int, size: int) -> None:
    """Put the rows of a heap in order, the nearest first."""
    for last in range(size - 1, 0, -1):
        far, key = load_f32(heap + last * 4), load_u64(keys + last * 8)
        place, row = load_u64(places + last * 8), load_u64(rows + last * 8)
        copy_entry(heap, keys, places, rows, last, 0)
        at = sift_down(heap, keys, places, rows, last, far, key)
        store_f32(heap + at * 4, far)
        store_u64(keys + at * 8, key)
        store_u64(places + at * 8, place)
        store_u64(rows + at * 8, row)


@kernel
def keep_near(
    heap: int, keys: int, places: int, rows: int, size: int, capacity: int, far: np.float32,
    key: np.uint64, place: int, row: int,
) -> int:  # fmt: skip
    """Add a row, whose ``place`` and ``row`` are at these addresses; return the new size.

    In a full heap, the row replaces the farthest one, if it is nearer.
    """
    if size < capacity:
        at = sift_up(heap, keys, places, rows, size, far, key)
        size += 1
    else:
        if not is_farther(load_f32(heap), load_u64(keys), far, key):
            return size
        at = sift_down(heap, keys, places, rows, size, far, key)
    store_f32(heap + at * 4, far)
    store_u64(keys + at * 8, key)
    store_u64(places + at * 8, load_u64(place))
    store_u64(rows + at * 8, load_u64(row))
    return size


# --- Lists of candidates of searches in graphs: nodes in order of distance, with a mark
#
# A list is two rows of 32-bit words: numbers of nodes, and distances.

EXPANDED = 1 << 30
"""Added to the number of a node in a list of candidates once its neighbours were compared."""


@kernel
def store_i32(target: int, value: int) -> None:
    """Store one 32-bit word."""
    store_u32(target, np.uint32(value))


@instruction(types.void, types.int64)
def shift_16(builder: Any, address: Any) -> Any:
    """Move 16 words by one place."""
    moved = builder.add(address, ir.Constant(ir.IntType(64), 4))
    store(builder, moved, load(builder, address, lanes_of(32, 16)))


@kernel
def insert(ids: int, distances: int, count: int, capacity: int, node: int, far: np.float32) -> int:
    """Insert into a list in order of distance, after equal ones; return the place.

    NaN comes last.
    """
    low = 0
    if math.isnan(far):  # numpy's is lowered to a loop, which the checked build refuses
        low = min(count, capacity - 1)
    while low + 16 <= count and load_f32(distances + low * 4 + 60) <= far:
        low += 16
    while low < count and load_f32(distances + low * 4) <= far:
        low += 1
    end = min(count, capacity - 1)
    while end - low >= 16:
        end -= 16
        shift_16(ids + end * 4)
        shift_16(distances + end * 4)
    while end > low:
        end -= 1
        store_i32(ids + end * 4 + 4, load_i32(ids + end * 4))
        store_f32(distances + end * 4 + 4, load_f32(distances + end * 4))
    store_i32(ids + low * 4, node)
    store_f32(distances + low * 4, far)
    return low


_F16, _BF16, _F64, _U8 = 1, 2, 3, 4
_L2, _COSINE, _DOT = 0, 1, 2

_MIN_LENGTH, _MAX_LENGTH = np.float32(1e-15), np.float32(1e15)
"""Minimum and maximum length of vectors with squares and products exact enough in 32 bits."""

_MIN_DOUBLE_LENGTH, _MAX_DOUBLE_LENGTH = 1e-140, 1e140
"""The same in 64 bits."""


@kernel_with_sums
def squared_f32(first: int, second: int, dimension: int) -> np.float32:
    """Squared distance."""
    total = np.float32(0)
    for i in range(dimension):
        gap = item_f32(first, i) - item_f32(second, i)
        total += gap * gap
    return total


@kernel_with_sums
def dot_f32(first: int, second: int, dimension: int) -> np.float32:
    """Dot product."""
    total = np.float32(0)
    for i in range(dimension):
        total += item_f32(first, i) * item_f32(second, i)
    return total


@kernel_with_sums
def cosine_f32(vector: int, query: int, dimension: int, norm: np.float32) -> np.float32:
    """Return one minus the cosine, given the norm of the query."""
    product = np.float32(0)
    square = np.float32(0)
    for i in range(dimension):
        x = item_f32(vector, i)
        product += x * item_f32(query, i)
        square += x * x
    length = square_root(square)
    if _MIN_LENGTH < length < _MAX_LENGTH and _MIN_LENGTH < norm < _MAX_LENGTH:
        return np.float32(1) - product / length / norm
    return cosine_of_doubles(vector, query, dimension)


@kernel_with_sums
def cosine_of_doubles(vector: int, query: int, dimension: int) -> np.float32:
    """Return one minus the cosine, where squares in 32 bits may be 0, inexact or infinite."""
    product = square = other = 0.0
    for i in range(dimension):
        x, y = np.float64(item_f32(vector, i)), np.float64(item_f32(query, i))
        product += x * y
        square += x * x
        other += y * y
    return np.float32(1.0 - product / square_root(square) / square_root(other))


@kernel_with_sums
def squared_f64(first: int, second: int, dimension: int) -> float:
    """Squared distance."""
    total = 0.0
    for i in range(dimension):
        gap = item_f64(first, i) - item_f64(second, i)
        total += gap * gap
    return total


@kernel_with_sums
def dot_f64(first: int, second: int, dimension: int) -> float:
    """Dot product."""
    total = 0.0
    for i in range(dimension):
        total += item_f64(first, i) * item_f64(second, i)
    return total


@kernel
def hamming(first: int, second: int, dimension: int) -> np.float32:
    """Count the bits that differ."""
    bits = np.uint64(0)
    words = dimension // 8 * 8
    for i in range(0, words, 8):
        bits += popcount(load_u64(first + i) ^ load_u64(second + i))
    for i in range(words, dimension):
        bits += popcount(np.uint64(load_u8(first + i) ^ load_u8(second + i)))
    return np.float32(bits)


@kernel_with_sums
def widen_f16(source: int, target: int, count: int) -> None:
    """Convert half floats. Their bits, shifted, are a float that is 2^112 times too small."""
    scale = float_of_bits(np.uint32(0x77800000))
    for i in range(count):
        half = np.uint32(item_u16(source, i))
        bits = (half & np.uint32(0x7FFF)) << np.uint32(13)
        value = float_of_bits(bits) * scale
        special = float_of_bits(bits | np.uint32(0x7F800000))
        value = special if half & np.uint32(0x7C00) == np.uint32(0x7C00) else value
        put_f32(target, i, -value if half & np.uint32(0x8000) else value)


@kernel
def widen_bf16(source: int, target: int, count: int) -> None:
    """Convert brain floats: the upper halves of floats."""
    for i in range(count):
        put_f32(target, i, float_of_bits(np.uint32(item_u16(source, i)) << np.uint32(16)))


@kernel_with_sums
def distance_f32(
    vector: int, query: int, dimension: int, metric: int, norm: np.float32
) -> np.float32:
    """Return the distance of one vector."""
    if metric == _L2:
        return squared_f32(vector, query, dimension)
    if metric == _COSINE:
        return cosine_f32(vector, query, dimension, norm)
    return np.float32(1) - dot_f32(vector, query, dimension)


@kernel_with_sums
def distance_f64(vector: int, query: int, dimension: int, metric: int) -> np.float32:
    """Return the distance of one vector, rounded at the end."""
    if metric == _L2:
        return np.float32(squared_f64(vector, query, dimension))
    product = dot_f64(vector, query, dimension)
    if metric == _COSINE:
        length = square_root(dot_f64(vector, vector, dimension))
        other = square_root(dot_f64(query, query, dimension))
        usual = _MIN_DOUBLE_LENGTH < length < _MAX_DOUBLE_LENGTH
        if usual and _MIN_DOUBLE_LENGTH < other < _MAX_DOUBLE_LENGTH:
            product = product / length / other
        else:
            product = scaled_cosine_f64(vector, query, dimension)
    return np.float32(1.0 - product)


@kernel_with_sums
def scaled_cosine_f64(vector: int, query: int, dimension: int) -> float:
    """Return the cosine, where squares in 64 bits may be 0, inexact or infinite."""
    largest = other_largest = 0.0
    for i in range(dimension):
        largest = max(largest, abs(item_f64(vector, i)))
        other_largest = max(other_largest, abs(item_f64(query, i)))
    product = square = other = 0.0
    for i in range(dimension):
        x, y = item_f64(vector, i) / largest, item_f64(query, i) / other_largest
        product += x * y
        square += x * x
        other += y * y
    return product / square_root(square) / square_root(other)


@kernel_with_sums
def measure(
    values: int, rows: int, step: int, pairs: int, dimension: int, element: int, metric: int,
    queries: int, query_of: int, norms: int, scratch: int, out: int,
) -> None:  # fmt: skip
    """Store the distances of pairs of a vector and a query.

    ``rows`` and ``query_of`` (int32) are the pairs; 0: vector i, and the first query. A vector
    begins ``step`` bytes times its row after ``values``. ``norms`` are the norms of the queries,
    for the cosine.
    """
    width = 4
    if element == _F64:
        width = 8
    elif element == _U8:
        width = 1
    elif element in (_F16, _BF16):
        width = 2
    query_width = 4 if width == 2 else width
    query = queries
    norm = np.float32(0)
    if norms:
        norm = load_f32(norms)
    for i in range(pairs):
        row = i
        if rows:
            row = load_i64(rows + i * 8)
        if query_of:
            number = load_i32(query_of + i * 4)
            query = queries + number * dimension * query_width
            if norms:
                norm = load_f32(norms + number * 4)
        vector = values + row * step
        if element == _U8:
            distance = hamming(vector, query, dimension)
        elif element == _F64:
            distance = distance_f64(vector, query, dimension, metric)
        else:
            if element == _F16:
                widen_f16(vector, scratch, dimension)
                vector = scratch
            elif element == _BF16:
                widen_bf16(vector, scratch, dimension)
                vector = scratch
            distance = distance_f32(vector, query, dimension, metric, norm)
        store_f32(out + i * 4, distance)


_ABSENT = np.uint64(1 << 62)
"""Added to the number of a vector whose distance is NaN, which comes last."""


@kernel
def rank_vectors(
    values: int, count: int, dimension: int, step: int, element: int, metric: int, queries: int,
    query_count: int, query_bytes: int, among: int, among_count: int, wanted: int, far: int,
    numbers: int, distances: int,
) -> None:  # fmt: skip
    """Store the numbers of the nearest vectors of each query, nearest first, and the distances.

    ``among`` (int64) are the numbers of the vectors to rank; 0: all. ``far`` has room for the
    distances of all vectors, one vector, and a word.
    """
    scratch = far + count * 4
    word = scratch + dimension * 4
    for query in range(query_count):
        query_at = queries + query * query_bytes
        measure(
            values=values, rows=0, step=step, pairs=count, dimension=dimension, element=element,
            metric=metric, queries=query_at, query_of=0, norms=0, scratch=scratch, out=far,
        )  # fmt: skip
        heap, keys = distances + query * wanted * 4, numbers + query * wanted * 8
        size = 0
        for i in range(among_count):
            number = i
            if among:
                number = load_i64(among + i * 8)
            distance, key = load_f32(far + number * 4), np.uint64(number)
            if math.isnan(distance):
                distance = np.float32(np.inf)
                key |= _ABSENT
            store_u64(word, key)
            size = keep_near(heap, keys, keys, keys, size, wanted, distance, key, word, word)
        sort_heap(heap, keys, keys, keys, size)
        for i in range(size):
            key = load_u64(keys + i * 8) & ~_ABSENT
            store_u64(keys + i * 8, key)
            store_f32(heap + i * 4, load_f32(far + np.int64(key) * 4))


# --- Compiled search for the best of many centroids; its wrapper is in ``glaive.kernels.distances``
#
# Four rows are multiplied with 32 centroids at a time. The table stores centroids dimension by
# dimension, so that each number of a row meets two vectors of 16 centroids. A compiler keeps the
# order of a sum in a loop over numbers: the step is written as instructions instead.

LANES = 16
BLOCK = 32
ROWS = 4

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_NUMBERS = ir.VectorType(ir.IntType(32), LANES)
_I64 = ir.IntType(64)
_CONTRACT = ("contract",)


def _number(value: int) -> Any:
    return ir.Constant(_I64, value)


def splat_f32(builder: Any, value: Any) -> Any:
    """Put a float into every lane."""
    first = builder.insert_element(
        ir.Constant(_FLOATS, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
    )
    every = ir.Constant(_NUMBERS, [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_FLOATS, ir.Undefined), every)


@instruction(types.void, *(types.int64,) * 6)
def score_rows(
    builder: Any, first_row: Any, row_bytes: Any, dims: Any, begin: Any, count: Any, into: Any
) -> Any:
    """Store the best score of four rows in each lane, and the first centroid of its vector."""
    halves = BLOCK // LANES
    sums = [[cgutils.alloca_once(builder, _FLOATS) for _ in range(halves)] for _ in range(ROWS)]
    lowest = ir.Constant(_FLOATS, [float("-inf")] * LANES)
    best = [cgutils.alloca_once_value(builder, lowest) for _ in range(ROWS)]
    zeros = ir.Constant(_NUMBERS, [0] * LANES)
    chosen = [cgutils.alloca_once_value(builder, zeros) for _ in range(ROWS)]
    for row in range(ROWS):
        builder.store(lowest, best[row])
        builder.store(zeros, chosen[row])
    starts = [builder.add(first_row, builder.mul(row_bytes, _number(row))) for row in range(ROWS)]
    line = BLOCK * 4
    block_bytes = builder.mul(builder.add(dims, _number(1)), _number(line))
    with counted(builder, count) as block_number:
        head = builder.add(begin, builder.mul(block_number, block_bytes))
        for half in range(halves):
            bias = load(builder, builder.add(head, _number(half * LANES * 4)), _FLOATS)
            for row in range(ROWS):
                builder.store(bias, sums[row][half])
        with counted(builder, dims) as at_number:
            here = builder.add(head, builder.mul(builder.add(at_number, _number(1)), _number(line)))
            numbers = [
                load(builder, builder.add(here, _number(half * LANES * 4)), _FLOATS)
                for half in range(halves)
            ]
            offset = builder.mul(at_number, _number(4))
            for row in range(ROWS):
                address = builder.add(starts[row], offset)
                value = splat_f32(builder, load(builder, address, ir.FloatType()))
                for half in range(halves):
                    product = builder.fmul(value, numbers[half], flags=_CONTRACT)
                    total = builder.fadd(builder.load(sums[row][half]), product, flags=_CONTRACT)
                    builder.store(total, sums[row][half])
        for half in range(halves):
            first = builder.add(builder.mul(block_number, _number(BLOCK)), _number(half * LANES))
            ids = splat(builder, first, _NUMBERS)
            for row in range(ROWS):
                score, before = builder.load(sums[row][half]), builder.load(best[row])
                better = builder.fcmp_ordered(">", score, before)
                builder.store(builder.select(better, score, before), best[row])
                kept = builder.select(better, ids, builder.load(chosen[row]))
                builder.store(kept, chosen[row])
    for row in range(ROWS):
        to = builder.add(into, _number(row * LANES * 8))
        store(builder, to, builder.load(best[row]))
        store(builder, builder.add(to, _number(LANES * 4)), builder.load(chosen[row]))


@kernel
def best_lane(lanes: int, id_to: int, score_to: int) -> None:
    """Choose the lane of a row with the best score; of equal scores, the first centroid."""
    score = load_f32(lanes)
    chosen = np.int64(load_i32(lanes + LANES * 4))
    for lane in range(1, LANES):
        other = load_f32(lanes + lane * 4)
        number = np.int64(load_i32(lanes + (LANES + lane) * 4)) + lane
        if other > score or (other == score and number < chosen):
            score, chosen = other, number
    store_u32(id_to, np.uint32(chosen))
    store_f32(score_to, score)


@kernel
def find_nearest(
    rows: int, row_count: int, dimension: int, table: int, blocks: int, scratch: int, ids: int,
    scores: int,
) -> None:  # fmt: skip
    """Find the best centroid of each of at least four rows."""
    stride = dimension * 4
    at = 0
    while at < row_count:
        # The last four rows overlap those before them.
        first = min(at, row_count - ROWS)
        score_rows(rows + first * stride, stride, dimension, table, blocks, scratch)
        for row in range(ROWS):
            best_lane(
                scratch + row * LANES * 8, ids + (first + row) * 4, scores + (first + row) * 4
            )
        at += ROWS


@kernel
def add_rows(rows: int, count: int, dimension: int, ids: int, sums: int) -> None:
    """Add each row to the sums of its cluster."""
    for i in range(count):
        source = rows + i * dimension * 4
        target = sums + np.int64(load_i32(ids + i * 4)) * dimension * 4
        for j in range(dimension):
            store_f32(target + j * 4, load_f32(target + j * 4) + load_f32(source + j * 4))


# --- Compiled rescoring of rows; its wrapper is in ``glaive.kernels.distances`` ---------

_FETCHED_LINES = 8
"""Lines of a vector that are fetched ahead; the processor then continues by itself."""


@kernel
def place_of(
    number: int, ends: int, starts: int, pages: int, width: int, last_start: int
) -> int:  # fmt: skip
    """Return where the value of a row begins, or -1; the row is below the last end."""
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


@kernel_with_sums
def rescore_rows(
    fragments: int, rows: int, row_keys: int, bounds: int, query_count: int, first_rows: int,
    row_counts: int, fragment_count: int, ends: int, page_starts: int, pages: int, memory: int,
    size: int, width: int, dimension: int, element: int, metric: int, queries: int,
    query_bytes: int, norms: int, limits: int, low: int, capacity: int, widened: int, starts: int,
    measured: int, heap: int, keys: int, places: int, sizes: int,
) -> int:  # fmt: skip
    """Keep the nearest rows of each query; return whether all rows have a place.

    ``low`` is the address of the least distance. ``starts`` and ``measured`` have room for all
    rows; ``heap``, ``keys`` and ``places`` (of fragments, then of rows) for ``capacity`` rows of
    each query.
    """
    end = load_i64(ends + (pages - 1) * 8)
    last_start = size - width
    lower_limit = load_f32(low)
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
        for line in range(0, min(width, 64 * _FETCHED_LINES), 64):
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
            # NaN fails both comparisons.
            if not (far <= limit) or not (far >= lower_limit):
                continue
            count = keep_near(
                at_heap, at_keys, at_fragments, at_rows, count, capacity, far,
                load_u64(row_keys + i * 8), fragments + i * 8, rows + i * 8,
            )  # fmt: skip
        sort_heap(at_heap, at_keys, at_fragments, at_rows, count)
        store_u64(sizes + query * 8, count)
    return 1
