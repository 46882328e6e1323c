"""Rows that a search is restricted to, because a filter comes first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from glaive.kernels.code_scan import AllowedBits
from glaive.types import Flags, Int64s

__all__ = ["AllowedRows"]

_MAX_BITS = 1 << 31
"""Rows up to which each has a bit; with more, allowed ones are looked up."""


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
        if self.bits is not None:
            return self.bits.contains(fragment, row)
        allowed = np.zeros(len(row), np.bool_)
        for position, rows in self._rows.items():
            here = np.flatnonzero(fragment == position)
            at = np.minimum(np.searchsorted(rows, row[here]), len(rows) - 1)
            allowed[here] = rows[at] == row[here]
        return allowed

    @cached_property
    def bits(self) -> AllowedBits | None:
        """A bit for each row up to the last of its fragment; None: too many."""
        sizes = np.zeros(max(self._rows, default=0) + 1, np.int64)
        for position, rows in self._rows.items():
            sizes[position] = int(rows[-1]) + 1
        if (sizes > _MAX_BITS).any() or int(sizes.sum()) + 8 * len(sizes) > _MAX_BITS:
            return None
        octets = (sizes + 7) // 8
        starts = np.cumsum(octets) - octets
        bits = np.zeros(max(1, int(octets.sum())), np.uint8)
        for position, rows in self._rows.items():
            flags = np.zeros(int(sizes[position]), np.bool_)
            flags[rows] = True
            packed = np.packbits(flags, bitorder="little")
            bits[starts[position] : starts[position] + len(packed)] = packed
        return AllowedBits(8 * starts, sizes, bits)
