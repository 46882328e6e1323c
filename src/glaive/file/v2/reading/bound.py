"""Columns of a file bound to fields: read and take whole fields.

Every field is divided into *segments*, ranges of rows in which each of its leaves has a single
page. A flat field has one segment per page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import align_bits, integer_array, inverse_permutation, join_bits
from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.widths import value_bytes
from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.miniblock.page_run import join_mapped
from glaive.encodings.pages.blob import BlobPage
from glaive.encodings.protocol import PageReader
from glaive.errors import CorruptFileError
from glaive.file.bound import BoundField, in_proportion
from glaive.file.run_fetch import and_then, join, run_fetch
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.reading.unshred import Shapes, unshred, unshred_flat
from glaive.io.store import RangeReader
from glaive.types import Int64s, Where

if TYPE_CHECKING:
    from glaive.arrow.conditions import Condition
    from glaive.encodings.predicate import PagePredicate, RowBits
    from glaive.kernels.compact import DeletionMask

__all__ = ["Column", "FieldColumns"]

COLUMN_BYTES = 512
"""Bytes of memory of a column besides its pages."""

OFFSET_BYTES = 8
"""Bytes of an offset at most."""


class Column:
    """One physical column: its pages, and the first row of each.

    ``cuts`` are the rows at which a reader of all rows should divide it.
    """

    __slots__ = ("__weakref__", "cuts", "pages", "starts", "where")

    def __init__(self, pages: Sequence[PageReader], where: Where) -> None:
        self.pages = join_mapped([page for page in pages if page.rows])
        self.where = where
        self.starts = [0]
        self.cuts: list[int] = []
        for page in self.pages:
            start = self.starts[-1]
            self.cuts += [start, *[start + cut for cut in page.cuts]]
            self.starts.append(start + page.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held after all pages were read from; an estimate."""
        return COLUMN_BYTES + sum(page.nbytes for page in self.pages)

    @property
    def rows(self) -> int:
        """Rows of the column."""
        return self.starts[-1]

    @property
    def entries(self) -> int:
        """Entries of all rows, by what the pages say of themselves."""
        return sum(page.entries for page in self.pages)

    def with_values(self, end: int) -> Column:
        """The same column with blobs as values, which are stored before ``end``."""
        pages = [page.with_values(end) for page in self.pages]
        if all(map(is_, pages, self.pages)):
            return self
        return Column(pages, self.where)

    def with_inline_descriptors(self) -> Column:
        """The same column with descriptors of ``lance.blob.v2`` where a page has older ones."""
        if not any(isinstance(page, BlobPage) for page in self.pages):
            return self
        pages = [
            page.with_inline_descriptors() if isinstance(page, BlobPage) else page
            for page in self.pages
        ]
        return Column(pages, self.where)

    def grouped(self, size: int) -> Column:
        """The same column for rows of ``size`` entries each.

        Raises
        ------
        CorruptFileError
            A page ends within a row.
        """
        if size == 1:
            return self
        uneven = next((page.rows for page in self.pages if page.rows % size), None)
        if uneven is not None:
            raise CorruptFileError(
                "page rows", expected=f"a multiple of {size}", found=str(uneven), where=self.where
            )
        from glaive.file.v2.reading.grouped_page import GroupedPage

        return Column([GroupedPage(page, size) for page in self.pages], self.where)


