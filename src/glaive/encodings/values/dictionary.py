"""Dictionary in block context: every value is the number of one of a few items.

A block is ``u64`` bytes of the indices, ``u64`` bytes of the items, the indices (32 bits
before their own encoding), the items. Mini-block pages do not use this message: their
layout names the dictionary itself.

Specification: "Dictionary" in ``docs/format/encodings.md``; message ``Dictionary``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, FixedWidth
from glaive.encodings.protocol import EncodedBlocks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.errors import CorruptFileError, SchemaError
from glaive.kernels._tier import as_array, as_buffer
from glaive.types import Where

if TYPE_CHECKING:
    from glaive.format.pb import encodings21_pb2 as pb

__all__ = ["Dictionary"]

_HEADER = 16
_INDEX_BITS = 32


@value_encoding
@dataclass(frozen=True, slots=True)
class Dictionary(ValueEncoding):
    """``indices`` into ``num_items`` items of ``items``."""

    wire_name: ClassVar[str] = "dictionary"

    indices: ValueEncoding
    items: ValueEncoding
    num_items: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Dictionary``; it must have items."""
        if message.num_dictionary_items < 1:
            raise CorruptFileError("dictionary items", expected="1 or more", found="0", where=where)
        return cls(
            read_encoding(message.indices, where),
            read_encoding(message.items, where),
            message.num_dictionary_items,
        )

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Dictionary`` with both inner encodings."""
        from glaive.format.pb import encodings21_pb2 as pb

        dictionary = pb.Dictionary(
            indices=self.indices.to_wire(),
            items=self.items.to_wire(),
            num_dictionary_items=self.num_items,
        )
        return pb.CompressiveEncoding(dictionary=dictionary)

    def decode_blocks(
        self,
        data: pa.Buffer,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        counts: NDArray[np.int64],
        where: Where,
    ) -> blocks.Dictionary:
        """Decode indices and items; with several blocks the items of all stand together."""
        parts = np.zeros((len(starts), 2), np.int64)
        for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            if size >= _HEADER:
                first, second = struct.unpack_from("<QQ", data, start)
            if size < _HEADER or _HEADER + first + second != size:
                raise CorruptFileError(
                    f"dictionary block {i}",
                    expected="two sizes of 8 bytes, and as many bytes",
                    found=f"{size} bytes",
                    where=where,
                )
            parts[i] = first, second
        at = starts + _HEADER
        found = self.indices.decode_blocks(data, at, parts[:, 0], counts, where)
        if not isinstance(found, FixedWidth) or found.bits != _INDEX_BITS:
            raise CorruptFileError(
                "dictionary indices", expected="32 bits", found=_kind(found), where=where
            )
        indices = as_array(found.values, np.uint32)[: found.count]
        if len(indices) and int(indices.max()) >= self.num_items:
            raise CorruptFileError(
                "dictionary indices",
                expected=f"numbers below {self.num_items}",
                found=str(int(indices.max())),
                where=where,
            )
        each = np.full(len(starts), self.num_items, np.int64)
        items = self.items.decode_blocks(data, at + parts[:, 0], parts[:, 1], each, where)
        if len(starts) > 1:
            shifts = np.arange(len(starts), dtype=np.uint32) * np.uint32(self.num_items)
            indices = indices + np.repeat(shifts, counts)
            found = FixedWidth(as_buffer(indices), _INDEX_BITS, len(indices))
        return blocks.Dictionary(found, items, found.count)

    def encode_blocks(self, block: Block, counts: NDArray[np.int64]) -> EncodedBlocks:
        """Write the indices of each block, and all items with each."""
        if not isinstance(block, blocks.Dictionary) or block.indices.bits != _INDEX_BITS:
            raise SchemaError(
                f"encoding {self.wire_name!r} takes 32-bit indices, found {_kind(block)}"
            )
        indices = self.indices.encode_blocks(block.indices, counts)
        items = self.items.encode_blocks(block.items, np.array([block.items.count], np.int64))
        stops = np.cumsum(indices.sizes)
        pieces: list[NDArray[np.uint8]] = []
        bounds = zip((stops - indices.sizes).tolist(), stops.tolist(), strict=True)
        for start, stop in bounds:
            header = struct.pack("<QQ", stop - start, len(items.data))
            pieces += [np.frombuffer(header, np.uint8), indices.data[start:stop], items.data]
        data = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
        return EncodedBlocks(data, indices.sizes + (_HEADER + len(items.data)))


def _kind(block: Block) -> str:
    if isinstance(block, blocks.Dictionary):
        return f"indices of {block.indices.bits} bits"
    return f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
