"""Indexed values: an index for each slot, null or not, into large full-zip items.

Buffers: the indices, if they have a payload; the items; their positions, if sizes vary. Only
with sparse structure.

Specification: "Indexed values" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import Block, Dictionary, FixedWidth
from glaive.encodings.compression import check_decoded
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.integer_sequence import read_numbers
from glaive.encodings.kept import Kept
from glaive.encodings.leaf import Layer, Leaf
from glaive.encodings.levels.sparse import Validity
from glaive.encodings.plane_protocol import SlotValues, ValuePlane, part_of, wrong_structure
from glaive.encodings.planes.zipped import open_values
from glaive.encodings.protocol import PageBytes, PageReader, ValueEncoding
from glaive.encodings.registry import read_encoding, value_plane
from glaive.errors import CorruptFileError
from glaive.memory import as_buffer
from glaive.types import Int64s

__all__ = ["Indexed"]

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
