"""Build neighbour graphs of several levels: find neighbours of batches of nodes, and link them.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple
from glaive.kernels._addresses import address
from glaive.kernels.native import graph as graph_loops
from glaive.types import Flags, Float32s, Int64s, UInt8s

# --- A growing neighbour graph: vectors, lists of neighbours, entries of these lists -----

Int32s = NDArray[np.int32]

SQUARED, DOT, SQUARED_BYTES = 0, 1, 2
_BLOCK: Final = 64
MAX_BYTES: Final = 32_768
"""Largest size of byte vectors: sums of their squares fit into 32 bits."""

_MAX_NODES: Final = 1 << 28
"""Numbers of nodes are below; higher bits are notes on entries during the build."""


class Lists(NamedTuple):
    """Neighbours of nodes: ``counts[i]`` of ``nodes[i]``, with their distances.

    ``judged[i]`` has two numbers from the last choice of neighbours. The first is the number of
    neighbours, from the start, that are nearer to the node than to each other. The second is the
    number of neighbours compared in this way. Both runs are in order of distance; later entries
    were added since.
    """

    nodes: Int32s
    distances: Float32s
    counts: Int32s
    judged: Int32s

    @classmethod
    def empty(cls, count: int, capacity: int) -> Lists:
        """Return ``count`` empty lists with room for ``capacity`` nodes each."""
        return cls(
            np.empty((count, capacity), np.int32),
            np.empty((count, capacity), np.float32),
            np.zeros(count, np.int32),
            np.zeros((count, 2), np.int32),
        )


class Nodes:
    """Vectors of the nodes of a graph. Immutable.

    Parameters
    ----------
    vectors
        ``float32`` or ``uint8``, of shape ``(n, dimension)``.
    dot
        True if the distance is one minus the dot product, for floats only; otherwise it is the
        squared distance.
    """

    def __init__(self, vectors: NDArray[Any], *, dot: bool) -> None:
        known = vectors.dtype in (np.float32, np.uint8) and vectors.ndim == 2
        if not known or (dot and vectors.dtype == np.uint8) or len(vectors) >= _MAX_NODES:
            raise ValueError(f"{vectors.dtype} of shape {vectors.shape} as nodes, dot={dot}")
        row = vectors.shape[1] * vectors.itemsize
        if vectors.dtype == np.uint8 and row > MAX_BYTES:
            raise ValueError(f"vectors of {row} bytes, at most {MAX_BYTES} can be compared")
        self.size = max(_BLOCK, -(-row // _BLOCK) * _BLOCK)
        if row == self.size and vectors.flags.c_contiguous:
            self.vectors = vectors
        else:
            self.vectors = np.zeros((len(vectors), self.size // vectors.itemsize), vectors.dtype)
            self.vectors[:, : vectors.shape[1]] = vectors
        self.kind = SQUARED_BYTES if vectors.dtype == np.uint8 else DOT if dot else SQUARED

    def __len__(self) -> int:
        return len(self.vectors)


class GrowingGraph:
    """A graph that grows node by node.

    Parameters
    ----------
    nodes
        Vectors of the nodes.
    levels
        ``uint8``: the highest level of each node.
    neighbors
        Largest number of neighbours of a node above level 0; on level 0 twice as many.
    candidates
        Number of candidates for the neighbours of a new node.
    """

    def __init__(self, nodes: Nodes, levels: UInt8s, neighbors: int, candidates: int) -> None:
        if len(levels) != len(nodes) or not len(levels) or levels.dtype != np.uint8:
            raise ValueError(f"{len(levels)} levels of {levels.dtype} for {len(nodes)} nodes")
        if neighbors < 1 or candidates < 1:
            raise ValueError(f"{neighbors} neighbours out of {candidates} candidates")
        self.nodes, self.levels = nodes, np.ascontiguousarray(levels)
        self.neighbors, self.candidates = neighbors, candidates
        ends = levels.cumsum(dtype=np.int64)
        self.upper_of = np.where(levels > 0, ends - levels, -1).astype(np.int32)
        self.lower = Lists.empty(len(nodes), 2 * neighbors)
        self.upper = Lists.empty(int(ends[-1]), neighbors)
        self.entry = -1

    def lists(self, level: int) -> Lists:
        """Return the lists of a level; :meth:`blocks` gives their numbers."""
        return self.upper if level else self.lower

    def blocks(self, nodes: Int32s, level: int) -> Int32s:
        """Return the numbers of the lists that nodes have on one of their levels."""
        return nodes if not level else self.upper_of[nodes] + np.int32(level - 1)


class Edges(NamedTuple):
    """New entries of lists, by list.

    Parameters
    ----------
    targets
        ``int32``: lists, each once.
    starts
        ``int32``: the first entry of each list, and the end of the last.
    sources, distances
        ``int32`` and ``float32``: the entries.
    """

    targets: Int32s
    starts: Int32s
    sources: Int32s
    distances: Float32s

    def part(self, first: int, last: int) -> Edges:
        """Return the entries of some of the lists."""
        return self._replace(targets=self.targets[first:last], starts=self.starts[first : last + 1])


_SCRATCH: Final = 256


class Scratch:
    """Memory for the search of one thread; made for one graph."""

    def __init__(self, graph: GrowingGraph) -> None:
        self.stamps = np.zeros(len(graph.nodes), np.uint8)
        self.stamp = 0
        self.ids = np.empty(graph.candidates, np.int32)
        self.distances = np.empty(graph.candidates, np.float32)
        self.fresh = np.empty(2 * graph.neighbors, np.int32)


def find_neighbors(graph: GrowingGraph, batch: Int32s, scratch: Scratch) -> None:
    """Write the lists of new nodes; other lists stay the same.

    Parameters
    ----------
    graph
        A graph with at least one node.
    batch
        ``int32``: the nodes to add. Threads may add different nodes, each with its own scratch.
    """
    count = len(graph.nodes)
    if not 0 <= graph.entry < count or len(scratch.stamps) != count:
        raise ValueError(f"entry {graph.entry} of {count} nodes")
    if len(batch) and (batch.min() < 0 or batch.max() >= count or batch.dtype != np.int32):
        raise ValueError(f"nodes {batch.min()} to {batch.max()} of {count}")
    entry_level = int(graph.levels[graph.entry])
    nodes, lower, upper = graph.nodes, graph.lower, graph.upper
    batch = np.ascontiguousarray(batch)
    scratch.stamp = graph_loops.find_neighbors(
        batch=address(batch), batch_size=len(batch), vectors=address(nodes.vectors),
        node_count=count, size=nodes.size, kind=nodes.kind, levels=address(graph.levels),
        upper_of=address(graph.upper_of), lower_nodes=address(lower.nodes),
        lower_distances=address(lower.distances), lower_counts=address(lower.counts),
        lower_judged=address(lower.judged), lower_capacity=lower.nodes.shape[1],
        upper_nodes=address(upper.nodes), upper_distances=address(upper.distances),
        upper_counts=address(upper.counts), upper_judged=address(upper.judged),
        upper_capacity=upper.nodes.shape[1], entry=graph.entry, entry_level=entry_level,
        candidates=graph.candidates, stamps=address(scratch.stamps), stamp=scratch.stamp,
        ids=address(scratch.ids), distances=address(scratch.distances),
        fresh=address(scratch.fresh),
    )  # fmt: skip


def link_back(graph: GrowingGraph, lists: Lists, edges: Edges) -> None:
    """Add entries to lists; a full list keeps the entries that lie apart from each other.

    Threads may add parts of the edges with different targets.
    """
    _check_edges(graph, lists, edges)
    capacity = lists.nodes.shape[1]
    size = capacity + _SCRATCH
    ids, distances = np.empty(size, np.int32), np.empty(size, np.float32)
    graph_loops.link_back(
        starts=address(edges.starts), targets=address(edges.targets),
        target_count=len(edges.targets), sources=address(edges.sources),
        source_distances=address(edges.distances), vectors=address(graph.nodes.vectors),
        node_count=len(graph.nodes), size=graph.nodes.size, kind=graph.nodes.kind,
        nodes=address(lists.nodes), distances=address(lists.distances),
        counts=address(lists.counts), judged=address(lists.judged), capacity=capacity,
        ids=address(ids), far=address(distances), scratch_size=size,
    )  # fmt: skip


def _check_edges(graph: GrowingGraph, lists: Lists, edges: Edges) -> None:
    targets, starts, sources = edges.targets, edges.starts, edges.sources
    if len(starts) != len(targets) + 1 or len(sources) != len(edges.distances):
        raise ValueError(f"{len(starts)} starts of {len(targets)} lists")
    if lists.judged.shape != (len(lists.counts), 2) or lists.judged.dtype != np.int32:
        raise ValueError(f"{lists.judged.shape} judged numbers for {len(lists.counts)} lists")
    ends: Int64s = starts.astype(np.int64)
    if len(starts) and (ends[0] < 0 or ends[-1] > len(sources) or (ends[1:] < ends[:-1]).any()):
        raise ValueError(f"entries {ends[0]} to {ends[-1]} of {len(sources)}")
    for numbers, limit in ((targets, len(lists.counts)), (sources, len(graph.nodes))):
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= limit):
            raise ValueError(f"numbers {numbers.min()} to {numbers.max()} below {limit}")


# --- Repair neighbour graphs after nodes were deleted, so that searches still reach all nodes
#
# A node that lost neighbours gets new ones. The candidates are its remaining neighbours and the
# neighbours of the lost nodes. First come candidates that are nearer to the node than to any
# neighbour chosen before, then the nearest of the others. All lists keep their length or shrink.

MAX_CANDIDATES: Final = 4096
"""Largest number of candidates for one node."""


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


class Repaired(NamedTuple):
    """Neighbours of each node with their distances: ``counts[i]`` entries from its offset on."""

    counts: Int32s
    nodes: Int32s
    distances: Float32s


def repair_graph(
    offsets: Int64s, nodes: Int32s, live: Flags, damaged: Int64s, points: Points, lists: Repaired
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
        Repaired of all nodes; this function overwrites the lists of the damaged nodes.
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
