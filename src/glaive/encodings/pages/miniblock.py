"""Mini-block pages: small values in chunks of a few KiB, each decoded on its own.

====== ====================== ===========================================================
buffer content                present
====== ====================== ===========================================================
0      chunk words            always
1      chunks, back to back   always
2      dictionary             when the layout names a dictionary encoding
last   repetition index       when the column has lists
====== ====================== ===========================================================

Reading finds the chunks in the chunk table and parses all their headers at once. It decodes all
levels and all values with one codec call each. A mapped file is read in place. Else the
reader fetches and keeps the small buffers, then fetches only the chunks that it needs. A page
that is small or read as a whole takes one request.

Memory: a chunk has as many levels as rows and values. With lists in lists it has at most 255
more for each of its bytes. Values that take 0 bytes (all null, all equal) are limited by the
rows of the file, and by 2 GiB for an array.

Specification: "Mini-block pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth, block_bytes, slice_block
from glaive.arrow.blocks import Variable as Texts
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.levels import Leaf
from glaive.encodings.miniblock.chunks import (
    ChunkReader,
    Items,
    LevelReader,
    empty_leaf,
    level_form,
)
from glaive.encodings.miniblock.layout import ChunkTable, MiniBlockLayout, PageClaims
from glaive.encodings.protocol import (
    NO_RANGES,
    Fetch,
    Kept,
    MemoryRanges,
    PageBytes,
    PageParts,
    PageReader,
    PageSignature,
    ValueEncoding,
    page_bytes,
)
from glaive.encodings.registry import page_layout
from glaive.encodings.values.bitpack import InlineBitpacking
from glaive.encodings.values.fixed_size_list import FixedSizeList
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.fsst import Fsst, FsstTables
from glaive.encodings.values.variable import Variable
from glaive.errors import CorruptFileError, RowIndexError
from glaive.kernels._bitpack import WORD_BITS
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.list_levels import LocatedRows, locate_rows
from glaive.kernels.records import LevelPage
from glaive.kernels.row_takes import (
    CODES,
    RUNS,
    STRINGS,
    RowItems,
    RowPages,
    join_symbols,
    locate_values,
)
from glaive.types import Int64s, UInt8s, Where

if TYPE_CHECKING:
    from glaive.encodings.miniblock.filter import Evaluated
    from glaive.encodings.miniblock.lists import ListReader, RowPick
    from glaive.encodings.predicate import PagePredicate, RowBits


# --- Rows out of the chunks of mini-block pages: what one page and a run of pages have in common

# --- The contents of the small buffers of mini-block pages, and readers of levels and values

T = TypeVar("T")


class Dictionaries(NamedTuple):
    """The dictionary of page i: ``data[starts[i] : starts[i] + sizes[i]]``, ``counts[i]`` items."""

    data: pa.Buffer
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(slots=True)
class Opened:
    """The contents of the small buffers, and readers of levels and values; kept once read."""

    table: ChunkTable
    items: Items | None
    chunks: ChunkReader
    levels: LevelReader
    lists: ListReader | None
    evaluated: Evaluated | None = None
    row_pages: RowPages | None = None

    @classmethod
    def of_pages(
        cls,
        layout: MiniBlockLayout,
        claims: PageClaims,
        words: pa.Buffer,
        index: pa.Buffer | None,
        dictionaries: Dictionaries | None,
        where: Where,
    ) -> Opened:
        """Read and check the small buffers of pages; buffers of one kind lie back to back."""
        table = ChunkTable.of_pages(words, layout.value_width, claims, index)
        items = None
        if layout.dictionary is not None and dictionaries is not None:
            chunks = claims.word_sizes // layout.value_width
            items = Items.of_pages(layout.dictionary, *dictionaries, chunks, where)
        reader, levels = ChunkReader(layout, where), LevelReader(layout, where)
        if not layout.limits.max_rep:
            return cls(table, items, reader, levels, None)
        from glaive.encodings.miniblock.lists import ListReader

        form = _value_form(layout.value) or (0, 0)
        is_read = form[0] < RUNS and form[1] in WORD_BITS
        is_read = is_read and layout.pieces == layout.level_buffers + 1
        lists = ListReader(layout, reader, levels, form if is_read else (0, 0), where)
        return cls(table, items, reader, levels, lists)


class KeptOpened(Kept[Opened]):
    """The contents of a page's small buffers; the dictionary may be out of proportion to them."""

    __slots__ = ()

    def of(self, load: Callable[[list[pa.Buffer]], Opened], buffers: list[pa.Buffer]) -> Opened:
        """Return what was kept, else what ``load`` makes of the small buffers."""
        found = self.get()
        if found is None:
            found = load(buffers)
            size = 0 if found.items is None else block_bytes(found.items.block)
            self.keep(found, size, sum(buffer.size for buffer in buffers))
        return found


