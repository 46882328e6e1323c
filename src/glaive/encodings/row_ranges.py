"""Wanted rows as runs of consecutive rows: which bytes to request, and where each row ends up."""

from __future__ import annotations

from typing import Self

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import RowIndexError
from glaive.memory import allocate, as_array
from glaive.types import ByteRange, Int64s, Where

__all__ = ["RowRuns", "join_buffers", "rows_beyond"]


@dataclass(frozen=True, slots=True)
class RowRuns:
    """Distinct rows in ascending order, divided into runs of consecutive rows.

    ``first`` and ``last`` are the positions in ``wanted`` at which each run begins and ends
    (inclusive); ``run`` is the run of each wanted row. ``wanted[order]`` are the requested rows.
    """

    wanted: Int64s
    order: Int64s
    first: Int64s
    last: Int64s
    run: Int64s

    @classmethod
    def of(cls, rows: Int64s) -> Self:
        """Sort rows, drop repeats, and find the runs."""
        wanted, order = np.unique(rows, return_inverse=True)
        begins = np.ones(len(wanted), np.bool_)
        begins[1:] = np.diff(wanted) != 1
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(wanted)) - 1
        return cls(wanted, order, first, last, np.cumsum(begins) - 1)

    def equal_rows(self, base: int, stride: int) -> list[ByteRange]:
        """Bytes of the runs when every row has ``stride`` bytes, the first at ``base``."""
        return self._ranges(
            base + self.wanted[self.first] * stride, (self.last - self.first + 1) * stride
        )

    def index_entries(self, base: int, width: int) -> list[ByteRange]:
        """Bytes of the row index with the start and end of the rows."""
        return self._ranges(
            base + self.wanted[self.first] * width, (self.last - self.first + 2) * width
        )

    def bounds(self, index: Int64s) -> tuple[Int64s, Int64s]:
        """Start and end of each wanted row, from the requested entries."""
        at = np.arange(len(self.wanted)) + self.run
        return index[at], index[at + 1]

    def rows_between(
        self, base: int, starts: Int64s, stops: Int64s
    ) -> tuple[list[ByteRange], Int64s]:
        """Bytes of the runs, and how far each row moves when the runs are back to back.

        ``starts[i]`` to ``stops[i]`` are the bytes of wanted row i, relative to ``base``.
        """
        sizes = stops[self.last] - starts[self.first]
        moves = (np.cumsum(sizes) - sizes) - starts[self.first]
        return self._ranges(base + starts[self.first], sizes), moves[self.run]

    @staticmethod
    def _ranges(starts: Int64s, sizes: Int64s) -> list[ByteRange]:
        return list(map(ByteRange, starts.tolist(), sizes.tolist()))


def rows_beyond(low: int, high: int, rows: int, where: Where) -> RowIndexError:
    """The error for rows outside of a page of ``rows`` rows."""
    return RowIndexError(f"rows {low} to {high} of a page of {rows} rows (in {where})")


def join_buffers(buffers: list[pa.Buffer]) -> pa.Buffer:
    """Concatenate buffers; a single one is returned as it is."""
    if len(buffers) == 1:
        return buffers[0]
    out = allocate(sum(buffer.size for buffer in buffers))
    target, at = as_array(out), 0
    for buffer in buffers:
        target[at : at + buffer.size] = as_array(buffer)
        at += buffer.size
    return out
