"""Neighbour graphs: both tiers build the same one, and searches find what is near."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.index.vector.graph import BuiltGraph, build_graph
from glaive.index.vector.parameters import GraphParameters
from glaive.kernels.graph_build import (
    Edges,
    GrowingGraph,
    Nodes,
    Scratch,
    find_neighbors,
    link_back,
)


def whole_numbers(seed: int, *shape: int, kind: Any = np.float32) -> Any:
    """Numbers whose distances are exact."""
    return np.random.default_rng(seed).integers(0, 9, shape).astype(kind)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 60),
    dimension=st.sampled_from([1, 3, 16, 70]),
    neighbors=st.integers(2, 5),
    kind=st.sampled_from(["squared", "dot", "bytes"]),
)
def test_both_tiers_build_the_same_graph(
    seed: int, count: int, dimension: int, neighbors: int, kind: str
) -> None:
    vectors = whole_numbers(
        seed, count, dimension, kind=np.uint8 if kind == "bytes" else np.float32
    )
    graphs = []
    for tier in ("numpy", "numba"):
        with force_tier(tier):  # type: ignore[arg-type]  # one of its names
            built = build_graph(vectors, GraphParameters(4, neighbors, 9), dot=kind == "dot")
        graphs.append((built.header, [[part.tolist() for part in one] for one in built.levels]))
    assert graphs[0] == graphs[1]


@pytest.fixture(scope="module")
def vectors() -> Any:
    return np.random.default_rng(1).standard_normal((1000, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def graph(vectors: Any) -> BuiltGraph:
    return build_graph(vectors, GraphParameters(7, 8, 40), dot=False)


def test_lists_are_no_longer_than_they_may_be_and_lead_to_every_node(
    vectors: Any, graph: BuiltGraph
) -> None:
    reached = {0}
    waiting = [0]
    level = graph.levels[0]
    for node in waiting:
        begin, end = level.offsets[node : node + 2]
        neighbours = level.neighbors[begin:end]
        assert len(neighbours) <= 16
        assert len(set(neighbours.tolist())) == len(neighbours)
        assert node not in neighbours
        true = np.square(vectors[neighbours] - vectors[node]).sum(axis=1)
        assert np.allclose(level.distances[begin:end], true, rtol=1e-4)
        fresh = set(neighbours.tolist()) - reached
        reached |= fresh
        waiting += sorted(fresh)
    assert len(reached) > 996
    assert len(graph.levels) > 2
    for upper in graph.levels[1:]:
        assert (np.diff(upper.offsets) <= 8).all()


def test_new_nodes_have_as_many_neighbours_as_they_may(graph: BuiltGraph) -> None:
    degrees = np.diff(graph.levels[0].offsets)
    assert np.quantile(degrees, 0.05) >= 8  # fewer only among the first nodes
    assert degrees.max() <= 16


def test_equal_vectors_are_all_linked() -> None:
    graph = build_graph(np.ones((500, 4), np.float32), GraphParameters(3, 5, 20), dot=False)
    assert (np.diff(graph.levels[0].offsets) > 0).all()


def test_numbers_that_do_not_fit_are_refused() -> None:
    graph = GrowingGraph(Nodes(whole_numbers(0, 4, 2), dot=False), np.zeros(4, np.uint8), 2, 4)
    with pytest.raises(ValueError, match="entry -1"):
        find_neighbors(graph, np.array([1], np.int32), Scratch(graph))
    graph.entry = 0
    with pytest.raises(ValueError, match="nodes 4 to 4"):
        find_neighbors(graph, np.array([4], np.int32), Scratch(graph))
    one = np.array([1], np.int32)
    for edges, message in (
        (Edges(one, one, one, np.ones(1, np.float32)), "starts"),
        (Edges(one, np.array([0, 2], np.int32), one, np.ones(1, np.float32)), "entries 0 to 2"),
        (Edges(one + 3, np.array([0, 1], np.int32), one, np.ones(1, np.float32)), "below 4"),
        (Edges(one, np.array([0, 1], np.int32), one - 2, np.ones(1, np.float32)), "below 4"),
    ):
        with pytest.raises(ValueError, match=message):
            link_back(graph, graph.lower, edges)
    for vectors, dot in ((whole_numbers(0, 3, 2, kind=np.uint8), True), (np.ones((2, 2)), False)):
        with pytest.raises(ValueError, match="as nodes"):
            Nodes(vectors, dot=dot)
    with pytest.raises(ValueError, match="at most"):
        Nodes(np.zeros((1, 40_000), np.uint8), dot=False)
    with pytest.raises(ValueError, match="levels"):
        GrowingGraph(Nodes(whole_numbers(0, 4, 2), dot=False), np.zeros(3, np.uint8), 2, 4)
    with pytest.raises(ValueError, match="out of 0"):
        GrowingGraph(Nodes(whole_numbers(0, 4, 2), dot=False), np.zeros(4, np.uint8), 2, 0)
