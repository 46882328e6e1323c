"""Have the system read what a take will touch in a mapped file, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from glaive.encodings.protocol import PageReader
from glaive.encodings.touched import Places, read_first, touched
from glaive.file.v2.reading.bound import Column
from glaive.io.mapping import announce

__all__ = ["announce_rows"]

_GAP = 16 * 1024
"""Bytes between two places that are read rather than asked for apart."""


def announce_rows(columns: Sequence[Column], rows: NDArray[np.int64]) -> bool:
    """Announce what a take of these rows reads of mapped columns.

    Returns
    -------
    bool
        Whether that is known; else nothing was announced.
    """
    rows = np.sort(rows)
    parts = [part for column in columns for part in _pages(column, rows)]
    first = [buffer for page, _ in parts for buffer in read_first(page)]
    if first:
        announce(np.array([(one.address, one.size) for one in first], np.int64).reshape(-1, 2))
    found: list[Places] = []
    for page, some in parts:
        places = touched(page, some)
        if places is None:
            return False
        found.append(places)
    if found:
        announce(_joined(np.concatenate(found)))
    return True


def _pages(
    column: Column, rows: NDArray[np.int64]
) -> Iterator[tuple[PageReader, NDArray[np.int64]]]:
    """Pages that have some of the rows, with their numbers in the page."""
    starts = column.starts
    cuts = np.searchsorted(rows, starts).tolist()
    for at, page in enumerate(column.pages):
        if cuts[at] < cuts[at + 1]:
            yield page, rows[cuts[at] : cuts[at + 1]] - starts[at]


def _joined(places: Places) -> Places:
    """The places in order, those that are near each other as one."""
    if not len(places):
        return places
    places = places[np.argsort(places[:, 0])]
    ends = np.maximum.accumulate(places.sum(axis=1))
    begins = np.flatnonzero(places[1:, 0] > ends[:-1] + _GAP) + 1
    first = np.concatenate(([0], begins))
    last = np.concatenate((begins - 1, [len(places) - 1]))
    starts = places[first, 0]
    return np.stack([starts, ends[last] - starts], axis=1)
