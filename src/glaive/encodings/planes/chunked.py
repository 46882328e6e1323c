"""Chunked values: the mini-blocks of 2.2.

Buffers: chunk words, chunks, then the dictionary if there is one; with dense structure and
lists, the repetition index. With sparse structure chunks have no levels, and one value for
each inner-most slot, null or not.

Specification: "Chunked values" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from glaive.arrow.blocks import Block
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.leaf import Layer, Leaf
from glaive.encodings.levels.sparse import Validity
from glaive.encodings.pages.miniblock import MiniBlockPage
from glaive.encodings.plane_protocol import SlotValues, ValuePlane, part_of, wrong_structure
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import value_plane
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import encodings23_pb2 as pb23
from glaive.types import Int64s

__all__ = ["Chunked"]

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
