"""Build neighbour graphs of several levels: batches of nodes search for neighbours and are linked.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.kernels import _graph_build_reference as reference
from glaive.kernels._addresses import address
from glaive.kernels._growing_graph import Edges, GrowingGraph, Lists
from glaive.kernels.native import graph_build as graph_build_loops
from glaive.kernels.native import use_compiled
from glaive.types import Int64s

Int32s = NDArray[np.int32]

_SCRATCH: Final = 256
_DISTANCES_PER_NODE: Final = 1000


class Scratch:
    """Memory for the search of one thread; made for one graph."""

    def __init__(self, graph: GrowingGraph) -> None:
        self.stamps = np.zeros(len(graph.nodes), np.uint8)
        self.stamp = 0
        self.ids = np.empty(graph.candidates, np.int32)
        self.distances = np.empty(graph.candidates, np.float32)
        self.fresh = np.empty(2 * graph.neighbors, np.int32)


def find_neighbors(graph: GrowingGraph, batch: Int32s, scratch: Scratch) -> None:
    """Write the lists of nodes that are not in the graph yet; others do not change.

    Parameters
    ----------
    graph
        With at least one node.
    batch
        ``int32``: the nodes to be added. Threads may have different ones, and scratch of their own.
    """
    count = len(graph.nodes)
    if not 0 <= graph.entry < count or len(scratch.stamps) != count:
        raise ValueError(f"entry {graph.entry} of {count} nodes")
    if len(batch) and (batch.min() < 0 or batch.max() >= count or batch.dtype != np.int32):
        raise ValueError(f"nodes {batch.min()} to {batch.max()} of {count}")
    entry_level = int(graph.levels[graph.entry])
    if not use_compiled(len(batch) * _DISTANCES_PER_NODE):
        reference.find_neighbors(graph, batch)
        return
    nodes, lower, upper = graph.nodes, graph.lower, graph.upper
    batch = np.ascontiguousarray(batch)
    scratch.stamp = graph_build_loops.find_neighbors(
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
    """Add entries to lists; of a list that is full those stay that lie apart.

    Threads may have parts of the edges with different targets.
    """
    _check_edges(graph, lists, edges)
    if not use_compiled(len(edges.targets) * _DISTANCES_PER_NODE):
        reference.link_back(graph, lists, edges)
        return
    capacity = lists.nodes.shape[1]
    size = capacity + _SCRATCH
    ids, far = np.empty(size, np.int32), np.empty(size, np.float32)
    graph_build_loops.link_back(
        starts=address(edges.starts), targets=address(edges.targets),
        target_count=len(edges.targets), sources=address(edges.sources),
        source_distances=address(edges.distances), vectors=address(graph.nodes.vectors),
        node_count=len(graph.nodes), size=graph.nodes.size, kind=graph.nodes.kind,
        nodes=address(lists.nodes), distances=address(lists.distances),
        counts=address(lists.counts), judged=address(lists.judged), capacity=capacity,
        ids=address(ids), far=address(far), scratch_size=size,
    )  # fmt: skip


def _check_edges(graph: GrowingGraph, lists: Lists, edges: Edges) -> None:
    targets, starts, sources = edges.targets, edges.starts, edges.sources
    if len(starts) != len(targets) + 1 or len(sources) != len(edges.distances):
        raise ValueError(f"{len(starts)} starts of {len(targets)} lists")
    if lists.judged.shape != (len(lists.counts), 2) or lists.judged.dtype != np.int32:
        raise ValueError(f"{lists.judged.shape} numbers of what is known of {len(lists.counts)}")
    ends: Int64s = starts.astype(np.int64)
    if len(starts) and (ends[0] < 0 or ends[-1] > len(sources) or (ends[1:] < ends[:-1]).any()):
        raise ValueError(f"entries {ends[0]} to {ends[-1]} of {len(sources)}")
    for numbers, limit in ((targets, len(lists.counts)), (sources, len(graph.nodes))):
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= limit):
            raise ValueError(f"numbers {numbers.min()} to {numbers.max()} below {limit}")
