"""The best documents found so far, as a heap in two arrays: scores, and documents.

Its root is the worst of them: the lowest score, and of equal ones the highest document.
"""

from __future__ import annotations

import numpy as np

from glaive.kernels.loops.memory import kernel, load_f32, load_u32, store_f32, store_u32


@kernel
def is_worse(scores: int, documents: int, first: int, second: int) -> bool:
    """Whether the first entry of the heap is worse than the second."""
    left, right = load_f32(scores + first * 4), load_f32(scores + second * 4)
    if left != right:
        return left < right
    return load_u32(documents + first * 4) > load_u32(documents + second * 4)


@kernel
def swap(scores: int, documents: int, first: int, second: int) -> None:
    """Exchange two entries of the heap."""
    score, document = load_f32(scores + first * 4), load_u32(documents + first * 4)
    store_f32(scores + first * 4, load_f32(scores + second * 4))
    store_u32(documents + first * 4, load_u32(documents + second * 4))
    store_f32(scores + second * 4, score)
    store_u32(documents + second * 4, document)


@kernel
def push(
    scores: int, documents: int, size: int, most: int, score: np.float32, document: int
) -> int:
    """Add a document, in place of the worst one if there are ``most``; returns how many."""
    at = size
    if size < most:
        store_f32(scores + at * 4, score)
        store_u32(documents + at * 4, np.uint32(document))
        while at > 0 and is_worse(scores, documents, at, (at - 1) >> 1):
            swap(scores, documents, at, (at - 1) >> 1)
            at = (at - 1) >> 1
        return size + 1
    at = 0
    store_f32(scores, score)
    store_u32(documents, np.uint32(document))
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and is_worse(scores, documents, child + 1, child):
            child += 1
        if not is_worse(scores, documents, child, at):
            break
        swap(scores, documents, child, at)
        at = child
    return size


@kernel
def threshold_of(scores: int, size: int, most: int, floor: np.float32) -> np.float32:
    """The score that a document has to exceed."""
    if size < most:
        return floor
    return max(floor, load_f32(scores))
