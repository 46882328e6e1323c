"""Selected rows of a range: as bits, as flags, or as their numbers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.buffers import pack_flags
from glaive.kernels.compact import DeletionMask
from glaive.kernels.match import count_rows, list_rows
from glaive.memory import as_buffer
from glaive.scan.deletions import LiveRows
from glaive.types import Int64s

__all__ = ["RowSelection"]


class RowSelection:
    """Some of the rows ``start`` to ``stop``; all of them where nothing else is given.

    Parameters
    ----------
    bits
        A bitmap with one bit per row, those behind the last row 0.
    flags
        One boolean per row.
    rows
        The physical rows, ascending.
    """

    def __init__(
        self,
        start: int,
        stop: int,
        *,
        bits: Any = None,
        flags: NDArray[np.bool_] | None = None,
        rows: Int64s | None = None,
    ) -> None:
        self.start, self.stop = start, stop
        self._bits, self._flags = bits, flags
        if rows is not None:
            self.rows = rows

    @property
    def span(self) -> int:
        """Rows of the range."""
        return self.stop - self.start

    @cached_property
    def count(self) -> int:
        """Selected rows."""
        if "rows" in self.__dict__:
            return len(self.rows)
        if self._flags is not None:
            return int(np.count_nonzero(self._flags))
        return self.span if self._bits is None else count_rows(self._bits, 0, self.span)

    @cached_property
    def rows(self) -> Int64s:
        """The physical rows, ascending."""
        return self.offsets + self.start if self.start else self.offsets

    def numbered(self, positions: Int64s) -> Int64s:
        """The physical rows at these positions among the selected ones."""
        if self.count == self.span:
            return positions + self.start
        return self.rows[positions]

    @cached_property
    def offsets(self) -> Int64s:
        """The rows, counted from the start of the range, ascending."""
        if "rows" in self.__dict__:
            return self.rows - self.start if self.start else self.rows
        if self._flags is not None:
            return np.flatnonzero(self._flags)
        if self._bits is not None:
            return list_rows(self._bits, 0, self.span, 0)
        return np.arange(self.span, dtype=np.int64)

    @property
    def bits(self) -> Any:
        """The bitmap; None where the rows are known by their numbers only."""
        if self._bits is None and "rows" not in self.__dict__:
            flags = np.ones(self.span, np.bool_) if self._flags is None else self._flags
            self._bits = pack_flags(flags)
        return self._bits

    @cached_property
    def left_out(self) -> DeletionMask | None:
        """The rows that are not selected; None where the selected ones are known by number only."""
        return None if self.bits is None else DeletionMask.of_live(self.bits, self.span, self.count)

    def is_few(self, share: float) -> bool:
        """Whether they are at most this share of the range."""
        return self.count <= share * self.span

    def cut(self, skip: int, stop: int) -> RowSelection:
        """The selected rows numbered ``skip`` to ``stop``, as a range of their own."""
        if skip == 0 and stop == self.count:
            return self
        rows = self.rows[skip:stop]
        first, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (self.start, self.start)
        return RowSelection(first, end, rows=rows)

    def intersect(self, other: RowSelection) -> RowSelection:
        """The rows that are selected in the other one of the same range as well."""
        if self.bits is None and other.bits is not None:
            return other.intersect(self)
        if self.bits is None:
            few, many = (self, other) if self.count <= other.count else (other, self)
            if few.count == 0:
                return few
            at = np.minimum(np.searchsorted(many.rows, few.rows), many.count - 1)
            kept = np.compress(many.rows[at] == few.rows, few.rows)
            return RowSelection(self.start, self.stop, rows=kept)
        mine = np.frombuffer(self.bits, np.uint8)
        if other.bits is not None:
            both = mine & np.frombuffer(other.bits, np.uint8)
            return RowSelection(self.start, self.stop, bits=as_buffer(both))
        at = other.offsets
        common = (mine[at >> 3] >> (at & 7).astype(np.uint8)) & 1
        return RowSelection(self.start, self.stop, rows=np.compress(common, other.rows))

    def without_deleted(self, live: LiveRows) -> RowSelection:
        """Those of the rows that are live."""
        deleted = live.deleted_between(self.start, self.stop)
        if len(deleted) == 0:
            return self
        if self.bits is not None:
            flags = np.ones(self.span, np.bool_)
            flags[deleted - self.start] = False
            return self.intersect(RowSelection(self.start, self.stop, flags=flags))
        at = np.minimum(np.searchsorted(deleted, self.rows), len(deleted) - 1)
        rows = np.compress(deleted[at] != self.rows, self.rows)
        return RowSelection(self.start, self.stop, rows=rows)
