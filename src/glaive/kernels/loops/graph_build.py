"""Compiled construction of neighbour graphs; the wrappers are in ``glaive.kernels.graph_build``.

Nodes are added in batches. For each node of a batch, ``find_neighbors`` searches the graph as it
was before the batch; then ``link_back`` adds the node to the lists of its neighbours. Neither
depends on the order within a batch, so that threads may share the work.

A list has ``capacity`` places: numbers of nodes, and their distances. ``lower`` has the list of
every node on level 0; ``upper`` those of the nodes above, from ``upper_of`` of a node on one for
each of its levels.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.codes import gap_code
from glaive.kernels.loops.distances import EXPANDED, dot_f32, insert, put_candidate, squared_f32
from glaive.kernels.loops.memory import (
    kernel,
    kernel_with_sums,
    load_f32,
    load_i32,
    load_u8,
    prefetch,
    store_f32,
    store_u8,
)

APART, OTHER = 1 << 28, 1 << 29
"""Added to the number of a node of a list: what is known of it; see ``choose``."""

NODE = APART - 1
"""The bits that are the number."""

_LAST_STAMP = 255
"""What tells which nodes a search met: of a byte, so that those of many nodes stay in the cache."""

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
def search_level(
    query: int, vectors: int, size: int, kind: int, nodes: int, counts: int, upper_of: int,
    level: int, capacity: int, stamps: int, stamp: int, ids: int, distances: int, count: int,
    most: int, fresh: int,
) -> int:  # fmt: skip
    """Improve a list of candidates by the neighbours of its nodes until none is nearer.

    Returns how many candidates there are.
    """
    for i in range(count):
        store_u8(stamps + load_i32(ids + i * 4), np.uint8(stamp))
    at = 0
    while at < count:
        node = load_i32(ids + at * 4)
        if node >= EXPANDED:
            at += 1
            continue
        put_candidate(ids + at * 4, node + EXPANDED)
        block = node
        if level > 0:
            block = load_i32(upper_of + node * 4) + level - 1
        elif at + 1 < count:
            # Whose neighbours are looked at next, unless one of these is nearer.
            following = np.int64(load_i32(ids + at * 4 + 4) & (EXPANDED - 1))
            prefetch(counts + following * 4)
            for line in range(0, capacity * 4, 64):
                prefetch(nodes + following * capacity * 4 + line)
        found = 0
        for i in range(load_i32(counts + block * 4)):
            other = load_i32(nodes + (block * capacity + i) * 4)
            # Without a branch, which the processor could not predict.
            put_candidate(fresh + found * 4, other)
            found += np.int64(load_u8(stamps + other) != stamp)
            store_u8(stamps + other, np.uint8(stamp))
        for i in range(found):
            vector = vectors + load_i32(fresh + i * 4) * size
            prefetch(vector)
            prefetch(vector + 64)
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
        put_candidate(ids + i * 4, load_i32(ids + i * 4) & (EXPANDED - 1))
    return count


@kernel
def choose(
    vectors: int, size: int, kind: int, ids: int, distances: int, count: int, most: int,
    into_ids: int, into_distances: int,
) -> tuple[int, int]:  # fmt: skip
    """Choose nodes, the nearest first, that are nearer to the query than to any chosen before.

    Places that are left get the nearest of the others. Returns how many nodes lie apart in this
    way, and how many there are. What is known of nodes is not computed again: those that lay
    ``APART`` do so from each other, and ``OTHER`` ones do not as long as all of those are chosen.
    """
    chosen = 0
    lost = False
    for i in range(count):
        if chosen == most:
            break
        word, far = load_i32(ids + i * 4), load_f32(distances + i * 4)
        if word & OTHER and not lost:
            continue
        vector = vectors + (word & NODE) * size
        apart = True
        for t in range(chosen):
            other = load_i32(into_ids + t * 4)
            if word & other & APART:
                continue
            if distance(vector, vectors + (other & NODE) * size, size, kind) < far:
                apart = False
                break
        if apart:
            put_candidate(into_ids + chosen * 4, word)
            store_f32(into_distances + chosen * 4, far)
            chosen += 1
            put_candidate(ids + i * 4, word | EXPANDED)
        elif word & APART:
            lost = True
    apart_count = chosen
    for t in range(chosen):
        put_candidate(into_ids + t * 4, load_i32(into_ids + t * 4) & NODE)
    for i in range(count):
        word = load_i32(ids + i * 4)
        put_candidate(ids + i * 4, word & NODE)
        if word < EXPANDED and chosen < most:
            put_candidate(into_ids + chosen * 4, word & NODE)
            store_f32(into_distances + chosen * 4, load_f32(distances + i * 4))
            chosen += 1
    return apart_count, chosen


@kernel
def find_neighbors(
    batch: int, batch_size: int, vectors: int, node_count: int, size: int, kind: int,
    levels: int, upper_of: int, lower_nodes: int, lower_distances: int, lower_counts: int,
    lower_judged: int, lower_capacity: int, upper_nodes: int, upper_distances: int,
    upper_counts: int, upper_judged: int, upper_capacity: int, entry: int, entry_level: int,
    candidates: int, stamps: int, stamp: int, ids: int, distances: int, fresh: int,
) -> int:  # fmt: skip
    """Write the lists of the nodes of a batch; returns the last stamp that was used."""
    for i in range(batch_size):
        node = load_i32(batch + i * 4)
        own_level = np.int64(load_u8(levels + node))
        query = vectors + node * size
        put_candidate(ids, entry)
        store_f32(distances, distance(query, vectors + entry * size, size, kind))
        count = 1
        level = entry_level
        while level >= 0:
            stamp += 1
            if stamp > _LAST_STAMP:
                for other in range(node_count):
                    store_u8(stamps + other, np.uint8(0))
                stamp = 1
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
                far, judged = lower_distances, lower_judged
                if level > 0:
                    block = load_i32(upper_of + node * 4) + level - 1
                    far, judged = upper_distances, upper_judged
                apart, kept = choose(
                    vectors, size, kind, ids, distances, count, capacity,
                    nodes + block * capacity * 4, far + block * capacity * 4,
                )  # fmt: skip
                put_candidate(counts + block * 4, kept)
                put_candidate(judged + block * 8, apart)
                put_candidate(judged + block * 8 + 4, kept)
            level -= 1
    return stamp


@kernel
def order_list(
    own_ids: int, own_distances: int, apart: int, judged: int, count: int, node_count: int,
    ids: int, far: int, scratch_size: int,
) -> int:  # fmt: skip
    """Copy a list in order of distance, with what is known of each node; returns how many."""
    size = 0
    first, second = 0, apart
    while first < apart or second < judged:
        at, known = first, APART
        if first == apart or (
            second < judged
            and load_f32(own_distances + second * 4) < load_f32(own_distances + first * 4)
        ):
            at, known = second, OTHER
            second += 1
        else:
            first += 1
        node = load_i32(own_ids + at * 4)
        if 0 <= node < node_count:
            put_candidate(ids + size * 4, node | known)
            store_f32(far + size * 4, load_f32(own_distances + at * 4))
            size += 1
    for k in range(judged, count):
        node = load_i32(own_ids + k * 4)
        if 0 <= node < node_count:
            insert(ids, far, size, scratch_size, node, load_f32(own_distances + k * 4))
            size += 1
    return size


@kernel
def link_back(
    starts: int, targets: int, target_count: int, sources: int, source_distances: int, vectors: int,
    node_count: int, size: int, kind: int, nodes: int, distances: int, counts: int, judged: int,
    capacity: int, ids: int, far: int, scratch_size: int,
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
        apart = np.int64(load_i32(judged + block * 8))
        known = np.int64(load_i32(judged + block * 8 + 4))
        if known < 0 or known > count or apart < 0 or apart > known:
            apart = known = np.int64(0)
        edge = np.int64(first)
        while edge < last and count < capacity:
            put_candidate(own_ids + count * 4, load_i32(sources + edge * 4))
            store_f32(own_distances + count * 4, load_f32(source_distances + edge * 4))
            count += 1
            edge += 1
        while edge < last:
            size_now = order_list(
                own_ids, own_distances, apart, known, count, node_count, ids, far, scratch_size
            )
            while edge < last and size_now < scratch_size:
                insert(
                    ids, far, size_now, scratch_size, load_i32(sources + edge * 4),
                    load_f32(source_distances + edge * 4),
                )  # fmt: skip
                size_now += 1
                edge += 1
            apart, known = choose(
                vectors, size, kind, ids, far, size_now, capacity, own_ids, own_distances,
            )  # fmt: skip
            count = known
        put_candidate(counts + block * 4, count)
        put_candidate(judged + block * 8, apart)
        put_candidate(judged + block * 8 + 4, known)
