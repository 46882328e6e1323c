"""Pairs are selected by products in both tiers, as NumPy computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.kernels.products import CHUNK, QueryTable, select_near

TIERS = ("numpy", "numba")


@given(
    seed=st.integers(0, 1000),
    queries=st.sampled_from([1, 5, 16, 17, 33, 50, 64, 70]),
    rows=st.integers(1, 130),
    dimension=st.integers(1, 9),
    spare=st.integers(0, 100),
)
def test_both_tiers_select_the_same_pairs(
    seed: int, queries: int, rows: int, dimension: int, spare: int
) -> None:
    random = np.random.default_rng(seed)
    vectors = random.integers(-3, 4, (rows, dimension)).astype(np.float32)
    table = QueryTable(random.integers(-3, 4, (queries, dimension)).astype(np.float32))
    offsets, factors = random.integers(-2, 3, (2, rows)).astype(np.float32)
    offsets[random.random(rows) < 0.1] = np.nan
    limits = random.integers(-9, 5, queries).astype(np.float32)
    sums = offsets + factors * (table.rows @ vectors.T)
    within = set(map(tuple, np.argwhere(~(sums > limits[:, None])).tolist()))
    capacity = CHUNK * queries + spare
    for tier in TIERS:
        pairs: list[Any] = []
        end = 0
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            while end < rows:
                query, row, end = select_near(
                    vectors, table, offsets, factors, limits, end, capacity
                )
                assert len(query) <= capacity
                pairs += zip(query.tolist(), row.tolist(), strict=True)
        assert len(pairs) == len(within)
        assert set(pairs) == within


ROWS, TABLE = np.ones((3, 2), np.float32), QueryTable(np.ones((1, 2), np.float32))
THREE, ONE = np.ones(3, np.float32), np.ones(1, np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: QueryTable(THREE),
        lambda: select_near(ROWS[:, :1], TABLE, THREE, THREE, ONE, 0, CHUNK),
        lambda: select_near(ROWS, TABLE, THREE[:1], THREE, ONE, 0, CHUNK),
        lambda: select_near(ROWS, TABLE, THREE, THREE, THREE, 0, CHUNK),
        lambda: select_near(ROWS, TABLE, THREE, THREE, ONE, 4, CHUNK),
        lambda: select_near(ROWS, TABLE, THREE, THREE, ONE, 0, CHUNK - 1),
        lambda: select_near(ROWS.astype(float), TABLE, THREE, THREE, ONE, 0, CHUNK),
    ],
    ids=["query", "dimension", "offsets", "limits", "start", "capacity", "type"],
)
def test_arguments_that_do_not_fit_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"queries|rows|row|numbers"):
        call()
