"""The nearest rows that a search has met: a heap, the farthest first, in four arrays side by side.

Distances are ``float32``; keys, places (of fragments) and rows have eight bytes. Of equal
distances the higher key is farther.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, load_f32, load_u64, store_f32, store_u64


@kernel
def is_farther(
    distance: np.float32, key: np.uint64, other: np.float32, other_key: np.uint64
) -> bool:
    """The order of rows: by distance, then by key."""
    return distance > other or (distance == other and key > other_key)


@kernel
def put(heap: int, keys: int, places: int, rows: int, to: int, source: int) -> None:
    """Copy a row within the heap."""
    store_f32(heap + to * 4, load_f32(heap + source * 4))
    store_u64(keys + to * 8, load_u64(keys + source * 8))
    store_u64(places + to * 8, load_u64(places + source * 8))
    store_u64(rows + to * 8, load_u64(rows + source * 8))


@kernel
def hole_for(
    heap: int, keys: int, places: int, rows: int, size: int, far: np.float32, key: np.uint64
) -> int:
    """Make room for a row below the farthest, which goes; returns where."""
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and is_farther(
            load_f32(heap + child * 4 + 4), load_u64(keys + child * 8 + 8),
            load_f32(heap + child * 4), load_u64(keys + child * 8),
        ):  # fmt: skip
            child += 1
        if not is_farther(load_f32(heap + child * 4), load_u64(keys + child * 8), far, key):
            break
        put(heap, keys, places, rows, at, child)
        at = child
        child = 2 * at + 1
    return at


@kernel
def hole_behind(
    heap: int, keys: int, places: int, rows: int, size: int, far: np.float32, key: np.uint64
) -> int:
    """Make room for one row more; returns where."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not is_farther(far, key, load_f32(heap + parent * 4), load_u64(keys + parent * 8)):
            break
        put(heap, keys, places, rows, at, parent)
        at = parent
    return at


@kernel
def sort_heap(heap: int, keys: int, places: int, rows: int, size: int) -> None:
    """Put the rows of a heap in order, the nearest first."""
    for last in range(size - 1, 0, -1):
        far, key = load_f32(heap + last * 4), load_u64(keys + last * 8)
        place, row = load_u64(places + last * 8), load_u64(rows + last * 8)
        put(heap, keys, places, rows, last, 0)
        at = hole_for(heap, keys, places, rows, last, far, key)
        store_f32(heap + at * 4, far)
        store_u64(keys + at * 8, key)
        store_u64(places + at * 8, place)
        store_u64(rows + at * 8, row)


@kernel
def keep_near(
    heap: int, keys: int, places: int, rows: int, size: int, capacity: int, far: np.float32,
    key: np.uint64, place: int, row: int,
) -> int:  # fmt: skip
    """Add a row, whose ``place`` and ``row`` are at these addresses; returns the new size.

    A full heap takes it for the farthest, or not at all.
    """
    if size < capacity:
        at = hole_behind(heap, keys, places, rows, size, far, key)
        size += 1
    else:
        if not is_farther(load_f32(heap), load_u64(keys), far, key):
            return size
        at = hole_for(heap, keys, places, rows, size, far, key)
    store_f32(heap + at * 4, far)
    store_u64(keys + at * 8, key)
    store_u64(places + at * 8, load_u64(place))
    store_u64(rows + at * 8, load_u64(row))
    return size
