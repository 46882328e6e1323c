"""Codes compared with queries: both tiers give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.kernels.tiers import force_tier

from glaive.kernels.graph_search import (
    MAX_WIDTH,
    dot_bytes,
    encode_numbers,
    gap_bytes,
    part_products,
    sum_tables,
)

TIERS = ("numpy", "numba")


def codes_of(rows: int, width: int) -> Any:
    return np.random.default_rng(rows + width).integers(0, 256, (rows, width)).astype(np.uint8)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 1), (7, 16), (5, 33)])
def test_sums_products_and_squares_are_exact(rows: int, width: int, tier: Any) -> None:
    random = np.random.default_rng(1)
    codes = codes_of(rows, width)
    tables = random.integers(-9, 9, (width, 256)).astype(np.float32)
    query = random.integers(-9, 9, width).astype(np.float32)
    start = random.integers(-9, 9, rows).astype(np.float32)
    octets = codes_of(1, width)[0]
    with force_tier(tier):
        sums = sum_tables(codes, tables, start)
        products = dot_bytes(codes, query)
        squares = gap_bytes(codes, octets)
    by_hand = [sum(tables[j, code[j]] for j in range(width)) for code in codes]
    assert sums.tolist() == (np.array(by_hand).reshape(rows) + start).tolist()
    assert products.tolist() == (codes.astype(float) @ query).tolist()
    assert squares.tolist() == np.square(codes.astype(int) - octets).sum(axis=1).tolist()
    assert {array.dtype for array in (sums, products, squares)} == {np.dtype(np.float32)}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("parts", "width", "count"), [(1, 1, 1), (3, 2, 16), (2, 5, 256)])
def test_parts_of_a_vector_are_multiplied_with_all_entries_for_them(
    parts: int, width: int, count: int, tier: Any
) -> None:
    random = np.random.default_rng(2)
    entries = random.integers(-9, 9, (parts, width, count)).astype(np.float32)
    vector = random.integers(-9, 9, parts * width).astype(np.float32)
    center = random.integers(-9, 9, parts * width).astype(np.float32)
    with force_tier(tier):
        products = part_products(entries, vector, -2)
        centered = part_products(entries, vector, -2, center)
        assert centered.tolist() == part_products(entries, vector - center, -2).tolist()
    by_hand = -2 * np.einsum("pwe,pw->pe", entries, vector.reshape(parts, width))
    assert products.tolist() == by_hand.tolist()
    assert products.dtype == np.float32


@pytest.mark.spec("vector-15")
@pytest.mark.parametrize("tier", TIERS)
def test_numbers_become_the_steps_that_they_are_above_the_start(tier: Any) -> None:
    numbers = np.array([-3, -2, -1.75, -1.5, 0.2, 61.9, 62, 500, -1e38], np.float32)
    with force_tier(tier):
        octets, total = encode_numbers(numbers, -2.0, 0.25)
        far, infinite = encode_numbers(np.array([np.nan, np.inf, -np.inf], np.float32), 0.0, 1.0)
        steep, _ = encode_numbers(numbers[:3], -2.0, -1e-320)
    assert octets.tolist() == [0, 0, 1, 2, 8, 255, 255, 255, 0]
    assert total == pytest.approx(float(numbers.astype(float).sum()), rel=1e-12)
    assert (far.tolist(), np.isnan(infinite)) == ([0, 255, 0], True)
    assert steep.tolist() == [255, 0, 0]


@pytest.mark.parametrize("tier", TIERS)
def test_the_widest_rows_do_not_overflow(tier: Any) -> None:
    codes = np.full((1, MAX_WIDTH), 255, np.uint8)
    with force_tier(tier):
        assert gap_bytes(codes, np.zeros(MAX_WIDTH, np.uint8)).tolist() == [255**2 * MAX_WIDTH]


CODES, TABLES = np.zeros((2, 3), np.uint8), np.zeros((3, 256), np.float32)
START = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sum_tables(CODES, TABLES[:2], START),
        lambda: sum_tables(CODES, TABLES[:, :16], START),
        lambda: sum_tables(CODES, TABLES, START[:1]),
        lambda: sum_tables(CODES.T, TABLES, START),
        lambda: part_products(TABLES[None], START),
        lambda: part_products(TABLES[None, :, ::2], TABLES[:3, 0].copy()),
        lambda: part_products(TABLES[None], TABLES[0, :3].copy(), 1, START),
        lambda: encode_numbers(START, 0.0, 0.0),
        lambda: dot_bytes(CODES, START),
        lambda: gap_bytes(CODES, np.zeros(2, np.uint8)),
        lambda: gap_bytes(
            np.zeros((1, MAX_WIDTH + 1), np.uint8), np.zeros(MAX_WIDTH + 1, np.uint8)
        ),
    ],
    ids=[
        "tables",
        "entries",
        "start",
        "order",
        "vector",
        "gaps",
        "center",
        "step",
        "query",
        "bytes",
        "wide",
    ],
)
def test_codes_of_another_shape_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"codes|entries|step|center"):
        call()
