"""NumPy references of ``glaive.kernels.graph_build``."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

import numpy as np

from glaive.kernels.graph_build import (
    DOT,
    MAX_CANDIDATES,
    Edges,
    GrowingGraph,
    Int32s,
    Lists,
    Nodes,
    Points,
    Repaired,
    Scratch,
    _check,
    _check_edges,
    _check_points,
)
from glaive.types import Flags, Float32s, Int64s

Candidate = tuple[float, int]
"""Distance and node."""


def _distance(nodes: Nodes, first: int, second: int) -> float:
    left, right = (nodes.vectors[node].astype(np.float32) for node in (first, second))
    with np.errstate(all="ignore"):
        if nodes.kind == DOT:
            return float(np.float32(1) - left @ right)
        return float(np.square(left - right).sum(dtype=np.float32))


def _insert(candidates: list[Candidate], far: float, node: int) -> None:
    candidates.insert(bisect_right(candidates, far, key=lambda one: one[0]), (far, node))


def _search_level(
    graph: GrowingGraph, query: int, level: int, candidates: list[Candidate], most: int
) -> list[Candidate]:
    """Look at the neighbours of the nearest candidate that was not looked at, until all were."""
    seen, expanded = {node for _, node in candidates}, set()
    lists = graph.lists(level)
    while waiting := [node for _, node in candidates if node not in expanded]:
        node = waiting[0]
        expanded.add(node)
        block = int(graph.blocks(np.array([node], np.int32), level)[0])
        fresh = [other for other in lists.nodes[block, : lists.counts[block]].tolist()
                 if other not in seen]  # fmt: skip
        seen.update(fresh)
        for other in fresh:
            far = _distance(graph.nodes, query, other)
            if len(candidates) < most or far < candidates[-1][0]:
                _insert(candidates, far, other)
                del candidates[most:]
    return candidates


def _choose(
    nodes: Nodes, candidates: list[Candidate], most: int
) -> tuple[list[Candidate], list[Candidate]]:
    """The nearest first, each nearer to the query than to any chosen before; and others."""
    chosen: list[Candidate] = []
    others: list[Candidate] = []
    for far, node in candidates:
        apart = not any(_distance(nodes, node, other) < far for _, other in chosen)
        (chosen if apart and len(chosen) < most else others).append((far, node))
    return chosen, others[: most - len(chosen)]


def _store(lists: Lists, block: int, chosen: list[Candidate]) -> None:
    lists.counts[block] = len(chosen)
    lists.nodes[block, : len(chosen)] = [node for _, node in chosen]
    lists.distances[block, : len(chosen)] = [far for far, _ in chosen]


def _find_numpy(graph: GrowingGraph, batch: Any) -> None:
    """See :func:`glaive.kernels.graph_build.find_neighbors`."""
    for node in batch.tolist():
        own_level = int(graph.levels[node])
        candidates = [(_distance(graph.nodes, node, graph.entry), graph.entry)]
        for level in range(int(graph.levels[graph.entry]), -1, -1):
            most = graph.candidates if level <= own_level else 1
            candidates = _search_level(graph, node, level, candidates, most)
            if level <= own_level:
                block = int(graph.blocks(np.array([node], np.int32), level)[0])
                lists = graph.lists(level)
                apart, others = _choose(graph.nodes, candidates, lists.nodes.shape[1])
                _store(lists, block, apart + others)
                lists.judged[block] = len(apart), len(apart + others)


def _link_numpy(graph: GrowingGraph, lists: Lists, edges: Edges) -> None:
    """See :func:`glaive.kernels.graph_build.link_back`."""
    capacity = lists.nodes.shape[1]
    for at, block in enumerate(edges.targets.tolist()):
        entries = list(range(int(edges.starts[at]), int(edges.starts[at + 1])))
        count = int(lists.counts[block])
        have = list(
            zip(
                lists.distances[block, :count].tolist(),
                lists.nodes[block, :count].tolist(),
                strict=True,
            )
        )
        while entries:
            room = capacity - len(have)
            if room:
                added, entries = entries[:room], entries[room:]
                have += [(float(edges.distances[one]), int(edges.sources[one])) for one in added]
                continue
            merged: list[Candidate] = []
            for far, node in have:
                _insert(merged, far, node)
            while entries and len(merged) < capacity + 256:
                one = entries.pop(0)
                _insert(merged, float(edges.distances[one]), int(edges.sources[one]))
            apart, others = _choose(graph.nodes, merged, capacity)
            have = apart + others
            lists.judged[block] = len(apart), len(have)
        _store(lists, block, have)


def find_neighbors(graph: GrowingGraph, batch: Int32s, scratch: Scratch) -> None:
    """Write the lists of nodes that are not in the graph yet; others do not change."""
    count = len(graph.nodes)
    if not 0 <= graph.entry < count or len(scratch.stamps) != count:
        raise ValueError(f"entry {graph.entry} of {count} nodes")
    if len(batch) and (batch.min() < 0 or batch.max() >= count or batch.dtype != np.int32):
        raise ValueError(f"nodes {batch.min()} to {batch.max()} of {count}")
    _find_numpy(graph, batch)


def link_back(graph: GrowingGraph, lists: Lists, edges: Edges) -> None:
    """Add entries to lists; of a list that is full those stay that lie apart."""
    _check_edges(graph, lists, edges)
    _link_numpy(graph, lists, edges)


_MAX_EDGES: Final = 1 << 17


def between(points: Points, node: int, others: Int32s) -> Float32s:
    """Distances of a node to other nodes."""
    here, there = points.vectors[points.vector_of[node]], points.vectors[points.vector_of[others]]
    with np.errstate(all="ignore"):
        if points.dot:
            return np.asarray(1 - there @ here, np.float32)
        distances: Float32s = np.square(there - here).sum(axis=1, dtype=np.float32)
        return distances


def repair_graph(
    offsets: Int64s, nodes: Int32s, live: Flags, damaged: Int64s, points: Points, lists: Repaired
) -> None:
    """Fill the lists of the nodes that lost neighbours, at most up to their former length."""
    _check(offsets, nodes, live, damaged)
    _check_points(points, live)
    if len(lists.counts) != len(live) or not len(lists.nodes) == len(lists.distances) == len(nodes):
        raise ValueError(f"{len(lists.nodes)} neighbours of {len(lists.counts)} nodes")
    for node in damaged.tolist():
        at, end = int(offsets[node]), int(offsets[node + 1])
        candidates = _candidates(offsets, nodes, live, node, end - at)
        distances = between(points, node, candidates)
        order = np.argsort(distances, kind="stable")
        candidates, distances = candidates[order], distances[order]
        chosen = _choose_repaired(candidates, distances, points, end - at)
        lists.counts[node] = len(chosen)
        lists.nodes[at : at + len(chosen)] = candidates[chosen]
        lists.distances[at : at + len(chosen)] = distances[chosen]


def _candidates(offsets: Int64s, nodes: Int32s, live: Flags, node: int, wanted: int) -> Int32s:
    """Live neighbours, and those reached through deleted neighbours."""
    seen, deleted = {node}, [node]
    candidates: list[int] = []
    direct = None
    room = _MAX_EDGES
    for at, through in enumerate(deleted):
        # The loop also visits what is appended to ``deleted`` below.
        if direct is not None and (room == 0 or (at >= direct and len(candidates) >= wanted)):
            break
        here = nodes[offsets[through] : offsets[through + 1]][:room].tolist()
        room -= len(here)
        for neighbour in here:
            full = len(candidates) >= MAX_CANDIDATES or len(deleted) > MAX_CANDIDATES
            if neighbour not in seen and not full:
                seen.add(neighbour)
                (candidates if live[neighbour] else deleted).append(neighbour)
        if direct is None:
            direct = len(deleted)
    return np.array(candidates, np.int32)


def _choose_repaired(candidates: Int32s, distances: Float32s, points: Points, count: int) -> Int64s:
    """Indices of the chosen candidates: those that lie apart, then the nearest of the others."""
    chosen: list[int] = []
    for at, candidate in enumerate(candidates.tolist()):
        if len(chosen) == count:
            break
        before = candidates[chosen]
        if not len(before) or not (between(points, candidate, before) < distances[at]).any():
            chosen.append(at)
    rest = np.setdiff1d(np.arange(len(candidates)), chosen)
    return np.concatenate([chosen, rest[: count - len(chosen)]]).astype(np.int64)
