"""The best of many centroids: both tiers find the same one, and sums by cluster are sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.kernels.distances import Centroids, find_nearest, sum_by_cluster

TIERS = ("numpy", "numba")


def whole_numbers(seed: int, *shape: int) -> Any:
    """Numbers whose products and sums are exact."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


@given(
    seed=st.integers(0, 1000),
    rows=st.integers(0, 13),
    count=st.integers(1, 70),
    dimension=st.integers(1, 19),
)
def test_both_tiers_find_the_first_of_the_best(
    seed: int, rows: int, count: int, dimension: int
) -> None:
    vectors = whole_numbers(seed, rows, dimension)
    centroids = Centroids(whole_numbers(seed + 1, count, dimension), whole_numbers(seed, count))
    scores = vectors @ centroids.rows.T + centroids.bias
    for tier in TIERS:
        with force_tier(tier):
            found = find_nearest(vectors, centroids)
        assert found.ids.tolist() == scores.argmax(axis=1).tolist()
        assert found.scores.tolist() == scores.max(axis=1).tolist()


@given(seed=st.integers(0, 1000), rows=st.integers(0, 40), dimension=st.integers(1, 9))
def test_both_tiers_sum_rows_by_cluster(seed: int, rows: int, dimension: int) -> None:
    vectors = whole_numbers(seed, rows, dimension)
    ids = np.random.default_rng(seed).integers(0, 5, rows).astype(np.int32)
    expected = [vectors[ids == cluster].sum(axis=0).tolist() for cluster in range(6)]
    for tier in TIERS:
        with force_tier(tier):
            assert sum_by_cluster(vectors, ids, 6).tolist() == expected


def test_sums_of_many_rows_lose_nothing_to_their_length() -> None:
    vectors = np.full((1 << 17, 2), 1 + 2**-20, np.float32)
    sums = sum_by_cluster(vectors, np.zeros(len(vectors), np.int32), 1)
    assert sums[0, 0] == pytest.approx(float(vectors[0, 0]) * len(vectors), rel=1e-6)


def test_rows_that_do_not_fit_are_refused() -> None:
    centroids = Centroids(whole_numbers(0, 3, 4), whole_numbers(0, 3))
    for rows in (
        whole_numbers(0, 5, 3),
        whole_numbers(0, 5, 8)[:, ::2],
        whole_numbers(0, 5, 4).astype(np.float64),
        whole_numbers(0, 4),
    ):
        with pytest.raises(ValueError, match="for dimension"):
            find_nearest(rows, centroids)
    with pytest.raises(ValueError, match="clusters below 2"):
        sum_by_cluster(whole_numbers(0, 3, 4), np.array([0, 2, 1], np.int32), 2)
    with pytest.raises(ValueError, match="biases"):
        Centroids(whole_numbers(0, 3, 4), whole_numbers(0, 2))
