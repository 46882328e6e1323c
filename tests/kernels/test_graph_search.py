"""Graphs are searched alike in both tiers; what is wrong in them leads nowhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.reference.graph_search import compare
from tests.kernels.tiers import force_tier

from glaive.kernels.graph_search import (
    CodeQuery,
    CodeRows,
    GraphLevel,
    GraphLevels,
    RowPlaces,
    search_graph,
)

TIERS = ("numpy", "numba")
COMPARISONS = ("squared", "product", "gap", "bytes", "tables")


def nodes_of(comparison: Any, count: int, width: int, seed: int) -> tuple[CodeRows, CodeQuery]:
    random = np.random.default_rng(seed)
    octets = random.integers(0, 20, (count, width)).astype(np.uint8)
    if comparison == "tables":
        rows = CodeRows(octets, random.integers(0, 9, count).astype(np.float32))
        tables = random.integers(-9, 9, (1, width, 256)).astype(np.float32)
        return rows, CodeQuery(comparison, tables)
    rows = CodeRows(octets.astype(np.float32) if comparison in ("squared", "product") else octets)
    query = random.integers(-9 if comparison == "bytes" else 0, 20, (1, width))
    return rows, CodeQuery(
        comparison, query.astype(np.uint8 if comparison == "gap" else np.float32)
    )


def level_of(count: int, degree: int, seed: int, rows: Any = None) -> GraphLevel:
    """Random neighbours, some of which do not exist."""
    random = np.random.default_rng(seed)
    size = count if rows is None else len(rows)
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, degree + 1, size))])
    neighbors = random.integers(0, count + 3, int(offsets[-1])).astype(np.uint32)
    if rows is None:
        return GraphLevel(offsets.astype(np.int64), neighbors)
    row_of = np.full(count, -1, np.int32)
    row_of[rows] = np.arange(len(rows))
    return GraphLevel(offsets.astype(np.int64), neighbors, row_of)


@given(
    comparison=st.sampled_from(COMPARISONS),
    count=st.integers(1, 60),
    degree=st.integers(0, 6),
    capacity=st.integers(1, 20),
    seed=st.integers(0, 500),
)
def test_both_tiers_find_the_same_nodes(
    comparison: str, count: int, degree: int, capacity: int, seed: int
) -> None:
    nodes = nodes_of(comparison, count, 5, seed)
    numbers = np.arange(count)
    places = RowPlaces(numbers + 100, numbers + 200, numbers.astype(np.uint64) + 300)
    upper = np.arange(0, count, 3)
    levels = [level_of(count, degree, seed), level_of(count, degree, seed + 1, upper)]
    found = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # a tier
            found.append(
                [
                    None if part is None else part.tolist()
                    for part in search_graph(
                        GraphLevels(levels), 0, *nodes, capacity, places=places, wanted=5
                    )
                ]
            )
    assert found[0] == found[1]
    assert len(set(found[0][0])) == len(found[0][0]) <= capacity
    assert max(found[0][0]) < count


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_what_comparing_gave_comes_with_the_nodes(comparison: str, tier: Any) -> None:
    rows, query = nodes_of(comparison, 40, 6, 5)
    with force_tier(tier):
        found, compared, _ = search_graph(GraphLevels([level_of(40, 6, 5)]), 3, rows, query, 8)
    expected = compare(query.comparison, rows.codes[found], query.query[0])
    terms = 0 if rows.terms is None else rows.terms[found]
    assert len(found) == 8
    assert compared.tolist() == (expected + terms).tolist()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_a_connected_graph_gives_all_nodes_nearest_first(comparison: str, tier: Any) -> None:
    rows, query = nodes_of(comparison, 30, 4, 3)
    ring = np.stack([(np.arange(30) + 1) % 30, (np.arange(30) - 1) % 30], axis=1)
    level = GraphLevel(np.arange(0, 61, 2), ring.reshape(-1).astype(np.uint32))
    with force_tier(tier):
        found = search_graph(GraphLevels([level]), 7, rows, query, 40).numbers
    assert sorted(found.tolist()) == list(range(30))
    if comparison == "gap":
        far = np.square(rows.codes.astype(int) - query.query[0]).sum(axis=1)
        assert (np.diff(far[found]) >= 0).all()


LEVEL = GraphLevel(np.array([0, 1, 2]), np.array([1, 0], np.uint32))
ROWS, QUERY = nodes_of("gap", 2, 3, 1)
TABLES = nodes_of("tables", 2, 3, 1)[1]
ONE = RowPlaces(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint64))


@pytest.mark.parametrize(
    "call",
    [
        lambda: GraphLevel(np.array([0, 3]), np.zeros(2, np.uint32)),
        lambda: GraphLevel(np.array([0, 2, 1]), np.zeros(2, np.uint32)),
        lambda: GraphLevel(np.array([-1, 2]), np.zeros(2, np.uint32)),
        lambda: search_graph(GraphLevels([LEVEL]), 2, ROWS, QUERY, 1),
        lambda: search_graph(GraphLevels([LEVEL]), 0, ROWS, QUERY, 0),
        lambda: search_graph(
            GraphLevels([LEVEL]), 0, ROWS, QUERY._replace(query=QUERY.query[:, :2].copy()), 1
        ),
        lambda: search_graph(GraphLevels([LEVEL]), 0, ROWS, QUERY._replace(comparison="bytes"), 1),
        lambda: search_graph(GraphLevels([LEVEL]), 0, ROWS, QUERY._replace(shift=1), 1),
        lambda: search_graph(GraphLevels([LEVEL]), 0, ROWS, TABLES, 1),
        lambda: search_graph(GraphLevels([level_of(3, 1, 1, np.arange(3))]), 0, ROWS, QUERY, 1),
        lambda: search_graph(GraphLevels([LEVEL]), 0, ROWS, QUERY, 1, places=ONE, wanted=1),
    ],
    ids=[
        "end", "descending", "negative", "entry", "capacity", "query", "type", "shift", "terms",
        "rows", "places",
    ],
)  # fmt: skip
def test_graphs_that_do_not_fit_are_refused(call: Any) -> None:
    with pytest.raises(ValueError, match=r"offsets|entry|nodes|rows|query"):
        call()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("capacity", [1, 3, 8])
def test_nodes_at_no_distance_take_no_place_of_others(capacity: int, tier: Any) -> None:
    # All are neighbours of all; every second one, the entry included, has no distance.
    count = 40
    everyone = np.tile(np.arange(count, dtype=np.uint32), count)
    level = GraphLevel(np.arange(count + 1) * count, everyone)
    codes = np.arange(count, dtype=np.float32)[::-1, None].copy()
    codes[::2] = np.nan
    with force_tier(tier):
        found, compared, _ = search_graph(
            GraphLevels([level, level]),
            0,
            CodeRows(codes),
            CodeQuery("squared", np.zeros((1, 1), np.float32)),
            capacity,
        )
    assert found.tolist() == [39 - 2 * at for at in range(capacity)]
    assert compared.tolist() == [(2.0 * at) ** 2 for at in range(capacity)]


@pytest.mark.parametrize("tier", TIERS)
def test_where_no_node_is_at_a_distance_none_is_found(tier: Any) -> None:
    level = GraphLevel(np.array([0, 1, 2]), np.array([1, 0], np.uint32))
    rows = CodeRows(np.full((2, 3), np.nan, np.float32))
    query = CodeQuery("squared", np.zeros((1, 3), np.float32))
    with force_tier(tier):
        found, compared, _ = search_graph(GraphLevels([level]), 0, rows, query, 4)
    assert (found.tolist(), compared.tolist()) == ([], [])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_distances_of_nodes_are_scaled(comparison: str, tier: Any) -> None:
    factor = -0.5 if comparison in ("product", "bytes") else 0.5
    levels = GraphLevels([level_of(50, 8, 5)])
    for seed in range(30):
        rows, query = nodes_of(comparison, 50, 6, seed)
        with force_tier(tier):
            found = search_graph(levels, 3, rows, query._replace(factor=factor), 12, 3)
        compared = compare(query.comparison, rows.codes[found.numbers], query.query[0])
        terms = 0 if rows.terms is None else rows.terms[found.numbers]
        expected = 3 + (compared + terms) * np.float32(factor)
        assert found.distances.tolist() == expected.tolist()


@pytest.mark.parametrize("tier", TIERS)
def test_places_come_with_the_nearest_nodes_unless_distances_are_equal(tier: Any) -> None:
    everyone = np.tile(np.arange(4, dtype=np.uint32), 4)
    levels = GraphLevels([GraphLevel(np.arange(5) * 4, everyone)])
    rows = CodeRows(np.array([[1], [2], [3], [3]], np.float32))
    query = CodeQuery("squared", np.zeros((1, 1), np.float32))
    numbers = np.arange(4)
    places = RowPlaces(numbers + 10, numbers + 20, numbers.astype(np.uint64) + 30)
    with force_tier(tier):
        placed = [
            search_graph(levels, 3, rows, query, 4, places=places, wanted=wanted).placed
            for wanted in range(6)
        ]
    listed = [None if one is None else one.tolist() for one in placed]
    two = [[10, 11], [20, 21], [30, 31]]
    assert listed == [[[], [], []], [[10], [20], [30]], two, None, None, None]


def test_searches_of_one_graph_find_the_same_however_many_were_before() -> None:
    levels = GraphLevels([level_of(60, 6, 5), level_of(60, 6, 6, np.arange(0, 60, 3))])
    nodes = nodes_of("gap", 60, 6, 5)
    expected = search_graph(levels, 3, *nodes, 8)
    for _ in range(300):  # more than a byte tells apart
        found = search_graph(levels, 3, *nodes, 8)
        assert found.numbers.tolist() == expected.numbers.tolist()


def test_threads_that_search_one_graph_do_not_disturb_each_other() -> None:
    count = 3000
    levels = GraphLevels([level_of(count, 30, 5)])
    nodes = [nodes_of("gap", count, 16, seed) for seed in range(8)]

    def search(each: tuple[CodeRows, CodeQuery]) -> list[int]:
        return [int(n) for _ in range(20) for n in search_graph(levels, 3, *each, 40).numbers]

    expected = [search(each) for each in nodes]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(search, nodes)) == expected