class FieldColumns(BoundField):
    """A top-level field with all physical columns below it (a ``BoundColumn``)."""

    __slots__ = ("_cuts", "_flat", "_pages", "_preferred_cuts", "_shapes", "leaf_columns", "node")

    _where: Where

    def __init__(
        self, node: Node, columns: Sequence[Column | None], rows: int, reader: RangeReader
    ) -> None:
        present = [column for column in columns if column is not None]
        where = present[0].where if present else Where(reader.path, None, node.name)
        super().__init__(node.field.to_arrow(), rows, reader, where)
        self.node = node
        self.leaf_columns = columns
        self._shapes: Shapes | None = None
        cuts = sorted({0, rows, *(row for column in present for row in column.starts)})
        self._cuts = cuts
        # Joined pages may be divided anywhere: the column with most cuts decides.
        finest = max((column.cuts for column in present), key=len, default=[])
        self._preferred_cuts = np.array(sorted({*cuts, *finest}), np.int64)
        self._flat = not node.children and bool(present)
        self._pages: Sequence[PageReader] = present[0].pages if self._flat else ()

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all columns below; an estimate."""
        own = sum(column.nbytes for column in self.leaf_columns if column is not None)
        return COLUMN_BYTES + own + 8 * len(self._preferred_cuts)

    @property
    def value_bytes(self) -> int:
        """Bytes of a decoded value, about: pages say how many items their lists have."""
        leaves = [
            (leaf, column)
            for leaf, column in zip(self.node.leaves(), self.leaf_columns, strict=True)
            if column is not None
        ]
        if not any(any(leaf.layers) for leaf, _ in leaves):
            return super().value_bytes
        size = sum(column.entries * value_bytes(leaf.type) for leaf, column in leaves)
        return OFFSET_BYTES + size // max(1, self.num_rows)

    def cuts(self) -> Int64s:
        """Row numbers at which to divide a read of all rows, ascending, both ends included."""
        return self._preferred_cuts

    def physical_pages(self) -> list[tuple[Sequence[int], Sequence[PageReader]]]:
        """First rows and pages of each physical column below."""
        present = [column for column in self.leaf_columns if column is not None]
        return [(column.starts, column.pages) for column in present]

    # ------------------------------------------------------------------ ranges

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""
        self._check_range(start, stop)
        cuts = self._cuts
        first = bisect_right(cuts, start) - 1
        if start == stop:
            return self._no_rows()
        if stop <= cuts[first + 1]:
            return self._read_segment(start, stop)
        steps, checked = [], in_proportion(stop - start, self.reader.size, self._where)
        while start < stop:
            end = min(stop, cuts[first + 1])
            steps.append(and_then(self._read_segment(start, end), checked))
            start, first = end, first + 1
        return join(steps, concat_arrays)

    def _read_segment(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        if self._flat:
            starts = self.leaf_columns[0].starts  # type: ignore[union-attr]  # flat: one column
            at = bisect_right(starts, start) - 1
            step = self._pages[at].read(start - starts[at], stop - starts[at])
            return and_then(step, self._finish_flat)
        steps: list[Any] = []
        for column in self.leaf_columns:
            if column is None:
                steps.append(None)
                continue
            at = bisect_right(column.starts, start) - 1
            base = column.starts[at]
            steps.append(column.pages[at].read(start - base, stop - base))
        return join(steps, partial(self._finish, stop - start))

    @property
    def segments(self) -> Sequence[int]:
        """First row of each range of rows in which every leaf has a single page; and all rows."""
        return self._cuts

    def finish(self, rows: int, leaves: list[Leaf]) -> pa.Array:
        """The array of so many rows out of those of all leaves, depth first."""
        return self._finish_flat(leaves[0]) if self._flat else self._finish(rows, leaves)

    def _finish_flat(self, leaf: Leaf) -> pa.Array:
        return unshred_flat(self.node, leaf, self._where)

    def _finish(self, rows: int, leaves: Sequence[Leaf | None]) -> pa.Array:
        if self._shapes is None:
            present = [column is not None for column in self.leaf_columns]
            self._shapes = Shapes.of(self.node, present)
        return unshred(self.node, leaves, rows, self._where, self._shapes)

    def _no_rows(self) -> pa.Array:
        empty: pa.Array = pa.nulls(0, self.field.type)
        return empty

    # ------------------------------------------------------------------ conditions

    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        from glaive.kernels.match import list_rows

        parts = self._matches(predicate, start, stop)
        if parts is None:
            return None
        rows = [
            list_rows(matches.bits, matches.begin, count, first) for matches, first, count in parts
        ]
        return rows[0] if len(rows) == 1 else np.concatenate([np.empty(0, np.int64), *rows])

    def match(self, condition: Condition, start: int, stop: int) -> pa.Buffer | None:
        """One bit per row that passes; see ``Searchable``."""
        from glaive.encodings.predicate import page_predicate

        parts = self._matches(page_predicate(condition, self.field.type), start, stop)
        if parts is None:
            return None
        bits = [align_bits(matches.bits, matches.begin, count) for matches, _, count in parts]
        return bits[0] if len(bits) == 1 else join_bits(bits, [count for _, _, count in parts])

    def _matches(
        self, predicate: PagePredicate, start: int, stop: int
    ) -> list[tuple[RowBits, int, int]] | None:
        """The rows that pass, page by page, with the first row and the number of rows of each."""
        from glaive.encodings.predicate import mask_matches

        self._check_range(start, stop)
        if not self._flat or self.node.kind != "leaf" or not self.reader.mapped:
            return None
        parts: list[tuple[RowBits, int, int]] = []
        cuts = self._cuts
        at = bisect_right(cuts, start) - 1
        while start < stop:
            end = min(stop, cuts[at + 1])
            matches = self._search_page(predicate, at, start - cuts[at], end - cuts[at])
            if matches is None:
                if not parts:
                    return None
                matches = mask_matches(self.read(start, end), predicate)
            parts.append((matches, start, end - start))
            start, at = end, at + 1
        return parts

    def _search_page(
        self, predicate: PagePredicate, at: int, start: int, stop: int
    ) -> RowBits | None:
        from glaive.encodings.predicate import leaf_matches

        page = self._pages[at]
        matches = page.find(predicate, start, stop)
        if matches is not None or not predicate.any_width:
            return matches
        leaf = page.read(start, stop)
        return None if isinstance(leaf, Fetch) else leaf_matches(leaf, predicate, self._where)

    def read_live(self, start: int, stop: int, deleted: DeletionMask) -> pa.Array | None:
        """``read`` without deleted rows, within one page; see ``Searchable``."""
        self._check_range(start, stop)
        if not self._flat or start == stop:
            return None
        at = bisect_right(self._cuts, start) - 1
        begin = self._cuts[at]
        if stop > self._cuts[at + 1]:
            return None
        leaf = self._pages[at].read_live(start - begin, stop - begin, deleted)
        return None if leaf is None else self._finish_flat(leaf)

    # ------------------------------------------------------------------ positions

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """``take`` as a value."""
        if len(self._cuts) == 2:  # one segment: the common case
            return self._take_segment(rows, 0) if len(rows) else self._no_rows()
        if len(rows) <= 1:
            if len(rows) == 0:
                return self._no_rows()
            return self._take_segment(rows, bisect_right(self._cuts, int(rows[0])) - 1)
        segments = np.searchsorted(self._cuts, rows, side="right") - 1
        first = int(segments[0])
        if (segments == first).all():
            return self._take_segment(rows, first)
        order = np.argsort(segments, kind="stable")
        sorted_segments = segments[order]
        bounds = np.flatnonzero(np.diff(sorted_segments)) + 1
        parts = np.split(rows[order], bounds)
        numbers = sorted_segments[np.concatenate(([0], bounds))].tolist()
        checked = in_proportion(len(rows), self.reader.size, self._where)
        steps = [
            and_then(self._take_segment(part, at), checked)
            for part, at in zip(parts, numbers, strict=True)
        ]
        in_order = bool((order[1:] > order[:-1]).all())
        return join(steps, partial(_restore, None if in_order else order))

    def take_within(self, segment: int, rows: Int64s) -> pa.Array:
        """``take`` of rows, one at least, that all lie in one of the :attr:`segments`."""
        return run_fetch(self.reader, self._take_segment(rows, segment))

    def _take_segment(self, rows: Int64s, segment: int) -> Fetch[pa.Array] | pa.Array:
        begin = self._cuts[segment]
        if self._flat:
            # The segments of a flat field are its pages.
            step = self._pages[segment].take(rows - begin if begin else rows)
            return and_then(step, self._finish_flat)
        steps: list[Any] = []
        for column in self.leaf_columns:
            if column is None:
                steps.append(None)
                continue
            at = bisect_right(column.starts, begin) - 1
            steps.append(column.pages[at].take(rows - column.starts[at]))
        return join(steps, partial(self._finish, len(rows)))


def _restore(order: Int64s | None, arrays: list[pa.Array]) -> Any:
    joined: Any = concat_arrays(arrays)
    if order is None:
        return joined
    return joined.take(integer_array(inverse_permutation(order)))
