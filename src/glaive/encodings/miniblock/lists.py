"""Levels of mini-block chunks with lists: ranges of rows, and rows selected one by one.

Rows are found by their repetition levels, and their values by counting visible entries.
There are two ways to the same result: one pass over header and levels of each chunk
(``glaive.kernels.list_levels``), for the encodings of levels that are in use and levels that
are right; and the general one, for everything else, which says what is wrong.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedWidth, count_bits, slice_bits, spread
from glaive.encodings.levels import Layer, Slots, layer_steps
from glaive.encodings.miniblock.chunks import (
    ChunkReader,
    Items,
    LevelReader,
    Levels,
    ValuePieces,
    level_form,
)
from glaive.encodings.miniblock.layout import ChunkTable, MiniBlockLayout, RowIndex
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.errors import CorruptFileError
from glaive.kernels.chunks import find_row, max_levels
from glaive.kernels.list_levels import LocatedRows, read_levels, select_levels
from glaive.kernels.list_takes import (
    ItemPlaces,
    ListPage,
    TakenLists,
    read_item_lists,
    take_item_lists,
)
from glaive.kernels.records import LevelPage
from glaive.memory import as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, Where

LEVEL_BITS = 16


class _Chunks(NamedTuple):
    """The levels of some chunks, one after the other; chunk i from entry ``firsts[i]`` on."""

    rep: Levels
    definition: Levels | None
    firsts: Int64s
    pieces: ValuePieces


class RowCut(NamedTuple):
    """The levels of a range of rows, and which of the chunks' values are theirs."""

    rep: Levels
    definition: Levels | None
    first_value: int
    values: int
    pieces: ValuePieces


class RowPick(NamedTuple):
    """The levels of selected rows; value j is number ``places[j]`` of chunk ``slots[j]``."""

    rep: Levels
    definition: Levels | None
    slots: Int64s
    places: Int64s
    pieces: ValuePieces


