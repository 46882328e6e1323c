"""Rows that a search is restricted to, because a filter comes first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from glaive.types import Flags, Int64s

__all__ = ["AllowedRows"]

_MAX_FLAGS = 1 << 28
"""Rows up to which each has a flag; with more, allowed ones are looked up."""


class AllowedRows:
    """Rows that passed a filter, by fragment.

    Parameters
    ----------
    passed
        Position of a fragment and physical rows in it, ascending; a fragment may come again
        with rows behind those before.
    """

    def __init__(self, passed: Iterable[tuple[int, Int64s]]) -> None:
        by_fragment: dict[int, list[Int64s]] = {}
        for position, rows in passed:
            if len(rows):
                by_fragment.setdefault(position, []).append(rows)
        self._rows = {position: np.concatenate(rows) for position, rows in by_fragment.items()}
        self.count = sum(map(len, self._rows.values()))

    def pairs(self) -> tuple[Int64s, Int64s]:
        """Fragments, by position, and physical rows of all."""
        if not self._rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        fragments = [np.full(len(rows), position) for position, rows in self._rows.items()]
        return np.concatenate(fragments), np.concatenate(list(self._rows.values()))

    def contains(self, fragment: Int64s, row: Int64s) -> Flags:
        """Which rows are allowed, one flag each."""
        if self._flagged is not None:
            starts, ends, flags = self._flagged
            known = np.minimum(fragment, len(starts) - 1)
            allowed: Flags = flags[np.minimum(starts[known] + row, ends[known])]
            return allowed
        allowed = np.zeros(len(row), np.bool_)
        for position, rows in self._rows.items():
            here = np.flatnonzero(fragment == position)
            at = np.minimum(np.searchsorted(rows, row[here]), len(rows) - 1)
            allowed[here] = rows[at] == row[here]
        return allowed

    @cached_property
    def _flagged(self) -> tuple[Int64s, Int64s, Flags] | None:
        """Where the flags of each fragment begin and end, and all flags; None: too many.

        The last flag of a fragment stands for all rows behind, and there is one fragment
        more, for all behind: none of these is allowed.
        """
        spans = {position: int(rows[-1]) + 1 for position, rows in self._rows.items()}
        last = max(spans, default=-1)
        if sum(spans.values()) + last > _MAX_FLAGS:
            return None
        sizes = np.zeros(last + 2, np.int64)
        sizes[list(spans)] = list(spans.values())
        ends = np.cumsum(sizes + 1) - 1
        starts = ends - sizes
        flags = np.zeros(int(ends[-1]) + 1, np.bool_)
        for position, rows in self._rows.items():
            flags[starts[position] + rows] = True
        return starts, ends, flags
