"""Repair neighbour graphs after nodes were deleted, so that searches still reach all nodes.

A node that lost neighbours gets new ones. The candidates are its remaining neighbours and the
neighbours of the lost nodes. First come candidates that are nearer to the node than to any
neighbour chosen before, then the nearest of the others. No list becomes longer.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple
from glaive.kernels._addresses import address
from glaive.kernels.native import graph as graph_loops
from glaive.types import Flags, Float32s, Int64s

MAX_CANDIDATES: Final = 4096
"""Largest number of candidates for one node."""

Int32s = NDArray[np.int32]


class Points(NamedTuple):
    """Vectors of nodes, and the distance between two of them.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(vectors, dimension)``, contiguous.
    vector_of
        ``int32`` of shape ``(nodes,)``: the vector of each node; ignored for deleted nodes.
    dot
        True if the distance is one minus the dot product; otherwise it is the squared distance.
    """

    vectors: Float32s
    vector_of: Int32s
    dot: bool


class Lists(NamedTuple):
    """Neighbours of each node with their distances: ``counts[i]`` entries from its offset on."""

    counts: Int32s
    nodes: Int32s
    distances: Float32s


def repair_graph(
    offsets: Int64s, nodes: Int32s, live: Flags, damaged: Int64s, points: Points, lists: Lists
) -> None:
    """Fill the lists of the nodes that lost neighbours, up to their former length.

    Parameters
    ----------
    offsets, nodes
        ``int64`` of shape ``(nodes + 1,)``, and ``int32``: the former neighbours of each node.
    live
        ``bool`` of shape ``(nodes,)``: false for deleted nodes.
    damaged
        ``int64``: live nodes that lost neighbours.
    points
        Vectors of the nodes.
    lists
        Lists of all nodes; this function overwrites the lists of the damaged nodes.
    """
    _check(offsets, nodes, live, damaged)
    _check_points(points, live)
    if len(lists.counts) != len(live) or not len(lists.nodes) == len(lists.distances) == len(nodes):
        raise ValueError(f"{len(lists.nodes)} neighbours of {len(lists.counts)} nodes")
    dimension = points.vectors.shape[1]
    stamps = np.zeros(len(live), np.int32)
    scratch = np.empty((4, MAX_CANDIDATES), np.int32)
    graph_loops.repair_graph(
        offsets=address(offsets), nodes=address(nodes), live=address(live.view(np.uint8)),
        damaged=address(damaged), damaged_count=len(damaged), vectors=address(points.vectors),
        vector_of=address(points.vector_of), dimension=dimension, kind=int(points.dot),
        stamps=address(stamps), scratch=address(scratch), capacity=MAX_CANDIDATES,
        into_counts=address(lists.counts), into_nodes=address(lists.nodes),
        into_distances=address(lists.distances),
    )  # fmt: skip


def _check(offsets: Int64s, nodes: Int32s, live: Flags, damaged: Int64s) -> None:
    count = len(live)
    good = len(offsets) == count + 1 and int(offsets[0]) == 0 and int(offsets[-1]) == len(nodes)
    if not good or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{len(offsets)} offsets for {count} nodes and {len(nodes)} neighbours")
    if len(nodes) and (nodes.min() < 0 or nodes.max() >= count):
        raise ValueError(f"neighbours {nodes.min()} to {nodes.max()} of {count} nodes")
    if len(damaged) and (damaged.min() < 0 or damaged.max() >= count):
        raise ValueError(f"nodes {damaged.min()} to {damaged.max()} of {count}")
    if not live[damaged].all():
        raise ValueError("a deleted node cannot be repaired")


def _check_points(points: Points, live: Flags) -> None:
    used = points.vector_of[live]
    if len(points.vector_of) != len(live) or not points.vectors.flags.c_contiguous:
        raise ValueError(f"vectors of {len(points.vector_of)} nodes for {len(live)} nodes")
    if len(used) and (used.min() < 0 or used.max() >= len(points.vectors)):
        raise ValueError(f"vectors {used.min()} to {used.max()} of {len(points.vectors)}")
