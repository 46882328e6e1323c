"""Sparse structure: each layer stores the validity of its slots and the sizes of its lists.

Layers are outer-most first. The first has a slot for each row; a list layer has a slot in the
next layer for each item, an item layer (a struct or the leaf) one for each of its slots.
Fixed-size lists of structs have ``dimension`` slots in the next layer for each slot, null or
not; a page counts its rows in those, as pages with levels do. After the buffers of the values
there is one for each sequence of numbers with a payload, layer by layer: the positions of
lists with items, their counts, the positions of validity.

The sequences are read once and kept: 8 bytes for each null or valid slot listed, 16 for each
list with items. Positions ascend and counts are at least 1, so that the slots of the layer
(4,294,967,295 at most) limit their number. As some bytes of the message can describe all of
them, what a page lists in all is compared with the limit of a page first.

Specification: "Sparse structure" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar

import pyarrow as pa

from glaive.arrow.blocks import Block
from glaive.arrow.buffers import spread_equal
from glaive.encodings.compression import check_decoded
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.kept import Kept
from glaive.encodings.leaf import Layer, Leaf, Slots
from glaive.encodings.levels.sparse import ListSlots, Validity, bitmap_of
from glaive.encodings.levels.sparse_layout import MAX_SLOTS, LayerLayout
from glaive.encodings.memory import page_bytes
from glaive.encodings.plane_protocol import SlotValues, StructuralPlane, ValuePlane, part_of
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import structural_plane
from glaive.encodings.row_ranges import rows_beyond
from glaive.errors import CorruptFileError
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s

__all__ = ["Sparse", "SparsePage"]


class _LoadedLayer(NamedTuple):
    validity: Validity
    lists: ListSlots | None
    dimension: int


class _Structure(NamedTuple):
    """All layers, outer-most first, and which inner-most slots have a valid leaf."""

    layers: tuple[_LoadedLayer, ...]
    leaves: Validity


@structural_plane
class Sparse(StructuralPlane):
    """Structure stored apart from the values."""

    wire_name: ClassVar[str] = "sparse"

    @classmethod
    def open_page(
        cls, message: Any, plane: type[ValuePlane], values: Any, page: PageBytes
    ) -> PageReader:
        """Parse a ``SparseStructure``; check the numbers and buffers."""
        layouts: list[LayerLayout] = []
        group = _entries_per_slot(message.layers, page)
        slots = page.rows // group
        for layer in message.layers:
            layouts.append(LayerLayout.of(layer, slots, page.where))
            slots = layouts[-1].children
        if not layouts or page.rows > MAX_SLOTS or layouts[-1].lists is not None:
            raise CorruptFileError(
                "layers of a sparse structure",
                expected=f"some, the last one of items, for at most {MAX_SLOTS} rows",
                found=f"{len(layouts)} layers for {page.rows} rows",
                where=page.where,
            )
        slot_values, first = plane.open_sparse(values, slots, page)
        buffers = sum(layout.buffers for layout in layouts)
        if len(page.ranges) != first + buffers:
            raise CorruptFileError(
                "buffers of a page with sparse structure",
                expected=f"{first} of values, {buffers} of structure",
                found=str(len(page.ranges)),
                where=page.where,
            )
        part = part_of(page, first, buffers, page.rows)
        return SparsePage(tuple(layouts), slot_values, part, group)


def _entries_per_slot(layers: Any, page: PageBytes) -> int:
    """Rows of the page for each slot of the first layer: fixed-size lists multiply them."""
    sizes: list[int] = [
        layer.fixed_size_list.dimension for layer in layers if layer.HasField("fixed_size_list")
    ]
    group = prod(sizes)
    if not 0 < group <= MAX_SLOTS or page.rows % group:
        raise CorruptFileError(
            "sizes of lists of fixed size",
            expected=f"1 or more, of which {page.rows} rows are a multiple",
            found=" * ".join(map(str, sizes)),
            where=page.where,
        )
    return group


class SparsePage(PageReader):
    """A page that reads its structure, the buffers of ``page``, once and keeps it."""

    wire_name: ClassVar[str] = Sparse.wire_name

    def __init__(
        self, layouts: tuple[LayerLayout, ...], values: SlotValues, page: PageBytes, group: int
    ) -> None:
        self.rows = page.rows
        self._group = group
        self._layouts = layouts
        self._values = values
        self._page = page
        self._structure: Kept[_Structure] = Kept()

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the structure; an estimate."""
        return page_bytes(0, sum(part.size for part in self._page.ranges))

    # ------------------------------------------------------------------ entry points

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop``: a range of slots in every layer."""
        if not 0 <= start <= stop <= self.rows:
            raise rows_beyond(start, stop, self.rows, self._page.where)
        return self._with(partial(self._read, start, stop))

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """The slots of these rows; those of one fixed-size list are adjacent."""
        if len(rows):
            low, high = int(rows.min()), int(rows.max())
            if low < 0 or high >= self.rows:
                raise rows_beyond(low, high, self.rows, self._page.where)
            if low == high and len(rows) == 1:
                return self.read(low, low + 1)
        return self._with(partial(self._take, rows))

    # ------------------------------------------------------------------ structure

    def _with(self, then: Callable[[_Structure], Fetch[Leaf] | Leaf]) -> Fetch[Leaf] | Leaf:
        structure = self._structure.get()
        if structure is not None:
            return then(structure)
        if self._page.at_hand is not None or not self._page.ranges:
            return then(self._load(self._page.at_hand or []))
        return Fetch(self._page.ranges, lambda got: then(self._load(got)))

    def _load(self, got: list[pa.Buffer]) -> _Structure:
        """Read and check all sequences, and keep them."""
        buffers, where = iter(got), self._page.where
        size, stored = _listed_bytes(self._layouts), sum(part.size for part in got)
        check_decoded(size, stored, where)
        layers = []
        for layout in self._layouts:
            # In the order of the buffers.
            slots, lists = layout.slots, None
            if layout.lists is not None:
                lists = layout.lists.read(buffers, slots, where)
            validity = layout.validity.read(buffers, slots, where)
            layers.append(_LoadedLayer(validity, lists, layout.dimension))
        inner: list[Validity] = []
        for layer in layers:
            # Null lists have no items; null lists of a fixed size do.
            inner = [] if layer.lists is not None else [*inner, layer.validity]
            if layer.dimension > 1:
                inner = [validity.repeated(layer.dimension) for validity in inner]
        leaves = Validity.of_all(inner, self._layouts[-1].slots)
        return self._structure.keep(_Structure(tuple(layers), leaves), size, stored)

    # ------------------------------------------------------------------ slots

    def _read(self, start: int, stop: int, structure: _Structure) -> Fetch[Leaf] | Leaf:
        shape: list[Slots] = []
        first, last = start // self._group, -(-stop // self._group)
        for layer in structure.layers:
            begin, end, offsets = first, last, None
            if layer.lists is not None:
                offsets, first, last = layer.lists.range_of(begin, end)
            bitmap, nulls = bitmap_of(layer.validity.flags(begin, end))
            shape.append(Slots(end - begin, bitmap, nulls, offsets))
            first, last = first * layer.dimension, last * layer.dimension
        finish = partial(_leaf, shape, stop - start)
        if first == last:
            return finish(None)
        return and_then(self._values.read(first, last, structure.leaves), finish)

    def _take(self, rows: Int64s, structure: _Structure) -> Fetch[Leaf] | Leaf:
        shape: list[Slots] = []
        at = rows if self._group == 1 else rows[:: self._group] // self._group
        for layer in structure.layers:
            count = len(at)
            bitmap, nulls = bitmap_of(layer.validity.flags_at(at))
            offsets = None
            if layer.lists is not None:
                offsets, at = layer.lists.take(at)
            shape.append(Slots(count, bitmap, nulls, offsets))
            if layer.dimension > 1:
                at = spread_equal(at, layer.dimension)
        finish = partial(_leaf, shape, len(rows))
        if not len(at):
            return finish(None)
        return and_then(self._values.take(at, structure.leaves), finish)


def _listed_bytes(layouts: Sequence[LayerLayout]) -> int:
    """Bytes of all sequences in memory.

    Validity above lists of a fixed size is listed once more, for each of their items.
    """
    numbers = repeated = 0
    for layout in layouts:
        validity = layout.validity.positions.length
        numbers += validity
        if layout.lists is not None:
            numbers += layout.lists.positions.length + layout.lists.counts.length
            repeated = 0
        else:
            repeated = (repeated + validity) * layout.dimension
            numbers += repeated if layout.dimension > 1 else 0
    return 8 * numbers


def _leaf(shape: list[Slots], rows: int, values: Block | None) -> Leaf:
    """The leaf of some rows; a single layer becomes plain validity."""
    if len(shape) == 1:
        only = shape[0]
        return Leaf(
            values,
            rows,
            rows,
            (Layer.NULLABLE_ITEM,),
            validity=only.validity,
            null_count=only.null_count,
        )
    layers = tuple(
        Layer.NULLABLE_ITEM if slots.offsets is None else Layer.NULL_AND_EMPTY_LIST
        for slots in reversed(shape)
    )
    return Leaf(values, rows, shape[-1].count, layers, shape=shape[::-1])
