"""Rows out of the chunks of mini-block pages: what one page and a run of pages have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block
from glaive.arrow.slices import slice_block
from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.miniblock.chunks import ValuePieces
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.miniblock.levels import NULL_BIT, empty_leaf, row_shapes
from glaive.encodings.miniblock.opened import KeptOpened, Opened, without_chunks
from glaive.encodings.miniblock.row_pages import row_pages
from glaive.encodings.protocol import MemoryRanges, PageBytes, PageReader
from glaive.errors import RowIndexError
from glaive.kernels.list_levels import LocatedRows, locate_rows
from glaive.kernels.locate import locate_values

__all__ = ["ONE_REQUEST", "MiniBlockReader"]

if TYPE_CHECKING:
    from glaive.encodings.miniblock.item_lists import ListCut
    from glaive.encodings.miniblock.lists import ListReader, RowCut
    from glaive.encodings.predicate import PagePredicate, RowBits
    from glaive.kernels.compact import DeletionMask
    from glaive.kernels.row_takes import RowPages

ONE_REQUEST = 64 * 1024
"""Pages of up to this many bytes are fetched whole."""

_SMALL_PART = 4
"""A part of a page is small where the page has so many times as many rows."""

WithSmall = Callable[[Opened, pa.Buffer | None], Fetch[Leaf] | Leaf]
Then = Callable[[pa.Buffer, NDArray[np.int64]], Leaf]


class MiniBlockReader(PageReader):
    """Pages of chunks; cheap to open, random access by chunk.

    Parameters
    ----------
    layout, page
        What the pages are like, and where they are.
    num_items, num_dictionary_items
        Visible entries, and items of dictionaries.
    """

    def __init__(
        self, layout: MiniBlockLayout, page: PageBytes, num_items: int, num_dictionary_items: int
    ) -> None:
        self.rows = page.rows
        self.layout, self.page = layout, page
        self.num_items = num_items
        self.num_dictionary_items = num_dictionary_items
        self.small: Opened | None = None
        self._kept = KeptOpened()

    @abstractmethod
    def load(self, buffers: list[pa.Buffer]) -> Opened:
        """Read and check the small buffers: chunk words, dictionary, repetition index."""

    @property
    def entries(self) -> int:
        """Visible entries."""
        return self.num_items

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop``: decodes the chunks they lie in, cuts the ends off."""
        if not 0 <= start <= stop <= self.rows:
            raise RowIndexError(
                f"rows {start}..{stop} of a page with {self.rows} rows (in {self.page.where})"
            )
        if start == stop:
            return empty_leaf(self.layout)
        return self._with_small(partial(self._read, start, stop), whole=stop - start == self.rows)

    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """The rows at these positions; one row of a mapped page costs a few microseconds."""
        if len(rows) == 1:
            row, at_hand = rows.item(0), self.page.at_hand
            if not 0 <= row < self.rows:
                raise self._no_row(rows)
            if at_hand is not None:
                small = self.small or self.opened(at_hand)
                if small.lists is None:
                    return self._take_one(small, at_hand[1], row)
                leaf = self._pick_item_lists(small, rows, None, at_hand[1])
                if leaf is not None:
                    return leaf
        elif not len(rows):
            return empty_leaf(self.layout)
        return self._with_small(partial(self._take, rows), whole=None)

    def row_pages(self) -> RowPages | None:
        """Mapped pages for takes of several columns at once; None where these do without it."""
        at_hand = self.page.at_hand
        if at_hand is None:
            return None
        if (small := self.opened(at_hand)) is not self.small:  # too large to be kept by takes
            return None
        small.row_pages = small.row_pages or row_pages(self.layout, small, at_hand[1])
        return small.row_pages

    def find(self, predicate: PagePredicate, start: int, stop: int) -> RowBits | None:
        """Test the chunks of a mapped page without lists, one by one in the cache."""
        from glaive.encodings.miniblock.filter import find_in_chunks

        at_hand, layout = self.page.at_hand, self.layout
        if at_hand is None or layout.limits.max_rep or len(layout.layers) != 1:
            return None
        small, rows = self.opened(at_hand), (start, stop)
        return find_in_chunks(layout, small, at_hand[1], rows, predicate, self.page.where)

    def read_live(self, start: int, stop: int, deleted: DeletionMask) -> Leaf | None:
        """Decode the chunks of a mapped page without lists, and copy what stays of each."""
        from glaive.encodings.miniblock.filter import compact_chunks

        if self.page.unread and (stop - start) * _SMALL_PART < self.rows:
            return None  # all buffers would count as read
        at_hand, layout = self.page.at_hand, self.layout
        if at_hand is None or layout.limits.max_rep or len(layout.layers) != 1:
            return None
        small = self.opened(at_hand)
        return compact_chunks(layout, small, at_hand[1], (start, stop), deleted, self.page.where)

    def take_ranges(self, rows: NDArray[np.int64]) -> MemoryRanges | None:
        """The chunks that hold the rows."""
        at_hand = self.page.at_hand
        if at_hand is None:
            return None
        table = self.opened(at_hand).table
        if table.rows is not None:
            ids = locate_rows(rows, table.rows.starts, table.rows.enters).ids
        else:
            chunks = table.find(rows)
            ids = chunks[np.flatnonzero(np.diff(chunks, prepend=-1))]
        return np.stack([at_hand[1].address + table.offsets[ids], table.sizes[ids]], axis=1)

    @property
    def mapped_end(self) -> int | None:
        """See the contract."""
        return self.page.mapped_end

    # ------------------------------------------------------------------ fetching

    def plan_opening(self) -> Fetch[Opened] | None:
        """Fetch the small buffers, unless the page is fetched whole."""
        ranges = self.page.ranges
        is_known = self.page.is_mapped or self.small is not None
        if is_known or sum(part.size for part in ranges) <= ONE_REQUEST:
            return None
        return Fetch(without_chunks(ranges), self._load)

    def _with_small(self, then: WithSmall, *, whole: bool | None) -> Fetch[Leaf] | Leaf:
        """Go on once the small buffers are read, with all chunks if they are at hand.

        Of a mapped page that was not read yet, a part (``whole`` is False) is fetched.
        """
        fetched, ranges = whole is False and self.page.unread, self.page.ranges
        at_hand = None if fetched else self.page.at_hand
        if at_hand is not None:
            return then(self.opened(at_hand), at_hand[1])
        if self.small is not None:
            return then(self.small, None)
        if whole or (not fetched and sum(part.size for part in ranges) <= ONE_REQUEST):
            return Fetch(
                ranges, lambda buffers: then(self._load(without_chunks(buffers)), buffers[1])
            )
        return Fetch(without_chunks(ranges), lambda buffers: then(self._load(buffers), None))

    def _with_chunks(
        self,
        small: Opened,
        chunks: pa.Buffer | None,
        ids: slice | NDArray[np.int64],
        then: Then,
    ) -> Fetch[Leaf] | Leaf:
        """Go on with a buffer that holds the chunks ``ids`` (ascending), and where in it."""
        table = small.table
        if chunks is not None:
            return then(chunks, table.offsets[:-1][ids])
        ranges = table.ranges_of(ids, self.page.ranges[1].offset)
        sizes = table.sizes[ids]
        starts = np.cumsum(sizes) - sizes

        def resume(buffers: list[pa.Buffer]) -> Leaf:
            data = buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(buffers))
            return then(data, starts)

        return Fetch(ranges, resume)

    def opened(self, at_hand: list[pa.Buffer]) -> Opened:
        """What the small buffers of a mapped page say."""
        return self.small or self._load(without_chunks(at_hand))

    def _load(self, buffers: list[pa.Buffer]) -> Opened:
        """Read the small buffers, and keep what they say; in ``small`` if it is in proportion."""
        small, self.small = self._kept.of(self.load, buffers), self._kept.own
        return small

    # ------------------------------------------------------------------ ranges

    def _read(
        self, start: int, stop: int, small: Opened, chunks: pa.Buffer | None
    ) -> Fetch[Leaf] | Leaf:
        table = small.table
        if small.lists is not None and table.rows is not None:
            ids = slice(*[int(chunk) for chunk in table.rows.chunks_of(start, stop - 1)])
            lists = partial(self._finish_lists, small.lists, small, ids, start, stop)
            return self._with_chunks(small, chunks, ids, lists)
        ids = slice(table.find_one(start), table.find_one(stop - 1) + 1)
        flat = partial(self._finish_flat, small, ids, start, stop)
        return self._with_chunks(small, chunks, ids, flat)

    def _finish_flat(
        self,
        small: Opened,
        ids: slice,
        start: int,
        stop: int,
        data: pa.Buffer,
        starts: NDArray[np.int64],
    ) -> Leaf:
        table, counts = small.table, small.table.counts[ids]
        first = int(table.firsts[ids.start])
        total = int(table.firsts[ids.stop]) - first
        headers = small.chunks.headers(data, starts, table.sizes[ids])
        items = None if small.items is None else small.items.of(ids)
        values = small.chunks.decode(data, small.chunks.pieces_of(headers), counts, items)
        low, rows = start - first, stop - start
        if rows != total:
            values = slice_block(values, low, rows)
        leaf = Leaf(values, rows, rows, self.layout.layers)
        if self.layout.definition is not None:
            small.levels.read_flat(leaf, data, headers, counts, low)
        return leaf

    def _finish_lists(
        self,
        lists: ListReader,
        small: Opened,
        ids: slice,
        start: int,
        stop: int,
        data: pa.Buffer,
        starts: NDArray[np.int64],
    ) -> Leaf:
        from glaive.encodings.miniblock.item_lists import ListCut

        table, layers = small.table, self.layout.layers
        cut: ListCut | RowCut | None = None
        if small.item_lists is not None:
            cut = small.item_lists.read(data, starts, ids, start, stop)
        if cut is None:
            cut = lists.read(data, starts, table, ids, start, stop)
        values = None
        if cut.values:
            counts = table.counts[ids]
            items = None if small.items is None else small.items.of(ids)
            values = small.chunks.decode(data, cut.pieces, counts, items)
            if cut.values != values.count:
                values = slice_block(values, cut.first_value, cut.values)
        if isinstance(cut, ListCut):
            return Leaf(values, stop - start, cut.values, layers, shape=cut.shape)
        return Leaf(values, stop - start, len(cut.rep), layers, cut.rep, cut.definition)

    # ------------------------------------------------------------------ positions

    def _take(
        self, rows: NDArray[np.int64], small: Opened, chunks: pa.Buffer | None
    ) -> Fetch[Leaf] | Leaf:
        table = small.table
        if small.lists is not None and table.rows is not None:
            order = None
            if len(rows) > 1 and (rows[1:] < rows[:-1]).any():
                order = np.argsort(rows)
                rows = rows[order]
            if rows.item(0) < 0 or rows.item(-1) >= self.rows:
                raise self._no_row(rows)
            leaf = None if chunks is None else self._pick_item_lists(small, rows, order, chunks)
            if leaf is not None:
                return leaf
            located = locate_rows(rows, table.rows.starts, table.rows.enters)
            pick = partial(self._pick_lists, small.lists, small, rows, located, order)
            return self._with_chunks(small, chunks, located.ids, pick)
        try:
            ids, slot, index = locate_values(rows, table.firsts, table.pages, table.shift)
        except RowIndexError:
            raise self._no_row(rows) from None
        return self._with_chunks(
            small, chunks, ids, partial(self._pick_flat, small, ids, slot, index)
        )

    def _pick_flat(
        self,
        small: Opened,
        ids: NDArray[np.int64],
        slot: NDArray[np.int64],
        index: NDArray[np.int64],
        data: pa.Buffer,
        starts: NDArray[np.int64],
    ) -> Leaf:
        table = small.table
        headers = small.chunks.headers(data, starts, table.sizes[ids])
        counts = table.counts[ids]
        pieces = small.chunks.pieces_of(headers)
        items = None if small.items is None else small.items.of(ids)
        values = small.chunks.pick(data, pieces, counts, items, slot, index)
        leaf = Leaf(values, len(slot), len(slot), self.layout.layers)
        if self.layout.definition is not None:
            position = (np.cumsum(counts) - counts)[slot] + index
            small.levels.pick_flat(leaf, data, headers, counts, position)
        return leaf

    def _pick_lists(
        self,
        lists: ListReader,
        small: Opened,
        rows: NDArray[np.int64],
        located: LocatedRows,
        order: NDArray[np.int64] | None,
        data: pa.Buffer,
        starts: NDArray[np.int64],
    ) -> Leaf:
        table, ids = small.table, located.ids
        everywhere = np.zeros(table.chunks, np.int64)
        everywhere[ids] = starts
        leaf = self._pick_item_lists(small, rows, order, data, everywhere)
        if leaf is not None:
            return leaf
        selected = lists.pick(data, starts, table, rows, located, order)
        values = None
        if len(selected.slots):
            items = None if small.items is None else small.items.of(ids)
            values = small.chunks.pick(
                data, selected.pieces, table.counts[ids], items, selected.slots, selected.places
            )
        return Leaf(
            values,
            len(rows),
            len(selected.rep),
            self.layout.layers,
            selected.rep,
            selected.definition,
        )

    def _pick_item_lists(
        self,
        small: Opened,
        rows: NDArray[np.int64],
        order: NDArray[np.int64] | None,
        data: pa.Buffer,
        starts: NDArray[np.int64] | None = None,
    ) -> Leaf | None:
        """The rows, where one call can take them; ``starts`` are of all chunks, as in the page."""
        if small.item_lists is None:
            return None
        starts = small.table.offsets[:-1] if starts is None else starts
        taken = small.item_lists.take(data, starts, rows, order)
        if taken is None:
            return None
        values: Block | None = taken.values if taken.items else None
        if taken.items and taken.places is not None:
            ids, slots, places, *pieces = taken.places
            items = None if small.items is None else small.items.of(ids)
            counts = small.table.counts[ids]
            values = small.chunks.pick(data, ValuePieces(*pieces), counts, items, slots, places)
        return Leaf(values, len(rows), taken.items, self.layout.layers, shape=taken.shape)

    def _take_one(self, small: Opened, data: pa.Buffer, row: int) -> Leaf:
        """One row of a page without lists, with as few Python steps as can be."""
        layout, table = self.layout, small.table
        chunk = table.find_one(row)
        start, size = table.offsets.item(chunk), table.sizes.item(chunk)
        count, index = table.counts.item(chunk), row - table.firsts.item(chunk)
        levels, pieces = small.chunks.header(data, start, size)
        items = None if small.items is None else small.items.of(slice(chunk, chunk + 1))
        values = small.chunks.pick_one(data, pieces, count, items, index)
        leaf = Leaf(values, 1, 1, layout.layers)
        if layout.definition is not None:
            level = small.levels.one(data, pieces[0], levels, count, index)
            if not layout.nullable_item:
                leaf.shape = row_shapes(layout.layers)[level]
            elif level:
                leaf.validity, leaf.null_count = NULL_BIT, 1
        return leaf

    def _no_row(self, rows: NDArray[np.int64]) -> RowIndexError:
        row = rows.min() if rows.min() < 0 else rows.max()
        return RowIndexError(f"row {row} of a page with {self.rows} rows (in {self.page.where})")
