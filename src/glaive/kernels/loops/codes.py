"""Compiled kernels that compare queries with codes; wrappers: ``glaive.kernels.graph_search``."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glaive.kernels.loops.distances import dot_f32, keep_near, sort_heap, squared_f32
from glaive.kernels.loops.memory import (
    counted,
    instruction,
    item_f32,
    item_u8,
    kernel,
    kernel_with_sums,
    lanes_of,
    load,
    load_f32,
    load_f64,
    load_i64,
    load_u8,
    load_u64,
    popcount,
    prefetch,
    put_f32,
    put_u8,
    put_u16,
    store_f32,
    store_f64,
    store_u64,
    trailing_zeros,
)
from glaive.kernels.machine import processor

_ENTRIES = 256
_NAME, _FEATURES = processor()
HAS_PERMUTES = "+avx512vbmi" in _FEATURES.split(",")
_I64, _I32 = ir.IntType(64), ir.IntType(32)


@kernel_with_sums
def sum_entries(code: int, width: int, tables: int) -> np.float32:
    """Sum one entry of each table; four sums let the processor add four entries at a time."""
    a = b = c = d = np.float32(0)
    even = width // 8 * 8
    line = _ENTRIES * 4
    for j in range(0, even, 8):
        table = tables + j * line
        # Eight bytes with one load: the loads from the tables keep the processor busy.
        word = load_i64(code + j)
        a += load_f32(table + (word & 255) * 4)
        b += load_f32(table + line + ((word >> 8) & 255) * 4)
        c += load_f32(table + 2 * line + ((word >> 16) & 255) * 4)
        d += load_f32(table + 3 * line + ((word >> 24) & 255) * 4)
        a += load_f32(table + 4 * line + ((word >> 32) & 255) * 4)
        b += load_f32(table + 5 * line + ((word >> 40) & 255) * 4)
        c += load_f32(table + 6 * line + ((word >> 48) & 255) * 4)
        d += load_f32(table + 7 * line + ((word >> 56) & 255) * 4)
    for j in range(even, width):
        a += load_f32(tables + j * line + load_u8(code + j) * 4)
    return (a + b) + (c + d)


@kernel_with_sums
def sum_tables(codes: int, rows: int, width: int, tables: int, out: int) -> None:
    """Add the sum of the entries that the bytes of each row select to the number of the row."""
    for i in range(rows):
        total = load_f32(out + i * 4) + sum_entries(codes + i * width, width, tables)
        store_f32(out + i * 4, total)


@kernel_with_sums
def part_products(
    entries: int, parts: int, width: int, count: int, vectors: int, vector_count: int,
    center: int, factor: np.float32, out: int,
) -> None:  # fmt: skip
    """Multiply each part of vectors with all its entries, one number at a time.

    With ``center``, multiply the difference of a vector and the center.
    """
    for number_of in range(vector_count):
        vector = vectors + number_of * parts * width * 4
        for part in range(parts):
            products = out + (number_of * parts + part) * count * 4
            for i in range(count):
                put_f32(products, i, np.float32(0))
            for j in range(part * width, (part + 1) * width):
                number = item_f32(vector, j)
                if center:
                    number -= item_f32(center, j)
                number *= factor
                line = entries + j * count * 4
                for i in range(count):
                    put_f32(products, i, item_f32(products, i) + number * item_f32(line, i))


@kernel_with_sums
def dot_code(code: int, query: int, width: int) -> np.float32:
    """Multiply a row of bytes with a query of floats."""
    total = np.float32(0)
    for j in range(width):
        total += np.float32(item_u8(code, j)) * item_f32(query, j)
    return total


def _sum_of_pairs(builder: Any, blocks: Any, words_at: Any) -> Any:
    """Multiply 32 words of 16 bits with 32 others in each block, and add all products."""
    wide, sums = lanes_of(32, 32), lanes_of(32, 16)
    halves = [ir.Constant(sums, [*range(start, 32, 2)]) for start in (0, 1)]
    total = cgutils.alloca_once(builder, sums)
    builder.store(ir.Constant(sums, [0] * sums.count), total)
    with counted(builder, blocks) as block:
        words = words_at(builder.mul(block, ir.Constant(_I64, 32)))
        products = builder.mul(*(builder.sext(each, wide) for each in words))
        # Products of neighbours, added: one instruction.
        pairs = [builder.shuffle_vector(products, products, half) for half in halves]
        builder.store(builder.add(builder.load(total), builder.add(*pairs)), total)
    kind = ir.FunctionType(_I32, [sums])
    name = "llvm.vector.reduce.add.v16i32"
    reduce = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(reduce, [builder.load(total)])


def _octets(builder: Any, start: Any, at: Any) -> Any:
    """Load 32 bytes as words."""
    return builder.zext(load(builder, builder.add(start, at), lanes_of(8, 32)), lanes_of(16, 32))


@instruction(types.int32, types.int64, types.int64, types.int64)
def square_gaps(builder: Any, code: Any, query: Any, blocks: Any) -> Any:
    """Return the squared distance of blocks of 32 bytes."""

    def gaps_at(at: Any) -> tuple[Any, Any]:
        gaps = builder.sub(*(_octets(builder, start, at) for start in (code, query)))
        return gaps, gaps

    return _sum_of_pairs(builder, blocks, gaps_at)


@instruction(types.int32, types.int64, types.int64, types.int64)
def dot_words(builder: Any, code: Any, words: Any, blocks: Any) -> Any:
    """Multiply blocks of 32 bytes with words of 16 bits."""

    def pairs_at(at: Any) -> tuple[Any, Any]:
        address = builder.add(words, builder.add(at, at))
        return _octets(builder, code, at), load(builder, address, lanes_of(16, 32))

    return _sum_of_pairs(builder, blocks, pairs_at)


@kernel_with_sums
def gap_code(code: int, query: int, width: int) -> np.float32:
    """Return the squared distance of two rows of bytes: below 2^31 for widths up to 2^15."""
    total = square_gaps(code, query, width >> 5)
    for j in range(width >> 5 << 5, width):
        gap = np.int32(item_u8(code, j)) - np.int32(item_u8(query, j))
        total = np.int32(total + gap * gap)
    return np.float32(total)


@kernel_with_sums
def encode_numbers(
    numbers: int, rows: int, width: int, start: float, step: float, out: int, totals: int
) -> None:
    """Store the byte of each number, and the sum of the numbers of each row."""
    for row in range(rows):
        total = 0.0
        for i in range(row * width, (row + 1) * width):
            number = np.float64(item_f32(numbers, i))
            total += number
            place = (number - start) / step
            if not place > 0.0:
                place = 0.0  # of NaN, too
            place = min(place, 255.0)
            put_u8(out, i, np.int32(place))
        store_f64(totals + row * 8, total)


# --- Lower bounds of the distances of 64 codes at a time, by tables of bytes held in registers
#
# The entries of a table become bytes, rounded down. A table of 256 bytes is four registers. One
# instruction picks 64 bytes out of two registers. Rounding only lowers the sums, so that a scan may
# skip a row whose bound is beyond a limit.

LANES = 64
"""Codes that are bounded at a time."""

_HALF = 16
_HAS_SHUFFLES = HAS_PERMUTES or _NAME == "x86-64-v3" or "+avx2" in _FEATURES.split(",")
_SHUFFLE = (32, "llvm.x86.avx2.pshuf.b") if _HAS_SHUFFLES else None
if HAS_PERMUTES:
    _SHUFFLE = LANES, "llvm.x86.avx512.pshuf.b.512"
_TABLE_BITS = 8 if HAS_PERMUTES else 4 if _HAS_SHUFFLES else 0

_EPSILON = np.float32(1.2e-7)
_LARGEST = np.float32(1e30)

_BYTES, _PAIRS = ir.VectorType(ir.IntType(8), LANES), ir.VectorType(ir.IntType(16), LANES // 2)
_WORDS, _FLOATS = ir.VectorType(_I32, LANES // 2), ir.VectorType(ir.FloatType(), LANES // 2)


def pick(builder: Any, first: Any, second: Any, numbers: Any) -> Any:
    """Pick bytes out of two registers by the low seven bits of the numbers."""
    if not HAS_PERMUTES:
        return pick_one_by_one(builder, first, second, numbers)
    kind = ir.FunctionType(_BYTES, [_BYTES] * 3)
    name = "llvm.x86.avx512.vpermi2var.qi.512"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [first, numbers, second])


def pick_one_by_one(builder: Any, first: Any, second: Any, numbers: Any) -> Any:
    """Pick bytes like :func:`pick`, on any processor."""
    found = ir.Constant(_BYTES, ir.Undefined)
    both = cgutils.alloca_once(builder, ir.ArrayType(_BYTES, 2))
    for at, part in enumerate((first, second)):
        builder.store(part, cgutils.gep_inbounds(builder, both, 0, at))
    table = builder.bitcast(both, ir.ArrayType(ir.IntType(8), 2 * LANES).as_pointer())
    for lane in range(LANES):
        place = ir.Constant(_I32, lane)
        number = builder.zext(builder.extract_element(numbers, place), _I32)
        number = builder.and_(number, ir.Constant(_I32, 2 * LANES - 1))
        value = builder.load(cgutils.gep_inbounds(builder, table, 0, number))
        found = builder.insert_element(found, value, place)
    return found


def _splat(builder: Any, value: Any) -> Any:
    """Put a float into every lane."""
    none = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(none, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, none, ir.Constant(_WORDS, [0] * _WORDS.count))


def _look_up_bytes(builder: Any, table: Any, numbers: Any) -> list[Any]:
    """Look 64 bytes up in a table of 256 bytes."""
    quarters = [
        load(builder, builder.add(table, ir.Constant(_I64, at * LANES)), _BYTES) for at in range(4)
    ]
    low = pick(builder, quarters[0], quarters[1], numbers)
    high = pick(builder, quarters[2], quarters[3], numbers)
    is_high = builder.icmp_signed("<", numbers, ir.Constant(_BYTES, [0] * LANES))
    return [builder.select(is_high, high, low)]


def _look_up_halves(builder: Any, table: Any, numbers: Any) -> list[Any]:
    """Look the low and the high half of 64 bytes up in a table of 16 bytes each."""
    low = builder.and_(numbers, ir.Constant(_BYTES, [15] * LANES))
    high = builder.lshr(numbers, ir.Constant(_BYTES, [4] * LANES))
    after = builder.add(table, ir.Constant(_I64, _HALF))
    return [_shuffled(builder, table, low), _shuffled(builder, after, high)]


def _shuffled(builder: Any, table: Any, numbers: Any) -> Any:
    """Look 64 numbers below 16 up in a table of 16 bytes."""
    entries = load(builder, table, lanes_of(8, _HALF))
    size, name = _SHUFFLE or (LANES, "")
    vector, order = lanes_of(8, size), lanes_of(32, size)
    several = ir.Constant(order, [lane % _HALF for lane in range(size)])
    entries = builder.shuffle_vector(entries, entries, several)
    if not name:
        return pick_one_by_one(builder, entries, entries, numbers)
    kind = ir.FunctionType(vector, [vector] * 2)
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    parts = [
        builder.shuffle_vector(numbers, numbers, ir.Constant(order, [*range(at, at + size)]))
        for at in range(0, LANES, size)
    ]
    first, *others = [builder.call(function, [entries, part]) for part in parts]
    every = ir.Constant(lanes_of(32, LANES), [*range(LANES)])
    return builder.shuffle_vector(first, others[0], every) if others else first


def _within(table_bytes: int, look_up: Any) -> Any:
    """Make the function that bounds 64 rows; a byte of a code has a table of so many bytes."""

    @instruction(types.uint64, *(types.int64,) * 4, *(types.float32,) * 4)
    def within(
        builder: Any, code_at: Any, width: Any, table_at: Any, terms_at: Any, weight_of: Any,
        start: Any, step_of: Any, limit: Any,
    ) -> Any:  # fmt: skip
        zero = ir.Constant(_PAIRS, [0] * _PAIRS.count)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(2)]
        for total in sums:
            builder.store(zero, total)
        low_byte = ir.Constant(_PAIRS, [255] * _PAIRS.count)
        eight = ir.Constant(_PAIRS, [8] * _PAIRS.count)
        with counted(builder, width) as part:
            here = builder.add(code_at, builder.mul(part, ir.Constant(_I64, LANES)))
            table = builder.add(table_at, builder.mul(part, ir.Constant(_I64, table_bytes)))
            for found in look_up(builder, table, load(builder, here, _BYTES)):
                entries = builder.bitcast(found, _PAIRS)
                halves = builder.and_(entries, low_byte), builder.lshr(entries, eight)
                for total, half in zip(sums, halves, strict=True):
                    builder.store(builder.add(builder.load(total), half), total)
        step_of, limit, weight_of, start = (
            _splat(builder, value) for value in (step_of, limit, weight_of, start)
        )
        mask = ir.Constant(_I64, 0)
        for number, total in enumerate(sums):
            bound = builder.uitofp(builder.zext(builder.load(total), _WORDS), _FLOATS)
            bound = builder.fmul(bound, step_of)
            at = builder.add(terms_at, ir.Constant(_I64, number * LANES * 2))
            term = builder.fmul(load(builder, at, _FLOATS), weight_of)
            # Rounding of the term, which may be large.
            size = builder.fmul(term, _splat(builder, ir.Constant(ir.FloatType(), 1e-6)))
            is_less = builder.fcmp_ordered("<", size, ir.Constant(_FLOATS, [0.0] * _FLOATS.count))
            size = builder.select(is_less, builder.fneg(size), size)
            bound = builder.fadd(bound, builder.fsub(builder.fadd(start, term), size))
            within = builder.fcmp_unordered("<=", bound, limit)
            bits = builder.zext(builder.bitcast(within, ir.IntType(LANES // 2)), _I64)
            mask = builder.or_(mask, builder.shl(bits, ir.Constant(_I64, number * LANES // 2)))
        return mask

    return within


rows_within, halves_within = _within(_ENTRIES, _look_up_bytes), _within(2 * _HALF, _look_up_halves)
"""Return a bit for each of 64 rows: whether its bound is within a limit.