def without_chunks(buffers: Sequence[T]) -> list[T]:
    """Return the small buffers among the buffers of a page."""
    return [buffers[0], *buffers[2:]]


# --- Pages of flat columns, as the kernel that takes rows of several columns at once reads them
#
# For other pages, :mod:`glaive.encodings.pages.miniblock` takes column by
# column. That path also says what is wrong with a damaged page.

_MAX_BITS: Final = 1 << 16
"""Maximum bits of values of a fixed width. Without options, such pages have less than 256 bytes."""

_PLAIN, _INLINE = 1, 3


def row_pages(
    layout: MiniBlockLayout, small: Opened, data: pa.Buffer, *, numbers: bool = False
) -> RowPages | None:
    """Return the pages of a layout with their chunks in memory, opened; ``None`` for others.

    Numbers of items become items, or stay ``numbers`` of one dictionary.
    """
    table, definition = small.table, (0, 0)
    value = _value_form(layout.value)
    if value is None or layout.rep is not None:
        return None
    buffers = 2 if value[0] == RUNS else 1
    if layout.pieces != layout.level_buffers + buffers:
        return None
    if layout.definition is not None:
        form = level_form(layout.definition)
        if form is None:
            return None
        definition = form
    items, limit = None, 0
    if layout.dictionary is not None and small.items is not None:
        if numbers and small.items.bases is None:
            limit = small.items.total
        else:
            items = _items(small)
        if not (items or limit) or value[0] >= STRINGS or value[1] not in WORD_BITS:
            return None
    first_chunks = np.array([0, table.chunks]) if table.pages is None else table.pages
    symbols = _symbols(layout.value, len(first_chunks) - 1)
    page = LevelPage(
        rep=0,
        rep_width=0,
        definition=definition[0],
        def_width=definition[1],
        value_buffers=buffers,
        value_width=layout.value_width,
        max_rep=0,
        visible_max=0,
        max_def=layout.limits.max_def,
        null_item=int(layout.nullable_item),
        values=value[0],
        value_bits=value[1],
    )
    starts = np.ascontiguousarray(table.offsets[:-1])
    shift, firsts = table.shift, table.firsts
    return RowPages(
        data, starts, table.sizes, firsts, table.counts, first_chunks, shift, page, symbols, items,
        limit,
    )  # fmt: skip


def _value_form(codec: ValueEncoding) -> tuple[int, int] | None:
    """Number and width of an encoding of values in ``RowPages``; ``None`` for others."""
    if isinstance(codec, Flat):
        is_whole = codec.bits == 1 or (0 < codec.bits <= _MAX_BITS and codec.bits % 8 == 0)
        return (_PLAIN, codec.bits) if is_whole else None
    if isinstance(codec, FixedSizeList) and codec.is_plain and codec.bits_per_value <= _MAX_BITS:
        return _PLAIN, codec.bits_per_value
    if isinstance(codec, InlineBitpacking):
        return _INLINE, codec.bits
    if isinstance(codec, Variable):
        return STRINGS, codec.offset_bits
    if isinstance(codec, FsstTables):
        return CODES, codec.offset_bits
    if isinstance(codec, Fsst) and codec.joins and isinstance(codec.values, Variable):
        return CODES, codec.values.offset_bits
    if codec.wire_name == "rle":
        from glaive.encodings.values.rle import RunLength

        return (RUNS, codec.bits) if isinstance(codec, RunLength) else None
    return None


def _symbols(codec: ValueEncoding, pages: int) -> UInt8s | None:
    """Return the FSST symbols of each page."""
    if isinstance(codec, FsstTables):
        return join_symbols(codec.tables)
    return join_symbols([codec.table] * pages) if isinstance(codec, Fsst) else None


