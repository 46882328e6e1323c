"""A neighbour graph to which nodes are added: vectors, lists of neighbours, entries of these."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import NamedTuple
from glaive.types import Float32s, UInt8s

Int32s = NDArray[np.int32]

SQUARED, DOT, SQUARED_BYTES = 0, 1, 2
_BLOCK: Final = 64
MAX_BYTES: Final = 32_768
"""Of byte vectors: sums of their squares fit into 32 bits."""

_MAX_NODES: Final = 1 << 28
"""The bits above are for what building knows of an entry."""


class Lists(NamedTuple):
    """Neighbours of nodes: ``counts[i]`` of ``nodes[i]``, with their distances.

    ``judged[i]`` tells what is known of them since they were last chosen: how many, from the
    first on, are nearer to the node than to each other, and how many are known in all. Both
    runs are in order of distance; what is behind them was added since.
    """

    nodes: Int32s
    distances: Float32s
    counts: Int32s
    judged: Int32s

    @classmethod
    def empty(cls, count: int, capacity: int) -> Lists:
        """So many lists with room for ``capacity`` nodes each."""
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
        The distance is one minus the dot product; otherwise the squared distance. Only for
        floats.
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
    """A graph to which nodes are added.

    Parameters
    ----------
    nodes
        Their vectors.
    levels
        ``uint8``: the highest level of each node.
    neighbors
        Of a node above level 0 at most; on level 0 twice as many.
    candidates
        Considered for a node that is added.
    """

    def __init__(self, nodes: Nodes, levels: UInt8s, neighbors: int, candidates: int) -> None:
        if len(levels) != len(nodes) or not len(levels) or levels.dtype != np.uint8:
            raise ValueError(f"{len(levels)} levels of {levels.dtype} for {len(nodes)} nodes")
        if neighbors < 1 or candidates < 1:
            raise ValueError(f"{neighbors} neighbours out of {candidates} candidates")
        self.nodes, self.levels = nodes, np.ascontiguousarray(levels)
        self.neighbors, self.candidates = neighbors, candidates
        ends = np.cumsum(levels, dtype=np.int64)
        self.upper_of = np.where(levels > 0, ends - levels, -1).astype(np.int32)
        self.lower = Lists.empty(len(nodes), 2 * neighbors)
        self.upper = Lists.empty(int(ends[-1]), neighbors)
        self.entry = -1

    def lists(self, level: int) -> Lists:
        """The lists of a level, by :meth:`blocks`."""
        return self.upper if level else self.lower

    def blocks(self, nodes: Int32s, level: int) -> Int32s:
        """Which lists belong to nodes on a level that they are on."""
        return nodes if not level else self.upper_of[nodes] + np.int32(level - 1)


class Edges(NamedTuple):
    """New entries of lists, by list.

    Parameters
    ----------
    targets
        ``int32``: lists, each once.
    starts
        ``int32``: where the entries of each begin, and the end of the last.
    sources, distances
        ``int32`` and ``float32``: the entries.
    """

    targets: Int32s
    starts: Int32s
    sources: Int32s
    distances: Float32s

    def part(self, first: int, last: int) -> Edges:
        """The entries of some of the lists."""
        return self._replace(targets=self.targets[first:last], starts=self.starts[first : last + 1])