class ListReader:
    """Reads the levels of any chunks of one page with lists."""

    __slots__ = ("_all_visible", "_chunks", "_layout", "_levels", "_page", "_where")

    def __init__(
        self, layout: MiniBlockLayout, chunks: ChunkReader, levels: LevelReader, where: Where
    ) -> None:
        self._layout = layout
        self._chunks = chunks
        self._levels = levels
        self._where = where
        limits = layout.limits
        self._all_visible = layout.definition is None or limits.visible_def == limits.max_def
        self._page: LevelPage | None = None
        rep = level_form(layout.rep)
        definition = level_form(layout.definition)
        if rep is not None and (definition is not None or layout.definition is None):
            self._page = LevelPage(
                rep=rep[0],
                rep_width=rep[1],
                definition=definition[0] if definition else 0,
                def_width=definition[1] if definition else 0,
                value_buffers=layout.pieces - layout.level_buffers,
                value_width=layout.value_width,
                max_rep=limits.max_rep,
                visible_max=limits.visible_def,
                max_def=limits.max_def,
            )

    @property
    def page(self) -> LevelPage | None:
        """Encodings and limits for kernels; None where these do not support them."""
        return self._page

    # ------------------------------------------------------------------ ranges

    def read(
        self, data: pa.Buffer, starts: Int64s, table: ChunkTable, ids: slice, start: int, stop: int
    ) -> RowCut:
        """The rows ``start`` to ``stop`` out of the chunks ``ids``, which hold them."""
        rows = _index(table)
        decoded = self._decode(data, starts, table, ids)
        rep, definition, max_rep = decoded.rep, decoded.definition, self._layout.limits.max_rep
        visible = int(table.firsts[ids.stop] - table.firsts[ids.start])
        first = int(rows.starts[ids.start])
        begin, end = 0, len(rep)
        if start != first or rows.enters[ids.start]:
            begin = find_row(rep, max_rep, start - first)
        if stop != rows.starts[ids.stop] or rows.enters[ids.stop]:
            # It lies in the last chunk: rows that go on from there are not wanted.
            at = int(decoded.firsts[-1]) if len(decoded.firsts) else 0
            nth = stop - int(rows.starts[ids.stop - 1])
            end = at + find_row(rep[at:], max_rep, nth)
        if begin == 0 and end == len(rep):
            return RowCut(rep, definition, 0, visible, decoded.pieces)
        cut = rep[begin:end]
        if definition is None:
            return RowCut(cut, None, begin, end - begin, decoded.pieces)
        if self._all_visible:
            return RowCut(cut, definition[begin:end], begin, end - begin, decoded.pieces)
        top = self._layout.limits.visible_def
        before = int(np.count_nonzero(definition[:begin] <= top))
        after = int(np.count_nonzero(definition[end:] <= top))
        return RowCut(cut, definition[begin:end], before, visible - before - after, decoded.pieces)

    def _decode(
        self, data: pa.Buffer, starts: Int64s, table: ChunkTable, ids: slice | Int64s
    ) -> _Chunks:
        """All levels of the chunks; they agree with the chunk table."""
        index = _index(table)
        if self._page is not None and isinstance(ids, slice):
            levels = read_levels(
                data,
                starts,
                table.sizes[ids],
                table.counts[ids],
                index.starts[ids.start : ids.stop + 1],
                index.enters[ids],
                self._page,
            )
            if levels is not None:
                pieces = ValuePieces(levels.starts, levels.sizes)
                return _Chunks(levels.rep, levels.definition, levels.firsts, pieces)
        headers = self._chunks.headers(data, starts, table.sizes[ids])
        counts, row_starts = table.counts[ids], index.starts[:-1][ids]
        row_counts = index.starts[1:][ids] - row_starts
        if (headers.levels < np.maximum(counts, 1)).any():
            at = int(np.argmax(headers.levels < np.maximum(counts, 1)))
            raise self._levels.uneven(int(headers.levels[at]), int(counts[at]))
        ends = np.cumsum(headers.levels)
        firsts = ends - headers.levels
        self._check_room(int(ends[-1]), table, ids)
        rep = self._levels.decode(self._layout.rep, data, headers, 0)
        definition = None
        if self._layout.definition is not None:
            definition = self._levels.decode(self._layout.definition, data, headers, 1)
        rows, visible = self._levels.check(rep, definition)
        begins = np.flatnonzero(rep == self._layout.limits.max_rep)
        found_rows = begins.searchsorted(ends) - begins.searchsorted(firsts)
        enters = rep[firsts] != self._layout.limits.max_rep
        if (found_rows != row_counts).any() or (enters != index.enters[:-1][ids]).any():
            raise CorruptFileError(
                "repetition levels",
                expected=f"the {row_counts.sum()} rows of the repetition index",
                found=f"{rows} rows, or rows that start elsewhere",
                where=self._where,
            )
        seen = ends
        if definition is not None:
            seen = np.append(0, np.cumsum(definition <= self._layout.limits.visible_def))[ends]
        if (np.diff(seen, prepend=0) != counts).any():
            raise CorruptFileError(
                "definition levels",
                expected=f"{counts.sum()} entries with a value, each in its chunk",
                found=f"{visible}, or in other chunks",
                where=self._where,
            )
        return _Chunks(rep, definition, firsts, self._chunks.pieces_of(headers))

    def _check_room(self, levels: int, table: ChunkTable, ids: slice | Int64s) -> None:
        """Refuse more levels than the chunks can have, before memory is made for them."""
        if isinstance(self._layout.rep, General):
            return  # a chunk has 65,535 at most
        rows = _index(table).starts
        counts = np.append(0, np.cumsum((rows[1:] - rows[:-1])[ids]))
        max_rep = self._layout.limits.max_rep
        most = max_levels(table.counts[ids], counts, table.sizes[ids], max_rep=max_rep)
        if levels > most:
            raise CorruptFileError(
                "level counts of mini-block chunks",
                expected=f"at most {most}, as there are {counts[-1]} rows",
                found=str(levels),
                where=self._where,
            )

    # ------------------------------------------------------------------ positions

    def pick(
        self,
        data: pa.Buffer,
        starts: Int64s,
        table: ChunkTable,
        rows: Int64s,
        located: LocatedRows,
        order: Int64s | None,
    ) -> RowPick:
        """The rows at these positions, out of the chunks located.

        Row i comes to place ``order[i]``, when that is given.
        """
        index = _index(table)
        if self._page is not None:
            selected = select_levels(
                data,
                starts,
                table.sizes,
                table.counts,
                index.starts,
                index.enters,
                rows,
                located,
                self._page,
                order,
            )
            if selected is not None:
                pieces = ValuePieces(selected.starts, selected.sizes)
                return RowPick(
                    selected.rep, selected.definition, selected.slots, selected.positions, pieces
                )
        if order is not None:
            back = np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
            rows = rows[back]
            located = LocatedRows(located.ids, located.begin[back], located.last[back])
        return self._select(self._decode(data, starts, table, located.ids), table, rows, located)

    def _select(
        self, chunks: _Chunks, table: ChunkTable, rows: Int64s, located: LocatedRows
    ) -> RowPick:
        index, ids = _index(table), located.ids
        row_starts = index.starts[ids]
        row_counts = index.starts[ids + 1] - row_starts
        starts = np.flatnonzero(chunks.rep == self._layout.limits.max_rep)
        before = np.cumsum(row_counts) - row_counts
        number = rows + (before - row_starts)[located.begin]
        begin = starts[number]
        # A row ends where the next one starts, or with its last chunk: the chunk that comes
        # next here need not be its neighbour in the page.
        following = np.append(starts, len(chunks.rep))[number + 1]
        ends = np.append(chunks.firsts[1:], len(chunks.rep))
        end = np.minimum(following, ends[located.last])
        entries = spread(begin, end - begin)
        rep = chunks.rep[entries]
        definition, values = None, entries
        if chunks.definition is not None:
            definition = chunks.definition[entries]
            top = self._layout.limits.visible_def
            position = np.cumsum(chunks.definition <= top) - 1
            values = position[entries[definition <= top]]
        counts = table.counts[ids]
        last = np.cumsum(counts)
        slots = last.searchsorted(values, "right")
        return RowPick(rep, definition, slots, values - (last - counts)[slots], chunks.pieces)