def _items(small: Opened) -> RowItems | None:
    """Return the dictionaries of all pages, where their items are strings or whole bytes."""
    items = small.items
    if items is None:
        return None
    block, chunks = items.block, small.table.chunks
    if not isinstance(block, Texts) and (not isinstance(block, FixedWidth) or block.bits % 8):
        return None
    bases: Int64s = np.zeros(chunks, np.int64) if items.bases is None else items.bases
    limits: Int64s = np.full(chunks, items.total) if items.limits is None else items.limits
    if isinstance(block, FixedWidth):
        return RowItems(block.values, block.bits, None, block.count, bases, limits)
    return RowItems(block.data, block.offset_bits, block.offsets, block.count, bases, limits)


ONE_REQUEST_BYTES = 64 * 1024
"""Pages of up to this many bytes are fetched whole."""

_MIN_PART_RATIO = 4
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
        """Return rows ``start`` to ``stop``: decodes the chunks they lie in, cuts the ends off."""
        if not 0 <= start <= stop <= self.rows:
            raise RowIndexError(
                f"rows {start}..{stop} of a page with {self.rows} rows (in {self.page.where})"
            )
        if start == stop:
            return empty_leaf(self.layout)
        return self._with_small(partial(self._read, start, stop), whole=stop - start == self.rows)

    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """Return the rows at these positions."""
        if not len(rows):
            return empty_leaf(self.layout)
        return self._with_small(partial(self._take, rows), whole=None)

    def row_pages(self, *, numbers: bool = False) -> RowPages | None:
        """Return mapped pages for takes of several columns at once; ``None`` where unsupported.

        Items of dictionaries are values, or stay ``numbers`` of one dictionary.
        """
        at_hand = self.page.at_hand
        if at_hand is None:
            return None
        if (small := self.opened(at_hand)) is not self.small:  # too large to be kept by takes
            return None
        if numbers:
            return row_pages(self.layout, small, at_hand[1], numbers=True)
        small.row_pages = small.row_pages or row_pages(self.layout, small, at_hand[1])
        return small.row_pages

    def find(self, predicate: PagePredicate, start: int, stop: int) -> RowBits | None:
        """Test the chunks of a mapped page of a flat column, one by one in the cache."""
        from glaive.encodings.miniblock.filter import find_in_chunks

        at_hand, layout = self.page.at_hand, self.layout
        if at_hand is None or layout.limits.max_rep or len(layout.layers) != 1:
            return None
        small, rows = self.opened(at_hand), (start, stop)
        return find_in_chunks(layout, small, at_hand[1], rows, predicate, self.page.where)

    def take_ranges(self, rows: NDArray[np.int64]) -> MemoryRanges | None:
        """Return the ranges of the chunks that hold the rows."""
        at_hand = self.page.at_hand
        if at_hand is None:
            return None
        table = self.opened(at_hand).table
        if table.rows is not None:
            ids = locate_rows(rows, table.rows.starts, table.rows.enters).ids
        else:
            ids = locate_values(rows, table.firsts, table.pages, table.shift).ids
        return np.stack([at_hand[1].address + table.offsets[ids], table.sizes[ids]], axis=1)

    # ------------------------------------------------------------------ fetching

    def plan_opening(self) -> Fetch[Opened] | None:
        """Fetch the small buffers, unless the page is fetched whole."""
        ranges = self.page.ranges
        is_known = self.page.is_mapped or self.small is not None
        if is_known or sum(part.size for part in ranges) <= ONE_REQUEST_BYTES:
            return None
        return Fetch(without_chunks(ranges), self._load)

    def _with_small(self, then: WithSmall, *, whole: bool | None) -> Fetch[Leaf] | Leaf:
        """Call ``then`` once the small buffers are read, with all chunks if they are in memory.

        Of a mapped page that is still unread, a part (``whole`` is False) is fetched.
        """
        fetched, ranges = whole is False and self.page.unread, self.page.ranges
        at_hand = None if fetched else self.page.at_hand
        if at_hand is not None:
            return then(self.opened(at_hand), at_hand[1])
        if self.small is not None:
            return then(self.small, None)
        if whole or (not fetched and sum(part.size for part in ranges) <= ONE_REQUEST_BYTES):
            return Fetch(
                ranges, lambda buffers: then(self._load(without_chunks(buffers)), buffers[1])
            )
        return Fetch(without_chunks(ranges), lambda buffers: then(self._load(buffers), None))

    def _with_chunks(
        self, small: Opened, chunks: pa.Buffer | None, ids: slice | NDArray[np.int64], then: Then
    ) -> Fetch[Leaf] | Leaf:
        """Call ``then`` with a buffer of the chunks ``ids`` (ascending), and their positions."""
        table = small.table
        if chunks is not None:
            return then(chunks, table.offsets[:-1][ids])
        ranges = table.ranges_of(ids, self.page.ranges[1].offset)
        sizes = table.sizes[ids]
        starts = sizes.cumsum() - sizes

        def resume(buffers: list[pa.Buffer]) -> Leaf:
            data = buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(buffers))
            return then(data, starts)

        return Fetch(ranges, resume)

    def opened(self, at_hand: list[pa.Buffer]) -> Opened:
        """Return the contents of the small buffers of a mapped page."""
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
        cut = lists.read(data, starts, small.table, ids, start, stop)
        values = None
        if cut.values:
            counts = small.table.counts[ids]
            items = None if small.items is None else small.items.of(ids)
            values = small.chunks.decode(data, cut.pieces, counts, items)
            if cut.values != values.count:
                values = slice_block(values, cut.first_value, cut.values)
        return Leaf(values, stop - start, len(cut.rep), self.layout.layers, cut.rep, cut.definition)

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
                raise self._missing_row(rows)
            if chunks is not None:
                offsets = table.offsets[:-1]
                selected = small.lists.pick_items(chunks, offsets, table, rows, order)
                if selected is not None:
                    return self._selected(small, len(rows), selected, chunks)
            located = locate_rows(rows, table.rows.starts, table.rows.enters)
            pick = partial(self._pick_lists, small.lists, small, rows, located, order)
            return self._with_chunks(small, chunks, located.ids, pick)
        try:
            ids, slot, index = locate_values(rows, table.firsts, table.pages, table.shift)
        except RowIndexError:
            raise self._missing_row(rows) from None
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
            position = (counts.cumsum() - counts)[slot] + index
            small.levels.pick_flat(leaf, data, headers, counts, position)
        return leaf

    def _pick_lists(
        self,
        lists: ListReader,
        small: Opened,
        rows: NDArray[np.int64],
        located: LocatedRows,
        order: Int64s | None,
        data: pa.Buffer,
        starts: NDArray[np.int64],
    ) -> Leaf:
        selected = lists.pick(data, starts, small.table, rows, located, order)
        return self._selected(small, len(rows), selected, data)

    def _selected(self, small: Opened, rows: int, selected: RowPick, data: pa.Buffer) -> Leaf:
        values = None
        if len(selected.slots):
            items = None if small.items is None else small.items.of(selected.ids)
            counts = small.table.counts[selected.ids]
            values = small.chunks.pick(
                data, selected.pieces, counts, items, selected.slots, selected.places,
                selected.values,
            )  # fmt: skip
        layers, rep, definition = self.layout.layers, selected.rep, selected.definition
        return Leaf(values, rows, selected.entries, layers, rep, definition, shape=selected.shape)

    def _missing_row(self, rows: NDArray[np.int64]) -> RowIndexError:
        row = rows.min() if rows.min() < 0 else rows.max()
        return RowIndexError(f"row {row} of a page with {self.rows} rows (in {self.page.where})")


