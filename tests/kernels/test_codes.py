"""Codes compared with queries: both tiers give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.kernels.tiers import force_tier

from glaive.kernels.graph_search import (
    MAX_WIDTH,
    CodeQuery,
    CodeRows,
    RowPlaces,
    ScannedPartition,
    encode_numbers,
    part_products,
    scan_codes,
    sum_tables,
)

TIERS = ("numpy", "numba")


def codes_of(rows: int, width: int) -> Any:
    return np.random.default_rng(rows + width).integers(0, 256, (rows, width)).astype(np.uint8)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 1), (7, 16), (5, 33)])
def test_sums_are_exact(rows: int, width: int, tier: Any) -> None:
    random = np.random.default_rng(1)
    codes = codes_of(rows, width)
    tables = random.integers(-9, 9, (width, 256)).astype(np.float32)
    start = random.integers(-9, 9, rows).astype(np.float32)
    with force_tier(tier):
        sums = sum_tables(codes, tables, start)
    by_hand = [sum(tables[j, code[j]] for j in range(width)) for code in codes]
    assert sums.tolist() == (np.array(by_hand).reshape(rows) + start).tolist()
    assert sums.dtype == np.float32


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
    assert far.tolist() == [0, 255, 0]
    assert np.isnan(infinite).all()
    assert steep.tolist() == [255, 0, 0]


@pytest.mark.parametrize("tier", TIERS)
def test_the_widest_rows_do_not_overflow(tier: Any) -> None:
    rows = CodeRows(np.full((1, MAX_WIDTH), 255, np.uint8))
    places = RowPlaces(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint64))
    query = CodeQuery("gap", np.zeros(MAX_WIDTH, np.uint8))
    with force_tier(tier):
        found = scan_codes([ScannedPartition(rows, places, 0)], query, 1)
    assert found.distance.tolist() == [255**2 * MAX_WIDTH]


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
    ],
    ids=["tables", "entries", "start", "order", "vector", "gaps", "center", "step"],
)
def test_codes_of_another_shape_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"codes|entries|step|center"):
        call()
