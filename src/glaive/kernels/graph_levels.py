"""Levels of neighbour graphs, checked for kernels that search them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from struct import pack
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address
from glaive.types import Int64s, UInt8s, UInt32s

__all__ = ["GraphLevel", "GraphLevels"]

_MOST_LEVELS: Final = 255


@dataclass(frozen=True, eq=False)
class GraphLevel:
    """Neighbours of the nodes of a level. What they are is checked once, here.

    Parameters
    ----------
    offsets
        ``int64``: where the neighbours of each row begin, and the end of the last.
    neighbors
        ``uint32``: nodes; those that do not exist are passed over.
    row_of
        ``int32`` of shape ``(nodes,)``: the row of each node, -1 for none; None: its number.

    Raises
    ------
    ValueError
        Offsets descend, or leave the neighbours.
    """

    offsets: Int64s
    neighbors: UInt32s
    row_of: NDArray[np.int32] | None = None
    _places: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        offsets, end = self.offsets, len(self.neighbors)
        right = len(offsets) > 0 and offsets.dtype == np.int64 and offsets.flags.c_contiguous
        right = right and int(offsets[0]) >= 0 and int(offsets[-1]) <= end
        if not right or (offsets[1:] < offsets[:-1]).any():
            raise ValueError(f"{len(offsets)} offsets of {end} neighbours")
        if self.neighbors.dtype != np.uint32 or not self.neighbors.flags.c_contiguous:
            raise ValueError(f"neighbours of {self.neighbors.dtype}")
        rows = self.row_of
        if rows is not None and not (rows.dtype == np.int32 and rows.flags.c_contiguous):
            raise ValueError(f"rows of nodes of {rows.dtype}")
        object.__setattr__(self, "_places", self._located() if KEEPS_ADDRESSES else b"")

    @property
    def located(self) -> bytes:
        """Where its arrays are, for the kernel."""
        return self._places or self._located()

    def _located(self) -> bytes:
        row_of = 0 if self.row_of is None else address(self.row_of)
        rows = len(self.offsets) - 1
        return pack("4q", address(self.offsets), address(self.neighbors), rows, row_of)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        rows = 0 if self.row_of is None else self.row_of.nbytes
        return int(self.offsets.nbytes + self.neighbors.nbytes + rows)


@dataclass(frozen=True, eq=False)
class GraphLevels:
    """Levels of a graph. Checked once, here. Threads may share one.

    Parameters
    ----------
    levels
        The lowest first.

    Raises
    ------
    ValueError
        There are none, or too many.
    """

    levels: Sequence[GraphLevel]
    _places: bytes = field(init=False, repr=False)
    _sizes: frozenset[int] = field(init=False, repr=False)
    _visited: list[tuple[UInt8s, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.levels) <= _MOST_LEVELS:
            raise ValueError(f"{len(self.levels)} levels of nodes")
        object.__setattr__(self, "_places", self._located() if KEEPS_ADDRESSES else b"")
        sizes = frozenset(len(one.row_of) for one in self.levels if one.row_of is not None)
        object.__setattr__(self, "_sizes", sizes)
        object.__setattr__(self, "_visited", [])

    @property
    def located(self) -> bytes:
        """Where their arrays are, for the kernel: the highest first."""
        return self._places or self._located()

    def _located(self) -> bytes:
        return b"".join([level.located for level in reversed(self.levels)])

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with those that searches leave to the next one."""
        lowest = len(self.levels[0].offsets)
        return sum(level.nbytes for level in self.levels) + lowest

    def fits(self, nodes: int) -> bool:
        """Whether they are levels of so many nodes."""
        return not self._sizes or self._sizes == {nodes}

    def visited(self, nodes: int) -> tuple[UInt8s, int]:
        """A byte for each node, and a number: no byte is that or greater.

        For one search, which may store this number and, for each further level, the next one.
        """
        # Bytes that a search before left, unless another thread has them: clearing them may take
        # longer than a search.
        flags, stamp = self._visited.pop() if self._visited else (np.zeros(nodes, np.uint8), 1)
        if len(flags) != nodes or stamp + len(self.levels) > _MOST_LEVELS + 1:
            return np.zeros(nodes, np.uint8), 1
        return flags, stamp

    def leave(self, flags: UInt8s, stamp: int) -> None:
        """Leave what :meth:`visited` returned to the next search."""
        if not self._visited:
            self._visited.append((flags, stamp + len(self.levels)))