# --- Several mini-block pages read as one: a run of pages -------------------------------
#
# Small pages cost far more to open than to decode. Where many have the same encoding, one pass for
# each kind of small buffer reads and checks them. A row is found by a number that counts through
# all pages, and one codec call decodes all their chunks. Three kinds of pages are read like this:
#
# - Pages of many small files, which lie in one buffer.
# - Pages of a list column in a mapped file: writers begin a new page every 65,535 levels or so.
# - Pages of a column in several mapped files, when rows are taken from them.
#
# Errors name the damaged page. The tables name it themselves. When reading chunks fails, the
# pages are read one by one.

PIECE_VALUES = 2048 * 1024
"""Values in each piece that a reader of all rows should cut.

Threads share the pieces, and each piece costs 0.1 ms in addition to its values.
"""

MAX_PAGES = 1024
"""Maximum pages of a file to read as one: the first use of any loads the tables of all."""


class PageRun(MiniBlockReader):
    """Pages with equal signatures as one page, whose rows are theirs in order."""

    def __init__(self, parts: PageParts[MiniBlockReader]) -> None:
        self._parts = parts
        self._rows = parts.each(lambda page: page.rows)
        self._entries = parts.each(lambda page: page.num_items)
        self._items = parts.each(lambda page: page.num_dictionary_items)
        data, rows = parts.data, int(self._rows.sum())
        page = PageBytes((), [data, data], rows, parts.where)
        super().__init__(_layout(parts), page, int(self._entries.sum()), int(self._items.sum()))
        pieces = (self._entries.cumsum() - 1) // PIECE_VALUES
        self.cuts = self._rows.cumsum()[:-1][np.diff(pieces) > 0].tolist()

    @property
    def pages(self) -> Sequence[MiniBlockReader]:
        """The pages, in the order of their rows, where they are of mapped files."""
        return self._parts.pages

    @property
    def mapped_end(self) -> int | None:
        """That of the page that ends last."""
        ends = [page.mapped_end for page in self.pages]
        return max(end for end in ends if end is not None) if None not in ends else None

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all pages."""
        return sum(page.nbytes for page in self._parts.pages)

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Return the rows ``start`` to ``stop``, over any number of pages."""
        try:
            return super().read(start, stop)
        except CorruptFileError:
            self._name_damaged()
            raise

    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """Return the rows at these positions of all pages."""
        try:
            return super().take(rows)
        except CorruptFileError:
            self._name_damaged()
            raise

    def _name_damaged(self) -> None:
        """Raise the error of the first page that fails when it is read alone."""
        if len(self._rows) > 1:
            for at in range(len(self._rows)):
                page = PageRun(self._parts.only(at))
                page.read(0, page.rows)

    def opening_ranges(self, rows: NDArray[np.int64]) -> MemoryRanges:
        """Return the ranges of all buffers of all pages except the chunks."""
        if self.small is not None:
            return NO_RANGES
        starts, sizes = np.delete((self._parts.starts, self._parts.sizes), 1, axis=2)
        return np.stack([self._parts.data.address + starts.ravel(), sizes.ravel()], axis=1)

    def load(self, _buffers: list[pa.Buffer]) -> Opened:
        """Read and check the small buffers of all pages, with one pass for each kind."""
        layout, parts, where = self.layout, self._parts, self.page.where
        data, starts, sizes = parts.data, parts.starts.T, parts.sizes.T
        words = gather_ranges(data, starts[0], sizes[0], where)
        index = dictionaries = None
        if layout.rep is not None:
            index = gather_ranges(data, starts[-1], sizes[-1], where)
        if layout.dictionary is not None:
            dictionaries = Dictionaries(data, starts[2], sizes[2], self._items)
        numbers = (sizes[0], sizes[-1], starts[1], sizes[1], self._entries, self._rows)
        claims = PageClaims(*numbers, parts.where_of)
        return Opened.of_pages(layout, claims, words, index, dictionaries, where)


