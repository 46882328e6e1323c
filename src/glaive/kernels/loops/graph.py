"""Compiled kernels over neighbour graphs; their wrappers are in ``glaive.kernels.graph``.

``scratch`` has four rows of ``capacity`` words: candidates, their distances, deleted nodes, and
which candidates were taken.
"""

from __future__ import annotations

import math

import numpy as np

from glaive.kernels.loops.codes import dot_code, gap_code, sum_entries
from glaive.kernels.loops.distances import EXPANDED, dot_f32, insert, squared_f32, store_i32
from glaive.kernels.loops.memory import (
    kernel,
    kernel_with_sums,
    load_f32,
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

MAX_EDGES = 1 << 17
"""Maximum edges that are followed from one node."""


@kernel
def node_distance(
    first: int, second: int, vectors: int, vector_of: int, dimension: int, kind: int
) -> np.float32:
    """Return the distance between two nodes."""
    size = 4 * dimension
    here = vectors + load_i32(vector_of + first * 4) * size
    return distance(here, vectors + load_i32(vector_of + second * 4) * size, size, kind)


@kernel
def collect_candidates(
    node: int, stamp: int, wanted: int, offsets: int, nodes: int, live: int, stamps: int,
    candidates: int, deleted: int, capacity: int,
) -> int:  # fmt: skip
    """Collect candidates: live neighbours, and live nodes reached through deleted ones.

    Return how many.
    """
    count = 0
    waiting = 0
    at = -1
    direct = 0
    through = node
    room = MAX_EDGES
    store_i32(stamps + node * 4, stamp)
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
            store_i32(stamps + neighbour * 4, stamp)
            if load_u8(live + neighbour):
                store_i32(candidates + count * 4, neighbour)
                count += 1
            else:
                store_i32(deleted + waiting * 4, neighbour)
                waiting += 1
        if at < 0:
            direct = waiting
        at += 1
        if at >= waiting or room == 0 or (at >= direct and count >= wanted):
            return count
        through = load_i32(deleted + at * 4)


@kernel
def repair_graph(
    offsets: int, nodes: int, live: int, damaged: int, damaged_count: int, vectors: int,
    vector_of: int, dimension: int, kind: int, stamps: int, scratch: int, capacity: int,
    into_counts: int, into_nodes: int, into_distances: int,
) -> None:  # fmt: skip
    """Write new lists for the damaged nodes."""
    candidates, distances = scratch, scratch + capacity * 4
    ordered, taken = scratch + capacity * 8, scratch + capacity * 12
    for i in range(damaged_count):
        node = load_i64(damaged + i * 8)
        first = load_i64(offsets + node * 8)
        width = load_i64(offsets + node * 8 + 8) - first
        size = collect_candidates(
            node, i + 1, width, offsets, nodes, live, stamps, candidates, ordered, capacity
        )
        for k in range(size):
            candidate = load_i32(candidates + k * 4)
            far = node_distance(node, candidate, vectors, vector_of, dimension, kind)
            insert(ordered, distances, k, capacity, candidate, far)
            store_i32(taken + k * 4, 0)
        at = first * 4
        filled = 0
        for k in range(size):
            if filled == width:
                break
            candidate, distance = load_i32(ordered + k * 4), load_f32(distances + k * 4)
            apart = 1
            for t in range(filled):
                chosen = load_i32(into_nodes + at + t * 4)
                if node_distance(candidate, chosen, vectors, vector_of, dimension, kind) < distance:
                    apart = 0
                    break
            if apart:
                store_i32(taken + k * 4, 1)
                store_i32(into_nodes + at + filled * 4, candidate)
                store_f32(into_distances + at + filled * 4, distance)
                filled += 1
        for k in range(size):
            if filled == width:
                break
            if load_i32(taken + k * 4) == 0:
                store_i32(into_nodes + at + filled * 4, load_i32(ordered + k * 4))
                store_f32(into_distances + at + filled * 4, load_f32(distances + k * 4))
                filled += 1
        store_i32(into_counts + node * 4, filled)


# --- Compiled construction of neighbour graphs; the wrappers are in ---------------------
# ``glaive.kernels.graph_build``
#
# Nodes are added in batches. For each node of a batch, ``find_neighbors`` searches the graph as it
# was before the batch. Then ``link_back`` adds the node to the lists of its neighbours. The order
# within a batch is arbitrary, so that threads may share the work.
#
# A list has ``capacity`` places: numbers of nodes, and their distances. ``lower`` has the list of
# every node on level 0. ``upper`` has the lists of the levels above: one list per level of a node,
# from ``upper_of`` of the node on.

APART, OTHER = 1 << 28, 1 << 29
"""Added to the number of a node of a list as marks; see ``choose``."""

NODE = APART - 1
"""The bits of the number."""

_LAST_STAMP = 255
"""Maximum stamp of the nodes that a search met: stamps of a byte stay in the cache."""

_SQUARED, _SQUARED_BYTES = 0, 2
"""Kinds of distances; 1 is one minus the product."""


@kernel_with_sums
def distance(first: int, second: int, size: int, kind: int) -> np.float32:
    """Return the distance of two vectors of ``size`` bytes."""
    if kind == _SQUARED_BYTES:
        return gap_code(first, second, size)
    if kind == _SQUARED:
        return squared_f32(first, second, size >> 2)
    return np.float32(1) - dot_f32(first, second, size >> 2)


@kernel
def search_level(
    query: int, vectors: int, size: int, kind: int, nodes: int, counts: int, upper_of: int,
    level: int, capacity: int, stamps: int, stamp: int, ids: int, distances: int, count: int,
    max_count: int, fresh: int,
) -> int:  # fmt: skip
    """Improve a list of candidates by the neighbours of its nodes, as long as some are nearer.

    Return the number of candidates.
    """
    for i in range(count):
        store_u8(stamps + load_i32(ids + i * 4), np.uint8(stamp))
    at = 0
    while at < count:
        node = load_i32(ids + at * 4)
        if node >= EXPANDED:
            at += 1
            continue
        store_i32(ids + at * 4, node + EXPANDED)
        block = node
        if level > 0:
            block = load_i32(upper_of + node * 4) + level - 1
        elif at + 1 < count:
            # Fetch the list of the next node, unless one of these neighbours is nearer.
            following = np.int64(load_i32(ids + at * 4 + 4) & (EXPANDED - 1))
            prefetch(counts + following * 4)
            for line in range(0, capacity * 4, 64):
                prefetch(nodes + following * capacity * 4 + line)
        found = 0
        for i in range(load_i32(counts + block * 4)):
            other = load_i32(nodes + (block * capacity + i) * 4)
            # Avoid a branch: the processor would mispredict it.
            store_i32(fresh + found * 4, other)
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
            if count < max_count or far < load_f32(distances + (count - 1) * 4):
                place = insert(ids, distances, count, max_count, other, far)
                count = min(count + 1, max_count)
                nearest = min(nearest, place)
        at = nearest
    for i in range(count):
        store_i32(ids + i * 4, load_i32(ids + i * 4) & (EXPANDED - 1))
    return count


@kernel
def choose(
    vectors: int, size: int, kind: int, ids: int, distances: int, count: int, capacity: int,
    into_ids: int, into_distances: int,
) -> tuple[int, int]:  # fmt: skip
    """Choose nodes, the nearest first, that are nearer to the query than to any chosen before.

    The nearest of the other nodes fill the remaining places. Return the number of nodes that lie
    apart in this way, and the number of all. Marks save comparisons: nodes marked ``APART`` lie
    apart from each other. Nodes marked ``OTHER`` stay others as long as all ``APART`` are chosen.
    """
    chosen = 0
    lost = False
    for i in range(count):
        if chosen == capacity:
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
            store_i32(into_ids + chosen * 4, word)
            store_f32(into_distances + chosen * 4, far)
            chosen += 1
            store_i32(ids + i * 4, word | EXPANDED)
        elif word & APART:
            lost = True
    apart_count = chosen
    for t in range(chosen):
        store_i32(into_ids + t * 4, load_i32(into_ids + t * 4) & NODE)
    for i in range(count):
        word = load_i32(ids + i * 4)
        store_i32(ids + i * 4, word & NODE)
        if word < EXPANDED and chosen < capacity:
            store_i32(into_ids + chosen * 4, word & NODE)
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
    """Write the lists of the nodes of a batch; return the last stamp that was used."""
    for i in range(batch_size):
        node = load_i32(batch + i * 4)
        own_level = np.int64(load_u8(levels + node))
        query = vectors + node * size
        store_i32(ids, entry)
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
            max_count = candidates
            if level > own_level:
                max_count = 1
            count = search_level(
                query=query, vectors=vectors, size=size, kind=kind, nodes=nodes, counts=counts,
                upper_of=upper_of, level=level, capacity=capacity, stamps=stamps, stamp=stamp,
                ids=ids, distances=distances, count=count, max_count=max_count, fresh=fresh,
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
                store_i32(counts + block * 4, kept)
                store_i32(judged + block * 8, apart)
                store_i32(judged + block * 8 + 4, kept)
            level -= 1
    return stamp


@kernel
def order_list(
    own_ids: int, own_distances: int, apart: int, judged: int, count: int, node_count: int,
    ids: int, far: int, scratch_size: int,
) -> int:  # fmt: skip
    """Copy a list in order of distance, with the marks of each node; return how many."""
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
            store_i32(ids + size * 4, node | known)
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
            store_i32(own_ids + count * 4, load_i32(sources + edge * 4))
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
        store_i32(counts + block * 4, count)
        store_i32(judged + block * 8, apart)
        store_i32(judged + block * 8 + 4, known)


# --- Compiled kernel that searches neighbour graphs; wrapper: ``glaive.kernels.graph_search``
# ``kind`` is the number that the wrapper gives a way to compare.

_SQUARED_CODES, _PRODUCT, _GAP, _BYTES = 0, 1, 2, 3
_PREFETCHED = 512
"""Bytes of a code that are fetched ahead; the processor then continues by itself."""

_FRESH, _LIST_BYTES = 64, 192
"""Neighbours that are compared at a time, and bytes of a list that are fetched ahead."""


@kernel_with_sums
def sort_key(node: int, kind: int, codes: int, width: int, query: int, terms: int) -> np.float32:
    """Return the sort key of a node: the distance, or a number that grows with it."""
    if kind == _SQUARED_CODES:
        return squared_f32(codes + node * width * 4, query, width)
    if kind == _PRODUCT:
        return -dot_f32(codes + node * width * 4, query, width)
    if kind == _GAP:
        return gap_code(codes + node * width, query, width)
    if kind == _BYTES:
        return -dot_code(codes + node * width, query, width)
    return load_f32(terms + node * 4) + sum_entries(codes + node * width, width, query)


@kernel_with_sums
def search_codes(
    offsets: int, neighbors: int, rows: int, row_of: int, nodes: int, entry: int, stamp: int,
    visited: int, kind: int, codes: int, width: int, query: int, terms: int, capacity: int,
    distances: int, found: int, fresh: int,
) -> int:  # fmt: skip
    """Collect the nearest nodes that are reached from the entry on a level; return how many.

    Skip neighbours whose distance is NaN. An entry whose distance is NaN comes last.
    """
    code_bytes = width * 4 if kind <= _PRODUCT else width
    store_f32(distances, sort_key(entry, kind, codes, width, query, terms))
    store_i32(found, entry)
    store_u8(visited + entry, np.uint8(stamp))
    count = 1
    at = 0
    while at < count:
        node = np.int64(load_i32(found + at * 4))
        if node >= EXPANDED:
            at += 1
            continue
        store_i32(found + at * 4, node + EXPANDED)
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
                    # Avoid a branch: the processor would mispredict it.
                    store_i32(fresh + met * 4, other)
                    met += np.int64(load_u8(visited + other) != stamp)
                    store_u8(visited + other, np.uint8(stamp))
            # Codes lie anywhere: fetch all before the first comparison.
            for i in range(met):
                code = codes + load_i32(fresh + i * 4) * code_bytes
                for line in range(0, min(code_bytes, _PREFETCHED), 64):
                    prefetch(code + line)
            for i in range(met):
                other = np.int64(load_i32(fresh + i * 4))
                far = sort_key(other, kind, codes, width, query, terms)
                if count < capacity or not load_f32(distances + (count - 1) * 4) <= far:
                    if math.isnan(far):
                        continue
                    at = min(at, insert(found, distances, count, capacity, other, far))
                    count = min(count + 1, capacity)
            first = stop
    for i in range(count):
        store_i32(found + i * 4, load_i32(found + i * 4) & (EXPANDED - 1))
    return count


@kernel_with_sums
def search_graph(
    levels: int, level_count: int, nodes: int, entry: int, visited: int, stamp: int, kind: int,
    codes: int, width: int, query: int, capacity: int, distances: int, found: int, fresh: int,
    offset: float, factor: float, places: int, wanted: int, placed: int,
) -> tuple[int, int]:  # fmt: skip
    """Collect the nearest nodes that are reached from the entry; return how many.

    ``levels`` has offsets, neighbours, rows and rows of nodes for each level, the highest first;
    ``codes`` has the addresses of codes and terms.
    ``distances`` and ``found`` have room for ``capacity`` nodes, nearest first; ``fresh`` for 64.
    ``visited`` has a byte below ``stamp`` for each node. Each level uses a stamp, from ``stamp``
    on. A distance is ``offset`` plus ``factor`` times the result of a comparison. The search skips
    neighbours beyond the nodes. ``placed`` gets three numbers of ``wanted`` nodes, line by line,
    from arrays whose addresses are in ``places``, while distances ascend. Return how many, too.
    """
    count = 0
    for number in range(level_count):
        level = levels + number * 32
        room = 1
        if number == level_count - 1:
            room = capacity
        count = search_codes(
            offsets=load_i64(level), neighbors=load_i64(level + 8), rows=load_i64(level + 16),
            row_of=load_i64(level + 24), nodes=nodes, entry=entry, stamp=stamp + number,
            visited=visited, kind=kind, codes=load_i64(codes), width=width, query=query,
            terms=load_i64(codes + 8), capacity=room, distances=distances, found=found,
            fresh=fresh,
        )  # fmt: skip
        entry = np.int64(load_u32(found))
    if math.isnan(load_f32(distances + (count - 1) * 4)):
        count -= 1  # the entry, if its distance is NaN
    for i in range(count):
        far = load_f32(distances + i * 4)
        if kind in (_PRODUCT, _BYTES):
            far = -far
        store_f32(distances + i * 4, np.float32(offset) + far * np.float32(factor))
    ordered = 0
    while places and ordered < min(count, wanted):
        far, at = load_f32(distances + ordered * 4), np.int64(load_i32(found + ordered * 4)) * 8
        # Also compare the next distance: an equal one may have a lower key. NaN is never less.
        if ordered + 1 < count and not far < load_f32(distances + ordered * 4 + 4):
            break
        for array in range(3):
            line = placed + (array * wanted + ordered) * 8
            store_u64(line, load_u64(load_i64(places + array * 8) + at))
        ordered += 1
    return count, ordered
