"""Columns of a 0.1 file bound to fields: read and take whole fields."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from glaive.arrow.build import all_null, offset_bits
from glaive.arrow.conditions import Condition
from glaive.encodings.fetch import Fetch, and_then, join
from glaive.encodings.legacy.pages import Pages, Spans
from glaive.encodings.legacy.pruning import may_pass
from glaive.encodings.legacy.statistics import PageBounds
from glaive.encodings.predicate import PagePredicate, array_matches
from glaive.errors import RowIndexError
from glaive.file.bound import BoundField, FileColumns
from glaive.file.legacy.nodes import Node
from glaive.format.fields import Field
from glaive.io.store import RangeReader
from glaive.kernels.match import list_rows
from glaive.types import Int64s, RowRange, Where

__all__ = ["LegacyColumns", "LegacyField"]

_VIEW_BYTES = 64 * 1024
"""Smaller pages are joined into one array."""

_COLUMN_BYTES = 2048
"""Bytes of memory of a column besides its page table."""

_GROUP_ROWS = 64 * 1024
_GROUP_BYTES = 2 * 1024 * 1024
"""Approximate rows of joined smaller pages, and bytes of narrow values, which make more rows."""


class LegacyField(BoundField):
    """A top-level field with all pages below it (a ``BoundColumn``)."""

    __slots__ = ("_batches", "_bounds", "_cuts", "_node")

    def __init__(
        self,
        field: Field,
        node: Node,
        batches: Int64s,
        reader: RangeReader,
        bounds: Callable[[], PageBounds | None],
    ) -> None:
        where = f"{reader.path}, column {field.name!r}"
        super().__init__(field.to_arrow(), int(batches[-1]), reader, where)
        self._bounds = bounds
        self._node = node
        self._batches = batches
        self._cuts = _cuts(getattr(node, "pages", None), batches)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: page tables, a few numbers per batch."""
        return _COLUMN_BYTES + 32 * len(self._cuts)

    def cuts(self) -> Int64s:
        """Rows at which pages begin, except for pages that are better joined."""
        return self._cuts

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""
        self._check_range(start, stop)
        if start == stop:
            return all_null(self.field.type, 0)
        batches = self._batches
        first = int(np.searchsorted(batches, start, "right")) - 1
        last = int(np.searchsorted(batches, stop))
        edges = batches[first : last + 1]
        page = np.arange(first, last)
        begins = np.maximum(edges[:-1], start)
        return self._node.read(
            Spans(page, begins - edges[:-1], np.minimum(edges[1:], stop) - begins)
        )

    def prune(self, condition: Condition, start: int, stop: int) -> list[RowRange]:
        """The ranges of ``start`` to ``stop`` in which rows may pass, by page statistics."""
        self._check_range(start, stop)
        bounds = self._bounds()
        if bounds is None or len(bounds.null_count) != len(self._batches) - 1:
            return super().prune(condition, start, stop)
        if bounds.min_value.type != self.field.type or bounds.max_value.type != self.field.type:
            return super().prune(condition, start, stop)
        flags = np.concatenate(([False], may_pass(bounds, condition), [False]))
        edges = np.flatnonzero(flags[1:] != flags[:-1])
        begins = np.maximum(self._batches[edges[::2]], start)
        ends = np.minimum(self._batches[edges[1::2]], stop)
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        return [RowRange(*pair) for pair in pairs if pair[0] < pair[1]]

    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        self._check_range(start, stop)
        encoded = pa.types.is_dictionary(self.field.type)
        if not self.reader.mapped or pa.types.is_nested(self.field.type):
            return None
        if not (encoded or (predicate.any_width and offset_bits(self.field.type) is None)):
            return None
        where = Where(self.reader.path, None, self.field.name)
        matches = array_matches(self.read(start, stop), predicate, where)
        if matches is None:
            return None
        return list_rows(matches.bits, matches.begin, stop - start, start)

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """``take`` as a value."""
        if not len(rows):
            return all_null(self.field.type, 0)
        if int(rows.min()) < 0 or int(rows.max()) >= self.num_rows:
            raise RowIndexError(
                f"rows {rows.min()}..{rows.max()} of a file with {self.num_rows} rows "
                f"(in {self._where})"
            )
        page = np.searchsorted(self._batches, rows, "right") - 1
        return self._node.read(Spans(page, rows - self._batches[page], np.ones_like(rows)))


class LegacyColumns(FileColumns):
    """Several fields of one file (a ``BoundColumns``)."""

    __slots__ = ()

    def plan_take(self, rows: Int64s) -> Fetch[list[pa.Array]] | list[pa.Array]:
        """``take`` as a value: texts may lie anywhere in the file, also where others lie."""
        checked = self.in_proportion(len(rows))
        return join([and_then(column.plan_take(rows), checked) for column in self.columns], list)


def _cuts(pages: Pages | None, batches: Int64s) -> Int64s:
    """Where reads should begin: at large pages, between runs of pages, or at regular intervals."""
    rows = int(batches[-1])
    if rows == 0 or len(batches) == 2:
        return np.unique(np.array([0, rows], np.int64))
    if pages is None:
        return _every(batches)
    sizes = np.diff(batches) * pages.bits // 8
    gaps = np.flatnonzero(pages.positions[1:] != pages.positions[:-1] + sizes[:-1]) + 1
    runs = np.concatenate((batches[:1], batches[gaps], batches[-1:]))
    # Runs of adjacent pages are views of the file.
    if rows * pages.bits // 8 >= _VIEW_BYTES * (len(runs) - 1):
        return np.unique(runs)
    return _every(batches, max(_GROUP_ROWS, 8 * _GROUP_BYTES // max(1, pages.bits)))


def _every(batches: Int64s, step: int = _GROUP_ROWS) -> Int64s:
    """Starts of batches, about every ``step`` rows."""
    rows = np.arange(0, int(batches[-1]) + 1, step)
    starts = batches[np.searchsorted(batches, rows)]
    return np.unique(np.concatenate((starts, batches[-1:])))
