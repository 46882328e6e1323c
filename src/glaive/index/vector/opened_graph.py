"""The graph of a partition, ready to be searched.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.dataclass import dataclass
from glaive.index.vector.graph import Graphs
from glaive.kernels.graph_levels import GraphLevel, GraphLevels

__all__ = ["PartitionGraph", "read_graph"]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionGraph:
    """Levels of a graph, the lowest first, and the node on the highest that searches begin with."""

    levels: GraphLevels
    entry: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.levels.nbytes


def read_graph(graphs: Graphs, partition: int, nodes: int) -> PartitionGraph:
    """Read the graph of a partition with so many rows.

    Raises
    ------
    CorruptFileError
        It is damaged, or its entry is no node.
    """
    header = graphs.header(partition)
    stored = graphs.levels(graphs.read(partition), header, nodes)
    levels = []
    for level in stored:
        if not len(level.ids):
            break
        row_of = np.full(nodes, -1, np.int32)
        row_of[level.ids] = np.arange(len(level.ids), dtype=np.int32)
        same = len(level.ids) == nodes and bool((row_of == np.arange(nodes)).all())
        neighbors = level.neighbors.astype(np.uint32)
        levels.append(GraphLevel(level.offsets, neighbors, None if same else row_of))
    if not levels or not 0 <= header.entry < nodes:
        expected, found = f"one of {nodes} nodes", f"{header.entry} on {len(levels)} levels"
        raise graphs.file.corrupt("entry of the graph of an index", expected, found)
    return PartitionGraph(GraphLevels(levels), header.entry)