The bound of a row is ``offset + weight * term`` plus ``step`` times its sum of bytes. Codes are
stored byte by byte, in the order of rows 0, 32, 1, 33 and so on.
"""


@kernel
def table_bits() -> int:
    """Return how many bits select a byte of a table that the processor holds in registers."""
    return _TABLE_BITS


@kernel
def lesser(kept: np.float32, other: np.float32) -> np.float32:
    """Return the lesser of a number and another one, which may be NaN."""
    if other < kept:
        return other
    return kept


@kernel
def greater(kept: np.float32, other: np.float32) -> np.float32:
    """Return the greater of a number and another one, which may be NaN."""
    if other > kept:
        return other
    return kept


@kernel
def round_tables(tables: int, width: int, entries: int, numbers: int, out: int) -> bool:
    """Make tables of bytes: an entry is ``least + step * byte``, plus less than one step.

    Store the step, the sum of the least entries less the maximum rounding, and the least entry of
    each table. Bytes for NaN are arbitrary, because sums with NaN are far. Return ``False`` where
    entries are too far apart, or too near.
    """
    span = base = large = np.float32(0)
    for part in range(width):
        table = tables + part * entries * 4
        # Four at a time, which the processor computes in parallel.
        a = b = c = d = _LARGEST
        e = f = g = h = -_LARGEST
        for i in range(0, entries, 4):
            first, second = item_f32(table, i), item_f32(table, i + 1)
            third, fourth = item_f32(table, i + 2), item_f32(table, i + 3)
            a, e = lesser(a, first), greater(e, first)
            b, f = lesser(b, second), greater(f, second)
            c, g = lesser(c, third), greater(g, third)
            d, h = lesser(d, fourth), greater(h, fourth)
        lowest, highest = min(a, b, c, d), max(e, f, g, h)
        store_f32(numbers + 8 + part * 4, lowest)
        base += lowest
        large += max(abs(lowest), abs(highest))
        span = max(span, highest - lowest)
    step = span / np.float32(255)
    if not (np.float32(1e-30) < step < _LARGEST) or not (large < _LARGEST):
        return False
    inverse = np.float32(1) / step
    for part in range(width):
        table, bytes_of = tables + part * entries * 4, out + part * entries
        lowest = load_f32(numbers + 8 + part * 4)
        for i in range(entries):
            number = (item_f32(table, i) - lowest) * inverse
            number = lesser(np.float32(255), number)
            put_u8(bytes_of, i, np.int32(number))
    store_f32(numbers, step)
    store_f32(numbers + 4, base - large * _EPSILON * np.float32(4 * width + 64))
    return True


@kernel
def join_tables(halves: int, width: int, out: int) -> None:
    """Make a table of the 256 sums of the entries of two tables of 16: for low and high halves."""
    for part in range(width):
        low, table = halves + part * 2 * _HALF * 4, out + part * _ENTRIES * 4
        for i in range(_HALF):
            high = item_f32(low, _HALF + i)
            for j in range(_HALF):
                put_f32(table, i * _HALF + j, high + item_f32(low, j))


@kernel
def split_tables(tables: int, width: int, out: int) -> bool:
    """Make two tables of 16 entries from each table of 256 sums: for low and for high halves.

    Return ``False`` where a first entry is too large.
    """
    for part in range(width):
        table, half = tables + part * _ENTRIES * 4, out + part * 2 * _HALF * 4
        first = item_f32(table, 0)
        if not (abs(first) < _LARGEST):
            return False
        for i in range(_HALF):
            put_f32(half, i, item_f32(table, i))
            put_f32(half, _HALF + i, item_f32(table, _HALF * i) - first)
    return True


@kernel_with_sums
def round_query(query: int, width: int, bits: int, numbers: int, words: int) -> bool:
    """Store the numbers of a query as words of 16 bits, which are multiples of a step.

    Store the step, and the maximum error of a product with codes of ``bits`` bits. Return ``False``
    where numbers are too large or too small, or the width is not a multiple of 32.
    """
    large = total = lost = np.float32(0)
    for j in range(width):
        large = greater(large, abs(item_f32(query, j)))
        total += abs(item_f32(query, j))
    if width & 31 or not (large > np.float32(1e-30)) or not (total < _LARGEST):
        return False
    most = (1 << bits) - 1
    step = large / np.float32(min(32767, 0x7FFFFFFF // (most * width)))
    inverse = np.float32(1) / step
    for j in range(width):
        number = item_f32(query, j)
        word = np.int32(number * inverse)
        put_u16(words, j, word)
        lost += abs(number - np.float32(word) * step)
    store_f32(numbers, step)
    lost += total * _EPSILON * np.float32(width + 64)
    store_f32(numbers + 4, lost * np.float32(most))
    return True


# --- Compiled scan of the codes of partitions; its wrapper is in ``glaive.kernels.graph_search``

_SQUARED, _PRODUCT, _GAP, _BLOCK_BYTES = 0, 1, 2, 3
_FIELDS = 9
_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)
_WIDE, _AHEAD = 64, 4096
"""Minimum bytes of rows that are fetched ahead, and the distance in bytes."""


@kernel_with_sums
def compared(code: int, kind: int, width: int, query: int) -> np.float32:
    """Compare a code with the query, by its kind of comparison."""
    if kind == _SQUARED:
        return squared_f32(code, query, width)
    if kind == _PRODUCT:
        return dot_f32(code, query, width)
    if kind == _GAP:
        return gap_code(code, query, width)
    if kind == _BLOCK_BYTES:
        return dot_code(code, query, width)
    return sum_entries(code, width, query)


@kernel
def is_allowed(fragment: int, row: int, starts: int, sizes: int, fragments: int, bits: int) -> bool:
    """Return whether the bit of a row exists and is set."""
    if fragment < 0 or fragment >= fragments:
        return False
    if row < 0 or row >= load_i64(sizes + fragment * 8):
        return False
    at = load_i64(starts + fragment * 8) + row
    return (load_u8(bits + (at >> 3)) >> (at & 7)) & 1 != 0


@kernel_with_sums
def scan_codes(
    parts: int, part_total: int, chosen_parts: int, offsets: int, weights: int, most_parts: int,
    kind: int, width: int, code_bits: int, code_bytes: int, query: int, query_bytes: int,
    query_count: int, numbers: int, starts: int, sizes: int, fragments: int, bits: int,
    capacity: int, found: int, scratch: int,
) -> int:  # fmt: skip
    """Keep the nearest rows of partitions for each query; return how many.

    ``parts`` has nine numbers for each partition: four places of codes, five of rows.
    ``chosen_parts`` (int64) are the numbers of the partitions: ``most_parts`` for each query. For a
    missing partition, which has -1 rows, return -1. ``numbers`` (float64) are the least
    distance and the factor. Then they are, for all queries, how many partitions count, the greatest
    distances, and shifts. ``found`` has four lines with room for ``capacity`` rows of each query:
    keys, fragments, rows and distances, the nearest first. Then it has two numbers for each query:
    how many rows were kept, and compared. With ``scratch``,
    the kernel bounds distances first: of rows of partitions with blocks, or of rows of bytes. It
    has room for ``2 + width`` numbers and tables of bytes, or two numbers and words.
    """
    every = query_count * (capacity + 1) * 8
    tables = scratch + 8 + width * (8 if code_bits == 4 else 4)
    halves = tables + width * 2 * _HALF
    keys, heap, counts = found, found + 3 * every, found + query_count * capacity * 8
    total = 0
    low, factor = np.float32(load_f64(numbers)), np.float32(load_f64(numbers + 8))
    for _ in range(query_count):
        numbers, places, rows_out = numbers + 8, keys + every, keys + 2 * every
        part_count = min(most_parts, int(load_f64(numbers + 8)))
        limit = np.float32(load_f64(numbers + 8 + query_count * 8))
        shift = np.float32(load_f64(numbers + 8 + query_count * 16))
        size = 0
        searched = 0
        bounds = rounded = False
        if scratch and kind == _BLOCK_BYTES:
            rounded = round_query(query, width, code_bits, scratch, scratch + 8)
        elif scratch and code_bits == 4:
            bounds = split_tables(query, width, halves)
            bounds = bounds and round_tables(halves, 2 * width, _HALF, scratch, tables)
        elif scratch:
            bounds = round_tables(query, width, _ENTRIES, scratch, tables)
        for part in range(part_count):
            number = load_i64(chosen_parts + part * 8)
            if number < 0 or number >= part_total:
                return -1
            at = parts + number * _FIELDS * 8
            code, terms, scales, blocks = (
                load_i64(at), load_i64(at + 8), load_i64(at + 16), load_i64(at + 24),
            )  # fmt: skip
            rows, live, fragment_of = load_i64(at + 32), load_i64(at + 40), load_i64(at + 48)
            row_of, key_of = load_i64(at + 56), load_i64(at + 64)
            if rows < 0:
                return -1
            offset, weight = load_f32(offsets + part * 4), load_f32(weights + part * 4)
            if code_bytes >= _WIDE:
                for line in range(0, min(rows * code_bytes, _AHEAD), 64):
                    prefetch(code + line)
            for first in range(0, rows, LANES):
                chosen = _EVERY
                if rows - first < LANES:
                    chosen = _EVERY >> np.uint64(LANES - (rows - first))
                elif bounds and blocks and size == capacity and not live:
                    base = offset + load_f32(scratch + 4)
                    base -= abs(offset) * np.float32(1e-6)
                    block, step = blocks + first * width, load_f32(scratch)
                    terms_at = terms + first * 4
                    if code_bits == 4:
                        chosen = halves_within(
                            block, width, tables, terms_at, weight, base, step, limit
                        )
                    else:
                        chosen = rows_within(
                            block, width, tables, terms_at, weight, base, step, limit
                        )
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
                    if rounded:
                        product = load_f32(scratch) * np.float32(
                            dot_words(here, scratch + 8, width >> 5)
                        )
                        # Rounding of the words, the shift and the start.
                        error = load_f32(scratch + 4) + abs(shift) * np.float32(1e-6)
                        error = error * abs(scale) + abs(start) * np.float32(1e-6)
                        if start + (product - shift) * scale - error > limit:
                            continue
                    far = start + (compared(here, kind, width, query) - shift) * scale
                    # NaN fails both comparisons.
                    if not (far <= limit) or not (far >= low):
                        continue
                    size = keep_near(
                        heap, keys, places, rows_out, size, capacity, far, load_u64(key_of + i * 8),
                        fragment_of + i * 8, row_of + i * 8,
                    )  # fmt: skip
                    if size == capacity:
                        limit = load_f32(heap)
        sort_heap(heap, keys, places, rows_out, size)
        store_u64(counts, np.uint64(size))
        store_u64(counts + every, np.uint64(searched))
        keys, heap, counts = keys + size * 8, heap + size * 4, counts + 8
        total += size
        query += query_bytes
        chosen_parts += most_parts * 8
        offsets += most_parts * 4
        weights += most_parts * 4
    return total
