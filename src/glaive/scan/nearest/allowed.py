"""Rows that a search is restricted to, because a filter comes first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from glaive.types import Flags, Int64s

__all__ = ["AllowedRows"]

_MAX_FLAGS = 1 << 28
"""Rows of a fragment up to which each has a flag; with more, allowed ones are looked up."""


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
        self._flags: dict[int, Flags] = {}
        self.count = sum(map(len, self._rows.values()))

    def pairs(self) -> tuple[Int64s, Int64s]:
        """Fragments, by position, and physical rows of all."""
        if not self._rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        fragments = [np.full(len(rows), position) for position, rows in self._rows.items()]
        return np.concatenate(fragments), np.concatenate(list(self._rows.values()))

    def contains(self, fragment: Int64s, row: Int64s) -> Flags:
        """Which rows are allowed, one flag each."""
        allowed = np.zeros(len(row), np.bool_)
        for position, rows in self._rows.items():
            here = slice(None) if (fragment == position).all() else fragment == position
            allowed[here] = self._among(position, rows, row[here])
        return allowed

    def _among(self, position: int, rows: Int64s, wanted: Int64s) -> Flags:
        last = int(rows[-1])
        if last < _MAX_FLAGS:
            flags = self._flags.get(position)
            if flags is None:
                flags = np.zeros(last + 2, np.bool_)  # the last entry: all rows behind
                flags[rows] = True
                self._flags[position] = flags
            return flags[np.minimum(wanted, last + 1)]
        at = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
        found: Flags = rows[at] == wanted
        return found
