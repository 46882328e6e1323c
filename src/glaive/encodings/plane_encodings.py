"""Planes of format 2.3: values in chunks, in one range, in an index, or nulls only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, Dictionary, FixedWidth, block_bytes, spread_equal
from glaive.dataclass import NamedTuple
from glaive.encodings.compression import check_decoded
from glaive.encodings.levels import (
    Layer,
    Leaf,
    ListSlots,
    Slots,
    Validity,
    bitmap_of,
    place_values,
    read_layers,
)
from glaive.encodings.pages.constant import MAX_INLINE, ConstantPage
from glaive.encodings.pages.full_zip import FullZipPage
from glaive.encodings.pages.miniblock import MiniBlockPage
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
    wrong_structure,
)
from glaive.encodings.registry import read_encoding, structural_plane, value_plane
from glaive.encodings.values.sequences import INDEX_BITS, read_numbers
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import encodings23_pb2 as pb23
from glaive.format.wire import copy_fields
from glaive.types import Flags, Int64s, Where, as_buffer


@structural_plane
class Dense(StructuralPlane):
    """The structure of pages before 2.3."""

    wire_name: ClassVar[str] = "dense"

    @classmethod
    def open_page(
        cls, message: Any, plane: type[ValuePlane], values: Any, page: PageBytes
    ) -> PageReader:
        """Let the value plane open the page: it has the levels."""
        return plane.open_dense(values, read_layers(message.layers, page.where), page)


# --- Constant values: one value of fixed width, in the message, for all slots -----------
#
# The page is only its message. With dense structure all rows are valid and flat.
#
# Specification: "Constant values" in ``docs/format/planes.md``.


@value_plane
class ConstantValues(ValuePlane):
    """One value for all slots."""

    wire_name: ClassVar[str] = "constant"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """Return the equivalent constant page: only a scalar."""
        if any(layer is not Layer.ALL_VALID_ITEM for layer in layers):
            named = ", ".join(layer.name.lower() for layer in layers)
            raise wrong_structure("constant", "valid items only, since it is dense", named, page)
        layout = pb.ConstantLayout(
            layers=[pb.RepDefLayer.ValueType(layer) for layer in layers],
            inline_value=_scalar(message, page),
        )
        return ConstantPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """Return the value for every slot, also for nulls."""
        scalar = _scalar(message, page)
        return _OneValue(FixedWidth(pa.py_buffer(scalar), 8 * len(scalar), 1)), 0


def _scalar(message: Any, page: PageBytes) -> bytes:
    scalar: bytes = message.scalar
    if not 1 <= len(scalar) <= MAX_INLINE:
        raise CorruptFileError(
            "scalar of constant values",
            expected=f"1 to {MAX_INLINE} bytes",
            found=str(len(scalar)),
            where=page.where,
        )
    return scalar


class _OneValue(SlotValues):
    """Repeats the value of the message."""

    __slots__ = ("_value",)

    def __init__(self, value: Block) -> None:
        self._value = value

    def read(self, start: int, stop: int, valid: Validity) -> Block:
        """Return the repeated value."""
        return blocks.Constant(self._value, stop - start)

    def take(self, slots: Int64s, valid: Validity) -> Block:
        """Return the repeated value."""
        return blocks.Constant(self._value, len(slots))


# --- No values: every leaf is null, or all lists are empty ------------------------------
#
# The page is only its message. With dense structure every row of the column is null.
#
# Specification: "No values" in ``docs/format/planes.md``.


@value_plane
class NoValues(ValuePlane):
    """Only nulls."""

    wire_name: ClassVar[str] = "no_values"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """Return the equivalent constant page of nulls."""
        if layers != (Layer.NULLABLE_ITEM,):
            named = ", ".join(layer.name.lower() for layer in layers)
            expected = "one nullable item, since it is dense"
            raise wrong_structure("no", expected, named, page)
        layout = pb.ConstantLayout(layers=[pb.RepDefLayer.REPDEF_NULLABLE_ITEM])
        return ConstantPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """Return no value for any slot."""
        return _NoSlotValues(), 0


class _NoSlotValues(SlotValues):
    """No value for any slot."""

    __slots__ = ()

    def read(self, start: int, stop: int, valid: Validity) -> None:
        """Return no value."""

    def take(self, slots: Int64s, valid: Validity) -> None:
        """Return no value."""


# --- Chunked values: the mini-blocks of 2.2 ---------------------------------------------
#
# Buffers: chunk words, chunks, then the dictionary if there is one; with dense structure and
# lists, the repetition index. With sparse structure chunks have only values, one for each
# inner-most slot, also for nulls.
#
# Specification: "Chunked values" in ``docs/format/planes.md``.

_ITEM = (pb.RepDefLayer.REPDEF_ALL_VALID_ITEM,)


@value_plane
class Chunked(ValuePlane):
    """Small values, many to a chunk."""

    wire_name: ClassVar[str] = "chunked"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """Return the equivalent mini-block page."""
        if not message.HasField("levels"):
            raise wrong_structure("chunked", "levels, since it is dense", "none", page)
        layout = _layout(message, message.num_items)
        layout.layers.extend([pb.RepDefLayer.ValueType(layer) for layer in layers])
        copy_fields(message.levels, layout)
        return MiniBlockPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """Return one value per slot, in a mini-block page that has only values."""
        if message.HasField("levels"):
            raise wrong_structure("chunked", "no levels, since it is sparse", "levels", page)
        buffers = 2 + message.HasField("dictionary")
        layout = _layout(message, slots)
        layout.layers.extend(_ITEM)
        inner = MiniBlockPage.from_wire(layout, part_of(page, 0, buffers, slots))
        return _ChunkedSlots(inner), buffers


def _layout(message: pb23.ChunkedValues, num_items: int) -> pb.MiniBlockLayout:
    layout = pb.MiniBlockLayout(has_large_chunk=True)
    copy_fields(message, layout)
    layout.num_items = num_items
    return layout


class _ChunkedSlots(SlotValues):
    """Slots are the rows of a page of their own."""

    __slots__ = ("_page",)

    def __init__(self, page: PageReader) -> None:
        self._page = page

    def read(self, start: int, stop: int, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Return the values of the slots, also of nulls."""
        return and_then(self._page.read(start, stop), _values)

    def take(self, slots: Int64s, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Return the values of the slots, also of nulls."""
        return and_then(self._page.take(slots), _values)


def _values(leaf: Leaf) -> Block | None:
    return leaf.values


# --- Zipped values: one after the other, as in full-zip pages ---------------------------
#
# Buffers: the entries; then, unless all have the same size, the position of each row and the size
# of all. With sparse structure each entry is a row and consists of a value. Its length precedes
# it if lengths vary. Only valid slots have a value.
#
# Specification: "Zipped values" in ``docs/format/planes.md``.

_MAX_ITEMS = 2**32 - 1


@value_plane
class Zipped(ValuePlane):
    """Large values, each stored on its own."""

    wire_name: ClassVar[str] = "zipped"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """Return the equivalent full-zip page."""
        if not message.HasField("levels"):
            raise wrong_structure("zipped", "levels, since it is dense", "none", page)
        layout = _full_zip_layout(message, page.where)
        layout.layers.extend([pb.RepDefLayer.ValueType(layer) for layer in layers])
        copy_fields(message.levels, layout)
        return FullZipPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """Return one value per valid slot, in a full-zip page that has only values."""
        inner, buffers = open_values(message, page, 0)
        return _ZippedSlots(inner, page.where), buffers


def open_values(message: Any, page: PageBytes, first: int) -> tuple[PageReader, int]:
    """Open values alone; return the page and its number of buffers, from ``first`` on."""
    if message.HasField("levels"):
        raise wrong_structure("zipped", "no levels, since it is sparse", "levels", page)
    layout = _full_zip_layout(message, page.where)
    layout.layers.extend(_ITEM)
    buffers = 1 + (message.WhichOneof("details") == "bits_per_offset")
    part = part_of(page, first, buffers, layout.num_items)
    return FullZipPage.from_wire(layout, part), buffers


def _full_zip_layout(message: pb23.ZippedValues, where: Where) -> pb.FullZipLayout:
    if max(message.num_items, message.num_visible_items) > _MAX_ITEMS:
        raise CorruptFileError(
            "items of a page with zipped values",
            expected=f"at most {_MAX_ITEMS}",
            found=f"{message.num_items}, {message.num_visible_items} visible",
            where=where,
        )
    layout = pb.FullZipLayout()
    copy_fields(message, layout)
    return layout


class _ZippedSlots(SlotValues):
    """Valid slots are the rows of a page of their own."""

    __slots__ = ("_page", "_where")

    def __init__(self, page: PageReader, where: Where) -> None:
        self._page = page
        self._where = where

    def read(self, start: int, stop: int, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Return the values of the valid slots, and placeholders for null slots."""
        self._check(valid)
        first, last = valid.rank(np.array((start, stop))).tolist()
        if first == last:
            return None
        flags = None if last - first == stop - start else valid.flags(start, stop)
        return and_then(self._page.read(first, last), partial(_placed, flags))

    def take(self, slots: Int64s, valid: Validity) -> Fetch[Block | None] | Block | None:
        """Return the values of the valid slots, and placeholders for null slots."""
        self._check(valid)
        flags = valid.flags_at(slots)
        rows = valid.rank(slots if flags is None else slots[flags])
        if not len(rows):
            return None
        return and_then(self._page.take(rows), partial(_placed, flags))

    def _check(self, valid: Validity) -> None:
        if valid.valid_count != self._page.rows:
            raise CorruptFileError(
                "zipped values",
                expected=f"{valid.valid_count}, one per valid slot",
                found=str(self._page.rows),
                where=self._where,
            )


def _placed(flags: Flags | None, leaf: Leaf) -> Block | None:
    return None if leaf.values is None else place_values(leaf.values, flags)


# --- Indexed values: an index for each slot, also for nulls, into large full-zip items --
#
# Buffers: the indices, if they have a payload; the items; their positions, if sizes vary. Only
# with sparse structure.
#
# Specification: "Indexed values" in ``docs/format/planes.md``.

Indices = NDArray[np.unsignedinteger[Any]]
Step = Fetch[Block | None] | Block | None


@value_plane
class Indexed(ValuePlane):
    """A dictionary of large values."""

    wire_name: ClassVar[str] = "indexed"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """Refuse: indexed values are for sparse structure."""
        raise wrong_structure("indexed", "sparse", "dense", page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """Return one index per slot."""
        encoding = read_encoding(message.indices, page.where)
        first = int(encoding.has_payload)
        items, buffers = open_values(message.items, page, first)
        return _IndexedSlots(
            encoding, slots, part_of(page, 0, first, slots), items
        ), first + buffers


class _IndexedSlots(SlotValues):
    """Reads the indices once and keeps them, and all items once a read needs that many."""

    __slots__ = ("_all_items", "_encoding", "_indices", "_items", "_page", "_slots")

    def __init__(
        self, encoding: ValueEncoding, slots: int, page: PageBytes, items: PageReader
    ) -> None:
        self._encoding = encoding
        self._slots = slots
        self._page = page
        self._items = items
        self._indices: Kept[Indices] = Kept()
        self._all_items: Kept[Leaf] = Kept()

    def read(self, start: int, stop: int, valid: Validity) -> Step:
        """Return the items of the slots; each is read once."""
        return self._resolved(slice(start, stop))

    def take(self, slots: Int64s, valid: Validity) -> Step:
        """Return the items of the slots; each is read once."""
        return self._resolved(slots)

    def _load(self, buffers: list[pa.Buffer]) -> Indices:
        data = buffers[0] if buffers else pa.py_buffer(b"")
        where, count = self._page.where, self._items.rows
        check_decoded(self._slots * INDEX_BITS // 8, data.size, where)
        indices = read_numbers(self._encoding, data, self._slots, INDEX_BITS, "indices", where)
        if len(indices) and int(indices.max()) >= count:
            raise CorruptFileError(
                "indices of indexed values",
                expected=f"numbers below {count}",
                found=str(int(indices.max())),
                where=where,
            )
        return self._indices.keep(indices, indices.nbytes, data.size)

    def _resolved(self, slots: slice | Int64s) -> Step:
        return self._indices.of_page(
            self._page, self._load, lambda indices: self._resolve(indices[slots])
        )

    def _resolve(self, indices: Indices) -> Step:
        if len(indices) >= self._items.rows:
            kept = self._all_items.get()
            step: Any = kept or and_then(self._items.read(0, self._items.rows), self._keep)
            numbers = np.ascontiguousarray(indices)
        else:
            used, inverse = np.unique(indices, return_inverse=True)
            numbers = inverse.astype(np.uint32)
            step = self._items.take(used.astype(np.int64))
        return and_then(step, partial(_dictionary, numbers))

    def _keep(self, leaf: Leaf) -> Leaf:
        size = 0 if leaf.values is None else block_bytes(leaf.values)
        return self._all_items.keep(leaf, size, 0)


def _dictionary(indices: Indices, leaf: Leaf) -> Block | None:
    if leaf.values is None:
        return None
    count = len(indices)
    return Dictionary(FixedWidth(as_buffer(indices), INDEX_BITS, count), leaf.values, count)


# --- Sparse structure: each layer stores the validity of its slots and the sizes of its lists
#
# Layers are outer-most first. The first has a slot for each row. A list layer has a slot in the
# next layer for each item. An item layer (a struct or the leaf) has one for each of its slots.
# Fixed-size lists of structs have ``dimension`` slots in the next layer for each slot, also for
# nulls. A page counts its rows in these slots, as pages with levels do. After the buffers of the
# values there is one buffer for each sequence of numbers with a payload, layer by layer. The
# sequences are the positions of lists with items, their counts, the positions of validity.
#
# The sequences are read once and kept: 8 bytes for each null or valid slot listed, 16 for each
# list with items. Positions ascend and counts are at least 1, so the slots of the layer
# (4,294,967,295 at most) limit their number. Some bytes of the message can describe all of
# them. So all that a page lists is first compared with the limit of a page.
#
# Specification: "Sparse structure" in ``docs/format/planes.md``.

# --- The parsed and checked message of a sparse structure, and reading its sequences ----
#
# Specification: "Sparse structure" in ``docs/format/planes.md``.

MAX_SLOTS = 2**32 - 1
"""Maximum slots of a layer."""

MAX_LISTED = 2**28
"""Maximum numbers of a sequence: 2 GiB. A few bytes can describe any number of them."""

_BITS = 64
_NULL_POSITIONS, _VALID_POSITIONS = 1, 2

Buffers = Iterator[pa.Buffer]


class NumberLayout(NamedTuple):
    """A sequence of 64-bit numbers in a page, to be read."""

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
        """Buffers of the sequence: 0 where the message describes all numbers."""
        return int(self.encoding.has_payload)

    def read(self, buffers: Buffers, name: str, where: Where) -> NDArray[Any]:
        """Take the sequence's buffer, if it has one, and decode the numbers."""
        data = next(buffers) if self.encoding.has_payload else pa.py_buffer(b"")
        return read_numbers(self.encoding, data, self.length, _BITS, name, where)

    def read_positions(self, buffers: Buffers, slots: int, name: str, where: Where) -> Int64s:
        """Return ascending positions below ``slots``."""
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
    """Which slots are null, to be read."""

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
    """The sizes of lists, to be read."""

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
        # Checked before the sum, which might wrap around.
        good = not len(counts) or (counts.min() > 0 and counts.max() <= self.items)
        if good:
            counts.cumsum(out=ends[1:])
        if not good or ends[-1] != self.items:
            raise CorruptFileError(
                "counts of lists",
                expected=f"{len(counts)} numbers above 0 that add up to {self.items}",
                found="others",
                where=where,
            )
        return ListSlots(positions, ends.astype(np.int64))


class LayerLayout(NamedTuple):
    """One layer of ``slots`` slots, to be read."""

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
    """Return the rows of the page per slot of the first layer: fixed-size lists multiply them."""
    sizes: list[int] = [
        layer.fixed_size_list.dimension for layer in layers if layer.HasField("fixed_size_list")
    ]
    group = prod(sizes)
    if not 0 < group <= MAX_SLOTS or page.rows % group:
        raise CorruptFileError(
            "sizes of lists of fixed size",
            expected=f"1 or more, and {page.rows} rows a multiple of their product",
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
        self.page = page
        self._structure: Kept[_Structure] = Kept()

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the structure; an estimate."""
        return page_bytes(0, sum(part.size for part in self.page.ranges))

    # ------------------------------------------------------------------ entry points

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Return the rows ``start`` to ``stop``: a range of slots in every layer."""
        if not 0 <= start <= stop <= self.rows:
            raise rows_beyond(start, stop, self.rows, self.page.where)
        read = partial(self._read, start, stop)
        return self._structure.of_page(self.page, self._load, read)

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """Return the slots of these rows; slots of one fixed-size list are adjacent."""
        if len(rows):
            low, high = int(rows.min()), int(rows.max())
            if low < 0 or high >= self.rows:
                raise rows_beyond(low, high, self.rows, self.page.where)
            if low == high and len(rows) == 1:
                return self.read(low, low + 1)
        return self._structure.of_page(self.page, self._load, partial(self._take, rows))

    # ------------------------------------------------------------------ structure

    def _load(self, got: list[pa.Buffer]) -> _Structure:
        """Read and check all sequences, and keep them."""
        buffers, where = iter(got), self.page.where
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
            # Null lists are empty; only null lists of a fixed size have items.
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
    """Return the bytes of all sequences in memory.

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
    """Return the leaf of some rows; a single layer becomes plain validity."""
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
