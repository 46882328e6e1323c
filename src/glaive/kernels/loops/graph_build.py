"""Compiled construction of neighbour graphs; the wrappers are in ``glaive.kernels.graph_build``.

Nodes are added in batches. For each node of a batch, ``find_neighbors`` searches the graph as it
was before the batch; then ``link_back`` adds the node to the lists of its neighbours. Neither
depends on the order within a batch, so that threads may share the work.

A list has ``capacity`` places: numbers of nodes, and their distances. ``lower`` has the list of
every node on level 0; ``upper`` those of the nodes above, from ``upper_of`` of a node on one for
each of its levels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glaive.kernels.loops.codes import gap_code
from glaive.kernels.loops.distances import dot_f32, squared_f32
from glaive.kernels.loops.memory import (
    kernel,
    kernel_of,
    kernel_with_sums,
    load_f32,
    load_i32,
    load_u8,
    prefetch,
    store_f32,
    store_u32,
)
from glaive.kernels.loops.rows import lanes_of, load, store
from glaive.kernels.vector_records import FindNeighbors, LinkBack

EXPANDED = 1 << 30
"""Added to the number of a node in a list of candidates once its neighbours were looked at."""

_SQUARED, _SQUARED_BYTES = 0, 2
"""Kinds of distances; 1 is one minus the product."""


@kernel_with_sums
def distance(first: int, second: int, size: int, kind: int) -> np.float32:
    """Distance of two vectors of ``size`` bytes."""
    if kind == _SQUARED_BYTES:
        return gap_code(first, second, size)
    if kind == _SQUARED:
        return squared_f32(first, second, size >> 2)
    return np.float32(1) - dot_f32(first, second, size >> 2)


@kernel
def put(target: int, value: int) -> None:
    """Store one 32-bit word."""
    store_u32(target, np.uint32(value))


@intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
def shift_16(_context: Any, address: Any) -> Any:
    """Move 16 words by one place."""
    words = lanes_of(32, 16)

    def codegen(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        moved = builder.add(args[0], ir.Constant(ir.IntType(64), 4))
        store(builder, moved, load(builder, args[0], words))
        return _ctx.get_dummy_value()

    return types.void(types.int64), codegen


@kernel
def insert(ids: int, distances: int, count: int, most: int, node: int, far: np.float32) -> int:
    """Insert into a list in order of distance, behind equal ones; returns the place."""
    low = 0
    while low + 16 <= count and load_f32(distances + low * 4 + 60) <= far:
        low += 16
    while low < count and load_f32(distances + low * 4) <= far:
        low += 1
    end = min(count, most - 1)
    while end - low >= 16:
        end -= 16
        shift_16(ids + end * 4)
        shift_16(distances + end * 4)
    while end > low:
        end -= 1
        put(ids + end * 4 + 4, load_i32(ids + end * 4))
        store_f32(distances + end * 4 + 4, load_f32(distances + end * 4))
    put(ids + low * 4, node)
    store_f32(distances + low * 4, far)
    return low


@kernel
def search_level(
    query: int, vectors: int, size: int, kind: int, nodes: int, counts: int, upper_of: int,
    level: int, capacity: int, stamps: int, stamp: int, ids: int, distances: int, count: int,
    most: int, fresh: int,
) -> int:  # fmt: skip
    """Improve a list of candidates by the neighbours of its nodes until none is nearer.

    Returns how many candidates there are.
    """
    for i in range(count):
        put(stamps + load_i32(ids + i * 4) * 4, stamp)
    at = 0
    while at < count:
        node = load_i32(ids + at * 4)
        if node >= EXPANDED:
            at += 1
            continue
        put(ids + at * 4, node + EXPANDED)
        block = node
        if level > 0:
            block = load_i32(upper_of + node * 4) + level - 1
        found = 0
        for i in range(load_i32(counts + block * 4)):
            other = load_i32(nodes + (block * capacity + i) * 4)
            if load_i32(stamps + other * 4) == stamp:
                continue
            put(stamps + other * 4, stamp)
            put(fresh + found * 4, other)
            found += 1
            line = vectors + other * size
            prefetch(line)
            prefetch(line + 64)
        nearest = at + 1
        for i in range(found):
            other = load_i32(fresh + i * 4)
            far = distance(query, vectors + other * size, size, kind)
            if count < most or far < load_f32(distances + (count - 1) * 4):
                place = insert(ids, distances, count, most, other, far)
                count = min(count + 1, most)
                nearest = min(nearest, place)
        at = nearest
    for i in range(count):
        put(ids + i * 4, load_i32(ids + i * 4) & (EXPANDED - 1))
    return count


@kernel
def choose(
    vectors: int, size: int, kind: int, ids: int, distances: int, count: int, most: int,
    into_ids: int, into_distances: int,
) -> int:  # fmt: skip
    """Choose nodes, the nearest first, that are nearer to the query than to any chosen before.

    Places that are left get the nearest of the others.
    """
    chosen = 0
    for i in range(count):
        if chosen == most:
            break
        node, far = load_i32(ids + i * 4), load_f32(distances + i * 4)
        apart = 1
        for t in range(chosen):
            other = load_i32(into_ids + t * 4)
            if distance(vectors + node * size, vectors + other * size, size, kind) < far:
                apart = 0
                break
        if apart:
            put(into_ids + chosen * 4, node)
            store_f32(into_distances + chosen * 4, far)
            chosen += 1
            put(ids + i * 4, node + EXPANDED)
    for i in range(count):
        node = load_i32(ids + i * 4)
        if node >= EXPANDED:
            put(ids + i * 4, node - EXPANDED)
        elif chosen < most:
            put(into_ids + chosen * 4, node)
            store_f32(into_distances + chosen * 4, load_f32(distances + i * 4))
            chosen += 1
    return chosen


@kernel_of(FindNeighbors)
def find_neighbors(
    batch: int, batch_size: int, vectors: int, size: int, kind: int, levels: int, upper_of: int,
    lower_nodes: int, lower_distances: int, lower_counts: int, lower_capacity: int,
    upper_nodes: int, upper_distances: int, upper_counts: int, upper_capacity: int, entry: int,
    entry_level: int, candidates: int, stamps: int, stamp: int, ids: int, distances: int,
    fresh: int,
) -> int:  # fmt: skip
    """Write the lists of the nodes of a batch; returns the last stamp that was used."""
    for i in range(batch_size):
        node = load_i32(batch + i * 4)
        own_level = np.int64(load_u8(levels + node))
        query = vectors + node * size
        put(ids, entry)
        store_f32(distances, distance(query, vectors + entry * size, size, kind))
        count = 1
        level = entry_level
        while level >= 0:
            stamp += 1
            nodes, counts, capacity = upper_nodes, upper_counts, upper_capacity
            if level == 0:
                nodes, counts, capacity = lower_nodes, lower_counts, lower_capacity
            most = candidates
            if level > own_level:
                most = 1
            count = search_level(
                query=query, vectors=vectors, size=size, kind=kind, nodes=nodes, counts=counts,
                upper_of=upper_of, level=level, capacity=capacity, stamps=stamps, stamp=stamp,
                ids=ids, distances=distances, count=count, most=most, fresh=fresh,
            )  # fmt: skip
            if level <= own_level:
                block = node
                far = lower_distances
                if level > 0:
                    block = load_i32(upper_of + node * 4) + level - 1
                    far = upper_distances
                kept = choose(
                    vectors, size, kind, ids, distances, count, capacity,
                    nodes + block * capacity * 4, far + block * capacity * 4,
                )  # fmt: skip
                put(counts + block * 4, kept)
            level -= 1
    return stamp


@kernel_of(LinkBack)
def link_back(
    starts: int, targets: int, target_count: int, sources: int, source_distances: int, vectors: int,
    node_count: int, size: int, kind: int, nodes: int, distances: int, counts: int, capacity: int,
    ids: int, far: int, scratch_size: int,
) -> None:  # fmt: skip
    """Add nodes to the lists of their neighbours; a list that is full is chosen again."""
    for i in range(target_count):
        block = load_i32(targets + i * 4)
        first, last = load_i32(starts + i * 4), load_i32(starts + i * 4 + 4)
        own_ids = nodes + block * capacity * 4
        own_distances = distances + block * capacity * 4
        count = np.int64(load_i32(counts + block * 4))
        if count < 0 or count > capacity:
            count = np.int64(0)
        edge = np.int64(first)
        while edge < last and count < capacity:
            put(own_ids + count * 4, load_i32(sources + edge * 4))
            store_f32(own_distances + count * 4, load_f32(source_distances + edge * 4))
            count += 1
            edge += 1
        while edge < last:
            size_now = 0
            for k in range(count):
                node = load_i32(own_ids + k * 4)
                if 0 <= node < node_count:
                    insert(ids, far, size_now, scratch_size, node, load_f32(own_distances + k * 4))
                    size_now += 1
            while edge < last and size_now < scratch_size:
                insert(
                    ids, far, size_now, scratch_size, load_i32(sources + edge * 4),
                    load_f32(source_distances + edge * 4),
                )  # fmt: skip
                size_now += 1
                edge += 1
            chosen = choose(
                vectors, size, kind, ids, far, size_now, capacity, own_ids, own_distances,
            )  # fmt: skip
            count = np.int64(chosen)
        put(counts + block * 4, count)
