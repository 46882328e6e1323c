"""Rows of a range that are still in question: as one bit each, or as their numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.buffers import pack_flags
from glaive.kernels.match import count_rows, list_rows
from glaive.memory import as_buffer
from glaive.scan.deletions import LiveRows

__all__ = ["RowSet"]

Int64s = NDArray[np.int64]


class RowSet:
    """Some of the rows ``start`` to ``stop``.

    Parameters
    ----------
    bits
        One per row, those behind the last row 0.
    numbers
        The physical rows, ascending; given in place of ``bits``.
    """

    def __init__(
        self, start: int, stop: int, *, bits: Any = None, numbers: Int64s | None = None
    ) -> None:
        self.start, self.stop = start, stop
        self._bits, self._numbers = bits, numbers

    @cached_property
    def count(self) -> int:
        """How many they are."""
        if self._numbers is not None:
            return len(self._numbers)
        return count_rows(self._bits, 0, self.stop - self.start)

    @property
    def rows(self) -> Int64s:
        """The physical rows, ascending."""
        if self._numbers is None:
            self._numbers = list_rows(self._bits, 0, self.stop - self.start, self.start)
        return self._numbers

    def is_few(self, share: float) -> bool:
        """Whether they are at most this share of the range."""
        return self.count <= share * (self.stop - self.start)

    def among(self, other: RowSet) -> RowSet:
        """The rows that are in the other set of the same range as well."""
        if self._bits is None and other._bits is not None:
            return other.among(self)
        if self._bits is None:
            few, many = (self, other) if self.count <= other.count else (other, self)
            if few.count == 0:
                return few
            at = np.minimum(np.searchsorted(many.rows, few.rows), many.count - 1)
            kept = np.compress(many.rows[at] == few.rows, few.rows)
            return RowSet(self.start, self.stop, numbers=kept)
        mine = np.frombuffer(self._bits, np.uint8)
        if other._bits is not None:
            both = mine & np.frombuffer(other._bits, np.uint8)
            return RowSet(self.start, self.stop, bits=as_buffer(both))
        at = other.rows - self.start
        there = (mine[at >> 3] >> (at & 7).astype(np.uint8)) & 1
        return RowSet(self.start, self.stop, numbers=np.compress(there, other.rows))

    def live(self, live: LiveRows) -> RowSet:
        """Without the deleted ones."""
        first, last = np.searchsorted(live.deleted, (self.start, self.stop)).tolist()
        if first == last:
            return self
        gone = live.deleted[first:last]
        if self._bits is not None:
            flags = np.ones(self.stop - self.start, np.bool_)
            flags[gone - self.start] = False
            kept = RowSet(self.start, self.stop, bits=pack_flags(flags))
            return self.among(kept)
        at = np.minimum(np.searchsorted(gone, self.rows), len(gone) - 1)
        numbers = np.compress(gone[at] != self.rows, self.rows)
        return RowSet(self.start, self.stop, numbers=numbers)
