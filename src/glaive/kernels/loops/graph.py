"""Compiled loops over neighbour graphs; their wrappers are in ``glaive.kernels.graph``.

``scratch`` has four rows of ``room`` words: candidates, their distances, nodes that are gone,
and which candidates were taken.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import (
    load_f32,
    load_i32,
    load_i64,
    load_u8,
    loop,
    loop_of,
    store_f32,
    store_u32,
)
from glaive.kernels.records import MendGraph


@loop
def put(target: int, value: int) -> None:
    """Store one 32-bit word."""
    store_u32(target, np.uint32(value))


@loop
def squared(one: int, other: int, dimension: int) -> np.float32:
    """Squared distance of two vectors; four sums, so that four can be made at a time."""
    a = b = c = d = np.float32(0)
    whole = dimension // 4 * 4
    for i in range(0, whole, 4):
        at, to = one + i * 4, other + i * 4
        p = load_f32(at) - load_f32(to)
        q = load_f32(at + 4) - load_f32(to + 4)
        r = load_f32(at + 8) - load_f32(to + 8)
        s = load_f32(at + 12) - load_f32(to + 12)
        a += p * p
        b += q * q
        c += r * r
        d += s * s
    for i in range(whole, dimension):
        p = load_f32(one + i * 4) - load_f32(other + i * 4)
        a += p * p
    return (a + b) + (c + d)


@loop
def dotted(one: int, other: int, dimension: int) -> np.float32:
    """One minus the dot product of two vectors."""
    a = b = c = d = np.float32(0)
    whole = dimension // 4 * 4
    for i in range(0, whole, 4):
        at, to = one + i * 4, other + i * 4
        a += load_f32(at) * load_f32(to)
        b += load_f32(at + 4) * load_f32(to + 4)
        c += load_f32(at + 8) * load_f32(to + 8)
        d += load_f32(at + 12) * load_f32(to + 12)
    for i in range(whole, dimension):
        a += load_f32(one + i * 4) * load_f32(other + i * 4)
    return np.float32(1) - ((a + b) + (c + d))


@loop
def between(one: int, other: int, vectors: int, place: int, dimension: int, dot: int) -> np.float32:
    """Distance of two nodes."""
    here = vectors + load_i32(place + one * 4) * dimension * 4
    there = vectors + load_i32(place + other * 4) * dimension * 4
    if dot:
        return dotted(here, there, dimension)
    return squared(here, there, dimension)


@loop
def gather(
    node: int,
    stamp: int,
    enough: int,
    offsets: int,
    nodes: int,
    kept: int,
    stamps: int,
    found: int,
    gone: int,
    room: int,
) -> int:
    """Collect candidates; returns how many."""
    count = 0
    waiting = 0
    at = -1
    direct = 0
    through = node
    put(stamps + node * 4, stamp)
    while True:
        edge = load_i64(offsets + through * 8)
        end = load_i64(offsets + through * 8 + 8)
        while edge < end and count < room and waiting < room:
            one = load_i32(nodes + edge * 4)
            edge += 1
            if load_i32(stamps + one * 4) == stamp:
                continue
            put(stamps + one * 4, stamp)
            if load_u8(kept + one):
                put(found + count * 4, one)
                count += 1
            else:
                put(gone + waiting * 4, one)
                waiting += 1
        if at < 0:
            direct = waiting
        at += 1
        if at >= waiting or (at >= direct and count >= enough):
            return count
        through = load_i32(gone + at * 4)


@loop
def order(found: int, far: int, count: int) -> None:
    """Put candidates in order of distance, then number."""
    gap = 1
    while gap < count // 3:
        gap = gap * 3 + 1
    while gap > 0:
        for i in range(gap, count):
            node, distance = load_i32(found + i * 4), load_f32(far + i * 4)
            j = i
            while j >= gap:
                other, beyond = load_i32(found + (j - gap) * 4), load_f32(far + (j - gap) * 4)
                if beyond < distance or (beyond == distance and other <= node):
                    break
                put(found + j * 4, other)
                store_f32(far + j * 4, beyond)
                j -= gap
            put(found + j * 4, node)
            store_f32(far + j * 4, distance)
        gap //= 3


@loop_of(MendGraph)
def mend(
    offsets: int,
    nodes: int,
    kept: int,
    damaged: int,
    damaged_count: int,
    vectors: int,
    place: int,
    dimension: int,
    dot: int,
    stamps: int,
    scratch: int,
    room: int,
    into_counts: int,
    into_nodes: int,
    into_distances: int,
) -> None:
    """Write new lists for the damaged nodes."""
    found, far = scratch, scratch + room * 4
    gone, taken = scratch + room * 8, scratch + room * 12
    for i in range(damaged_count):
        node = load_i64(damaged + i * 8)
        first = load_i64(offsets + node * 8)
        width = load_i64(offsets + node * 8 + 8) - first
        size = gather(
            node,
            i + 1,
            width,
            offsets,
            nodes,
            kept,
            stamps,
            found,
            gone,
            room,
        )
        for k in range(size):
            one = load_i32(found + k * 4)
            store_f32(far + k * 4, between(node, one, vectors, place, dimension, dot))
            put(taken + k * 4, 0)
        order(found, far, size)
        at = first * 4
        filled = 0
        for k in range(size):
            if filled == width:
                break
            one, distance = load_i32(found + k * 4), load_f32(far + k * 4)
            apart = 1
            for t in range(filled):
                other = load_i32(into_nodes + at + t * 4)
                if between(one, other, vectors, place, dimension, dot) < distance:
                    apart = 0
                    break
            if apart:
                put(taken + k * 4, 1)
                put(into_nodes + at + filled * 4, one)
                store_f32(into_distances + at + filled * 4, distance)
                filled += 1
        for k in range(size):
            if filled == width:
                break
            if load_i32(taken + k * 4) == 0:
                put(into_nodes + at + filled * 4, load_i32(found + k * 4))
                store_f32(into_distances + at + filled * 4, load_f32(far + k * 4))
                filled += 1
        put(into_counts + node * 4, filled)