def _index(table: ChunkTable) -> RowIndex:
    if table.rows is None:
        raise TypeError("a page with lists has a repetition index")
    return table.rows


# --- Pages whose only list layer is the outermost: lists of items without lists, the usual ones
# Their levels become offsets and validity in one pass of a kernel. What the kernels do not
# support, or is damaged, is read by ``glaive.encodings.miniblock.lists``, which says what is
# wrong.

WORD_BITS = (8, 16, 32, 64)
INDEX_BITS = (32, 64)

MAX_LAYERS = 3
"""Layers of a list, a struct and an item; with more, some may be of fixed-size lists."""


class ListCut(NamedTuple):
    """A range of lists, and which of the chunks' values are theirs."""

    shape: tuple[Slots, ...]
    first_value: int
    values: int
    pieces: ValuePieces


class ListPick(NamedTuple):
    """Selected lists, and their values or where these are."""

    shape: tuple[Slots, ...]
    items: int
    values: Block | None
    places: ItemPlaces | None


class ItemListReader:
    """Reads lists out of any chunks of one page."""

    __slots__ = ("_chunks", "_depth", "_index", "_items", "_page", "_table")

    def __init__(
        self, table: ChunkTable, index: RowIndex, page: LevelPage, items: Items | None, depth: int
    ) -> None:
        self._table = table
        self._index = index
        self._page = page
        self._items = items
        self._depth = depth
        self._chunks: ListPage | None = None

    @classmethod
    def of(
        cls, layout: MiniBlockLayout, table: ChunkTable, page: LevelPage | None, items: Items | None
    ) -> ItemListReader | None:
        """The reader of pages like these, if there is one."""
        *structs, outermost = layout.layers[1:] or layout.layers
        if page is None or table.rows is None or not outermost.is_list:
            return None
        if len(layout.layers) > MAX_LAYERS or layout.layers[0].is_list:
            return None
        if any(one != Layer.ALL_VALID_ITEM for one in structs):
            return None
        steps = layer_steps(layout.layers)
        form, bits = _value_form(layout.value, items)
        page = page._replace(
            null_list=steps[-1].null_level,
            null_item=steps[0].null_level,
            values=form,
            value_bits=bits,
        )
        return cls(table, table.rows, page, items, len(layout.layers))

    def read(
        self, data: pa.Buffer, starts: Int64s, ids: slice, start: int, stop: int
    ) -> ListCut | None:
        """The rows ``start`` to ``stop`` out of the chunks ``ids``, which hold them."""
        table, index = self._table, self._index
        lists = read_item_lists(
            data, starts, table.sizes[ids], table.counts[ids],
            index.starts[ids.start : ids.stop + 1], index.enters[ids], self._page,
        )  # fmt: skip
        if lists is None:
            return None
        pieces = ValuePieces(lists.starts, lists.sizes)
        offsets = as_array(lists.offsets, f"<i{lists.width}")
        low, rows = start - int(index.starts[ids.start]), stop - start
        first, last = int(offsets[low]), int(offsets[low + rows])
        list_valid, null_lists = lists.list_validity, lists.null_lists
        item_valid, null_items = lists.item_validity, lists.null_items
        if rows != lists.rows:
            offsets = offsets[low : low + rows + 1]
            list_valid, null_lists = _cut(list_valid, low, rows)
        if last - first != lists.values:
            item_valid, null_items = _cut(item_valid, first, last - first)
        if first:
            offsets = offsets - offsets[0]
        shape = self._shape(
            Slots(rows, list_valid, null_lists, offsets),
            Slots(last - first, item_valid, null_items),
        )
        return ListCut(shape, first, last - first, pieces)

    def take(
        self, data: pa.Buffer, starts: Int64s, rows: Int64s, order: Int64s | None
    ) -> ListPick | None:
        """Ascending rows out of chunks; row i comes to place ``order[i]``, when that is given.

        ``starts`` has a place for every chunk of the page.
        """
        lists = self.lists(data, starts, rows, order)
        if lists is None:
            return None
        offsets = as_array(lists.offsets, f"<i{lists.width}")
        shape = self._shape(
            Slots(len(rows), lists.list_validity, lists.null_lists, offsets),
            Slots(lists.items, lists.item_validity, lists.null_items),
        )
        return ListPick(shape, lists.items, self.values(lists), lists.places)

    @property
    def reads_values(self) -> bool:
        """Whether takes read the items, too; else they say where these are."""
        return self._page.values != 0

    def lists(
        self, data: pa.Buffer, starts: Int64s, rows: Int64s, order: Int64s | None
    ) -> TakenLists | None:
        """As :meth:`take`, as the kernel leaves them."""
        return take_item_lists(data, starts, self._chunks or self._list_page(), rows, order)

    def values(self, lists: TakenLists) -> FixedWidth | Dictionary | None:
        """The items of lists, where the kernel has read them."""
        if lists.values is None:
            return None
        words, items = FixedWidth(lists.values, self._page.value_bits, lists.items), self._items
        return words if items is None else Dictionary(words, items.block, lists.items)

    def _list_page(self) -> ListPage:
        """The chunks for takes, made at the first."""
        table, index, items = self._table, self._index, self._items
        bases = limits = None
        if items is not None and self._page.values:
            bases, limits = items.bases, items.limits
            if bases is None or limits is None:
                bases = np.zeros(table.chunks, np.int64)
                limits = np.full(table.chunks, items.total)
        chunks = ListPage(
            table.sizes, table.counts, index.starts, index.enters, self._page, bases, limits
        )
        self._chunks = chunks
        return chunks

    def _shape(self, lists: Slots, items: Slots) -> tuple[Slots, ...]:
        """The layers, inner-most first: structs between have no nulls."""
        structs = [Slots(items.count, None, 0)] * (self._depth - 2)
        return (items, *structs, lists)


def _value_form(codec: ValueEncoding, items: Items | None) -> tuple[int, int]:
    """Number and width of an encoding of values in ``LevelPage``; 0 for others.

    Numbers of dictionary items must have room to count those of all pages.
    """
    if isinstance(codec, Flat) and codec.bits in WORD_BITS:
        form = 1
    elif isinstance(codec, InlineBitpacking):
        form = 3
    else:
        return 0, 0
    is_counted = items is None or items.bases is None or codec.bits in INDEX_BITS
    return (form, codec.bits) if is_counted else (0, 0)


def _cut(bitmap: pa.Buffer | None, first: int, count: int) -> tuple[pa.Buffer | None, int]:
    """Some bits of a validity bitmap, and how many nulls there are."""
    if bitmap is None:
        return None, 0
    bits = slice_bits(bitmap, first, count)
    nulls = count - count_bits(bits, count)
    return (bits if nulls else None), nulls
