"""Remove nodes from the graph of a partition, and repair the neighbours they leave.

Specification: "Graphs" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import numpy as np

from glaive.index.vector.graph import Header, Level
from glaive.kernels.graph import Lists, Points, repair_graph
from glaive.types import Flags, Float32s, Int64s

__all__ = ["without_nodes"]


def without_nodes(
    header: Header, levels: list[Level], kept: Flags, vectors: Float32s, *, dot: bool
) -> tuple[str, list[Level]]:
    """The graph over the remaining vectors, which are renumbered.

    Parameters
    ----------
    kept
        Which vectors of the partition remain; at least one.
    vectors
        The remaining ones.

    Returns
    -------
    tuple
        The header of the graph, and its levels. Nodes stay on their levels.
    """
    renumbered = np.cumsum(kept) - 1
    changed = [_without(level, kept, renumbered, vectors, dot=dot) for level in levels]
    entry = header.entry
    if 0 <= entry < len(kept) and kept[entry]:
        entry = int(renumbered[entry])
    else:
        top = max(number for number, level in enumerate(changed) if len(level.ids))
        entry = int(changed[top].ids[0])
    return header.changed(entry, [len(level.ids) for level in changed]), changed


def _without(
    level: Level, kept: Flags, renumbered: Int64s, vectors: Float32s, *, dot: bool
) -> Level:
    count = len(level.ids)
    row_of = np.zeros(len(kept), np.int32)
    row_of[level.ids] = np.arange(count)
    stays = kept[level.ids]
    nodes = row_of[level.neighbors]
    degrees = np.diff(level.offsets)
    rows = np.repeat(np.arange(count), degrees)
    surviving = np.bincount(rows[stays[nodes]], minlength=count)
    damaged = np.flatnonzero(stays & (surviving < degrees))
    lists = Lists(degrees.astype(np.int32), nodes.copy(), level.distances.copy())
    if len(damaged):
        vector_of = np.where(stays, renumbered[level.ids], 0).astype(np.int32)
        points = Points(np.ascontiguousarray(vectors), vector_of, dot=dot)
        repair_graph(level.offsets, nodes, stays, damaged, points, lists)
    counts = np.where(stays, lists.counts, 0)
    filled = np.arange(len(nodes)) - level.offsets[rows] < counts[rows]
    return Level(
        renumbered[level.ids[stays]],
        np.concatenate([[0], np.cumsum(counts[stays], dtype=np.int64)]),
        renumbered[level.ids[lists.nodes[filled]]],
        lists.distances[filled],
    )
