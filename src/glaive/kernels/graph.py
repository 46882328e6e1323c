"""Neighbour graphs whose nodes are gone in part: lists mended so that searches still arrive.

A node that lost neighbours gets new ones from among those it kept and those that the lost
ones had: first such that none is nearer to one taken before than to the node, then the
nearest of the others. No list becomes longer than it was.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_loops
from glaive.kernels.native import graph as loops
from glaive.kernels.records import MendGraph

__all__ = ["Lists", "Points", "exercise", "mend"]

ROOM: Final = 4096
"""Candidates that are looked at for one node, at most."""

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Floats = NDArray[np.float32]


class Points(NamedTuple):
    """Vectors of nodes and what is between two of them.

    Parameters
    ----------
    vectors
        (vectors, dimension), row by row.
    place
        Which vector each node has; of nodes that are gone it means nothing.
    dot
        One minus the dot product; otherwise the squared distance.
    """

    vectors: Floats
    place: Int32s
    dot: bool

    def between(self, one: int, others: Int32s) -> Floats:
        """Distances of one node to others."""
        here, there = self.vectors[self.place[one]], self.vectors[self.place[others]]
        if self.dot:
            return np.asarray(1 - there @ here, np.float32)
        found: Floats = np.square(there - here).sum(axis=1, dtype=np.float32)
        return found


class Lists(NamedTuple):
    """Neighbours of each node with their distances: ``counts`` of the places from its offset."""

    counts: Int32s
    nodes: Int32s
    distances: Floats


def mend(
    offsets: Int64s,
    nodes: Int32s,
    kept: NDArray[np.bool_],
    damaged: Int64s,
    points: Points,
    lists: Lists,
) -> None:
    """Fill the lists of the nodes that lost neighbours, at most up to what they were.

    Parameters
    ----------
    offsets, nodes
        Neighbours of each node as they were.
    kept
        Which nodes are left.
    damaged
        Nodes that are left and lost neighbours.
    lists
        Those of the damaged nodes are overwritten.
    """
    _check(offsets, nodes, kept, damaged)
    _check_points(points, kept)
    if len(lists.counts) != len(kept) or not len(lists.nodes) == len(lists.distances) == len(nodes):
        raise ValueError(f"{len(lists.nodes)} neighbours of {len(lists.counts)} nodes")
    dimension = points.vectors.shape[1]
    if use_loops(len(nodes) * max(1, dimension)):
        stamps = np.zeros(len(kept), np.int32)
        scratch = np.empty((4, ROOM), np.int32)
        call = MendGraph(
            offsets=address(offsets),
            nodes=address(nodes),
            kept=address(kept.view(np.uint8)),
            damaged=address(damaged),
            damaged_count=len(damaged),
            vectors=address(points.vectors),
            place=address(points.place),
            dimension=dimension,
            dot=int(points.dot),
            stamps=address(stamps),
            scratch=address(scratch),
            room=ROOM,
            into_counts=address(lists.counts),
            into_nodes=address(lists.nodes),
            into_distances=address(lists.distances),
        )
        loops.mend(*call)
        return
    for node in damaged.tolist():
        at, end = int(offsets[node]), int(offsets[node + 1])
        found = _candidates(offsets, nodes, kept, node, end - at)
        far = points.between(node, found)
        order = np.lexsort((found, far))
        found, far = found[order], far[order]
        taken = _spread(found, far, points, end - at)
        lists.counts[node] = len(taken)
        lists.nodes[at : at + len(taken)] = found[taken]
        lists.distances[at : at + len(taken)] = far[taken]


def _candidates(
    offsets: Int64s, nodes: Int32s, kept: NDArray[np.bool_], node: int, enough: int
) -> Int32s:
    """Neighbours that are left and, through those that are gone, theirs."""
    seen, gone = {node}, [node]
    found: list[int] = []
    direct = None
    for at, through in enumerate(gone):
        # The loop runs on over what is appended to ``gone`` below.
        if direct is not None and at >= direct and len(found) >= enough:
            break
        for one in nodes[offsets[through] : offsets[through + 1]].tolist():
            if one not in seen and len(found) < ROOM and len(gone) <= ROOM:
                seen.add(one)
                (found if kept[one] else gone).append(one)
        if direct is None:
            direct = len(gone)
    return np.array(found, np.int32)


def _spread(found: Int32s, far: Floats, points: Points, room: int) -> Int64s:
    """Which candidates are taken: those that lie apart, then the nearest of the others."""
    taken: list[int] = []
    for at in range(len(found)):
        if len(taken) == room:
            break
        others = found[taken]
        if not len(others) or not (points.between(int(found[at]), others) < far[at]).any():
            taken.append(at)
    rest = np.setdiff1d(np.arange(len(found)), taken)
    return np.concatenate([taken, rest[: room - len(taken)]]).astype(np.int64)


def _check(offsets: Int64s, nodes: Int32s, kept: NDArray[np.bool_], damaged: Int64s) -> None:
    count = len(kept)
    good = len(offsets) == count + 1 and int(offsets[0]) == 0 and int(offsets[-1]) == len(nodes)
    if not good or (np.diff(offsets) < 0).any():
        raise ValueError(f"{len(offsets)} offsets for {count} nodes and {len(nodes)} neighbours")
    if len(nodes) and (nodes.min() < 0 or nodes.max() >= count):
        raise ValueError(f"neighbours {nodes.min()} to {nodes.max()} of {count} nodes")
    if len(damaged) and (damaged.min() < 0 or damaged.max() >= count):
        raise ValueError(f"nodes {damaged.min()} to {damaged.max()} of {count}")
    if not kept[damaged].all():
        raise ValueError("a node that is gone cannot be mended")


def _check_points(points: Points, kept: NDArray[np.bool_]) -> None:
    places = points.place[kept]
    if len(points.place) != len(kept) or not points.vectors.flags.c_contiguous:
        raise ValueError(f"{len(points.place)} places of {len(kept)} nodes")
    if len(places) and (places.min() < 0 or places.max() >= len(points.vectors)):
        raise ValueError(f"places {places.min()} to {places.max()}, {len(points.vectors)} vectors")


def exercise() -> None:
    """Call every wrapper once with a tiny input."""
    offsets = np.array([0, 2, 4, 6], np.int64)
    nodes = np.array([1, 2, 0, 2, 0, 1], np.int32)
    kept = np.array([True, False, True])
    points = Points(np.eye(3, dtype=np.float32), np.arange(3, dtype=np.int32), dot=False)
    lists = Lists(np.zeros(3, np.int32), nodes.copy(), np.zeros(6, np.float32))
    mend(offsets, nodes, kept, np.array([0, 2]), points, lists)
