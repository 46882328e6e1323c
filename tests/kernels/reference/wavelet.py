"""NumPy references of ``glaive.kernels.wavelet``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glaive.errors import SchemaError
from glaive.kernels.wavelet import _MAX_STEPS, MAX_TEXT_BYTES, SuffixSamples, WaveletTree
from glaive.types import Int64s, UInt8s


def sort_suffixes(text: UInt8s) -> NDArray[np.int32]:
    """Where the suffixes of a text begin, in their order: a suffix comes before longer ones
    that begin with it."""
    if len(text) > MAX_TEXT_BYTES:
        raise SchemaError(f"a text of {len(text)} bytes, of at most {MAX_TEXT_BYTES}")
    return _sort_numpy(text)


def _sort_numpy(text: UInt8s) -> NDArray[np.int32]:
    """By the first 1, 2, 4, … bytes, until all suffixes differ."""
    size = len(text)
    rank = text.astype(np.int64) + 1
    length = 1
    while True:
        behind = np.zeros(size, np.int64)
        behind[: max(0, size - length)] = rank[length:]
        order = np.lexsort((behind, rank))
        changes = np.ones(size, np.int64)
        first, second = rank[order], behind[order]
        changes[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        rank[order] = np.cumsum(changes)
        if size == 0 or rank[order[-1]] == size:
            return order.astype(np.int32)
        length *= 2


def find_pattern(tree: WaveletTree, pattern: bytes) -> tuple[int, int]:
    """Rows of the suffixes that begin with a pattern, from the first to the one after the last."""
    return _find_numpy(tree, pattern)


def locate_rows(tree: WaveletTree, samples: SuffixSamples, first: int, stop: int) -> Int64s | None:
    """Where the suffixes of the rows from ``first`` to ``stop`` begin in the text."""
    if not 0 <= first <= stop <= tree.size or samples.rows != tree.size:
        raise ValueError(f"rows {first} to {stop} of {tree.size}, samples of {samples.rows}")
    count = stop - first
    most_steps = _MAX_STEPS * (count + _MAX_STEPS)
    return _locate_numpy(tree, samples, first, stop, most_steps)


def read_text(tree: WaveletTree) -> UInt8s:
    """The text, without its last byte. A step of :func:`locate_rows` for each byte."""
    return _read_numpy(tree)


def _read_numpy(tree: WaveletTree) -> UInt8s:
    transform = tree.transform()
    before = np.empty(tree.size, np.int64)
    before[np.argsort(transform, kind="stable")] = np.arange(tree.size)
    # Rows that are 1, 2, 4, … steps before the last byte, until these are all.
    rows = np.zeros(1, np.int64)
    while len(rows) < tree.size:
        rows = np.concatenate((rows, before[rows]))
        before = before[before]
    text: UInt8s = transform[rows[: max(0, tree.size - 1)][::-1]]
    return text


def _find_numpy(tree: WaveletTree, pattern: bytes) -> tuple[int, int]:
    transform = tree.transform()
    low, high = 0, tree.size
    for symbol in reversed(pattern):
        if low >= high:
            break
        rows = np.flatnonzero(transform == symbol)
        low, high = (np.searchsorted(rows, (low, high)) + tree.counts[symbol]).tolist()
    return (low, high) if low < high else (0, 0)


def _locate_numpy(
    tree: WaveletTree, samples: SuffixSamples, first: int, stop: int, most_steps: int
) -> Int64s | None:
    before = np.empty(tree.size, np.int64)
    before[np.argsort(tree.transform(), kind="stable")] = np.arange(tree.size)
    rows = np.arange(first, stop)
    steps = np.zeros(len(rows), np.int64)
    mask = (1 << samples.shift) - 1
    made = 0
    while len(walking := np.flatnonzero(rows & mask)):
        made += len(walking)
        if made > most_steps:
            return None
        rows[walking] = before[rows[walking]]
        steps[walking] += 1
    positions = samples.positions[rows >> samples.shift] + steps
    positions[positions >= tree.size] -= tree.size
    return None if bool((positions >= tree.size).any()) else positions