def _layout(parts: PageParts[MiniBlockReader]) -> MiniBlockLayout:
    """Return the layout of all pages, with the FSST symbols of each where these may differ."""
    layouts = [page.layout for page in parts.pages]
    layout, *others = layouts
    if all(other is layout for other in others):
        return layout
    if not isinstance(layout.value, Fsst) or not layout.value.joins:
        return layout
    values = [layouts[at].value for at in parts.which.tolist()]
    return replace(layout, value=FsstTables.of_pages(values, parts.starts[:, 1]))


def join_mapped(pages: Sequence[PageReader]) -> list[PageReader]:
    """Join neighbouring pages with lists of a mapped file if their signatures are equal.

    Other pages stay apart: one is large enough, and its chunks stay in the cache.
    """

    def signature(page: PageReader) -> PageSignature | None:
        lists = isinstance(page, MiniBlockReader) and page.layout.rep is not None
        return page.page_signature() if lists and page.mapped_end is not None else None

    return list(pages) if len(pages) < 2 else _joined(pages, signature)


def join_files(pages: Sequence[PageReader]) -> list[PageReader]:
    """Join neighbouring pages of mapped files if their signatures are equal.

    Over-reads of kernels end before the memory of a file does: see ``file/v2/reader.py``.
    """
    return _joined(_separate(pages), lambda page: page.page_signature())


def _joined(
    pages: Sequence[PageReader], signature_of: Callable[[PageReader], PageSignature | None]
) -> list[PageReader]:
    joined: list[PageReader] = []
    for signature, group in groupby(pages, signature_of):
        neighbours = list(group)
        if signature is None or len(neighbours) == 1:
            joined += neighbours
            continue
        for first in range(0, len(neighbours), MAX_PAGES):
            some = neighbours[first : first + MAX_PAGES]
            parts = _parts(some)
            joined += some if _share_bytes(parts) else [signature.join(parts)]
    return joined


