"""Zipped values: one after the other, as in full-zip pages.

Buffers: the entries; then, unless all have the same size, the position of each row and the
size of all. With sparse structure each entry is a row and consists of a value (with its
length, if that varies); only valid slots have one.

Specification: "Zipped values" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from glaive.arrow.blocks import Block
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.leaf import Layer, Leaf
from glaive.encodings.levels.sparse import Validity, place_values
from glaive.encodings.pages.full_zip import FullZipPage
from glaive.encodings.plane_protocol import SlotValues, ValuePlane, part_of, wrong_structure
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import value_plane
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import encodings23_pb2 as pb23
from glaive.types import Flags, Int64s, Where

__all__ = ["Zipped", "open_values"]

_ITEM = (pb.RepDefLayer.REPDEF_ALL_VALID_ITEM,)
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
        layout = _layout(message, page.where)
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
    layout = _layout(message, page.where)
    layout.layers.extend(_ITEM)
    buffers = 1 + (message.WhichOneof("details") == "bits_per_offset")
    part = part_of(page, first, buffers, layout.num_items)
    return FullZipPage.from_wire(layout, part), buffers


def _layout(message: pb23.ZippedValues, where: Where) -> pb.FullZipLayout:
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
