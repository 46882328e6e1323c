"""Planes of format 2.3 with values in chunks, in one range, in an index, or with none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.encodings.compression import check_decoded
from glaive.encodings.integer_sequence import read_numbers
from glaive.encodings.levels import Layer, Leaf, Validity, place_values, read_layers
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
    part_of,
    wrong_structure,
)
from glaive.encodings.registry import read_encoding, structural_plane, value_plane
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import encodings23_pb2 as pb23
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
# No buffers. With dense structure there is neither a null nor a list.
#
# Specification: "Constant values" in ``docs/format/planes.md``.


@value_plane
class ConstantValues(ValuePlane):
    """One value for all slots."""

    wire_name: ClassVar[str] = "constant"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The equivalent constant page: a scalar without levels."""
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
        """The value for every slot, null or not."""
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
    """Repeats the value; nothing is read."""

    __slots__ = ("_value",)

    def __init__(self, value: Block) -> None:
        self._value = value

    def read(self, start: int, stop: int, valid: Validity) -> Block:
        """The repeated value."""
        return blocks.Constant(self._value, stop - start)

    def take(self, slots: Int64s, valid: Validity) -> Block:
        """The repeated value."""
        return blocks.Constant(self._value, len(slots))


# --- No values: every leaf is null, or no list has an item ------------------------------
# No buffers. With dense structure every row of the column is null.
#
# Specification: "No values" in ``docs/format/planes.md``.


@value_plane
class NoValues(ValuePlane):
    """Only nulls."""

    wire_name: ClassVar[str] = "no_values"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The equivalent constant page of nulls."""
        if layers != (Layer.NULLABLE_ITEM,):
            named = ", ".join(layer.name.lower() for layer in layers)
            expected = "one nullable item, since it is dense"
            raise wrong_structure("no", expected, named, page)
        layout = pb.ConstantLayout(layers=[pb.RepDefLayer.REPDEF_NULLABLE_ITEM])
        return ConstantPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """No value for any slot."""
        return _NoSlotValues(), 0


class _NoSlotValues(SlotValues):
    """No value for any slot."""

    __slots__ = ()

    def read(self, start: int, stop: int, valid: Validity) -> None:
        """No value."""

    def take(self, slots: Int64s, valid: Validity) -> None:
        """No value."""


# --- Chunked values: the mini-blocks of 2.2 ---------------------------------------------
# Buffers: chunk words, chunks, then the dictionary if there is one; with dense structure and
# lists, the repetition index. With sparse structure chunks have no levels, and one value for each
# inner-most slot, null or not.
#
# Specification: "Chunked values" in ``docs/format/planes.md``.

_ITEM = (pb.RepDefLayer.REPDEF_ALL_VALID_ITEM,)


@value_plane
class Chunked(ValuePlane):
    """Small values, many to a chunk."""

    wire_name: ClassVar[str] = "chunked"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The equivalent mini-block page."""
        if not message.HasField("levels"):
            raise wrong_structure("chunked", "levels, since it is dense", "none", page)
        layout = _layout(message, message.num_items)
        layout.layers.extend([pb.RepDefLayer.ValueType(layer) for layer in layers])
        levels = message.levels
        if levels.HasField("rep_compression"):
            layout.rep_compression.CopyFrom(levels.rep_compression)
        if levels.HasField("def_compression"):
            layout.def_compression.CopyFrom(levels.def_compression)
        layout.repetition_index_depth = levels.repetition_index_depth
        return MiniBlockPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """One value per slot, in a mini-block page without levels."""
        if message.HasField("levels"):
            raise wrong_structure("chunked", "no levels, since it is sparse", "levels", page)
        buffers = 2 + message.HasField("dictionary")
        layout = _layout(message, slots)
        layout.layers.extend(_ITEM)
        inner = MiniBlockPage.from_wire(layout, part_of(page, 0, buffers, slots))
        return _ChunkedSlots(inner), buffers


def _layout(message: pb23.ChunkedValues, num_items: int) -> pb.MiniBlockLayout:
    layout = pb.MiniBlockLayout(
        value_compression=message.value_compression,
        num_dictionary_items=message.num_dictionary_items,
        num_buffers=message.num_buffers,
        num_items=num_items,
        has_large_chunk=True,
    )
    if message.HasField("dictionary"):
        layout.dictionary.CopyFrom(message.dictionary)
    return layout


class _ChunkedSlots(SlotValues):
    """Slots are the rows of a page of their own."""

    __slots__ = ("_page",)

    def __init__(self, page: PageReader) -> None:
        self._page = page

    def read(self, start: int, stop: int, valid: Validity) -> Fetch[Block | None] | Block | None:
        """The values of the slots, null or not."""
        return and_then(self._page.read(start, stop), _values)

    def take(self, slots: Int64s, valid: Validity) -> Fetch[Block | None] | Block | None:
        """The values of the slots, null or not."""
        return and_then(self._page.take(slots), _values)


def _values(leaf: Leaf) -> Block | None:
    return leaf.values


# --- Zipped values: one after the other, as in full-zip pages ---------------------------
# Buffers: the entries; then, unless all have the same size, the position of each row and the size
# of all. With sparse structure each entry is a row and consists of a value (with its length, if
# that varies); only valid slots have one.
#
# Specification: "Zipped values" in ``docs/format/planes.md``.

_MAX_ITEMS = 2**32 - 1


