"""Have the system read all bytes of a mapped file that a take needs, at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from glaive.encodings.protocol import MemoryRanges, PageReader
from glaive.io.mapping import prefetch
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["Prefetched", "prefetch_rows"]

_GAP = 16 * 1024
"""Ranges with a smaller gap are requested as one."""


class Prefetched(NamedTuple):
    """What became of a prefetch.

    Parameters
    ----------
    is_complete
        Whether all ranges are known; else only the opening ranges were prefetched.
    was_needed
        Whether something, of a sample, was not in memory.
    """

    is_complete: bool
    was_needed: bool


def prefetch_rows(
    columns: Sequence[tuple[Sequence[int], Sequence[PageReader]]], rows: Int64s
) -> Prefetched:
    """Prefetch what a take of these rows reads of mapped columns.

    Parameters
    ----------
    columns
        The row that each page begins at, then the rows of the column; and the pages.
    """
    rows = np.sort(rows)
    parts = [part for starts, pages in columns for part in _pages(starts, pages, rows)]
    if not parts:
        return Prefetched(is_complete=True, was_needed=False)
    opening = [page.opening_ranges(positions) for page, positions in parts]
    needed = prefetch(_merged(np.concatenate(opening)))
    ranges = []
    for page, positions in parts:
        taken = page.take_ranges(positions)
        if taken is None:
            return Prefetched(is_complete=False, was_needed=needed)
        ranges.append(taken)
    needed = prefetch(_merged(np.concatenate(ranges))) or needed
    return Prefetched(is_complete=True, was_needed=needed)


def _pages(
    starts: Sequence[int], pages: Sequence[PageReader], rows: Int64s
) -> Iterator[tuple[PageReader, Int64s]]:
    """Pages that contain some of the rows, with the positions of the rows in the page."""
    cuts = np.searchsorted(rows, starts).tolist()
    for at, page in enumerate(pages):
        if cuts[at] < cuts[at + 1]:
            yield page, rows[cuts[at] : cuts[at + 1]] - starts[at]


def _merged(ranges: MemoryRanges) -> MemoryRanges:
    """The ranges in order, near ones merged."""
    if not len(ranges):
        return ranges
    ranges = ranges[np.argsort(ranges[:, 0])]
    ends = np.maximum.accumulate(ranges.sum(axis=1))
    begins = np.flatnonzero(ranges[1:, 0] > ends[:-1] + _GAP) + 1
    first = np.concatenate(([0], begins))
    last = np.concatenate((begins - 1, [len(ranges) - 1]))
    starts = ranges[first, 0]
    return np.stack([starts, ends[last] - starts], axis=1)
