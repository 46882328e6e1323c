"""Rows of mini-block chunks with lists: ranges of rows, and rows selected one by one.

Rows are found by their repetition levels, and their values by counting visible entries.
Levels in the usual encodings are decoded in one pass of a kernel (``glaive.kernels.list_levels``).
Another kernel (``glaive.kernels.list_takes``) turns selected rows into offsets and validity. It
serves pages with one list layer, within or around a valid struct or alone. The general way serves
everything else, and says what is wrong.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import FixedWidth, inverse_permutation, spread
from glaive.dataclass import NamedTuple
from glaive.encodings.levels import Layer, Slots, check_levels, layer_steps
from glaive.encodings.miniblock.chunks import (
    ChunkReader,
    LevelReader,
    Levels,
    ValuePieces,
    level_form,
)
from glaive.encodings.miniblock.layout import ChunkTable, MiniBlockLayout, RowIndex
from glaive.encodings.values.general import General
from glaive.errors import CorruptFileError
from glaive.kernels.chunks import find_row, max_levels
from glaive.kernels.list_levels import LocatedRows, read_levels
from glaive.kernels.list_takes import ListPage, take_item_lists
from glaive.kernels.records import LevelPage
from glaive.types import Flags, Int64s, Where, as_array

MAX_LAYERS = 3
"""Layers of a list, a struct and an item; with more, some may be of fixed-size lists."""


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
    """The levels or the shape of selected rows.

    Value j is number ``places[j]`` of chunk ``ids[slots[j]]``, which has ``pieces``.
    """

    entries: int
    ids: Int64s
    slots: Int64s
    places: Int64s
    pieces: ValuePieces
    rep: Levels | None = None
    definition: Levels | None = None
    shape: tuple[Slots, ...] | None = None
    values: FixedWidth | None = None


class ListReader:
    """Reads rows out of any chunks of one page with lists."""

    __slots__ = (
        "_all_visible", "_chunks", "_form", "_items", "_layout", "_levels", "_page", "_where",
    )  # fmt: skip

    def __init__(
        self,
        layout: MiniBlockLayout,
        chunks: ChunkReader,
        levels: LevelReader,
        form: tuple[int, int],
        where: Where,
    ) -> None:
        self._form = form
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
        self._items: ListPage | None = None

    # ------------------------------------------------------------------ ranges

    def read(
        self, data: pa.Buffer, starts: Int64s, table: ChunkTable, ids: slice, start: int, stop: int
    ) -> RowCut:
        """Return the rows ``start`` to ``stop`` out of the chunks ``ids``, which hold them."""
        rows = _index(table)
        decoded = self._decode(data, starts, table, ids)
        rep, definition, max_rep = decoded.rep, decoded.definition, self._layout.limits.max_rep
        visible = int(table.firsts[ids.stop] - table.firsts[ids.start])
        first = int(rows.starts[ids.start])
        begin, end = 0, len(rep)
        if start != first or rows.enters[ids.start]:
            begin = find_row(rep, max_rep, start - first)
        if stop != rows.starts[ids.stop] or rows.enters[ids.stop]:
            # It lies in the last chunk: rows that continue in later chunks are outside the range.
            at = int(decoded.firsts[-1]) if len(decoded.firsts) else 0
            nth = stop - int(rows.starts[ids.stop - 1])
            end = at + find_row(rep[at:], max_rep, nth)
        before, values = 0, visible
        if begin or end != len(rep):
            before, values = begin, end - begin
            if definition is not None and not self._all_visible:
                top = self._layout.limits.visible_def
                before = int(np.count_nonzero(definition[:begin] <= top))
                values = visible - before - int(np.count_nonzero(definition[end:] <= top))
            rep = rep[begin:end]
            definition = None if definition is None else definition[begin:end]
        return RowCut(rep, definition, before, values, decoded.pieces)

    def _decode(
        self, data: pa.Buffer, starts: Int64s, table: ChunkTable, ids: slice | Int64s
    ) -> _Chunks:
        """Return all levels of the chunks; they agree with the chunk table."""
        row_starts, chunk_enters = _rows_of(_index(table), ids)
        if self._page is not None:
            levels = read_levels(
                data, starts, table.sizes[ids], table.counts[ids], row_starts, chunk_enters,
                self._page,
            )  # fmt: skip
            if levels is not None:
                pieces = ValuePieces(levels.starts, levels.sizes)
                return _Chunks(levels.rep, levels.definition, levels.firsts, pieces)
        headers = self._chunks.headers(data, starts, table.sizes[ids])
        counts, row_counts = table.counts[ids], np.diff(row_starts)
        if (headers.levels < np.maximum(counts, 1)).any():
            at = int(np.argmax(headers.levels < np.maximum(counts, 1)))
            raise self._levels.uneven(int(headers.levels[at]), int(counts[at]))
        ends = headers.levels.cumsum()
        firsts = ends - headers.levels
        self._check_room(int(ends[-1]), table, ids)
        rep = self._levels.decode(self._layout.rep, data, headers, 0)
        definition = None
        if self._layout.definition is not None:
            definition = self._levels.decode(self._layout.definition, data, headers, 1)
        check_levels(rep, definition, self._layout.limits, self._where)
        begins = (rep == self._layout.limits.max_rep).nonzero()[0]
        found_rows = begins.searchsorted(ends) - begins.searchsorted(firsts)
        enters = rep[firsts] != self._layout.limits.max_rep
        if (found_rows != row_counts).any() or (enters != chunk_enters).any():
            raise CorruptFileError(
                "repetition levels",
                expected=f"the {row_counts.sum()} rows of the repetition index",
                found=f"{len(begins)} rows, or rows that start elsewhere",
                where=self._where,
            )
        seen = ends
        if definition is not None:
            seen = np.append(0, (definition <= self._layout.limits.visible_def).cumsum())[ends]
        if (np.diff(seen, prepend=0) != counts).any():
            raise CorruptFileError(
                "definition levels",
                expected=f"{counts.sum()} entries with a value, each in its chunk",
                found=f"{seen[-1]}, or in other chunks",
                where=self._where,
            )
        return _Chunks(rep, definition, firsts, self._chunks.pieces_of(headers))

    def _check_room(self, levels: int, table: ChunkTable, ids: slice | Int64s) -> None:
        """Refuse more levels than the chunks can have, before memory is made for them."""
        if isinstance(self._layout.rep, General):
            return  # a chunk has 65,535 at most
        rows, _ = _rows_of(_index(table), ids)
        max_rep = self._layout.limits.max_rep
        limit = max_levels(table.counts[ids], rows, table.sizes[ids], max_rep=max_rep)
        if levels > limit:
            raise CorruptFileError(
                "level counts of mini-block chunks",
                expected=f"at most {limit}, as there are {rows[-1] - rows[0]} rows",
                found=str(levels),
                where=self._where,
            )

    # ------------------------------------------------------------------ positions

    def pick_items(
        self, data: pa.Buffer, starts: Int64s, table: ChunkTable, rows: Int64s, order: Int64s | None
    ) -> RowPick | None:
        """Return ascending rows, where one kernel call takes them; ``order`` as for :meth:`pick`.

        ``starts`` has a place for each chunk of the page.
        """
        items = self._items or self._list_page(table)
        if items is None:
            return None
        lists = take_item_lists(data, starts, items, rows, order)
        if lists is None:
            return None
        offsets = as_array(lists.offsets, np.int32 if lists.width == 4 else np.int64)
        layers, valid = self._layout.layers, Slots(lists.items, None, 0)
        at = next(at for at, layer in enumerate(layers) if layer.is_list)
        shape = (  # the struct is valid
            Slots(lists.items, lists.item_validity, lists.null_items),
            *[valid] * (at - 1),
            Slots(len(rows), lists.list_validity, lists.null_lists, offsets),
            *[Slots(len(rows), None, 0)] * (len(layers) - at - 1),
        )
        pieces = ValuePieces(lists.starts, lists.sizes)
        values = None
        if lists.values is not None:
            values = FixedWidth(lists.values, items.page.value_bits, lists.items)
        return RowPick(
            lists.items, lists.ids, lists.slots, lists.positions, pieces, None, None, shape, values
        )

    def _list_page(self, table: ChunkTable) -> ListPage | None:
        """Return the chunks, if one layer is a list, and a struct in or around it is valid."""
        layers, index = self._layout.layers, _index(table)
        at, *more = (at for at, layer in enumerate(layers) if layer.is_list)
        if self._page is None or more or not at or len(layers) > MAX_LAYERS:
            return None
        if any(one != Layer.ALL_VALID_ITEM for one in layers[1:] if not one.is_list):
            return None
        steps = layer_steps(layers)
        null_list, null_item = steps[at].null_level, steps[0].null_level
        page = self._page._replace(
            null_list=null_list, null_item=null_item, values=self._form[0], value_bits=self._form[1]
        )
        self._items = ListPage(table.sizes, table.counts, index.starts, index.enters, page)
        return self._items

    def pick(
        self,
        data: pa.Buffer,
        starts: Int64s,
        table: ChunkTable,
        rows: Int64s,
        located: LocatedRows,
        order: Int64s | None,
    ) -> RowPick:
        """Return ascending rows out of the chunks located, which lie at ``starts``.

        Row i comes to place ``order[i]``, when that is given.
        """
        ids, index = located.ids, _index(table)
        everywhere = np.zeros(table.chunks, np.int64)
        everywhere[ids] = starts
        taken = self.pick_items(data, everywhere, table, rows, order)
        if taken is not None:
            return taken
        before, _ = _rows_of(index, ids)
        number = rows - index.starts[ids[located.begin]] + before[located.begin]
        chunks = self._decode(data, starts, table, ids)
        begins = (chunks.rep == self._layout.limits.max_rep).nonzero()[0]
        begin = begins[number]
        # A row ends where the next one starts, or with its last chunk. The chunk that comes next
        # here may lie further on in the page.
        following = np.append(begins, len(chunks.rep))[number + 1]
        ends = np.append(chunks.firsts[1:], len(chunks.rep))
        sizes = np.minimum(following, ends[located.last]) - begin
        first = begin
        if chunks.definition is not None:
            is_visible = chunks.definition <= self._layout.limits.visible_def
            first = is_visible.nonzero()[0].searchsorted(begin)
        if order is not None:
            back = inverse_permutation(order)
            begin, sizes, first = begin[back], sizes[back], first[back]
        entries, shown = spread(begin, sizes), sizes
        definition = None
        if chunks.definition is not None:
            definition = chunks.definition[entries]
            shown = np.add.reduceat(is_visible[entries], sizes.cumsum() - sizes, dtype=np.int64)
        values = spread(first, shown)
        firsts = np.append(0, table.counts[ids].cumsum())
        slots = firsts[1:].searchsorted(values, "right")
        rep, places = chunks.rep[entries], values - firsts[slots]
        return RowPick(len(rep), ids, slots, places, chunks.pieces, rep, definition)


def _index(table: ChunkTable) -> RowIndex:
    if table.rows is None:
        raise TypeError("a page with lists has a repetition index")
    return table.rows


def _rows_of(index: RowIndex, ids: slice | Int64s) -> tuple[Int64s, Flags]:
    """Return where the rows of each chunk begin, and whether it begins in the middle of a row."""
    if isinstance(ids, slice):
        return index.starts[ids.start : ids.stop + 1], index.enters[ids]
    starts = np.zeros(len(ids) + 1, np.int64)
    (index.starts[ids + 1] - index.starts[ids]).cumsum(out=starts[1:])
    return starts, index.enters[ids]
