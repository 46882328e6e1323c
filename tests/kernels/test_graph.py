"""Neighbour graphs that lose nodes: both tiers repair them equally, and searches still arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.kernels.graph_build import Points, Repaired, repair_graph

TIERS = ("numpy", "numba")


def graph_of(seed: int, count: int, most: int, share: float) -> tuple[Any, ...]:
    """Neighbours of nodes in a plane, and which nodes are live."""
    random = np.random.default_rng(seed)
    vectors = random.integers(0, 30, (count, 2)).astype(np.float32)
    degrees = random.integers(0, most + 1, count)
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    nodes = random.integers(0, count, int(offsets[-1])).astype(np.int32)
    return vectors, offsets, nodes, random.random(count) < share


def repaired(
    tier: Any, vectors: Any, offsets: Any, nodes: Any, live: Any, *, dot: bool
) -> Repaired:
    count = len(live)
    lists = Repaired(np.zeros(count, np.int32), nodes.copy(), np.zeros(len(nodes), np.float32))
    points = Points(vectors, np.arange(count, dtype=np.int32), dot)
    with force_tier(tier):
        repair_graph(offsets, nodes, live, np.flatnonzero(live), points, lists)
    return lists


@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 60),
    most=st.integers(0, 12),
    share=st.sampled_from([0.1, 0.5, 0.9]),
    dot=st.booleans(),
)
def test_both_tiers_mend_alike(
    seed: int, count: int, most: int, share: float, *, dot: bool
) -> None:
    vectors, offsets, nodes, live = graph_of(seed, count, most, share)
    numpy_lists, numba_lists = (
        repaired(tier, vectors, offsets, nodes, live, dot=dot) for tier in TIERS
    )
    for left, right in zip(numpy_lists, numba_lists, strict=True):
        assert left.tolist() == right.tolist()


@pytest.mark.parametrize("tier", TIERS)
def test_lists_have_nodes_that_are_left_each_once(tier: Any) -> None:
    vectors, offsets, nodes, live = graph_of(3, 200, 8, 0.7)
    lists = repaired(tier, vectors, offsets, nodes, live, dot=False)
    for node in np.flatnonzero(live).tolist():
        begin = int(offsets[node])
        neighbours = lists.nodes[begin : begin + int(lists.counts[node])].tolist()
        assert len(neighbours) <= offsets[node + 1] - begin
        assert len(set(neighbours)) == len(neighbours)
        assert node not in neighbours
        assert live[neighbours].all()
        far = np.square(vectors[neighbours] - vectors[node]).sum(axis=1)
        assert lists.distances[begin : begin + len(neighbours)].tolist() == far.tolist()


@pytest.mark.parametrize("tier", TIERS)
def test_neighbours_of_lost_neighbours_replace_them(tier: Any) -> None:
    # A chain of which the middle is gone: its ends find each other through all that was between.
    vectors = np.arange(5, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    offsets = np.array([0, 1, 3, 5, 7, 8], np.int64)
    nodes = np.array([1, 0, 2, 1, 3, 2, 4, 3], np.int32)
    live = np.array([True, False, False, False, True])
    lists = repaired(tier, vectors, offsets, nodes, live, dot=False)
    assert [int(lists.nodes[0]), int(lists.nodes[7])] == [4, 0]
    assert lists.counts[[0, 4]].tolist() == [1, 1]


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("edges", "found"), [(100_000, 1), (200_000, 0)])
def test_lists_of_any_length_are_not_followed_from_each_node_to_their_ends(
    tier: Any, edges: int, found: int
) -> None:
    """Compacting two megabytes of such lists took 15 s."""
    vectors = np.zeros((3, 2), np.float32)
    offsets = np.array([0, 1, edges + 2, edges + 2], np.int64)
    nodes = np.ones(edges + 2, np.int32)
    nodes[-1] = 2  # a live node at the end of the list of a deleted one
    lists = repaired(tier, vectors, offsets, nodes, np.array([True, False, True]), dot=False)
    assert lists.counts[0] == found


@pytest.mark.parametrize("tier", TIERS)
def test_what_lies_apart_comes_before_what_is_near(tier: Any) -> None:
    # Two near ones on one side, one farther off on the other: the second near one comes last.
    vectors = np.array([[0, 0], [2, 0], [3, 0], [-5, 0], [9, 9]], np.float32)
    offsets = np.array([0, 4, 4, 4, 4, 4], np.int64)
    nodes = np.array([1, 2, 3, 4], np.int32)
    live = np.array([True, True, True, True, False])
    lists = repaired(tier, vectors, offsets, nodes, live, dot=False)
    assert lists.nodes[:3].tolist() == [1, 3, 2]
    assert lists.distances[:3].tolist() == [4, 25, 9]


@pytest.mark.parametrize(
    "wrong",
    [
        {"offsets": np.array([0, 2], np.int64)},
        {"offsets": np.array([0, 2, 1, 2], np.int64)},
        {"offsets": np.array([0, 2**63 - 1, 5 - 2**63, 2], np.int64)},
        {"nodes": np.array([1, 3], np.int32)},
        {"nodes": np.array([1, -1], np.int32)},
        {"damaged": np.array([3])},
        {"damaged": np.array([1])},
        {"vector_of": np.array([0, 0, 7], np.int32)},
        {"counts": np.zeros(2, np.int32)},
    ],
    ids=[
        "few",
        "falling",
        "overflowing",
        "large",
        "negative",
        "unknown",
        "deleted",
        "vector_of",
        "counts",
    ],
)
def test_numbers_beyond_the_nodes_are_refused(wrong: dict[str, Any]) -> None:
    nodes = wrong.get("nodes", np.array([1, 2], np.int32))
    vector_of = wrong.get("vector_of", np.arange(3, dtype=np.int32))
    points = Points(np.zeros((3, 2), np.float32), vector_of, dot=False)
    counts = wrong.get("counts", np.zeros(3, np.int32))
    lists = Repaired(counts, np.zeros(2, np.int32), np.zeros(2, np.float32))
    live = np.array([True, False, True])
    with pytest.raises(ValueError, match=r"nodes|vectors|deleted|neighbours"):
        repair_graph(
            wrong.get("offsets", np.array([0, 2, 2, 2], np.int64)),
            nodes,
            live,
            wrong.get("damaged", np.array([0])),
            points,
            lists,
        )
