"""The live rows of a fragment with a deletion file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.config import USUAL_RATIO
from glaive.file.protocol import BoundColumn
from glaive.kernels.compact import DeletionMask, compact_bits, compact_fixed, compact_variable
from glaive.kernels.strings import Strings

__all__ = ["LiveRows", "without_deleted"]

_SPARSE = 8
"""Rows for each live one from which on these are looked up rather than the others left out."""

_RUN_BYTES = 4
"""Bytes of a run of deleted rows in a file."""

_MAX_KEPT_ROWS = 1 << 24
"""Rows of the windows whose bits are kept: other columns, and the next scan, read the same ones."""


class LiveRows:
    """Which physical rows are there: made once per deletion file and shared.

    Parameters
    ----------
    deleted
        Offsets of the deleted rows, ascending, each once.
    rows
        Physical rows of the fragment.
    """

    __slots__ = ("_before", "_kept", "_windows", "deleted", "rows")

    def __init__(self, deleted: NDArray[np.uint32], rows: int) -> None:
        self.deleted = deleted.astype(np.int64)
        self.rows = rows
        # Live rows before each deleted one, ascending: live row k stands behind as many
        # deleted rows as there are entries ≤ k.
        self._before = self.deleted - np.arange(len(deleted))
        # Bits of windows, not of all rows: how many these are, only the manifest says.
        self._windows: dict[tuple[int, int], DeletionMask] = {}
        self._kept = 0

    @property
    def count(self) -> int:
        """Live rows."""
        return self.rows - len(self.deleted)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes, about."""
        return min(self.rows, _MAX_KEPT_ROWS) // 8 + 2 * self.deleted.nbytes

    @property
    def implied_bytes(self) -> int:
        """Those of them for which the file has next to none, as rows are deleted in long runs."""
        before = self._before
        runs = 1 + int(np.count_nonzero(before[1:] != before[:-1]))
        return self.nbytes if self.nbytes > USUAL_RATIO * _RUN_BYTES * runs else 0

    def physical(self, live: NDArray[np.int64]) -> NDArray[np.int64]:
        """Physical offsets of the live rows numbered ``live``, 0 ≤ live < count."""
        return live + np.searchsorted(self._before, live, side="right")

    def physical_run(self, start: int, stop: int) -> NDArray[np.int64]:
        """Physical offsets of the live rows from number ``start`` up to before ``stop``."""
        first, end = self.physical_range(start, stop)
        if end - first > _SPARSE * (stop - start):  # they lie far apart
            return self.physical(np.arange(start, stop))
        low, high = np.searchsorted(self.deleted, (first, end)).tolist()
        kept = np.ones(end - first, np.bool_)
        kept[self.deleted[low:high] - first] = False
        return np.flatnonzero(kept) + first

    def physical_range(self, start: int, stop: int) -> tuple[int, int]:
        """The physical rows from live row ``start`` up to before live row ``stop``."""
        if start >= stop:
            return 0, 0
        first, last = self.physical(np.array([start, stop - 1])).tolist()
        return first, last + 1

    def count_between(self, start: int, stop: int) -> int:
        """Live rows among physical rows ``start`` to ``stop``."""
        first, last = np.searchsorted(self.deleted, (start, stop)).tolist()
        return int(stop - start - (last - first))

    def among(self, start: int, stop: int) -> NDArray[np.int64]:
        """The live rows among physical rows ``start`` to ``stop``."""
        first, last = np.searchsorted(self.deleted, (start, stop)).tolist()
        return np.delete(np.arange(start, stop), self.deleted[first:last] - start)

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
        first, last = np.searchsorted(self.deleted, (start, stop)).tolist()
        if first == last:
            return start, stop
        begin = int(self.deleted[first])
        end = int(self.deleted[last - 1]) + 1
        if end - begin == last - first:  # one run of deleted rows
            if begin == start:
                return end, stop
            if end == stop:
                return start, begin
        window = self._windows.get((start, stop))
        if window is None:
            window = DeletionMask(self.deleted[first:last], start, stop - start)
            window.bits()  # made before other threads see it
            self._kept += stop - start
            if self._kept > _MAX_KEPT_ROWS:
                self._windows.clear()
                self._kept = stop - start
            self._windows[start, stop] = window
        return window


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
