"""Compiled kernels over neighbour graphs; their wrappers are in ``glaive.kernels.graph``.

``scratch`` has four rows of ``capacity`` words: candidates, their distances, deleted nodes, and
which candidates were taken.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    kernel,
    load_f32,
    load_i32,
    load_i64,
    load_u8,
    store_f32,
    store_u32,
)

MAX_EDGES = 1 << 17
"""Edges that are followed from one node, at most."""


@kernel
def put(target: int, value: int) -> None:
    """Store one 32-bit word."""
    store_u32(target, np.uint32(value))


@kernel
def squared(first: int, second: int, dimension: int) -> np.float32:
    """Squared distance of two vectors; four sums, so that four can be computed at a time."""
    a = b = c = d = np.float32(0)
    even = dimension // 4 * 4
    for i in range(0, even, 4):
        at, to = first + i * 4, second + i * 4
        p = load_f32(at) - load_f32(to)
        q = load_f32(at + 4) - load_f32(to + 4)
        r = load_f32(at + 8) - load_f32(to + 8)
        s = load_f32(at + 12) - load_f32(to + 12)
        a += p * p
        b += q * q
        c += r * r
        d += s * s
    for i in range(even, dimension):
        p = load_f32(first + i * 4) - load_f32(second + i * 4)
        a += p * p
    return (a + b) + (c + d)


@kernel
def dotted(first: int, second: int, dimension: int) -> np.float32:
    """One minus the dot product of two vectors."""
    a = b = c = d = np.float32(0)
    even = dimension // 4 * 4
    for i in range(0, even, 4):
        at, to = first + i * 4, second + i * 4
        a += load_f32(at) * load_f32(to)
        b += load_f32(at + 4) * load_f32(to + 4)
        c += load_f32(at + 8) * load_f32(to + 8)
        d += load_f32(at + 12) * load_f32(to + 12)
    for i in range(even, dimension):
        a += load_f32(first + i * 4) * load_f32(second + i * 4)
    return np.float32(1) - ((a + b) + (c + d))


@kernel
def between(
    first: int, second: int, vectors: int, vector_of: int, dimension: int, dot: int
) -> np.float32:
    """Distance of two nodes."""
    here = vectors + load_i32(vector_of + first * 4) * dimension * 4
    there = vectors + load_i32(vector_of + second * 4) * dimension * 4
    if dot:
        return dotted(here, there, dimension)
    return squared(here, there, dimension)


@kernel
def gather(
    node: int, stamp: int, enough: int, offsets: int, nodes: int, live: int, stamps: int,
    candidates: int, deleted: int, capacity: int,
) -> int:  # fmt: skip
    """Collect candidates: live neighbours, and those reached through deleted nodes.

    Returns how many.
    """
    count = 0
    waiting = 0
    at = -1
    direct = 0
    through = node
    room = MAX_EDGES
    put(stamps + node * 4, stamp)
    while True:
        edge = load_i64(offsets + through * 8)
        end = load_i64(offsets + through * 8 + 8)
        if end - edge > room:
            end = edge + room
        room -= end - edge
        while edge < end and count < capacity and waiting < capacity:
            neighbour = load_i32(nodes + edge * 4)
            edge += 1
            if load_i32(stamps + neighbour * 4) == stamp:
                continue
            put(stamps + neighbour * 4, stamp)
            if load_u8(live + neighbour):
                put(candidates + count * 4, neighbour)
                count += 1
            else:
                put(deleted + waiting * 4, neighbour)
                waiting += 1
        if at < 0:
            direct = waiting
        at += 1
        if at >= waiting or room == 0 or (at >= direct and count >= enough):
            return count
        through = load_i32(deleted + at * 4)


@kernel
def order(candidates: int, distances: int, count: int) -> None:
    """Put candidates in order of distance, then number."""
    gap = 1
    while gap < count // 3:
        gap = gap * 3 + 1
    while gap > 0:
        for i in range(gap, count):
            node, distance = load_i32(candidates + i * 4), load_f32(distances + i * 4)
            j = i
            while j >= gap:
                other, beyond = (
                    load_i32(candidates + (j - gap) * 4),
                    load_f32(distances + (j - gap) * 4),
                )
                if beyond < distance or (beyond == distance and other <= node):
                    break
                put(candidates + j * 4, other)
                store_f32(distances + j * 4, beyond)
                j -= gap
            put(candidates + j * 4, node)
            store_f32(distances + j * 4, distance)
        gap //= 3


@kernel
def repair_graph(
    offsets: int, nodes: int, live: int, damaged: int, damaged_count: int, vectors: int,
    vector_of: int, dimension: int, dot: int, stamps: int, scratch: int, capacity: int,
    into_counts: int, into_nodes: int, into_distances: int,
) -> None:  # fmt: skip
    """Write new lists for the damaged nodes."""
    candidates, distances = scratch, scratch + capacity * 4
    deleted, taken = scratch + capacity * 8, scratch + capacity * 12
    for i in range(damaged_count):
        node = load_i64(damaged + i * 8)
        first = load_i64(offsets + node * 8)
        width = load_i64(offsets + node * 8 + 8) - first
        size = gather(
            node, i + 1, width, offsets, nodes, live, stamps, candidates, deleted, capacity
        )
        for k in range(size):
            candidate = load_i32(candidates + k * 4)
            store_f32(
                distances + k * 4, between(node, candidate, vectors, vector_of, dimension, dot)
            )
            put(taken + k * 4, 0)
        order(candidates, distances, size)
        at = first * 4
        filled = 0
        for k in range(size):
            if filled == width:
                break
            candidate, distance = load_i32(candidates + k * 4), load_f32(distances + k * 4)
            apart = 1
            for t in range(filled):
                chosen = load_i32(into_nodes + at + t * 4)
                if between(candidate, chosen, vectors, vector_of, dimension, dot) < distance:
                    apart = 0
                    break
            if apart:
                put(taken + k * 4, 1)
                put(into_nodes + at + filled * 4, candidate)
                store_f32(into_distances + at + filled * 4, distance)
                filled += 1
        for k in range(size):
            if filled == width:
                break
            if load_i32(taken + k * 4) == 0:
                put(into_nodes + at + filled * 4, load_i32(candidates + k * 4))
                store_f32(into_distances + at + filled * 4, load_f32(distances + k * 4))
                filled += 1
        put(into_counts + node * 4, filled)
