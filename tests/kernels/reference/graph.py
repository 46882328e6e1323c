"""NumPy references of ``glaive.kernels.graph``."""

from __future__ import annotations

from typing import Final

import numpy as np

from glaive.kernels.graph import MAX_CANDIDATES, Int32s, Lists, Points, _check, _check_points
from glaive.types import Flags, Float32s, Int64s

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
    offsets: Int64s, nodes: Int32s, live: Flags, damaged: Int64s, points: Points, lists: Lists
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
        chosen = _choose(candidates, distances, points, end - at)
        lists.counts[node] = len(chosen)
        lists.nodes[at : at + len(chosen)] = candidates[chosen]
        lists.distances[at : at + len(chosen)] = distances[chosen]


def _candidates(offsets: Int64s, nodes: Int32s, live: Flags, node: int, enough: int) -> Int32s:
    """Live neighbours, and those reached through deleted neighbours."""
    seen, deleted = {node}, [node]
    candidates: list[int] = []
    direct = None
    room = _MAX_EDGES
    for at, through in enumerate(deleted):
        # The loop also visits what is appended to ``deleted`` below.
        if direct is not None and (room == 0 or (at >= direct and len(candidates) >= enough)):
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


def _choose(candidates: Int32s, distances: Float32s, points: Points, count: int) -> Int64s:
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
