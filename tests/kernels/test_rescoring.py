"""Rows that an index found are measured where they lie, and the nearest are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.tiers import force_tier

from glaive.kernels.distances import (
    ELEMENTS,
    Element,
    FoundRows,
    Metric,
    PlacedVectors,
    Queries,
    rescore_rows,
)
from glaive.types import as_buffer

TIERS = ("numpy", "numba")
DIMENSION = 21
ROWS = (30, 0, 50)
"""Of the fragments, of which the second is not among those that are placed."""


def placed(element: Element, random: Any) -> tuple[PlacedVectors, Any]:
    """Vectors of two fragments in three pages, with other bytes between them."""
    kind = ELEMENTS[element]
    total, width = sum(ROWS), DIMENSION * kind.itemsize
    numbers = random.integers(0, 60, (total, DIMENSION))
    vectors = numbers.astype(np.uint16 if element == "bfloat16" else kind)
    ends = np.array([11, 40, total])
    starts = np.array([3 + 40 * width, 1, 9 + 55 * width])
    memory = np.zeros(200 * width, np.uint8)
    for page, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        octets = np.frombuffer(vectors[begin:end].tobytes(), np.uint8)
        memory[starts[page] : starts[page] + len(octets)] = octets
    first_row = np.array([0, -1, 30])
    return PlacedVectors(as_buffer(memory), starts, ends, width, first_row, np.array(ROWS)), vectors


def found_rows(random: Any, sizes: list[int]) -> FoundRows:
    count = sum(sizes)
    fragment = random.integers(0, 2, count) * 2
    row = random.integers(0, np.array(ROWS)[fragment])
    key = random.permutation(count).astype(np.uint64)
    query = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return FoundRows(query, np.zeros(count, np.float32), key, fragment, row)


FLOATS = [element for element in ELEMENTS if element != "uint8"]
DISTANCES = [(element, metric) for element in FLOATS for metric in ("l2", "dot", "cosine")]


@pytest.mark.parametrize(("element", "metric"), [*DISTANCES, ("uint8", "hamming")])
@pytest.mark.parametrize("sizes", [[40], [0], [25, 0, 3]])
def test_both_tiers_keep_the_nearest_rows_of_each_query(
    element: Element, metric: Metric, sizes: list[int]
) -> None:
    random = np.random.default_rng(len(sizes))
    vectors, _ = placed(element, random)
    found = found_rows(random, sizes)
    matrix = random.integers(0, 60, (len(sizes), DIMENSION))
    queries = Queries.of(matrix.astype(np.uint8 if element == "uint8" else float), element)
    limits = np.full(len(sizes), np.inf, np.float32)
    for count in (1, 7, 50):
        near = []
        for tier in TIERS:
            with force_tier(tier):  # type: ignore[arg-type]  # a tier
                near.append(rescore_rows(vectors, element, found, queries, metric, limits, count))
        first, second = near
        assert first is not None
        assert second is not None
        np.testing.assert_allclose(first.distance, second.distance, rtol=1e-5, atol=1e-6)
        kept = [min(count, size) for size in sizes]
        assert np.bincount(second.query, minlength=len(sizes)).tolist() == kept
        if metric in ("l2", "hamming") and element != "bfloat16":  # sums of whole numbers
            assert second.key.tolist() == first.key.tolist()
            assert second.row.tolist() == first.row.tolist()
            assert second.fragment.tolist() == first.fragment.tolist()


def rescored(vectors: PlacedVectors, found: FoundRows, query: Any, **options: Any) -> Any:
    limits = np.array([options.pop("high", np.inf)], np.float32)
    queries = Queries(query[None])
    return rescore_rows(vectors, "float32", found, queries, "l2", limits, **options)


@pytest.mark.parametrize("tier", TIERS)
def test_distances_are_those_of_the_vectors_of_the_rows(tier: Any) -> None:
    random = np.random.default_rng(3)
    vectors, matrix = placed("float32", random)
    found = found_rows(random, [40])
    query = random.integers(0, 60, DIMENSION).astype(np.float32)
    number = np.array([0, 0, 30])[found.fragment] + found.row
    far = np.square(matrix[number] - query).sum(axis=1)
    order = np.lexsort((found.key, far))
    with force_tier(tier):
        near: FoundRows = rescored(vectors, found, query, count=10)
        low, high = float(far[order[5]]), float(far[order[20]])
        between: FoundRows = rescored(vectors, found, query, count=40, low=low, high=high)
    assert near.key.tolist() == found.key[order[:10]].tolist()
    assert near.distance.tolist() == far[order[:10]].tolist()
    assert near.row.tolist() == found.row[order[:10]].tolist()
    within = order[(far[order] >= low) & (far[order] <= high)]
    assert between.key.tolist() == found.key[within].tolist()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("fragment", "row"), [(0, 30), (0, -1), (2, 50), (1, 0), (3, 0), (-1, 0), (2, 2**62)]
)
def test_rows_that_have_no_place_are_not_measured(tier: Any, fragment: int, row: int) -> None:
    vectors, _ = placed("float32", np.random.default_rng(3))
    fragments, rows = np.array([0, fragment]), np.array([1, row])
    found = FoundRows(
        np.zeros(2, np.int32),
        np.zeros(2, np.float32),
        np.arange(2, dtype=np.uint64),
        fragments,
        rows,
    )
    with force_tier(tier):
        assert rescored(vectors, found, np.zeros(DIMENSION, np.float32), count=1) is None


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("start", "end"), [(-1, 1), (100, 1), (8, 3), (2**62, 1), (0, 2**62)])
def test_pages_that_leave_their_memory_are_not_read(tier: Any, start: int, end: int) -> None:
    memory = as_buffer(np.zeros(24, np.uint8))
    size = np.array([end])
    vectors = PlacedVectors(memory, np.array([start]), size, 8, np.zeros(1, np.int64), size)
    number = np.array([end - 1])
    fragment, none = np.zeros(1, np.int64), np.zeros(1, np.float32)
    found = FoundRows(none.astype(np.int32), none, number.astype(np.uint64), fragment, number)
    with force_tier(tier):
        assert rescored(vectors, found, np.zeros(2, np.float32), count=1) is None


NUMBER = np.zeros(1, np.int64)
ONE = PlacedVectors(as_buffer(np.zeros(2, np.float32)), NUMBER, NUMBER + 1, 8, NUMBER, NUMBER + 1)
FOUND = FoundRows(
    NUMBER.astype(np.int32), NUMBER.astype(np.float32), NUMBER.astype(np.uint64), NUMBER, NUMBER
)
QUERY = np.zeros(2, np.float32)
TWO, LIMITS = Queries(np.zeros((2, 2), np.float32)), np.zeros(2, np.float32)
SECOND, BEFORE = (FOUND._replace(query=np.full(1, at, np.int32)) for at in (2, -1))


@pytest.mark.parametrize(
    "call",
    [
        lambda: PlacedVectors(ONE.memory, NUMBER, NUMBER, 9, NUMBER, NUMBER),
        lambda: PlacedVectors(ONE.memory, NUMBER, NUMBER[:0], 8, NUMBER, NUMBER),
        lambda: PlacedVectors(ONE.memory, NUMBER, NUMBER, 8, NUMBER, NUMBER.astype(np.int32)),
        lambda: rescored(ONE, FOUND, np.zeros(3, np.float32), count=1),
        lambda: rescored(ONE, FOUND, QUERY, count=0),
        lambda: rescored(ONE, FOUND._replace(row=FOUND.row[:0]), QUERY, count=1),
        lambda: rescore_rows(ONE, "float32", SECOND, TWO, "l2", LIMITS, 1),
        lambda: rescore_rows(ONE, "float32", BEFORE, TWO, "l2", LIMITS, 1),
    ],
    ids=["width", "pages", "type", "dimension", "count", "rows", "after", "before"],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(ValueError, match=r"vectors|rows|numbers|bounds"):
        call()
