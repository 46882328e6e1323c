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

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, spread_equal
from glaive.dataclass import NamedTuple
from glaive.encodings.compression import check_decoded
from glaive.encodings.integer_sequence import read_numbers
from glaive.encodings.levels import Layer, Leaf, ListSlots, Slots, Validity, bitmap_of
from glaive.encodings.protocol import (
    Fetch,
    Kept,
    PageBytes,
    PageReader,
    SlotValues,
    StructuralPlane,
    ValueEncoding,
    ValuePlane,
    and_then,
    page_bytes,
    part_of,
    rows_beyond,
)
from glaive.encodings.registry import read_encoding, structural_plane
from glaive.errors import CorruptFileError
from glaive.types import Int64s, Where

# --- The parsed and checked message of a sparse structure, and reading its sequences ----
# Specification: "Sparse structure" in ``docs/format/planes.md``.

MAX_SLOTS = 2**32 - 1
"""Slots of a layer at most."""

MAX_LISTED = 2**28
"""Numbers of a sequence at most: 2 GiB. A few bytes can describe any number of them."""

_BITS = 64
_NULL_POSITIONS, _VALID_POSITIONS = 1, 2

Buffers = Iterator[pa.Buffer]


class NumberLayout(NamedTuple):
    """A sequence of 64-bit numbers, not read yet."""

    encoding: ValueEncoding
    length: int

    @classmethod
    def of(cls, encoding: Any, count: int, slots: int, name: str, where: Where) -> Self:
        """Check that ``count`` numbers can be listed for ``slots`` slots."""
        if count > min(slots, MAX_LISTED):
            raise CorruptFileError(
                name,
                expected=f"at most {MAX_LISTED}, and at most {slots}, one per slot",
                found=str(count),
                where=where,
            )
        return cls(read_encoding(encoding, where), count)

    @property
    def buffers(self) -> int:
        """Buffers of the sequence: none where the message describes all numbers."""
        return int(self.encoding.has_payload)

    def read(self, buffers: Buffers, name: str, where: Where) -> NDArray[Any]:
        """Take the sequence's buffer, if it has one, and decode the numbers."""
        data = next(buffers) if self.encoding.has_payload else pa.py_buffer(b"")
        return read_numbers(self.encoding, data, self.length, _BITS, name, where)

    def read_positions(self, buffers: Buffers, slots: int, name: str, where: Where) -> Int64s:
        """Ascending positions below ``slots``."""
        positions = self.read(buffers, name, where)
        if len(positions) and (positions[-1] >= slots or (positions[1:] <= positions[:-1]).any()):
            raise CorruptFileError(
                name,
                expected=f"ascending numbers below {slots}",
                found=f"{positions.min()} to {positions.max()} in some order",
                where=where,
            )
        return positions.astype(np.int64)


class ValidityLayout(NamedTuple):
    """Which slots are null, not read yet."""

    positions: NumberLayout
    are_valid: bool

    @classmethod
    def of(cls, message: Any, slots: int, where: Where) -> Self:
        """Parse and check the validity of a layer of ``slots`` slots."""
        if message.meaning not in (_NULL_POSITIONS, _VALID_POSITIONS):
            raise CorruptFileError(
                "meaning of validity",
                expected="1 (null positions) or 2 (valid positions)",
                found=str(message.meaning),
                where=where,
            )
        positions = NumberLayout.of(
            message.positions, message.num_positions, slots, "validity positions", where
        )
        return cls(positions, message.meaning == _VALID_POSITIONS)

    def read(self, buffers: Buffers, slots: int, where: Where) -> Validity:
        """Decode the positions, taking their buffer."""
        positions = self.positions.read_positions(buffers, slots, "validity positions", where)
        return Validity(slots, positions, self.are_valid)


class ListLayout(NamedTuple):
    """The sizes of lists, not read yet."""

    positions: NumberLayout
    counts: NumberLayout
    items: int

    @classmethod
    def of(cls, message: Any, slots: int, where: Where) -> Self:
        """Parse and check the lists of a layer of ``slots`` slots."""
        lists, items = message.num_non_empty_positions, message.num_child_slots
        if items > MAX_SLOTS or items < lists:
            raise CorruptFileError(
                "items of lists",
                expected=f"{lists}, one per list that has any, to {MAX_SLOTS}",
                found=str(items),
                where=where,
            )
        return cls(
            NumberLayout.of(message.non_empty_positions, lists, slots, "positions of lists", where),
            NumberLayout.of(message.counts, lists, slots, "counts of lists", where),
            items,
        )

    def read(self, buffers: Buffers, slots: int, where: Where) -> ListSlots:
        """Decode positions, counts and validity, taking their buffers in this order."""
        positions = self.positions.read_positions(buffers, slots, "positions of lists", where)
        counts = self.counts.read(buffers, "counts of lists", where)
        ends = np.zeros(len(counts) + 1, np.uint64)
        # Checked before the sum, so that it cannot wrap around.
        good = not len(counts) or (counts.min() > 0 and counts.max() <= self.items)
        if good:
            np.cumsum(counts, out=ends[1:])
        if not good or ends[-1] != self.items:
            raise CorruptFileError(
                "counts of lists",
                expected=f"{len(counts)} numbers above 0 that add up to {self.items}",
                found="others",
                where=where,
            )
        return ListSlots(positions, ends.astype(np.int64))


class LayerLayout(NamedTuple):
    """One layer of ``slots`` slots, not read yet."""

    slots: int
    validity: ValidityLayout
    lists: ListLayout | None = None
    dimension: int = 1

    @classmethod
    def of(cls, message: Any, slots: int, where: Where) -> Self:
        """Parse a layer of ``slots`` slots; check the lengths of its sequences."""
        name = message.WhichOneof("layer")
        if name is None:
            raise CorruptFileError(
                "layer of a sparse structure", expected="items or lists", found="none", where=where
            )
        if name == "validity":
            return cls(slots, ValidityLayout.of(message.validity, slots, where))
        layer = getattr(message, name)
        validity = ValidityLayout.of(layer.validity, slots, where)
        if name == "list":
            return cls(slots, validity, ListLayout.of(layer, slots, where))
        return cls(slots, validity, None, layer.dimension)

    @property
    def children(self) -> int:
        """Slots of the next layer."""
        return self.slots * self.dimension if self.lists is None else self.lists.items

    @property
    def buffers(self) -> int:
        """Buffers of the layer."""
        count = self.validity.positions.buffers
        if self.lists is not None:
            count += self.lists.positions.buffers + self.lists.counts.buffers
        return count


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
