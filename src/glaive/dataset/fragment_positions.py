"""Positions of fragments by their ids: many lookups among the fragments of one version."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from glaive.format.wire import MAX_FRAGMENT_ID
from glaive.types import Flags, Int64s


class FragmentPositions:
    """Where fragments are in the list of a version.

    A lookup costs time by the fragments that are asked for, not by those of the version: there may
    be as many segments of indices as fragments, each of which covers a few.

    Parameters
    ----------
    ids
        Of all fragments, in the order of the version.
    """

    def __init__(self, ids: Int64s) -> None:
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    def of(self, wanted: Iterable[int]) -> Int64s:
        """Positions of those that the version has, in any order; each id at its first place."""
        known = (number for number in wanted if 0 <= number <= MAX_FRAGMENT_ID)
        numbers = np.fromiter(known, np.int64)
        at = np.searchsorted(self._sorted, numbers)
        inside = at < len(self._sorted)
        at, numbers = at[inside], numbers[inside]
        positions: Int64s = self._order[at[self._sorted[at] == numbers]]
        return positions

    def marked(self, wanted: Iterable[int]) -> Flags:
        """Which fragments have one of these ids."""
        flags = np.zeros(len(self._sorted), np.bool_)
        flags[self.of(wanted)] = True
        return flags
