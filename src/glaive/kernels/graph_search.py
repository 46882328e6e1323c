"""Search neighbour graphs: from an entry to whichever neighbours are nearer to a query.

The nearest nodes met so far are kept, up to a capacity; the nearest of them whose neighbours were
not looked at is next. Above the lowest level a capacity of 1 leads to a good entry below.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Any, Final, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from glaive.kernels._addresses import address
from glaive.kernels._tier import use_compiled
from glaive.kernels.graph_levels import GraphLevel, GraphLevels
from glaive.kernels.native import graph_search as compiled
from glaive.kernels.partition_rows import RowPlaces
from glaive.kernels.vector_records import SearchGraph
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, Int64s, UInt8s, UInt64s

__all__ = [
    "COMPARISONS",
    "MAX_CAPACITY",
    "Comparison",
    "NodeCodes",
    "ReachedNodes",
    "ReachedRows",
    "Scale",
    "compare",
    "exercise",
    "search_graph",
]

Comparison: TypeAlias = Literal["squared", "product", "gap", "bytes", "tables"]

COMPARISONS: Final[tuple[Comparison, ...]] = ("squared", "product", "gap", "bytes", "tables")
_NUMBERS: Final = {comparison: at for at, comparison in enumerate(COMPARISONS)}
_FLOAT, _BYTE = np.dtype(np.float32), np.dtype(np.uint8)
_TYPES: Final = {
    "squared": (_FLOAT, _FLOAT),
    "product": (_FLOAT, _FLOAT),
    "gap": (_BYTE, _BYTE),
    "bytes": (_BYTE, _FLOAT),
    "tables": (_BYTE, _FLOAT),
}
"""Types of codes and of the query."""

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


class Scale(NamedTuple):
    """What is compared becomes a distance: ``offset + (compared - shift) * factor``."""

    offset: float = 0
    shift: float = 0
    factor: float = 1


class ReachedNodes(NamedTuple):
    """The nearest nodes that are reached, nearest first.

    Parameters
    ----------
    numbers
        Of the nodes.
    distances
        ``float32``: what comparing each gives, with its term where there are terms, scaled.
    """

    numbers: NDArray[np.signedinteger]
    distances: Float32s


class ReachedRows(NamedTuple):
    """The rows of the nearest nodes, nearest first, and the distance of the next node."""

    distance: Float32s
    key: UInt64s
    fragment: Int64s
    row: Int64s
    next_distance: float


_AS_COMPARED: Final = Scale()


@overload
def search_graph(
    levels: GraphLevels, entry: int, nodes: NodeCodes, capacity: int, scale: Scale = ...
) -> ReachedNodes: ...


@overload
def search_graph(
    levels: GraphLevels, entry: int, nodes: NodeCodes, capacity: int, scale: Scale = ..., *,
    places: RowPlaces | None, wanted: int,
) -> ReachedNodes | ReachedRows: ...  # fmt: skip


def search_graph(
    levels: GraphLevels,
    entry: int,
    nodes: NodeCodes,
    capacity: int,
    scale: Scale = _AS_COMPARED,
    *,
    places: RowPlaces | None = None,
    wanted: int = 0,
) -> ReachedNodes | ReachedRows:
    """The nearest nodes that are found; none that is at no distance (NaN) from the query.

    Parameters
    ----------
    entry
        Node to begin with, on the highest level.
    capacity
        Nodes to keep on the lowest level, at most :data:`MAX_CAPACITY`.
    scale
        What is compared is scaled by.
    places
        Of the nodes. With them the ``wanted`` nearest are returned as rows if there are more, and
        none of them is as far as the next.
    """
    count = _check(nodes)
    right = 0 <= entry < count < _MAX_NODES and 1 <= capacity <= MAX_CAPACITY
    if not right or wanted < 0:
        raise ValueError(f"entry {entry} of {count} nodes, capacity {capacity}")
    if not levels.fits(count) or not (places is None or places.count == count):
        raise ValueError(f"levels or rows of other nodes than these {count}")
    comparison, codes, query, terms = nodes
    width = codes.shape[1]
    if not use_compiled(capacity * width * 32):
        found, far = _search_numpy(levels.levels, entry, nodes, capacity)
        with np.errstate(all="ignore"):
            far = -far if comparison in _PRODUCTS else far
            far = np.float32(scale[0]) + (far - np.float32(scale[1])) * np.float32(scale[2])
        return _as_rows(found, far, places, wanted) or ReachedNodes(found, far)
    if places is None or wanted >= capacity:
        places, wanted = None, 0
    visited, stamp = levels.visited(count)
    # Keys, fragments and rows; then distances, nodes, and neighbours of one.
    begin = 6 * wanted
    room = np.empty(begin + 2 * capacity + _FRESH, np.int32)
    floats = room.view(np.float32)
    table, numbers = levels.located, pack("3d", *scale)
    placed = b"" if places is None else places.located
    kept = address(room)
    first = kept + 4 * begin
    call = SearchGraph(
        address(table), len(levels.levels), count, entry, address(visited), stamp,
        _NUMBERS[comparison], address(codes), width, address(query),
        0 if terms is None else address(terms), capacity, first, first + 4 * capacity,
        first + 8 * capacity, address(numbers), address(placed) if placed else 0, wanted, kept,
    )  # fmt: skip
    size, is_sure = compiled.search_graph(*call)
    levels.leave(visited, stamp)
    if is_sure:
        keys = room[:begin].view(np.uint64)
        places_of = keys.view(np.int64)
        return ReachedRows(
            floats[begin : begin + wanted], keys[:wanted], places_of[wanted : 2 * wanted],
            places_of[2 * wanted :], floats.item(begin + wanted),
        )  # fmt: skip
    begin += capacity
    return ReachedNodes(room[begin : begin + size], floats[begin - capacity :][:size])


def _as_rows(
    found: NDArray[np.int32], far: Float32s, places: RowPlaces | None, wanted: int
) -> ReachedRows | None:
    """The rows of the nearest nodes; None where it is not certain which these are."""
    if places is None or len(found) <= wanted or not (far[1:][:wanted] > far[:wanted]).all():
        return None
    at = found[:wanted]
    return ReachedRows(
        far[:wanted], places.key[at], places.fragment[at], places.row[at], far.item(wanted)
    )


def _search_numpy(
    levels: Sequence[GraphLevel], entry: int, nodes: NodeCodes, capacity: int
) -> tuple[NDArray[np.int32], Float32s]:
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
    found = np.array([node for _, node in beam], np.int32)
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
    width = codes.shape[1] if codes.ndim == 2 else -1
    shape = (width, _ENTRIES) if comparison == "tables" else (width,)
    plain = codes.flags.c_contiguous and query.flags.c_contiguous
    kinds = codes.dtype, query.dtype
    if not plain or kinds != _TYPES[comparison] or query.shape != shape:
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
    search_graph(GraphLevels([level]), 0, NodeCodes("gap", codes, codes[0]), 2)
