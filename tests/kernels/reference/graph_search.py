"""NumPy references of ``glaive.kernels.graph_search``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.kernels.graph_search import (
    _ENTRIES,
    _MAX_NODES,
    MAX_CAPACITY,
    AllowedBits,
    CodeQuery,
    CodeRows,
    Comparison,
    GraphLevel,
    GraphLevels,
    Nearest,
    ReachedNodes,
    RowPlaces,
    ScannedPartition,
    _check_query,
    _is_plain,
)
from glaive.types import Float32s, Int64s, UInt8s, UInt64s

_PRODUCTS: Final = ("product", "bytes")


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


def search_graph(
    levels: GraphLevels,
    entry: int,
    rows: CodeRows,
    query: CodeQuery,
    capacity: int,
    offset: float = 0,
    places: RowPlaces | None = None,
    wanted: int = 0,
) -> ReachedNodes:
    """The nearest nodes that are found; none that is at no distance (NaN) from the query."""
    width, kind = _check_query(query, capacity, len(query.query))
    count = len(rows.codes)
    good = rows.codes.shape[1] == width and rows.codes.dtype == kind and rows.scales is None
    if not good or query.shift or (query.comparison == "tables") != (rows.terms is not None):
        raise ValueError(f"{count} rows for {query.comparison}")
    if not 0 <= entry < count < _MAX_NODES or not 1 <= capacity <= MAX_CAPACITY:
        raise ValueError(f"entry {entry} of {count} nodes, capacity {capacity}")
    levels.visited(count)
    found, far = _search_numpy(levels.levels, entry, rows, query, capacity)
    with np.errstate(all="ignore"):
        far = -far if query.comparison in _PRODUCTS else far
        far = np.float32(offset) + far * np.float32(query.factor)
    if places is None or not (np.diff(far[: min(wanted, capacity) + 1]) > 0).all():
        return ReachedNodes(found, far)
    near = found[: min(wanted, capacity)]
    lines = [places.fragment[near], places.row[near], places.key[near]]
    return ReachedNodes(found, far, np.array(lines, np.uint64))


def _search_numpy(
    levels: Sequence[GraphLevel], entry: int, rows: CodeRows, query: CodeQuery, capacity: int
) -> tuple[NDArray[np.int32], Float32s]:
    count = len(rows.codes)
    beam: list[tuple[np.float32, int]] = []
    for stamp, level in enumerate(reversed(levels), 1):
        room = capacity if stamp == len(levels) else 1
        beam = [(_far(rows, query, np.array([entry]))[0], entry)]
        seen, expanded = {entry}, set()
        while waiting := [node for _, node in beam if node not in expanded]:
            expanded.add(waiting[0])
            row = waiting[0] if level.row_of is None else int(level.row_of[waiting[0]])
            if not 0 <= row < len(level.offsets) - 1:
                continue
            near = level.neighbors[level.offsets[row] : level.offsets[row + 1]].tolist()
            fresh = [node for node in dict.fromkeys(near) if node < count and node not in seen]
            seen.update(fresh)
            distances = _far(rows, query, np.array(fresh, np.int64))
            for node, far in zip(fresh, distances, strict=True):
                if np.isnan(far) or (len(beam) == room and beam[-1][0] <= far):
                    continue
                beam = beam[: room - 1] if len(beam) == room else beam
                place = sum(1 for other, _ in beam if other <= far)
                beam.insert(place, (far, node))
        entry = beam[0][1]
    beam = [(far, node) for far, node in beam if not np.isnan(far)]
    found = np.array([node for _, node in beam], np.int32)
    return found, np.array([far for far, _ in beam], np.float32)


def _far(rows: CodeRows, query: CodeQuery, chosen: Int64s) -> Float32s:
    """Distances of nodes from the query, up to a constant: nodes are ordered by them."""
    compared = compare(query.comparison, rows.codes[chosen], query.query[0])
    if query.comparison in _PRODUCTS:
        return -compared
    if rows.terms is None:
        return compared
    with np.errstate(all="ignore"):
        return rows.terms[chosen] + compared


def sum_tables(codes: UInt8s, tables: Float32s, start: Float32s) -> Float32s:
    """For each row the sum of what its bytes select."""
    rows, width = codes.shape if codes.ndim == 2 else (0, -1)
    right = codes.dtype == np.uint8 and codes.flags.c_contiguous and start.shape == (rows,)
    if not right or tables.shape != (width, _ENTRIES) or not _is_plain(tables):
        raise ValueError(f"tables {tables.shape} and {start.shape} for codes {codes.shape}")
    with np.errstate(all="ignore"):
        sums: Float32s = start + tables[np.arange(width), codes].sum(axis=1, dtype=np.float32)
        return sums


def part_products(
    entries: Float32s, vector: Float32s, factor: float = 1, center: Float32s | None = None
) -> Float32s:
    """Products of the parts of a vector with the entries of a codebook, times a factor."""
    right = entries.ndim == 3 and _is_plain(entries) and _is_plain(vector)
    parts, width, _count = entries.shape if right else (0, 0, 0)
    if not right or vector.shape[-1:] != (parts * width,):
        raise ValueError(f"a vector {vector.shape} for entries {entries.shape}")
    if center is not None and not (_is_plain(center) and center.shape == vector.shape[-1:]):
        raise ValueError(f"a center {center.shape} of a vector {vector.shape}")
    with np.errstate(all="ignore"):
        beyond = vector if center is None else vector - center
        scaled = np.float32(factor) * beyond.reshape(*vector.shape[:-1], parts, 1, width)
        return np.asarray((scaled @ entries)[..., 0, :], np.float32)


def join_tables(tables: Float32s) -> Float32s:
    """Sums of an entry for the low and one for the high half of each byte."""
    if not _is_plain(tables) or tables.shape[-2] % 2 or tables.shape[-1] != 16:
        raise ValueError(f"tables {tables.shape} of {tables.dtype}")
    low, high = tables[..., ::2, :], tables[..., 1::2, :]
    with np.errstate(all="ignore"):
        return (high[..., None] + low[..., None, :]).reshape(*low.shape[:-1], 256)


def encode_numbers(
    numbers: Float32s, start: float, step: float
) -> tuple[UInt8s, NDArray[np.float64]]:
    """The byte of each number, and sums of rows: how many steps it is above a start."""
    if not numbers.ndim or not _is_plain(numbers) or not step:
        raise ValueError(f"numbers {numbers.shape} of {numbers.dtype}, step {step}")
    with np.errstate(all="ignore"):
        wide = numbers.astype(float)
        places = np.fmin(np.fmax((wide - start) / step, 0), 255)
        return places.astype(np.uint8), np.asarray(wide.sum(axis=-1))


def scan_codes(
    partitions: Sequence[ScannedPartition],
    query: CodeQuery,
    count: int,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    allowed: AllowedBits | None = None,
) -> Nearest:
    """The nearest rows of some partitions."""
    width, kind = _check_query(query._replace(query=query.query[None]), count, 1)
    for rows, places, _, _ in partitions:
        if rows.shape != (kind, width, len(places)):
            raise ValueError(f"codes of shape {rows.shape} for {len(places)} rows")
    total = sum([part[1].count for part in partitions])
    room = min(count, total)
    if not room:
        return _sorted(np.empty(0, np.float32), np.empty(0, np.uint64), np.empty((0, 2)), 0, 0)
    return _scan_numpy(partitions, query, count, low, high, allowed)


def _scan_numpy(
    partitions: Sequence[ScannedPartition],
    query: CodeQuery,
    count: int,
    low: float,
    high: float,
    allowed: AllowedBits | None,
) -> Nearest:
    far, keys, found = [], [], []
    searched = 0
    for rows, places, offset, weight in partitions:
        kept = np.ones(len(places), np.bool_) if places.live is None else places.live.copy()
        if allowed is not None:
            kept &= allowed.contains(places.fragment, places.row)
        searched += int(np.count_nonzero(kept))
        with np.errstate(all="ignore"):
            start = np.full(len(places), np.float32(offset))
            if rows.terms is not None:
                start += np.float32(weight) * rows.terms
            scale = np.float32(query.factor) if rows.scales is None else rows.scales
            compared = compare(query.comparison, rows.codes, query.query)
            compared = np.subtract(compared, query.shift, dtype=np.float32)
            distances = start + compared * scale
        kept &= (distances <= np.float32(high)) & (distances >= np.float32(low))
        far.append(distances[kept])
        keys.append(places.key[kept])
        found.append(np.stack([places.fragment[kept], places.row[kept]], axis=1))
    rows_of = np.concatenate(found)
    return _sorted(np.concatenate(far), np.concatenate(keys), rows_of, searched, count)


def _sorted(
    distance: Float32s, key: UInt64s, places: NDArray[Any], compared: int, count: int
) -> Nearest:
    order = np.lexsort((key, distance))[:count]
    fragment, row = places[order].astype(np.int64, copy=False).T
    lines = np.ascontiguousarray(fragment), np.ascontiguousarray(row)
    return Nearest(distance[order], key[order], *lines, [len(order)], [compared])
