"""Compiled kernels that compare queries with codes; wrappers: ``glaive.kernels.codes``."""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    item_f32,
    item_u8,
    kernel_with_sums,
    load_f32,
    load_i64,
    load_u8,
    put_f32,
    put_u8,
    store_f32,
)

_ENTRIES = 256


@kernel_with_sums
def sum_entries(code: int, width: int, tables: int) -> np.float32:
    """The sum of one entry of each table; four sums, so that four can be computed at a time."""
    a = b = c = d = np.float32(0)
    even = width // 8 * 8
    line = _ENTRIES * 4
    for j in range(0, even, 8):
        table = tables + j * line
        # Eight bytes with one load: the processor has enough to do with those of the tables.
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
    """For each row the sum of the entries that its bytes select, added to what is there."""
    for i in range(rows):
        total = load_f32(out + i * 4) + sum_entries(codes + i * width, width, tables)
        store_f32(out + i * 4, total)


@kernel_with_sums
def part_products(
    entries: int, parts: int, width: int, count: int, vector: int, center: int,
    factor: np.float32, out: int,
) -> None:  # fmt: skip
    """Products of each part of a vector with all entries for it; a number at a time, of all.

    With ``center``, of what the vector is beyond that.
    """
    for part in range(parts):
        products = out + part * count * 4
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
    """Product of a row of bytes with a query of floats."""
    total = np.float32(0)
    for j in range(width):
        total += np.float32(item_u8(code, j)) * item_f32(query, j)
    return total


@kernel_with_sums
def dot_bytes(codes: int, rows: int, width: int, query: int, out: int) -> None:
    """Products of rows of bytes with a query of floats."""
    for i in range(rows):
        put_f32(out, i, dot_code(codes + i * width, query, width))


@kernel_with_sums
def gap_code(code: int, query: int, width: int) -> np.float32:
    """Squared distance of two rows of bytes: below 2^31 for widths up to 2^15."""
    total = np.int32(0)
    for j in range(width):
        gap = np.int32(item_u8(code, j)) - np.int32(item_u8(query, j))
        total = np.int32(total + gap * gap)
    return np.float32(total)


@kernel_with_sums
def gap_bytes(codes: int, rows: int, width: int, query: int, out: int) -> None:
    """Squared distances of rows of bytes from one of them."""
    for i in range(rows):
        put_f32(out, i, gap_code(codes + i * width, query, width))


@kernel_with_sums
def encode_numbers(numbers: int, count: int, start: float, step: float, out: int) -> float:
    """Store the byte of each number; returns the sum of all numbers."""
    total = 0.0
    for i in range(count):
        number = np.float64(item_f32(numbers, i))
        total += number
        place = (number - start) / step
        if not place > 0.0:
            place = 0.0  # of NaN, too
        place = min(place, 255.0)
        put_u8(out, i, np.int32(place))
    return total
