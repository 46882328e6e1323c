"""Compiled kernel that searches neighbour graphs; wrapper: ``glaive.kernels.graph_search``.

``kind`` is the number that the wrapper gives a way to compare.
"""

from __future__ import annotations

import math

import numpy as np

from glaive.kernels.loops.codes import dot_code, gap_code, sum_entries
from glaive.kernels.loops.distances import EXPANDED, dot_f32, insert, put_candidate, squared_f32
from glaive.kernels.loops.memory import (
    kernel,
    kernel_with_sums,
    load_f32,
    load_f64,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    store_f32,
    store_u8,
    store_u64,
)

_SQUARED, _PRODUCT, _GAP, _BYTES = 0, 1, 2, 3
_PREFETCHED = 512
"""Bytes of a code that are asked for; the processor finds those behind."""

_FRESH, _LIST_BYTES = 64, 192
"""Neighbours that are compared at a time, and bytes of a list that are asked for."""


@kernel_with_sums
def far_from(node: int, kind: int, codes: int, width: int, query: int, terms: int) -> np.float32:
    """What nodes are ordered by: the distance, or something that grows with it."""
    if kind == _SQUARED:
        return squared_f32(codes + node * width * 4, query, width)
    if kind == _PRODUCT:
        return -dot_f32(codes + node * width * 4, query, width)
    if kind == _GAP:
        return gap_code(codes + node * width, query, width)
    if kind == _BYTES:
        return -dot_code(codes + node * width, query, width)
    return load_f32(terms + node * 4) + sum_entries(codes + node * width, width, query)


@kernel_with_sums
def search_level(
    offsets: int, neighbors: int, rows: int, row_of: int, nodes: int, entry: int, stamp: int,
    visited: int, kind: int, codes: int, width: int, query: int, terms: int, capacity: int,
    distances: int, found: int, fresh: int,
) -> int:  # fmt: skip
    """Collect the nearest nodes that are reached from the entry on a level; returns how many.

    Neighbours that are at no distance (NaN) are passed
    over; the entry, if it is, gives way to all others.
    """
    code_bytes = width * 4 if kind <= _PRODUCT else width
    store_f32(distances, far_from(entry, kind, codes, width, query, terms))
    put_candidate(found, entry)
    store_u8(visited + entry, np.uint8(stamp))
    count = 1
    at = 0
    while at < count:
        node = np.int64(load_i32(found + at * 4))
        if node >= EXPANDED:
            at += 1
            continue
        put_candidate(found + at * 4, node + EXPANDED)
        at += 1
        row = node
        if row_of:
            row = np.int64(load_i32(row_of + node * 4))
        if row < 0 or row >= rows:
            continue
        first, last = load_i64(offsets + row * 8), load_i64(offsets + row * 8 + 8)
        if at < count and not row_of:
            # Whose neighbours are looked at next, unless one of these is nearer.
            following = np.int64(load_i32(found + at * 4) & (EXPANDED - 1))
            if following < rows:
                ahead = neighbors + load_i64(offsets + following * 8) * 4
                for line in range(0, _LIST_BYTES, 64):
                    prefetch(ahead + line)
        while first < last:
            stop = min(last, first + _FRESH)
            met = 0
            for edge in range(first, stop):
                other = np.int64(load_u32(neighbors + edge * 4))
                if other < nodes:
                    # Without a branch, which the processor could not predict.
                    put_candidate(fresh + met * 4, other)
                    met += np.int64(load_u8(visited + other) != stamp)
                    store_u8(visited + other, np.uint8(stamp))
            # Codes lie anywhere: all are asked for before the first is compared.
            for i in range(met):
                code = codes + load_i32(fresh + i * 4) * code_bytes
                for line in range(0, min(code_bytes, _PREFETCHED), 64):
                    prefetch(code + line)
            for i in range(met):
                other = np.int64(load_i32(fresh + i * 4))
                far = far_from(other, kind, codes, width, query, terms)
                if count < capacity or not load_f32(distances + (count - 1) * 4) <= far:
                    if math.isnan(far):
                        continue
                    at = min(at, insert(found, distances, count, capacity, other, far))
                    count = min(count + 1, capacity)
            first = stop
    for i in range(count):
        put_candidate(found + i * 4, load_i32(found + i * 4) & (EXPANDED - 1))
    return count


@kernel
def keep_rows(places: int, found: int, wanted: int, kept: int) -> None:
    """Keep where the first nodes are: their keys, fragments and rows, one behind the other."""
    fragments, rows = load_i64(places + 16), load_i64(places + 24)
    keys = load_i64(places + 32)
    for i in range(wanted):
        node = np.int64(load_i32(found + i * 4))
        store_u64(kept + i * 8, load_u64(keys + node * 8))
        store_u64(kept + (wanted + i) * 8, load_u64(fragments + node * 8))
        store_u64(kept + (2 * wanted + i) * 8, load_u64(rows + node * 8))


@kernel_with_sums
def search_graph(
    levels: int, level_count: int, nodes: int, entry: int, visited: int, stamp: int, kind: int,
    codes: int, width: int, query: int, terms: int, capacity: int, distances: int, found: int,
    fresh: int, scale: int, places: int, wanted: int, kept: int,
) -> tuple[int, int]:  # fmt: skip
    """Collect the nearest nodes that are reached from the entry; returns how many.

    ``levels`` has offsets, neighbours, rows and rows of nodes for each level, the highest first.
    ``distances`` and ``found`` have room for ``capacity`` nodes, nearest first; ``fresh`` for 64.
    ``visited`` has a byte for each node: none is ``stamp`` or, for each further level, one more.
    ``scale`` has offset, shift and factor, of 64 bits; ``kept`` has room for keys, fragments and
    rows of those wanted. Neighbours that are no nodes are passed over.

    With ``places``, where the nodes ``wanted`` are is kept, and 1 returned beside, if there
    are more than these and each is farther than the one before, the first of the others included.
    """
    count = 0
    for number in range(level_count):
        level = levels + number * 32
        room = 1
        if number == level_count - 1:
            room = capacity
        count = search_level(
            offsets=load_i64(level), neighbors=load_i64(level + 8), rows=load_i64(level + 16),
            row_of=load_i64(level + 24), nodes=nodes, entry=entry, stamp=stamp + number,
            visited=visited, kind=kind, codes=codes, width=width, query=query, terms=terms,
            capacity=room, distances=distances, found=found, fresh=fresh,
        )  # fmt: skip
        entry = np.int64(load_u32(found))
    if math.isnan(load_f32(distances + (count - 1) * 4)):
        count -= 1  # the entry, if it is at no distance
    offset, shift = np.float32(load_f64(scale)), np.float32(load_f64(scale + 8))
    factor = np.float32(load_f64(scale + 16))
    for i in range(count):
        far = load_f32(distances + i * 4)
        if kind in (_PRODUCT, _BYTES):
            far = -far
        store_f32(distances + i * 4, offset + (far - shift) * factor)
    if not places or count <= wanted:
        return count, 0
    for i in range(wanted):
        if not load_f32(distances + i * 4) < load_f32(distances + i * 4 + 4):
            return count, 0
    keep_rows(places, found, wanted, kept)
    return count, 1
