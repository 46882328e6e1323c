"""Sparse structure: each layer says which of its slots are null, and how long its lists are.

Layers are outer-most first. The first has a slot for each row; a list layer has a slot in the
next for each item, an item layer (a struct or the leaf) passes its slots on. Lists of structs
of a fixed size have as many slots in the next layer for each of theirs, null or not; a page
counts its rows in those, as pages with levels do. After the
buffers of the values there is one for each sequence of numbers with a payload, layer by
layer: the positions of lists with items, their counts, the positions of validity.

The sequences are read once and kept: 8 bytes for each null or valid slot listed, 16 for each
list with items. Positions ascend and counts are at least 1, so that their number is bounded by the
slots of the layer, which are 4,294,967,295 at most.

Specification: "Sparse structure" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block
from glaive.encodings.fetch import chain
from glaive.encodings.levels.sparse import ListSlots, Validity, bitmap_of
from glaive.encodings.levels.sparse_layout import MAX_SLOTS, LayerForm
from glaive.encodings.memory import page_bytes
from glaive.encodings.plane_protocol import SlotValues, StructuralPlane, ValuePlane, part_of
from glaive.encodings.protocol import (
    Fetch,
    Layer,
    Leaf,
    PageBytes,
    PageReader,
    Slots,
)
from glaive.encodings.registry import structural_plane
from glaive.errors import CorruptFileError, RowIndexError

__all__ = ["Sparse", "SparsePage"]

Int64s = NDArray[np.int64]


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
    """Structure apart from the values."""

    wire_name: ClassVar[str] = "sparse"

    @classmethod
    def open_page(
        cls, message: Any, plane: type[ValuePlane], values: Any, page: PageBytes
    ) -> PageReader:
        """Parse a ``SparseStructure``; check the numbers and buffers."""
        forms: list[LayerForm] = []
        group = _entries_per_slot(message.layers, page)
        slots = page.rows // group
        for layer in message.layers:
            forms.append(LayerForm.of(layer, slots, page.where))
            slots = forms[-1].children
        if not forms or page.rows > MAX_SLOTS or forms[-1].lists is not None:
            raise CorruptFileError(
                "layers of a sparse structure",
                expected=f"some, the last one of items, for at most {MAX_SLOTS} rows",
                found=f"{len(forms)} layers for {page.rows} rows",
                where=page.where,
            )
        slot_values, first = plane.open_sparse(values, slots, page)
        buffers = sum(form.buffers for form in forms)
        if len(page.ranges) != first + buffers:
            raise CorruptFileError(
                "buffers of a page with sparse structure",
                expected=f"{first} of values, {buffers} of structure",
                found=str(len(page.ranges)),
                where=page.where,
            )
        part = part_of(page, first, buffers, page.rows)
        return SparsePage(tuple(forms), slot_values, part, group)


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
    """A page that reads its structure once and keeps it. ``page`` has the buffers of that."""

    wire_name: ClassVar[str] = Sparse.wire_name

    def __init__(
        self, forms: tuple[LayerForm, ...], values: SlotValues, page: PageBytes, group: int
    ) -> None:
        self.rows = page.rows
        self._group = group
        self._forms = forms
        self._values = values
        self._page = page
        self._structure: _Structure | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the structure; an estimate."""
        return page_bytes(0, sum(part.size for part in self._page.ranges))

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Refuse: a structure alone is no page."""
        raise TypeError("a page with sparse structure is opened with its values")

    # ------------------------------------------------------------------ entry points

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop``: a range of slots in every layer."""
        if not 0 <= start <= stop <= self.rows:
            raise self._beyond(start, stop)
        return self._with(partial(self._read, start, stop))

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """The slots of these rows; those of one list of fixed size stand together."""
        if len(rows):
            low, high = int(rows.min()), int(rows.max())
            if low < 0 or high >= self.rows:
                raise self._beyond(low, high)
            if low == high and len(rows) == 1:
                return self.read(low, low + 1)
        return self._with(partial(self._take, rows))

    def _beyond(self, low: int, high: int) -> RowIndexError:
        return RowIndexError(
            f"rows {low} to {high} of a page of {self.rows} rows (in {self._page.where})"
        )

    # ------------------------------------------------------------------ structure

    def _with(self, then: Callable[[_Structure], Fetch[Leaf] | Leaf]) -> Fetch[Leaf] | Leaf:
        if self._structure is not None:
            return then(self._structure)
        if self._page.at_hand is not None or not self._page.ranges:
            return then(self._load(self._page.at_hand or []))
        return Fetch(self._page.ranges, lambda got: then(self._load(got)))

    def _load(self, got: list[pa.Buffer]) -> _Structure:
        """Read and check all sequences, and keep them."""
        buffers, where = iter(got), self._page.where
        layers = []
        for form in self._forms:
            # The order of their buffers.
            lists = None if form.lists is None else form.lists.read(buffers, form.slots, where)
            validity = form.validity.read(buffers, form.slots, where)
            layers.append(_LoadedLayer(validity, lists, form.dimension))
        inner: list[Validity] = []
        for layer in layers:
            # Null lists have no items; null lists of a fixed size do.
            inner = [] if layer.lists is not None else [*inner, layer.validity]
            if layer.dimension > 1:
                inner = [validity.repeated(layer.dimension) for validity in inner]
        leaves = Validity.of_all(inner, self._forms[-1].slots)
        self._structure = structure = _Structure(tuple(layers), leaves)
        return structure

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
        return chain(self._values.read(first, last, structure.leaves), finish)

    def _take(self, rows: Int64s, structure: _Structure) -> Fetch[Leaf] | Leaf:
        shape: list[Slots] = []
        at = rows if self._group == 1 else rows[:: self._group] // self._group
        for layer in structure.layers:
            count = len(at)
            bitmap, nulls = bitmap_of(layer.validity.flags_at(at))
            offsets = None
            if layer.lists is not None:
                offsets, at = layer.lists.pick(at)
            shape.append(Slots(count, bitmap, nulls, offsets))
            if layer.dimension > 1:
                at = np.add.outer(at * layer.dimension, np.arange(layer.dimension)).reshape(-1)
        finish = partial(_leaf, shape, len(rows))
        if not len(at):
            return finish(None)
        return chain(self._values.take(at, structure.leaves), finish)


def _leaf(shape: list[Slots], rows: int, values: Block | None) -> Leaf:
    """The leaf of some rows; a single layer is told as validity alone."""
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
