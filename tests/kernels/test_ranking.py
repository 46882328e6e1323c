"""Vectors come in order of their distance from a query, whichever tier ranks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.tiers import force_tier

from glaive.kernels.distances import Metric, Queries, VectorBlock, measure, rank_vectors

TIERS = ("numpy", "numba")
DIMENSION = 19


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("size", [1, 255, 600])
@pytest.mark.parametrize("absent", [0.0, 0.5, 0.999])
def test_equal_distances_stay_in_their_order_and_absent_ones_come_last(
    tier: Any, size: int, absent: float
) -> None:
    random = np.random.default_rng(size)
    vectors = np.zeros((size, 1), np.float32)
    vectors[:, 0] = random.integers(0, 50, size)
    vectors[random.random(size) < absent] = np.nan
    block = VectorBlock(vectors.reshape(-1), 1, "float32")
    expected = vectors[:, 0].argsort(kind="stable")
    for count in (0, 1, 8, 200, 300, size - 1, size, size + 5):
        with force_tier(tier):
            near = rank_vectors(block, np.zeros((1, 1), np.float32), "l2", count)
        assert near.numbers.tolist() == [expected[:count].tolist()]
        square = np.square(vectors[near.numbers, 0])
        np.testing.assert_array_equal(near.distances, square)


@pytest.mark.parametrize("metric", ["l2", "dot", "hamming"])
@pytest.mark.parametrize("some", [False, True])
def test_both_tiers_rank_all_vectors_or_some(metric: Metric, *, some: bool) -> None:
    random = np.random.default_rng(7)
    is_bits = metric == "hamming"
    kind: Any = np.uint8 if is_bits else np.float32
    vectors = random.integers(0, 200, (70, DIMENSION)).astype(kind)
    queries = random.integers(0, 200, (3, DIMENSION)).astype(kind)
    among = np.flatnonzero(random.random(70) < 0.4) if some else None
    block = VectorBlock(vectors.reshape(-1), DIMENSION, "uint8" if is_bits else "float32")
    chosen = np.arange(70) if among is None else among
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            near = rank_vectors(block, queries, metric, 12, among)
        for query, numbers, distances in zip(queries, *near, strict=True):
            far = measure(block, Queries(query[None]), metric)
            expected = chosen[far[chosen].argsort(kind="stable")]
            assert numbers.tolist() == expected[:12].tolist()
            np.testing.assert_allclose(distances, far[numbers], rtol=1e-6)


VECTORS = VectorBlock(np.zeros(4, np.float32), 2, "float32")


@pytest.mark.parametrize(
    "call",
    [
        lambda: rank_vectors(VECTORS, np.zeros((1, 3), np.float32), "l2", 1),
        lambda: rank_vectors(VECTORS, np.zeros((1, 2)), "l2", 1),
        lambda: rank_vectors(VECTORS, np.zeros((1, 2), np.float32), "hamming", 1),
    ],
    ids=["dimension", "type", "hamming"],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(ValueError, match=r"vectors|queries|distance"):
        call()