@value_plane
class Zipped(ValuePlane):
    """Large values, each stored on its own."""

    wire_name: ClassVar[str] = "zipped"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """The equivalent full-zip page."""
        if not message.HasField("levels"):
            raise wrong_structure("zipped", "levels, since it is dense", "none", page)
        layout = _full_zip_layout(message, page.where)
        layout.layers.extend([pb.RepDefLayer.ValueType(layer) for layer in layers])
        layout.bits_rep = message.levels.bits_rep
        layout.bits_def = message.levels.bits_def
        return FullZipPage.from_wire(layout, page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """One value per valid slot, in a full-zip page without levels."""
        inner, buffers = open_values(message, page, 0)
        return _ZippedSlots(inner, page.where), buffers


def open_values(message: Any, page: PageBytes, first: int) -> tuple[PageReader, int]:
    """Open values without levels; returns the page and its buffer count, from ``first`` on."""
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
    layout = pb.FullZipLayout(
        num_items=message.num_items,
        num_visible_items=message.num_visible_items,
        value_compression=message.value_compression,
    )
    width = message.WhichOneof("details")
    if width == "bits_per_value":
        layout.bits_per_value = message.bits_per_value
    elif width == "bits_per_offset":
        layout.bits_per_offset = message.bits_per_offset
    return layout


class _ZippedSlots(SlotValues):
    """Valid slots are the rows of a page of their own."""

    __slots__ = ("_page", "_where")

    def __init__(self, page: PageReader, where: Where) -> None:
        self._page = page
        self._where = where

    def read(self, start: int, stop: int, valid: Validity) -> Fetch[Block | None] | Block | None:
        """The values of the valid slots, and placeholders for null slots."""
        self._check(valid)
        first, last = valid.rank(np.array((start, stop))).tolist()
        if first == last:
            return None
        flags = None if last - first == stop - start else valid.flags(start, stop)
        return and_then(self._page.read(first, last), partial(_placed, flags))

    def take(self, slots: Int64s, valid: Validity) -> Fetch[Block | None] | Block | None:
        """The values of the valid slots, and placeholders for null slots."""
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


# --- Indexed values: an index for each slot, null or not, into large full-zip items -----
# Buffers: the indices, if they have a payload; the items; their positions, if sizes vary. Only
# with sparse structure.
#
# Specification: "Indexed values" in ``docs/format/planes.md``.

Indices = NDArray[np.unsignedinteger[Any]]
Step = Fetch[Block | None] | Block | None

_INDEX_BITS = 32


@value_plane
class Indexed(ValuePlane):
    """A dictionary of large values."""

    wire_name: ClassVar[str] = "indexed"

    @classmethod
    def open_dense(cls, message: Any, layers: tuple[Layer, ...], page: PageBytes) -> PageReader:
        """Refuse: indexed values have no levels."""
        raise wrong_structure("indexed", "sparse", "dense", page)

    @classmethod
    def open_sparse(cls, message: Any, slots: int, page: PageBytes) -> tuple[SlotValues, int]:
        """One index per slot."""
        encoding = read_encoding(message.indices, page.where)
        first = int(encoding.has_payload)
        items, buffers = open_values(message.items, page, first)
        return _IndexedSlots(
            encoding, slots, part_of(page, 0, first, slots), items
        ), first + buffers


class _IndexedSlots(SlotValues):
    """Reads the indices once and keeps them; reads items when they are needed."""

    __slots__ = ("_encoding", "_indices", "_items", "_page", "_slots")

    def __init__(
        self, encoding: ValueEncoding, slots: int, page: PageBytes, items: PageReader
    ) -> None:
        self._encoding = encoding
        self._slots = slots
        self._page = page
        self._items = items
        self._indices: Kept[Indices] = Kept()

    def read(self, start: int, stop: int, valid: Validity) -> Step:
        """The items of the slots; each is read once."""
        return self._with_indices(lambda indices: self._resolve(indices[start:stop]))

    def take(self, slots: Int64s, valid: Validity) -> Step:
        """The items of the slots; each is read once."""
        return self._with_indices(lambda indices: self._resolve(indices[slots]))

    def _with_indices(self, then: Callable[[Indices], Step]) -> Step:
        indices = self._indices.get()
        if indices is not None:
            return then(indices)
        if self._page.at_hand is not None or not self._page.ranges:
            return then(self._load(self._page.at_hand or []))
        return Fetch(self._page.ranges, lambda buffers: then(self._load(buffers)))

    def _load(self, buffers: list[pa.Buffer]) -> Indices:
        data = buffers[0] if buffers else pa.py_buffer(b"")
        where, count = self._page.where, self._items.rows
        check_decoded(self._slots * _INDEX_BITS // 8, data.size, where)
        indices = read_numbers(self._encoding, data, self._slots, _INDEX_BITS, "indices", where)
        if len(indices) and int(indices.max()) >= count:
            raise CorruptFileError(
                "indices of indexed values",
                expected=f"numbers below {count}",
                found=str(int(indices.max())),
                where=where,
            )
        return self._indices.keep(indices, indices.nbytes, data.size)

    def _resolve(self, indices: Indices) -> Step:
        if len(indices) >= self._items.rows:
            step = self._items.read(0, self._items.rows)
            numbers = np.ascontiguousarray(indices)
        else:
            used, inverse = np.unique(indices, return_inverse=True)
            numbers = inverse.astype(np.uint32)
            step = self._items.take(used.astype(np.int64))
        return and_then(step, partial(_dictionary, numbers))


def _dictionary(indices: Indices, leaf: Leaf) -> Block | None:
    if leaf.values is None:
        return None
    count = len(indices)
    return Dictionary(FixedWidth(as_buffer(indices), _INDEX_BITS, count), leaf.values, count)
