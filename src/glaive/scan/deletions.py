"""The live rows of a fragment with a deletion file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.file.protocol import BoundColumn
from glaive.kernels.compact import DeletionMask, compact_bits, compact_fixed, compact_variable
from glaive.kernels.strings import Strings
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.format.deletions import DeletedRuns


_SPARSE = 8
"""Rows for each live one from which on these are looked up rather than the others left out."""

_MAX_KEPT_ROWS = 1 << 24
"""Rows of the windows whose bits are kept: other columns, and the next scan, read the same ones."""


class LiveRows:
    """Which physical rows are there: made once per deletion file and shared.

    Deleted rows are kept as runs, of which a few bytes of a file may stand for millions of rows.

    Parameters
    ----------
    deleted
        The deleted rows.
    rows
        Physical rows of the fragment.
    """

    __slots__ = ("_deleted_before", "_kept", "_live_before", "_starts", "_windows", "rows")

    def __init__(self, deleted: DeletedRuns, rows: int) -> None:
        self.rows = rows
        self._starts = deleted.begins
        # Deleted rows before each run, and all of them.
        self._deleted_before = np.zeros(len(self._starts) + 1, np.int64)
        np.cumsum(deleted.ends - self._starts, out=self._deleted_before[1:])
        # Live rows before each run, after none: live row k stands behind the runs with at most k.
        self._live_before = np.zeros(len(self._starts) + 1, np.int64)
        np.subtract(self._starts, self._deleted_before[:-1], out=self._live_before[1:])
        # Bits of windows, not of all rows: how many these are, only the manifest says.
        self._windows: dict[tuple[int, int], DeletionMask] = {}
        self._kept = 0

    @property
    def count(self) -> int:
        """Live rows."""
        return self.rows - int(self._deleted_before[-1])

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, about."""
        return min(self.rows, _MAX_KEPT_ROWS) // 8 + 3 * self._starts.nbytes

    def is_deleted(self, rows: Int64s) -> Flags:
        """Which of some physical rows are deleted; in any order, repeats allowed."""
        at = np.searchsorted(self._starts, rows, side="right")
        within: Flags = rows < self._stops_before(at)
        return within

    def deleted_before(self, rows: Int64s) -> Int64s:
        """How many rows before each of some physical rows are deleted."""
        at = np.searchsorted(self._starts, rows)
        behind = np.maximum(self._stops_before(at) - rows, 0)  # the row, in its run
        before: Int64s = self._deleted_before[at] - behind
        return before

    def deleted_between(self, start: int, stop: int) -> Int64s:
        """The deleted rows among physical rows ``start`` to ``stop``, ascending."""
        return _listed(*self.deleted_runs(start, stop))

    def deleted_runs(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Where each run of deleted rows among rows ``start`` to ``stop`` begins and ends."""
        first, last = np.searchsorted(self._starts, (start, stop)).tolist()
        first -= start < stop and self._live_before[first] + self._deleted_before[first] > start
        begins = np.maximum(self._starts[first:last], start)
        ends = self._stops_before(np.arange(first + 1, last + 1))
        return begins, np.minimum(ends, stop)

    def _stops_before(self, at: Int64s) -> Int64s:
        """Where the run before each run ends; 0 before the first one."""
        stops: Int64s = self._live_before[at] + self._deleted_before[at]
        return stops

    def physical(self, live: Int64s) -> Int64s:
        """Physical offsets of the live rows numbered ``live``, 0 ≤ live < count."""
        at = np.searchsorted(self._live_before[1:], live, side="right")
        rows: Int64s = live + self._deleted_before[at]
        return rows

    def physical_run(self, start: int, stop: int) -> Int64s:
        """Physical offsets of the live rows from number ``start`` up to before ``stop``."""
        first, end = self.physical_range(start, stop)
        if end - first > _SPARSE * (stop - start):  # they lie far apart
            return self.physical(np.arange(start, stop))
        kept = np.ones(end - first, np.bool_)
        kept[self.deleted_between(first, end) - first] = False
        return np.flatnonzero(kept) + first

    def physical_range(self, start: int, stop: int) -> tuple[int, int]:
        """The physical rows from live row ``start`` up to before live row ``stop``."""
        if start >= stop:
            return 0, 0
        first, last = self.physical(np.array([start, stop - 1])).tolist()
        return first, last + 1

    def count_between(self, start: int, stop: int) -> int:
        """Live rows among physical rows ``start`` to ``stop``."""
        first, last = self.deleted_before(np.array((start, stop))).tolist()
        return int(stop - start - (last - first))

    def among(self, start: int, stop: int) -> Int64s:
        """The live rows among physical rows ``start`` to ``stop``."""
        return np.delete(np.arange(start, stop), self.deleted_between(start, stop) - start)

    def keep(self, start: int, stop: int, arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """Drop the deleted rows from arrays of physical rows ``start`` to ``stop``.

        Without a copy where only rows at one end are deleted.
        """
        mask = self._deleted_in(start, stop)
        if isinstance(mask, tuple):
            first, last = mask
            return [array.slice(first - start, last - first) for array in arrays]
        return [without_deleted(array, mask) for array in arrays]

    def read(self, column: BoundColumn, start: int, stop: int) -> pa.Array:
        """Read physical rows ``start`` to ``stop`` of a column, the deleted ones left out."""
        mask = self._deleted_in(start, stop)
        if isinstance(mask, tuple):
            first, last = mask
            return column.read(first, last)
        array = column.read_live(start, stop, mask)
        return array if array is not None else without_deleted(column.read(start, stop), mask)

    def _deleted_in(self, start: int, stop: int) -> DeletionMask | tuple[int, int]:
        """The deleted rows of a range; or its live part, where that is one run."""
        window = self._windows.get((start, stop))
        if window is None:
            begins, ends = self.deleted_runs(start, stop)
            if len(begins) == 0:
                return start, stop
            if len(begins) == 1:
                begin, end = int(begins[0]), int(ends[0])
                if begin == start:
                    return end, stop
                if end == stop:
                    return start, begin
            window = DeletionMask(_listed(begins, ends), start, stop - start)
            window.bits()  # made before other threads see it
            self._kept += stop - start
            if self._kept > _MAX_KEPT_ROWS:
                self._windows.clear()
                self._kept = stop - start
            self._windows[start, stop] = window
        return window


def _listed(begins: Int64s, ends: Int64s) -> Int64s:
    """The rows of runs."""
    sizes = ends - begins
    count = int(sizes.sum())
    if count == len(begins):
        return begins
    return np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(count)


def without_deleted(array: Any, mask: DeletionMask) -> pa.Array:
    """The rows of an array that stay."""
    from glaive.arrow.build import offset_bits

    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, without_deleted(array.storage, mask))
    if pa.types.is_dictionary(kind):
        indices = without_deleted(array.indices, mask)
        return pa.DictionaryArray.from_arrays(
            indices, array.dictionary, ordered=kind.ordered, safe=False
        )
    text = offset_bits(kind)
    plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    known = text or ((plain or pa.types.is_fixed_size_binary(kind)) and kind.bit_width)
    validity, *parts = array.buffers()
    if not known or any(part is None for part in parts):
        bits, begin = mask.bits()
        buffers = [None, pa.py_buffer(bits.data)]
        flags: Any = pa.Array.from_buffers(pa.bool_(), mask.rows, buffers, 0, begin)
        filtered: pa.Array = array.filter(flags)
        return filtered
    first, rows = array.offset, len(array)
    bitmap = compact_bits(validity, first, mask) if array.null_count else None
    if text:
        width = text // 8
        ends = parts[0].slice(first * width, (rows + 1) * width)
        kept: list[Any] = list(compact_variable(Strings(ends, text, parts[1]), mask)[::2])
    elif pa.types.is_boolean(kind):
        kept = [compact_bits(parts[0], first, mask)]
    else:
        width = int(kind.bit_width) // 8
        kept = [compact_fixed(parts[0].slice(first * width, rows * width), width, mask)]
    nulls = -1 if bitmap is not None else 0
    return pa.Array.from_buffers(kind, mask.live, [bitmap, *kept], nulls)
