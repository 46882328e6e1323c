"""Pages whose only list layer is the outermost: lists of items without lists, the usual ones.

Their levels become offsets and validity in one pass of a kernel. What the kernels do not support,
or is damaged, is read by ``glaive.encodings.miniblock.lists``, which says what is wrong.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.arrow.slices import count_bits, slice_bits
from glaive.encodings.leaf import Layer, Slots
from glaive.encodings.levels.layers import layer_steps
from glaive.encodings.miniblock.chunk_table import ChunkTable, RowIndex
from glaive.encodings.miniblock.chunks import Items, ValuePieces
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack_inline import InlineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.kernels.item_lists import read_item_lists
from glaive.kernels.list_takes import ItemPlaces, ListPage, TakenLists, take_item_lists
from glaive.kernels.records import LevelPage
from glaive.memory import as_array
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["ItemListReader", "ListCut", "ListPick"]

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
        self,
        table: ChunkTable,
        index: RowIndex,
        page: LevelPage,
        items: Items | None,
        depth: int,
    ) -> None:
        self._table = table
        self._index = index
        self._page = page
        self._items = items
        self._depth = depth
        self._chunks: ListPage | None = None

    @classmethod
    def of(
        cls,
        layout: MiniBlockLayout,
        table: ChunkTable,
        page: LevelPage | None,
        items: Items | None,
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
