"""Pairs selected by products of bytes: every near one, and few that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.kernels.byte_products import ByteQueries, select_likely
from glaive.kernels.products import CHUNK
from glaive.testing import force_tier

TIERS = ("numpy", "numba")


def selected(
    tier: str, vectors: Any, table: ByteQueries, numbers: tuple[Any, Any, Any]
) -> set[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    end = 0
    with force_tier(tier):  # type: ignore[arg-type]  # a tier
        while end < len(vectors):
            capacity = CHUNK * len(table) + 7
            query, row, end = select_likely(vectors, table, *numbers, end, capacity)
            assert len(query) <= capacity
            pairs += zip(query.tolist(), row.tolist(), strict=True)
    assert len(pairs) == len(set(pairs))
    return set(pairs)


@given(
    seed=st.integers(0, 1000),
    queries=st.sampled_from([1, 5, 16, 17, 33, 50, 64, 70]),
    rows=st.integers(1, 130),
    dimension=st.integers(1, 40),
    scale=st.sampled_from([1e-35, 1e-21, 1e-3, 1.0, 1e5, 1e18]),
)
def test_no_near_pair_is_missed_and_those_beyond_the_limit_are_close_to_it(
    seed: int, queries: int, rows: int, dimension: int, scale: float
) -> None:
    random = np.random.default_rng(seed)
    vectors = (random.standard_normal((rows, dimension)) * scale).astype(np.float32)
    vectors[random.random(rows) < 0.1] = 0
    vectors[random.random(rows) < 0.05, 0] = np.inf
    matrix = random.standard_normal((queries, dimension)).astype(np.float32)
    matrix[random.random(queries) < 0.1] = 0
    offsets, factors = random.integers(-2, 3, (2, rows)).astype(np.float32)
    offsets[random.random(rows) < 0.1] = np.nan
    limits = random.standard_normal(queries).astype(np.float32)
    with np.errstate(all="ignore"):
        values = offsets + factors * (matrix.astype(float) @ vectors.T.astype(float))
        lengths = np.linalg.norm(matrix, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
        rounding = np.abs(factors) * lengths * np.sqrt(dimension) * 0.01
        least = ~(values > limits[:, None] - 1e-5 * np.abs(values))
        most = ~(values > limits[:, None] + rounding * 1.1 + 1e-5 * np.abs(values))
    largest = np.abs(vectors).max(axis=1)
    most |= (largest >= 1e15) | (largest > 0) & (largest <= 1e-15)
    for tier in TIERS:
        pairs = selected(tier, vectors, ByteQueries(matrix), (offsets, factors, limits))
        assert set(map(tuple, np.argwhere(least).tolist())) <= pairs
        assert pairs <= set(map(tuple, np.argwhere(most).tolist()))


ROWS, TABLE = np.ones((3, 2), np.float32), ByteQueries(np.ones((1, 2), np.float32))
THREE, ONE = np.ones(3, np.float32), np.ones(1, np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ByteQueries(THREE),
        lambda: ByteQueries(np.ones((1, (1 << 15) + 1), np.float32)),
        lambda: select_likely(ROWS[:, :1], TABLE, THREE, THREE, ONE, 0, CHUNK),
        lambda: select_likely(ROWS, TABLE, THREE[:1], THREE, ONE, 0, CHUNK),
        lambda: select_likely(ROWS, TABLE, THREE, THREE, THREE, 0, CHUNK),
        lambda: select_likely(ROWS, TABLE, THREE, THREE, ONE, 4, CHUNK),
        lambda: select_likely(ROWS, TABLE, THREE, THREE, ONE, 0, CHUNK - 1),
        lambda: select_likely(ROWS.astype(float), TABLE, THREE, THREE, ONE, 0, CHUNK),
    ],
    ids=["query", "wide", "dimension", "offsets", "limits", "start", "capacity", "type"],
)
def test_arguments_that_do_not_fit_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"queries|rows|row|numbers"):
        call()
