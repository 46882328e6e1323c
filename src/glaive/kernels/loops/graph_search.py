"""Compiled kernel that searches neighbour graphs; wrapper: ``glaive.kernels.graph_search``.

``kind`` is the number that the wrapper gives a way to compare.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.codes import dot_code, gap_code, sum_entries
from glaive.kernels.loops.distances import dot_f32, squared_f32
from glaive.kernels.loops.memory import (
    kernel_of,
    kernel_with_sums,
    load_f32,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    prefetch,
    store_f32,
    store_u8,
    store_u32,
)
from glaive.kernels.vector_records import SearchGraph

_SQUARED, _PRODUCT, _GAP, _BYTES = 0, 1, 2, 3
_PREFETCHED = 512
"""Bytes of a code that are asked for; the processor finds those behind."""


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
    distances: int, found: int, expanded: int,
) -> int:  # fmt: skip
    """Collect the nearest nodes that are reached from the entry on a level; returns how many."""
    code_bytes = width * 4 if kind <= _PRODUCT else width
    store_f32(distances, far_from(entry, kind, codes, width, query, terms))
    store_u32(found, np.uint32(entry))
    store_u8(expanded, np.uint8(0))
    store_u8(visited + entry, np.uint8(stamp))
    count = 1
    at = 0
    while at < count:
        if load_u8(expanded + at):
            at += 1
            continue
        store_u8(expanded + at, np.uint8(1))
        row = load_i32(found + at * 4)
        at += 1
        if row_of:
            row = load_i32(row_of + row * 4)
        if row < 0 or row >= rows:
            continue
        first, last = load_i64(offsets + row * 8), load_i64(offsets + row * 8 + 8)
        # The codes of neighbours lie anywhere: all are asked for before the first is compared.
        for edge in range(first, last):
            node = np.int64(load_u32(neighbors + edge * 4))
            if node < nodes and load_u8(visited + node) != stamp:
                for line in range(0, min(code_bytes, _PREFETCHED), 64):
                    prefetch(codes + node * code_bytes + line)
        for edge in range(first, last):
            node = np.int64(load_u32(neighbors + edge * 4))
            if node >= nodes or load_u8(visited + node) == stamp:
                continue
            store_u8(visited + node, np.uint8(stamp))
            far = far_from(node, kind, codes, width, query, terms)
            if count == capacity and not far < load_f32(distances + (count - 1) * 4):
                continue
            place = min(count, capacity - 1)
            count = min(count + 1, capacity)
            while place > 0 and load_f32(distances + (place - 1) * 4) > far:
                store_f32(distances + place * 4, load_f32(distances + (place - 1) * 4))
                store_u32(found + place * 4, np.uint32(load_u32(found + (place - 1) * 4)))
                store_u8(expanded + place, load_u8(expanded + place - 1))
                place -= 1
            store_f32(distances + place * 4, far)
            store_u32(found + place * 4, np.uint32(node))
            store_u8(expanded + place, np.uint8(0))
            at = min(at, place)
    return count


@kernel_of(SearchGraph, sums=True)
def search_graph(
    levels: int, level_count: int, nodes: int, entry: int, visited: int, kind: int, codes: int,
    width: int, query: int, terms: int, capacity: int, distances: int, found: int, expanded: int,
) -> int:  # fmt: skip
    """Collect the nearest nodes that are reached from the entry; returns how many.

    ``levels`` has offsets, neighbours, rows and rows of nodes for each level, the highest first.
    ``distances``, ``found`` and ``expanded`` have room for ``capacity`` nodes, nearest first.
    Neighbours that are no nodes are passed over.
    """
    count = 0
    for number in range(level_count):
        level = levels + number * 32
        room = 1
        if number == level_count - 1:
            room = capacity
        count = search_level(
            offsets=load_i64(level), neighbors=load_i64(level + 8), rows=load_i64(level + 16),
            row_of=load_i64(level + 24), nodes=nodes, entry=entry, stamp=number + 1,
            visited=visited, kind=kind, codes=codes, width=width, query=query, terms=terms,
            capacity=room, distances=distances, found=found, expanded=expanded,
        )  # fmt: skip
        entry = np.int64(load_u32(found))
    return count
