"""Dictionary in block context: every value is an index into a few items.

A block is ``u64`` bytes of the indices, ``u64`` bytes of the items, the indices (32 bits
before their own encoding), the items. A part without payload is empty; when neither has one,
so is the block. Mini-block pages do not use this message: their layout contains the
dictionary itself.

Specification: "Dictionary" in ``docs/format/encodings.md``; message ``Dictionary``.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import dataclass
from glaive.encodings.compression import check_decoded
from glaive.encodings.integer_sequence import numbers_of
from glaive.encodings.protocol import EncodedBlocks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Int64s, UInt8s, Where, as_buffer

_HEADER = 16
_INDEX_BITS = 32
_MAX_IMPLIED = 65_536  # items without payload: no bytes limit their number


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
        count = message.num_dictionary_items
        items = read_encoding(message.items, where) if count else None
        if items is None or (count > _MAX_IMPLIED and not items.has_payload):
            raise CorruptFileError(
                "dictionary items",
                expected=f"1 or more, up to {_MAX_IMPLIED} that take no bytes",
                found=str(count),
                where=where,
            )
        return cls(read_encoding(message.indices, where), items, count)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Dictionary`` with both inner encodings."""
        dictionary = pb.Dictionary(
            indices=self.indices.to_wire(),
            items=self.items.to_wire(),
            num_dictionary_items=self.num_items,
        )
        return pb.CompressiveEncoding(dictionary=dictionary)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.indices, self.items)

    @property
    def has_payload(self) -> bool:
        """Whether the indices or the items have one."""
        return self.indices.has_payload or self.items.has_payload

    @property
    def number_bits(self) -> int | None:
        """Width of the items."""
        return self.items.number_bits

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> blocks.Dictionary:
        """Decode indices and items; the items of several blocks are concatenated."""
        at = starts + (_HEADER if self.has_payload else 0)
        parts = self._parts(data, starts, sizes, where)
        total = int(counts.sum())
        encoded = self.indices.decode_blocks(data, at, parts[:, 0], counts, where)
        indices = numbers_of(encoded, _INDEX_BITS, total, "dictionary indices", where)
        if len(indices) and int(indices.max()) >= self.num_items:
            raise CorruptFileError(
                "dictionary indices",
                expected=f"numbers below {self.num_items}",
                found=str(int(indices.max())),
                where=where,
            )
        item_bits = self.items.number_bits or _INDEX_BITS  # of an offset, at least
        check_decoded(len(starts) * self.num_items * item_bits // 8, int(sizes.sum()), where)
        each = np.full(len(starts), self.num_items, np.int64)
        items = self.items.decode_blocks(data, at + parts[:, 0], parts[:, 1], each, where)
        if len(starts) > 1:
            shifts = np.arange(len(starts), dtype=np.uint32) * np.uint32(self.num_items)
            indices = indices + np.repeat(shifts, counts)
        return blocks.Dictionary(FixedWidth(as_buffer(indices), _INDEX_BITS, total), items, total)

    def _parts(self, data: pa.Buffer, starts: Int64s, sizes: Int64s, where: Where) -> Int64s:
        """Bytes of indices and of items in every block."""
        parts = np.zeros((len(starts), 2), np.int64)
        if not self.has_payload:
            return parts
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
        return parts

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Write the indices of each block, each with all items."""
        if not isinstance(block, blocks.Dictionary) or block.indices.bits != _INDEX_BITS:
            raise SchemaError(
                f"encoding {self.wire_name!r} takes 32-bit indices, found {_kind(block)}"
            )
        indices = self.indices.encode_blocks(block.indices, counts)
        items = self.items.encode_blocks(block.items, np.array([block.items.count], np.int64))
        if not self.has_payload:
            return EncodedBlocks(indices.data, indices.sizes)
        stops = np.cumsum(indices.sizes)
        parts: list[UInt8s] = []
        bounds = zip((stops - indices.sizes).tolist(), stops.tolist(), strict=True)
        for start, stop in bounds:
            header = struct.pack("<QQ", stop - start, len(items.data))
            parts += [np.frombuffer(header, np.uint8), indices.data[start:stop], items.data]
        data = np.concatenate(parts) if parts else np.empty(0, np.uint8)
        return EncodedBlocks(data, indices.sizes + (_HEADER + len(items.data)))


def _kind(block: Block) -> str:
    if isinstance(block, blocks.Dictionary):
        return f"indices of {block.indices.bits} bits"
    return f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
