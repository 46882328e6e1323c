"""Have the system read what a take will touch in a mapped file, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from glaive.encodings.protocol import MemoryRanges, PageReader
from glaive.io.mapping import prefetch

__all__ = ["prefetch_rows"]

_GAP = 16 * 1024
"""Bytes between two ranges that are read rather than asked for apart."""


def prefetch_rows(
    columns: Sequence[tuple[Sequence[int], Sequence[PageReader]]], rows: NDArray[np.int64]
) -> bool:
    """Prefetch what a take of these rows reads of mapped columns.

    Parameters
    ----------
    columns
        The row that each page begins at, then the rows of the column; and the pages.

    Returns
    -------
    bool
        Whether all of it is known; else only what opens the pages was prefetched.
    """
    rows = np.sort(rows)
    parts = [part for starts, pages in columns for part in _pages(starts, pages, rows)]
    if not parts:
        return True
    prefetch(np.concatenate([page.opening_ranges() for page, _ in parts]))
    ranges = []
    for page, some in parts:
        taken = page.take_ranges(some)
        if taken is None:
            return False
        ranges.append(taken)
    prefetch(_merged(np.concatenate(ranges)))
    return True


def _pages(
    starts: Sequence[int], pages: Sequence[PageReader], rows: NDArray[np.int64]
) -> Iterator[tuple[PageReader, NDArray[np.int64]]]:
    """Pages that have some of the rows, with their numbers in the page."""
    cuts = np.searchsorted(rows, starts).tolist()
    for at, page in enumerate(pages):
        if cuts[at] < cuts[at + 1]:
            yield page, rows[cuts[at] : cuts[at + 1]] - starts[at]


def _merged(ranges: MemoryRanges) -> MemoryRanges:
    """The ranges in order, those that are near each other as one."""
    if not len(ranges):
        return ranges
    ranges = ranges[np.argsort(ranges[:, 0])]
    ends = np.maximum.accumulate(ranges.sum(axis=1))
    begins = np.flatnonzero(ranges[1:, 0] > ends[:-1] + _GAP) + 1
    first = np.concatenate(([0], begins))
    last = np.concatenate((begins - 1, [len(ranges) - 1]))
    starts = ranges[first, 0]
    return np.stack([starts, ends[last] - starts], axis=1)
