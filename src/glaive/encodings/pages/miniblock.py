"""Mini-block pages: small values in chunks of a few KiB, each decoded on its own.

====== ====================== ===========================================================
buffer content                present
====== ====================== ===========================================================
0      chunk words            always
1      chunks, back to back   always
2      dictionary             when the layout names a dictionary encoding
last   repetition index       when the column has lists
====== ====================== ===========================================================

Reading finds the chunks in the chunk table, parses their headers together, and hands all
their levels and all their values to one codec call each. On a mapped file nothing is
fetched; else the small buffers come first and are kept, then just the chunks that are
needed. A page that is read whole, or is small, comes with one request.

Memory: a chunk has as many levels as it has rows and values, and with lists in lists at most
255 more for each of its bytes. Values that take no bytes (all null, all alike) are bounded by
the rows of the file, and by 2 GiB for an array.

Specification: "Mini-block pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.slices import slice_block
from glaive.encodings.memory import page_bytes
from glaive.encodings.miniblock.chunk_table import ChunkTable
from glaive.encodings.miniblock.chunks import ChunkReader, Items
from glaive.encodings.miniblock.filter import Asked, find_in_chunks, keep_in_chunks
from glaive.encodings.miniblock.layout import MiniBlockForm, joined_kin
from glaive.encodings.miniblock.levels import NULL_BIT, LevelReader, empty_leaf
from glaive.encodings.miniblock.lists import ListReader
from glaive.encodings.predicate import Matches, Probe
from glaive.encodings.protocol import Fetch, Leaf, PageBytes, PageReader
from glaive.encodings.registry import page_layout
from glaive.errors import RowIndexError
from glaive.kernels.keep import Gone
from glaive.kernels.list_levels import Located, locate_rows
from glaive.types import ByteRange, Where

__all__ = ["ONE_REQUEST", "MiniBlockPage", "Opened"]

ONE_REQUEST = 64 * 1024
"""Pages of up to this many bytes are fetched whole."""

_ZERO = np.zeros(1, np.int64)
_ZERO.setflags(write=False)

T = TypeVar("T")
Then = Callable[[pa.Buffer, NDArray[np.int64]], Leaf]


@dataclass(slots=True)
class Opened:
    """What the small buffers say, and readers of levels and values; kept once read."""

    table: ChunkTable
    items: Items | None
    chunks: ChunkReader
    levels: LevelReader
    lists: ListReader | None
    asked: Asked | None = None

    @classmethod
    def of(
        cls, form: MiniBlockForm, table: ChunkTable, items: Items | None, where: Where
    ) -> Opened:
        """Make the readers."""
        chunks, levels = ChunkReader(form, where), LevelReader(form, where)
        lists = ListReader(form, chunks, levels, where) if form.limits.max_rep else None
        return cls(table, items, chunks, levels, lists)


@page_layout
class MiniBlockPage(PageReader):
    """A page of chunks; cheap to open, random access by chunk.

    Parameters
    ----------
    form, page
        What the page is like, and where it is.
    num_items, num_dictionary_items
        Visible entries, and items of the dictionary.
    """

    wire_name: ClassVar[str] = "mini_block_layout"

    def __init__(
        self, form: MiniBlockForm, page: PageBytes, num_items: int, num_dictionary_items: int
    ) -> None:
        self.rows = page.rows
        self.form, self.page = form, page
        self.num_items = num_items
        self.num_dictionary_items = num_dictionary_items
        self.small: Opened | None = None
        if page.at_hand is not None and form.limits.max_rep:
            self.kin = joined_kin(form, page)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the chunk table and the dictionary; an estimate."""
        words, *further = [part.size for part in _without_chunks(self.page.ranges)]
        return page_bytes(words // self.form.value_width, sum(further))

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> MiniBlockPage:
        """Parse a ``MiniBlockLayout``."""
        form = MiniBlockForm.from_wire(message, page.where)
        form.check_page(page, message.num_items, message.num_dictionary_items)
        return MiniBlockPage(form, page, message.num_items, message.num_dictionary_items)

    @classmethod
    def join(cls, pages: Sequence[Any]) -> PageReader:
        """Read pages of a list column as one."""
        from glaive.encodings.miniblock.joined_pages import JoinedPages

        return JoinedPages(pages)

    # ------------------------------------------------------------------ entry points

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop``: decodes the chunks they lie in, cuts the ends off."""
        if not 0 <= start <= stop <= self.rows:
            raise RowIndexError(
                f"rows {start}..{stop} of a page with {self.rows} rows (in {self.page.where})"
            )
        if start == stop:
            return empty_leaf(self.form)
        return self._with_small(partial(self._read, start, stop), whole=stop - start == self.rows)

    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """The rows at these positions; one row of a mapped page costs a few microseconds."""
        if len(rows) == 1:
            row, at_hand = rows.item(0), self.page.at_hand
            if not 0 <= row < self.rows:
                raise self._no_row(row)
            if at_hand is not None and not self.form.limits.max_rep:
                small = self.opened(at_hand)
                return self._take_one(small, at_hand[1], row)
        elif not len(rows):
            return empty_leaf(self.form)
        return self._with_small(partial(self._take, rows), whole=False)

    def find(self, probe: Probe, start: int, stop: int) -> Matches | None:
        """Test the chunks of a mapped page without lists, one by one in the cache."""
        at_hand, form = self.page.at_hand, self.form
        if at_hand is None or form.limits.max_rep or len(form.layers) != 1:
            return None
        small, rows = self.opened(at_hand), (start, stop)
        return find_in_chunks(form, small, at_hand[1], rows, probe, self.page.where)

    def read_live(self, start: int, stop: int, gone: Gone) -> Leaf | None:
        """Decode the chunks of a mapped page without lists, and copy what stays of each."""
        at_hand, form = self.page.at_hand, self.form
        if at_hand is None or form.limits.max_rep or len(form.layers) != 1:
            return None
        small = self.opened(at_hand)
        return keep_in_chunks(form, small, at_hand[1], (start, stop), gone, self.page.where)

    # ------------------------------------------------------------------ fetching

    def _with_small(
        self, then: Callable[[Opened, pa.Buffer | None], Fetch[Leaf] | Leaf], *, whole: bool
    ) -> Fetch[Leaf] | Leaf:
        """Go on once the small buffers are read, with all chunks if they are at hand."""
        at_hand = self.page.at_hand
        if at_hand is not None:
            return then(self.opened(at_hand), at_hand[1])
        if self.small is not None:
            return then(self.small, None)
        ranges = self.page.ranges
        if whole or sum(part.size for part in ranges) <= ONE_REQUEST:
            return Fetch(
                ranges, lambda buffers: then(self._load(_without_chunks(buffers)), buffers[1])
            )
        return Fetch(_without_chunks(ranges), lambda buffers: then(self._load(buffers), None))

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
        if isinstance(ids, slice):
            first, last = np.array([ids.start]), np.array([ids.stop])
        else:
            breaks = np.flatnonzero(np.diff(ids) != 1) + 1
            first = ids[np.concatenate(([0], breaks))]
            last = ids[np.concatenate((breaks - 1, [-1]))] + 1
        base = self.page.ranges[1].offset
        begin, end = table.offsets[first], table.offsets[last]
        ranges = [
            ByteRange(base + offset, size)
            for offset, size in zip(begin.tolist(), (end - begin).tolist(), strict=True)
        ]
        sizes = table.sizes[ids]
        starts = np.cumsum(sizes) - sizes

        def resume(buffers: list[pa.Buffer]) -> Leaf:
            data = buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(buffers))
            return then(data, starts)

        return Fetch(ranges, resume)

    def opened(self, at_hand: list[pa.Buffer]) -> Opened:
        """What the small buffers of a mapped page say."""
        return self.small or self._load(_without_chunks(at_hand))

    def _load(self, buffers: list[pa.Buffer]) -> Opened:
        """Read and check chunk words, dictionary and repetition index; keep them."""
        form, where = self.form, self.page.where
        table = ChunkTable.decode(
            buffers[0],
            form.value_width,
            size=self.page.ranges[1].size,
            num_items=self.num_items,
            where=where,
        )
        if form.limits.max_rep:
            table.add_rows(buffers[-1], self.rows, where)
        items = None
        if form.dictionary is not None:
            data, count = buffers[1], np.array([self.num_dictionary_items], np.int64)
            block = form.dictionary.decode_blocks(
                data, _ZERO, np.array([data.size], np.int64), count, where
            )
            items = Items(block, self.num_dictionary_items)
        self.small = small = Opened.of(form, table, items, where)
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
        table = small.table
        counts = table.counts[ids]
        first = int(table.firsts[ids.start])
        total = int(table.firsts[ids.stop]) - first
        headers = small.chunks.headers(data, starts, table.sizes[ids])
        values = small.chunks.decode(data, small.chunks.pieces_of(headers), counts, small.items)
        low, rows = start - first, stop - start
        if rows != total:
            values = slice_block(values, low, rows)
        leaf = Leaf(values, rows, rows, self.form.layers)
        if self.form.definition is not None:
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
        table = small.table
        cut = lists.read(data, starts, table, ids, start, stop)
        values = None
        if cut.values:
            counts = table.counts[ids]
            items = None if small.items is None else small.items.of(ids)
            values = small.chunks.decode(data, cut.pieces, counts, items)
            if cut.values != values.count:
                values = slice_block(values, cut.first_value, cut.values)
        return Leaf(values, stop - start, len(cut.rep), self.form.layers, cut.rep, cut.definition)

    # ------------------------------------------------------------------ positions

    def _take(
        self, rows: NDArray[np.int64], small: Opened, chunks: pa.Buffer | None
    ) -> Fetch[Leaf] | Leaf:
        table = small.table
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= self.rows:
            raise self._no_row(low if low < 0 else high)
        if small.lists is not None and table.rows is not None:
            order = None
            if len(rows) > 1 and (rows[1:] < rows[:-1]).any():
                order = np.argsort(rows)
                rows = rows[order]
            located = locate_rows(rows, table.rows.starts, table.rows.enters)
            pick = partial(self._pick_lists, small.lists, small, rows, located, order)
            return self._with_chunks(small, chunks, located.ids, pick)
        chunk = table.find(rows)
        index = rows - table.firsts[chunk]
        touched = np.zeros(table.chunks, np.bool_)
        touched[chunk] = True
        ids = np.flatnonzero(touched)
        slot = (np.cumsum(touched) - 1)[chunk]
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
        values = small.chunks.pick(data, pieces, counts, small.items, slot, index)
        leaf = Leaf(values, len(slot), len(slot), self.form.layers)
        if self.form.definition is not None:
            position = (np.cumsum(counts) - counts)[slot] + index
            small.levels.pick_flat(leaf, data, headers, counts, position)
        return leaf

    def _pick_lists(
        self,
        lists: ListReader,
        small: Opened,
        rows: NDArray[np.int64],
        located: Located,
        order: NDArray[np.int64] | None,
        data: pa.Buffer,
        starts: NDArray[np.int64],
    ) -> Leaf:
        table, ids = small.table, located.ids
        picked = lists.pick(data, starts, table, rows, located, order)
        values = None
        if len(picked.slots):
            items = None if small.items is None else small.items.of(ids)
            values = small.chunks.pick(
                data, picked.pieces, table.counts[ids], items, picked.slots, picked.places
            )
        return Leaf(
            values,
            len(rows),
            len(picked.rep),
            self.form.layers,
            picked.rep,
            picked.definition,
        )

    def _take_one(self, small: Opened, data: pa.Buffer, row: int) -> Leaf:
        """One row of a page without lists, with as few Python steps as can be."""
        form, table = self.form, small.table
        chunk = table.find_one(row)
        start, size = table.offsets.item(chunk), table.sizes.item(chunk)
        count, index = table.counts.item(chunk), row - table.firsts.item(chunk)
        levels, pieces = small.chunks.header(data, start, size)
        values = small.chunks.pick_one(data, pieces, count, small.items, index)
        leaf = Leaf(values, 1, 1, form.layers)
        if form.definition is not None:
            level = small.levels.one(data, pieces[0], levels, count, index)
            if not form.nullable_item:
                leaf.definition = np.array([level], np.uint16)
            elif level:
                leaf.validity, leaf.null_count = NULL_BIT, 1
        return leaf

    def _no_row(self, row: int) -> RowIndexError:
        return RowIndexError(f"row {row} of a page with {self.rows} rows (in {self.page.where})")


def _without_chunks(buffers: Sequence[T]) -> list[T]:
    return [buffers[0], *buffers[2:]]
