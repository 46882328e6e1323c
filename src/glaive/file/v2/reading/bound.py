"""Columns of a file bound to fields: read and take whole fields.

Every field is divided into *segments*, ranges of rows in which each of its leaves has a single
page. A flat field has one segment per page. A field of many leaves whose pages end at different
rows has far more segments than pages: its leaves are read page by page, and their pages joined.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Variable
from glaive.arrow.buffers import align_bits, integer_array, inverse_permutation, join_bits
from glaive.arrow.dictionaries import concat_arrays
from glaive.arrow.widths import has_known_width, value_bytes
from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.protocol import PageReader
from glaive.file.bound import BoundField, Proportion
from glaive.file.run_fetch import and_then, join, run_fetch
from glaive.file.v2.reading.column import COLUMN_BYTES, Column
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.reading.resolved import Resolved
from glaive.file.v2.reading.unshred import (
    Shapes,
    build,
    resolve_page,
    unshred,
    unshred_flat,
    unshred_pages,
)
from glaive.io.store import RangeReader
from glaive.memory import items_of
from glaive.types import Int64s, Where

if TYPE_CHECKING:
    from glaive.arrow.conditions import Condition
    from glaive.encodings.predicate import PagePredicate, RowBits
    from glaive.kernels.compact import DeletionMask

__all__ = ["FieldColumns"]

OFFSET_BYTES = 8
"""Bytes of an offset at most."""

_APART: Final = 4
"""Reads of segments for each page, from which on leaves are taken from page by page."""

_FEW_LEAVES: Final = 2
"""Leaves whose pages make no more at a time than may be made: each has half as its limit."""

_SEGMENT_BYTES: Final = 16_384
"""Bytes of the file for each read of a segment, from which on a read costs less than a copy."""


class FieldColumns(BoundField):
    """A top-level field with all physical columns below it (a ``BoundColumn``)."""

    __slots__ = (
        "_apart",
        "_counts_leaves",
        "_cuts",
        "_flat",
        "_joins_pages",
        "_pages",
        "_preferred_cuts",
        "_shapes",
        "leaf_columns",
        "node",
    )

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
        # Where pages of many leaves end at different rows, segments of each leaf are far more
        # than pages: leaves are then read page by page. Their pages are joined, which copies the
        # values: ranges are only read so where values are few, about a page's rows at once.
        pages, segments = sum(len(column.starts) for column in present), len(cuts) * len(present)
        self._apart = segments > _APART * pages
        self._joins_pages = self._apart and reader.size < _SEGMENT_BYTES * segments
        if self._joins_pages:
            preferred = {0, rows, *cuts[:: segments // pages]}
        else:
            # Joined pages may be divided anywhere: the column with most cuts decides.
            preferred = {*cuts, *max((column.cuts for column in present), key=len, default=[])}
        self._preferred_cuts = np.array(sorted(preferred), np.int64)
        self._flat = not node.children and bool(present)
        # Each page has a limit. Of more leaves with values of any size, what all have is counted.
        self._counts_leaves = sum(map(_has_any_size, node.leaves())) > _FEW_LEAVES
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
        if self._joins_pages:
            return self._by_leaf(stop - start, lambda column: column.read(start, stop))
        steps, checked = [], Proportion(stop - start, self.reader.size, self._where).array
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
        counted, finish = self._making(stop - start)
        for column in self.leaf_columns:
            if column is None:
                steps.append(None)
                continue
            at = bisect_right(column.starts, start) - 1
            base = column.starts[at]
            steps.append(counted(column.pages[at].read(start - base, stop - base)))
        return join(steps, finish)

    def _proportion(self, rows: int) -> Proportion:
        """A check of what all leaves have of so many rows."""
        present = sum(column is not None for column in self.leaf_columns)
        return Proportion(rows * present, self.reader.size, self._where)

    def _making(
        self, rows: int
    ) -> tuple[Callable[[Any], Any], Callable[[Sequence[Leaf | None]], pa.Array]]:
        """How leaves of so many rows are counted, and made an array of."""
        if not self._counts_leaves or rows <= 1:
            return _as_it_is, partial(self._finish, rows)
        proportion = self._proportion(rows)

        def count(leaf: Leaf) -> Leaf:
            proportion.count(_text_bytes(leaf), rows)
            return leaf

        return partial(and_then, then=count), partial(self._finish_counted, rows)

    def _finish_counted(self, rows: int, leaves: Sequence[Leaf | None]) -> pa.Array:
        """``_finish``, which makes much more of leaves that are equal, or have a dictionary."""
        resolve = partial(self._resolve_page, proportion=self._proportion(rows), rows=rows)
        resolved = [
            None if leaf is None else resolve(at, leaf=leaf) for at, leaf in enumerate(leaves)
        ]
        return build(self.node, resolved, rows, self._where)

    def _by_leaf(
        self, rows: int, parts: Callable[[Column], Iterable[tuple[int, Fetch[Leaf] | Leaf]]]
    ) -> Fetch[pa.Array] | pa.Array:
        """Each leaf page by page: its pages are not divided where those of others end."""
        proportion = self._proportion(rows)
        steps: list[Any] = []
        for at, column in enumerate(self.leaf_columns):
            if column is None:
                steps.append(None)
                continue
            resolve = partial(self._resolve_page, at, proportion)
            pages = [and_then(leaf, partial(resolve, count)) for count, leaf in parts(column)]
            steps.append(join(pages, list))
        return join(steps, partial(self._finish_leaves, rows))

    def _resolve_page(self, at: int, proportion: Proportion, rows: int, leaf: Leaf) -> Resolved:
        resolved = resolve_page(self._known_shapes, at, leaf, rows, self._where)
        proportion.count(resolved.nbytes, rows)
        return resolved

    def _finish_leaves(self, rows: int, leaves: Sequence[Sequence[Resolved] | None]) -> pa.Array:
        return unshred_pages(self.node, leaves, rows, self._where)

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
        return unshred(self.node, leaves, rows, self._where, self._known_shapes)

    @property
    def _known_shapes(self) -> Shapes:
        if self._shapes is None:
            present = [column is not None for column in self.leaf_columns]
            self._shapes = Shapes.of(self.node, present)
        return self._shapes

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
        if self._apart:
            is_ascending = bool((rows[1:] >= rows[:-1]).all())
            order = None if is_ascending else np.argsort(rows, kind="stable")
            ascending = rows if order is None else rows[order]
            step = self._by_leaf(len(rows), lambda column: column.take(ascending))
            return and_then(step, lambda array: _restore(order, [array]))
        segments = np.searchsorted(self._cuts, rows, side="right") - 1
        first = int(segments[0])
        if (segments == first).all():
            return self._take_segment(rows, first)
        order = np.argsort(segments, kind="stable")
        sorted_segments = segments[order]
        bounds = np.flatnonzero(np.diff(sorted_segments)) + 1
        parts = np.split(rows[order], bounds)
        numbers = sorted_segments[np.concatenate(([0], bounds))].tolist()
        checked = Proportion(len(rows), self.reader.size, self._where).array
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
        counted, finish = self._making(len(rows))
        steps: list[Any] = []
        for column in self.leaf_columns:
            if column is None:
                steps.append(None)
                continue
            at = bisect_right(column.starts, begin) - 1
            steps.append(counted(column.pages[at].take(rows - column.starts[at])))
        return join(steps, finish)


def _as_it_is(step: Any) -> Any:
    return step


def _has_any_size(leaf: Node) -> bool:
    """Whether a row may have any number of bytes in this leaf."""
    return bool(leaf.layers) or not has_known_width(leaf.type)


def _text_bytes(leaf: Leaf) -> int:
    """Bytes of texts that were made; those of a dictionary, and of one text, are made later."""
    block = leaf.values
    if not isinstance(block, Variable) or not block.count:
        return 0
    dtype = np.int64 if block.offset_bits == 64 else np.int32
    ends = items_of(block.offsets, dtype, block.count + 1)
    return int(ends[-1]) - int(ends[0])


def _restore(order: Int64s | None, arrays: list[pa.Array]) -> Any:
    joined: Any = concat_arrays(arrays)
    if order is None:
        return joined
    return joined.take(integer_array(inverse_permutation(order)))
