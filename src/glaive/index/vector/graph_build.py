"""Build the graph of a partition: which nodes are neighbours on which level.

Nodes are added in random order, in batches that grow with the graph: those of a batch search for
their neighbours on all cores, then become their neighbours' neighbours. The result depends on
the vectors and the parameters alone.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.index.vector.graph import Level
from glaive.index.vector.parameters import GraphParameters
from glaive.io.pool import ordered_map, worker_count
from glaive.kernels.graph_build import (
    Edges,
    GrowingGraph,
    Lists,
    Nodes,
    Scratch,
    find_neighbors,
    link_back,
)

__all__ = ["BuiltGraph", "build_graph"]

Int32s = NDArray[np.int32]

_GROWTH = 32
"""A batch has this part of the nodes that are in the graph already."""

_MAX_BATCH = 16_384
_PARALLEL = 64
"""Nodes of a batch for which threads are worth their start."""

_PREFETCH_DISTANCE = 2
"""Of pylance's searches; part of the header that it reads."""


class BuiltGraph:
    """The graph of a partition.

    Parameters
    ----------
    header
        As it is stored.
    levels
        Of the graph, the lowest first; empty ones above.
    """

    def __init__(self, header: str, levels: list[Level]) -> None:
        self.header, self.levels = header, levels


def build_graph(vectors: NDArray[Any], parameters: GraphParameters, *, dot: bool) -> BuiltGraph:
    """Build a graph over vectors.

    Parameters
    ----------
    vectors
        ``float32`` or ``uint8`` of shape ``(n, dimension)``, ``n`` at least 1.
    parameters
        Of the graph.
    dot
        The distance is one minus the dot product; otherwise the squared distance.
    """
    count = len(vectors)
    random = np.random.default_rng(0)
    drawn = -np.log(1 - random.random(count)) / math.log(parameters.neighbors)
    heights = np.minimum(drawn, parameters.max_level - 1).astype(np.uint8)
    order = random.permutation(count).astype(np.int32)
    nodes = Nodes(vectors, dot=dot)
    graph = GrowingGraph(nodes, heights, parameters.neighbors, parameters.candidates)
    scratches = [Scratch(graph) for _ in range(worker_count())]
    graph.entry = int(order[0])
    added = 1
    while added < count:
        size = min(max(1, added // _GROWTH), _MAX_BATCH, count - added)
        _add(graph, order[added : added + size], scratches)
        added += size
    levels = [_level(graph, level) for level in range(parameters.max_level)]
    offsets = np.cumsum([0, *(len(level.ids) for level in levels)]).tolist()
    header = {
        "entry_point": graph.entry,
        "params": {
            "max_level": parameters.max_level,
            "m": parameters.neighbors,
            "ef_construction": parameters.candidates,
            "prefetch_distance": _PREFETCH_DISTANCE,
        },
        "level_offsets": offsets,
    }
    return BuiltGraph(json.dumps(header, separators=(",", ":")), levels)


def _add(graph: GrowingGraph, batch: Int32s, scratches: list[Scratch]) -> None:
    """Add nodes to the graph."""
    if len(scratches) == 1 or len(batch) < _PARALLEL:
        find_neighbors(graph, batch, scratches[0])
    else:
        parts = zip(np.array_split(batch, len(scratches)), scratches, strict=True)
        work = partial(_find, graph)
        for _ in ordered_map(work, parts):
            pass
    heights = graph.levels[batch]
    top = int(graph.levels[graph.entry])
    for level in range(min(int(heights.max()), top) + 1):
        _link(graph, batch[heights >= level], level, len(scratches))
    highest = int(heights.argmax())
    if heights[highest] > top:
        graph.entry = int(batch[highest])


def _find(graph: GrowingGraph, part: tuple[Int32s, Scratch]) -> None:
    find_neighbors(graph, *part)


def _link(graph: GrowingGraph, batch: Int32s, level: int, workers: int) -> None:
    """Make nodes neighbours of their neighbours."""
    lists = graph.lists(level)
    own = graph.blocks(batch, level)
    counts = lists.counts[own]
    filled = np.arange(lists.nodes.shape[1]) < counts[:, None]
    targets = graph.blocks(lists.nodes[own][filled], level)
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1)).astype(np.int32)
    edges = Edges(
        ordered[starts],
        np.append(starts, np.int32(len(ordered))).astype(np.int32),
        np.repeat(batch, counts)[order],
        lists.distances[own][filled][order],
    )
    if workers == 1 or len(starts) < _PARALLEL:
        link_back(graph, lists, edges)
        return
    cuts = np.linspace(0, len(starts), workers + 1).astype(np.int64).tolist()
    parts = [edges.part(first, last) for first, last in pairwise(cuts)]
    for _ in ordered_map(partial(link_back, graph, lists), parts):
        pass


def _level(graph: GrowingGraph, level: int) -> Level:
    """A level as files store it."""
    ids = np.flatnonzero(graph.levels >= level).astype(np.int32)
    lists: Lists = graph.lists(level)
    own = graph.blocks(ids, level)
    counts = lists.counts[own]
    filled = np.arange(lists.nodes.shape[1]) < counts[:, None]
    return Level(
        ids.astype(np.int64),
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        lists.nodes[own][filled].astype(np.int64),
        lists.distances[own][filled],
    )
