"""Joined full-zip pages of plain values: values of one width, without levels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.leaf import Layer, Leaf
from glaive.encodings.protocol import MemoryRanges, PageParts, PageReader, ValueEncoding
from glaive.errors import RowIndexError
from glaive.kernels.full_zip import gather_ranges
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["PlainPlaces", "PlainRun"]


class PlainPlaces(NamedTuple):
    """Where plain values lie in memory.

    Parameters
    ----------
    memory
        Of all pages.
    starts, ends
        Where the values of each page begin, and the number of the row behind its last.
    width
        Bytes of a value.
    """

    memory: pa.Buffer
    starts: Int64s
    ends: Int64s
    width: int


class PlainRun(PageReader):
    """Pages whose one buffer is an array of ``values``, of ``width`` bytes each."""

    def __init__(
        self,
        width: int,
        values: ValueEncoding,
        layers: tuple[Layer, ...],
        parts: PageParts[PageReader],
    ) -> None:
        self._width, self._values, self._layers, self._parts = width, values, layers, parts
        self._ends = np.cumsum(parts.each(lambda page: page.rows))
        self.rows = int(self._ends[-1])

    def read(self, start: int, stop: int) -> Leaf:
        """Rows ``start`` to ``stop``; all of them with one copy of each page."""
        if (start, stop) != (0, self.rows):
            return self.take(np.arange(start, stop))
        parts = self._parts
        return self._leaf(parts.starts[:, 0], parts.sizes[:, 0], self.rows)

    def take(self, rows: Int64s) -> Leaf:
        """The rows at these positions of all pages."""
        self._check(rows)
        return self._leaf(self._starts(rows), np.full(len(rows), self._width), len(rows))

    @property
    def places(self) -> PlainPlaces:
        """Where the values of all pages lie."""
        parts = self._parts
        starts = np.ascontiguousarray(parts.starts[:, 0])
        return PlainPlaces(parts.data, starts, self._ends, self._width)

    def _check(self, rows: Int64s) -> None:
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.rows:
            raise RowIndexError(
                f"rows {rows.min()} to {rows.max()} of pages of {self.rows} rows "
                f"(in {self._parts.where})"
            )

    def take_ranges(self, rows: Int64s) -> MemoryRanges:
        """The values of the rows."""
        starts = self._starts(rows) + self._parts.data.address
        return np.stack([starts, np.full(len(rows), self._width)], axis=1)

    def _starts(self, rows: Int64s) -> Int64s:
        """Where rows begin in the memory of all pages."""
        page = self._ends.searchsorted(rows, "right")
        before = np.append(0, self._ends)[page]
        starts: Int64s = self._parts.starts[page, 0] + self._width * (rows - before)
        return starts

    def _leaf(self, starts: Int64s, sizes: Int64s, rows: int) -> Leaf:
        where = self._parts.where
        data = gather_ranges(self._parts.data, starts, sizes, where)
        block = self._values.decode_values(FixedWidth(data, 8 * self._width, rows), where)
        return Leaf(block, rows, rows, self._layers)