def _share_bytes(parts: PageParts[Any]) -> bool:
    """Return whether pages share bytes: the location of a chunk is then ambiguous."""
    starts, sizes = parts.starts[parts.sizes > 0], parts.sizes[parts.sizes > 0]
    order = np.argsort(starts)
    starts, sizes = starts[order], sizes[order]
    return bool((starts[1:] - starts[:-1] < sizes[:-1]).any())


def _separate(pages: Sequence[PageReader]) -> list[PageReader]:
    """Return the pages of these with each run split into its pages, in their order."""
    separated: list[PageReader] = []
    for page in pages:
        separated += page.pages if isinstance(page, PageRun) else [page]
    return separated


def _parts(pages: Sequence[Any]) -> PageParts[Any]:
    """Return mapped pages, counted from the lowest address; any buffer keeps its file mapped."""
    held = [page.page.at_hand or [] for page in pages]
    starts = np.array([[part.address for part in buffers] for buffers in held], np.int64)
    sizes = np.array([[part.size for part in buffers] for buffers in held], np.int64)
    # An empty buffer may be anywhere.
    low = int(starts[sizes > 0].min(initial=np.iinfo(np.int64).max))
    starts = np.where(sizes > 0, starts - low, 0)
    data = pa.foreign_buffer(low, int((starts + sizes).max(initial=0)), held)
    where = replace(pages[0].page.where, page=None)
    which = np.arange(len(pages))
    return PageParts(pages, which, data, starts, sizes, where, lambda at: pages[at].page.where)


MAX_JOINED_DICTIONARY = 32 * 1024
"""Bytes of a dictionary at most in pages with lists that are joined: all are loaded."""

_ZERO = np.zeros(1, np.int64)
_ZERO.setflags(write=False)


@page_layout
class MiniBlockPage(MiniBlockReader):
    """One page of chunks."""

    wire_name: ClassVar[str] = "mini_block_layout"

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the chunk table and the dictionary; an estimate."""
        words, *further = [part.size for part in without_chunks(self.page.ranges)]
        return page_bytes(words // self.layout.value_width, sum(further))

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> MiniBlockPage:
        """Parse a ``MiniBlockLayout``."""
        layout = MiniBlockLayout.from_wire(message, page.where)
        layout.check_page(page, message.num_items, message.num_dictionary_items)
        return MiniBlockPage(layout, page, message.num_items, message.num_dictionary_items)

    def load(self, buffers: list[pa.Buffer]) -> Opened:
        """Read and check chunk words, dictionary and repetition index."""
        layout, page, words = self.layout, self.page, buffers[0]
        index = buffers[-1] if layout.rep is not None else None
        sizes = (words.size, 0 if index is None else index.size, page.ranges[1].size)
        # One array, because a page may be opened for a few rows only.
        numbers = np.array([(*sizes, self.num_items, self.rows)], np.int64).T
        word_sizes, index_sizes, chunk_sizes, num_items, rows = numbers
        claims = PageClaims(
            word_sizes, index_sizes, _ZERO, chunk_sizes, num_items, rows, lambda _: page.where
        )
        dictionary = None
        if layout.dictionary is not None:
            items, size = np.array([[self.num_dictionary_items], [buffers[1].size]], np.int64)
            dictionary = Dictionaries(buffers[1], _ZERO, size, items)
        return Opened.of_pages(layout, claims, words, index, dictionary, page.where)

    def opening_ranges(self, rows: Int64s) -> MemoryRanges:
        """Return the ranges of all buffers except the chunks."""
        at_hand = self.page.at_hand
        if self.small is not None or at_hand is None:
            return NO_RANGES
        buffers = without_chunks(at_hand)
        return np.array([(buffer.address, buffer.size) for buffer in buffers], np.int64)

    def page_signature(self) -> PageSignature | None:
        """Return a signature for equal encodings; with lists also for small dictionaries."""
        layout, ranges = self.layout, self.page.ranges
        if (
            layout.rep is not None
            and layout.dictionary is not None
            and ranges[2].size > MAX_JOINED_DICTIONARY
        ):
            return None
        return PageSignature(layout.signature, PageRun)
