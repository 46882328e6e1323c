"""Distances of vectors: those of NumPy, in both tiers, for every kind of element."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.kernels.tiers import force_tier

from glaive.kernels.distances import (
    ELEMENTS,
    Element,
    Metric,
    Queries,
    VectorBlock,
    measure,
    measure_pairs,
    squared_norms,
)

TIERS = ("numpy", "numba")
FLOATS = [
    (element, metric)
    for element in ELEMENTS
    if element != "uint8"
    for metric in ("l2", "cosine", "dot")
]
PAIRS: list[Any] = [*FLOATS, ("uint8", "hamming")]


def block_of(
    element: Element, count: int, dimension: int, seed: int = 1
) -> tuple[VectorBlock, Any]:
    """Vectors, and the numbers that they are, as doubles."""
    random = np.random.default_rng(seed)
    if element == "uint8":
        octets = random.integers(0, 256, count * dimension).astype(np.uint8)
        return VectorBlock(octets, dimension, element), octets.reshape(-1, dimension)
    numbers = random.normal(size=count * dimension).astype(np.float32)
    if element == "bfloat16":
        values: Any = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        exact = (values.astype(np.uint32) << 16).view(np.float32)
    else:
        values = numbers.astype(ELEMENTS[element])
        exact = values
    return VectorBlock(values, dimension, element), exact.astype(float).reshape(-1, dimension)


def expected(vectors: Any, queries: Any, metric: Metric) -> Any:
    if metric == "hamming":
        bits = np.unpackbits(vectors[:, None] ^ queries[None], axis=2)
        return bits.sum(axis=2)
    product = vectors @ queries.T
    if metric == "dot":
        return 1 - product
    if metric == "cosine":
        lengths = np.linalg.norm(vectors, axis=1)[:, None] * np.linalg.norm(queries, axis=1)
        return 1 - product / lengths
    return np.square(vectors[:, None] - queries[None]).sum(axis=2)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dimension", [1, 7, 8, 33])
@pytest.mark.parametrize(("element", "metric"), PAIRS)
def test_distances_are_those_of_doubles(
    element: Element, metric: Metric, dimension: int, tier: Any
) -> None:
    vectors, exact = block_of(element, 20, dimension)
    queries = Queries.of(exact[:3], element)
    wanted = expected(exact, exact[:3], metric)
    rows, numbers = np.array([19, 0, 5, 5]), np.array([2, 1, 0, 2], np.int32)
    with force_tier(tier):
        one = measure(vectors, queries, metric, query=1)
        pairs = measure_pairs(vectors, queries, metric, rows, numbers)
    np.testing.assert_allclose(one, wanted[:, 1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pairs, wanted[rows, numbers], rtol=1e-4, atol=1e-5)


def test_all_half_and_brain_floats_are_widened() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    half = VectorBlock(bits.view(np.float16), 4, "float16").widened()
    brain = VectorBlock(bits, 4, "bfloat16").widened()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(half.values, bits.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(brain.values.view(np.uint32), bits.astype(np.uint32) << 16)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_a_vector_that_is_no_number_has_no_distance(metric: Metric, tier: Any) -> None:
    values = np.array([1, 2, np.nan, 4, 0, 0, 3, 5], np.float32)
    queries = Queries.of(np.ones((1, 2)), "float32")
    with force_tier(tier):
        distances = measure(VectorBlock(values, 2, "float32"), queries, metric)
    without = [False, True, metric == "cosine", False]
    assert np.isnan(distances).tolist() == without


@pytest.mark.parametrize("tier", TIERS)
def test_a_query_whose_squares_are_below_the_least_number_has_a_cosine(tier: Any) -> None:
    vectors = VectorBlock(np.array([1, 1, -1, -1], np.float32), 2, "float32")
    with force_tier(tier):
        far = measure(vectors, Queries(np.full((1, 2), 1e-30, np.float32)), "cosine")
    assert np.allclose(far, [0, 2], atol=1e-6)


SIZES: list[tuple[Element, float]] = [
    *(("float32", size) for size in (1e-44, 1e-24, 1e-19, 1e19, 3e38)),
    *(("float64", size) for size in (1e-300, 1e-170, 1e-150, 1e160, 1e300)),
]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("element", "size"), SIZES)
def test_a_vector_whose_squares_no_number_holds_has_a_cosine(
    element: Element, size: float, tier: Any
) -> None:
    kind: Any = np.dtype(element)
    directions = np.array([1, 1, -1, -1, 1, -1], kind)
    queries = Queries(np.array([[1, 1], [size, size]], kind))
    with force_tier(tier):
        for values, number in product((directions, directions * kind.type(size)), range(2)):
            far = measure(VectorBlock(values, 2, element), queries, "cosine", query=number)
            assert np.allclose(far, [0, 2, 1], atol=1e-5)


def test_norms_are_those_of_numpy() -> None:
    vectors, exact = block_of("float32", 11, 17)
    norms = squared_norms(vectors)
    np.testing.assert_allclose(norms, np.square(exact).sum(axis=1), rtol=1e-5)


BLOCK = VectorBlock(np.ones(6, np.float32), 2, "float32")
QUERIES = Queries.of(np.ones((1, 2)), "float32")
ONE, ZERO = np.ones(1, np.int32), np.zeros(1, np.int32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: measure(BLOCK, Queries.of(np.ones((1, 3)), "float32"), "l2"),
        lambda: measure(BLOCK, QUERIES, "hamming"),
        lambda: measure(BLOCK, Queries.of(np.ones((1, 2)), "float64"), "l2"),
        lambda: measure(VectorBlock(np.ones(5, np.float32), 2, "float32"), QUERIES, "l2"),
        lambda: measure_pairs(BLOCK, QUERIES, "l2", np.array([3]), ZERO),
        lambda: measure_pairs(BLOCK, QUERIES, "l2", np.array([-1]), ZERO),
        lambda: measure_pairs(BLOCK, QUERIES, "l2", np.array([0]), ONE),
    ],
    ids=["dimension", "metric", "type", "part", "row", "negative", "query"],
)
def test_arguments_that_do_not_fit_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"vectors|queries|products|distance|elements"):
        call()
