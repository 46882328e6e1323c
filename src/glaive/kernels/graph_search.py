"""Search neighbour graphs: from an entry to whichever neighbours are nearer to a query.

The nearest nodes met so far are kept, up to a capacity; the nearest of them whose neighbours were
not looked at is next. Above the lowest level a capacity of 1 leads to a good entry below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from struct import pack
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address
from glaive.kernels._tier import use_compiled
from glaive.kernels.native import graph_search as compiled
from glaive.kernels.vector_records import SearchGraph
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, Int64s, UInt8s, UInt32s

__all__ = [
    "COMPARISONS",
    "MAX_CAPACITY",
    "Comparison",
    "GraphLevel",
    "NodeCodes",
    "ReachedNodes",
    "compare",
    "exercise",
    "search_graph",
]

Comparison: TypeAlias = Literal["squared", "product", "gap", "bytes", "tables"]

COMPARISONS: Final[tuple[Comparison, ...]] = ("squared", "product", "gap", "bytes", "tables")
_PRODUCTS: Final = ("product", "bytes")
"""Comparisons of which the greatest are the nearest."""

_ENTRIES: Final = 256

MAX_CAPACITY: Final = 1 << 16
"""Nodes that a search keeps, at most."""

_MAX_NODES: Final = 1 << 30
_FRESH: Final = 64


class NodeCodes(NamedTuple):
    """What nodes are, and how they are compared with a query.

    Parameters
    ----------
    comparison
        ``squared`` or ``product`` of vectors, ``gap`` (squared) or ``bytes`` (product) of rows of
        bytes, ``tables`` for bytes that select entries.
    codes
        ``float32`` or ``uint8`` of shape ``(nodes, width)``.
    query
        ``float32`` of shape ``(width,)``; bytes for ``gap``; tables ``(width, 256)``.
    terms
        ``float32``, added to the sum of entries; None for other comparisons.
    """

    comparison: Comparison
    codes: NDArray[Any]
    query: NDArray[Any]
    terms: Float32s | None = None


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


class ReachedNodes(NamedTuple):
    """The nearest nodes that are reached, nearest first.

    Parameters
    ----------
    numbers
        ``int64``: of the nodes.
    compared
        ``float32``: what comparing each gives; with its term, where there are terms.
    """

    numbers: Int64s
    compared: Float32s


def search_graph(
    levels: Sequence[GraphLevel], entry: int, nodes: NodeCodes, capacity: int
) -> ReachedNodes:
    """The nearest nodes that are found; none that is at no distance (NaN) from the query.

    Parameters
    ----------
    levels
        The lowest first.
    entry
        Node to begin with, on the highest level.
    capacity
        Nodes to keep on the lowest level, at most :data:`MAX_CAPACITY`.
    """
    count = _check(nodes)
    right = 0 <= entry < count < _MAX_NODES and 1 <= capacity <= MAX_CAPACITY
    if not right or not 1 <= len(levels) < 256:
        raise ValueError(f"entry {entry} of {count} nodes, capacity {capacity}")
    for level in levels:
        if level.row_of is not None and len(level.row_of) != count:
            raise ValueError(f"rows of {len(level.row_of)} nodes, not {count}")
    if not use_compiled(capacity * nodes.codes.shape[1] * 32):
        found, far = _search_numpy(levels, entry, nodes, capacity)
        return ReachedNodes(found, -far if nodes.comparison in _PRODUCTS else far)
    table = np.frombuffer(b"".join([level.located for level in reversed(levels)]), np.int64)
    visited = np.zeros(count, np.uint8)
    room = np.empty(2 * capacity + _FRESH, np.int32)  # distances, nodes, and neighbours of one
    first = address(room)
    call = SearchGraph(
        levels=address(table), level_count=len(levels), nodes=count, entry=entry,
        visited=address(visited), kind=COMPARISONS.index(nodes.comparison),
        codes=address(nodes.codes), width=nodes.codes.shape[1], query=address(nodes.query),
        terms=0 if nodes.terms is None else address(nodes.terms), capacity=capacity,
        distances=first, found=first + 4 * capacity, fresh=first + 8 * capacity,
    )  # fmt: skip
    size = compiled.search_graph(*call)
    far = room[:size].view(np.float32)
    numbers = room[capacity : capacity + size].astype(np.int64)
    return ReachedNodes(numbers, -far if nodes.comparison in _PRODUCTS else far)


def _search_numpy(
    levels: Sequence[GraphLevel], entry: int, nodes: NodeCodes, capacity: int
) -> tuple[Int64s, Float32s]:
    count = len(nodes.codes)
    beam: list[tuple[np.float32, int]] = []
    for stamp, level in enumerate(reversed(levels), 1):
        room = capacity if stamp == len(levels) else 1
        beam = [(_far(nodes, np.array([entry]))[0], entry)]
        seen, expanded = {entry}, set()
        while waiting := [node for _, node in beam if node not in expanded]:
            expanded.add(waiting[0])
            row = waiting[0] if level.row_of is None else int(level.row_of[waiting[0]])
            if not 0 <= row < len(level.offsets) - 1:
                continue
            near = level.neighbors[level.offsets[row] : level.offsets[row + 1]].tolist()
            fresh = [node for node in dict.fromkeys(near) if node < count and node not in seen]
            seen.update(fresh)
            for node, far in zip(fresh, _far(nodes, np.array(fresh, np.int64)), strict=True):
                if np.isnan(far) or (len(beam) == room and beam[-1][0] <= far):
                    continue
                beam = beam[: room - 1] if len(beam) == room else beam
                place = sum(1 for other, _ in beam if other <= far)
                beam.insert(place, (far, node))
        entry = beam[0][1]
    beam = [(far, node) for far, node in beam if not np.isnan(far)]
    found = np.array([node for _, node in beam], np.int64)
    return found, np.array([far for far, _ in beam], np.float32)


def compare(comparison: Comparison, codes: NDArray[Any], query: NDArray[Any]) -> Float32s:
    """Compare each code with a query, in NumPy: the reference of the kernels that do."""
    compared: NDArray[Any]
    with np.errstate(all="ignore"):
        if comparison == "squared":
            compared = np.square(codes - query).sum(axis=1)
        elif comparison == "gap":
            compared = np.square(codes.astype(np.int32) - query).sum(axis=1)
        elif comparison == "tables":
            compared = query[np.arange(codes.shape[1]), codes].sum(axis=1)
        else:
            compared = codes.astype(np.float32) @ query
    return compared.astype(np.float32)


def _far(nodes: NodeCodes, chosen: Int64s) -> Float32s:
    """Distances of nodes from the query, up to a constant: nodes are ordered by them."""
    compared = compare(nodes.comparison, nodes.codes[chosen], nodes.query)
    if nodes.comparison in _PRODUCTS:
        return -compared
    if nodes.terms is None:
        return compared
    with np.errstate(all="ignore"):
        return nodes.terms[chosen] + compared


def _check(nodes: NodeCodes) -> int:
    comparison, codes, query, terms = nodes
    vectors = comparison in ("squared", "product")
    width = codes.shape[1] if codes.ndim == 2 else -1
    shape = (width, _ENTRIES) if comparison == "tables" else (width,)
    kinds = (
        np.dtype(np.float32 if vectors else np.uint8),
        np.dtype(np.uint8 if comparison == "gap" else np.float32),
    )
    plain = codes.flags.c_contiguous and query.flags.c_contiguous
    if not plain or (codes.dtype, query.dtype) != kinds or query.shape != shape:
        raise ValueError(f"nodes {codes.shape} and query {query.shape} for {comparison}")
    if (comparison == "tables") != (terms is not None):
        raise ValueError(f"terms for {comparison}")
    if terms is not None and (terms.shape != (len(codes),) or terms.dtype != np.float32):
        raise ValueError(f"terms {terms.shape} of nodes {codes.shape}")
    return len(codes)


def exercise() -> None:
    """Call every wrapper once with little data."""
    level = GraphLevel(np.array([0, 1, 2]), np.array([1, 0], np.uint32))
    codes: UInt8s = np.zeros((2, 4), np.uint8)
    search_graph([level], 0, NodeCodes("gap", codes, codes[0]), 2)
