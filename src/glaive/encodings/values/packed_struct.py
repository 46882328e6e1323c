"""Packed struct: the members of a row next to each other, for rows of a fixed width.

One buffer per chunk, like ``Flat`` of the width of a row. Members are whole bytes wide, have
no nulls, and are stored plain.

Specification: "Packed structs" in ``docs/format/encodings.md``; message ``PackedStruct``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth, Struct
from glaive.dataclass import dataclass
from glaive.encodings.packed_rows import pack_rows, split_rows
from glaive.encodings.protocol import (
    ChunkBuffers,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    newer_lance,
)
from glaive.encodings.registry import value_encoding
from glaive.encodings.values.flat import Flat
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Int64s, Where

__all__ = ["PackedStruct"]


@value_encoding
@dataclass(frozen=True, slots=True)
class PackedStruct(ValueEncoding):
    """Members of ``bits`` each; quick to read whole rows, slow to read one member."""

    wire_name: ClassVar[str] = "packed_struct"

    bits: tuple[int, ...]

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``PackedStruct`` of flat rows."""
        bits = tuple(message.bits_per_value)
        if any(width % 8 for width in bits):
            raise UnsupportedFeatureError(
                f"packed struct with members of {', '.join(map(str, bits))} bits (in {where}): "
                "members are whole bytes; pylance loses booleans when it writes them"
            )
        if message.values.WhichOneof("compression") != "flat":
            raise newer_lance("rows of a 'packed_struct' encoding that are not flat", where)
        total = message.values.flat.bits_per_value
        if not bits or 0 in bits or sum(bits) != total:
            raise CorruptFileError(
                "widths of packed members",
                expected=f"a sum of {total} bits",
                found=", ".join(map(str, bits)) or "none",
                where=where,
            )
        return cls(bits)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``PackedStruct``."""
        packed = pb.PackedStruct(bits_per_value=self.bits, values=self._rows.to_wire())
        return pb.CompressiveEncoding(packed_struct=packed)

    @property
    def number_bits(self) -> None:
        """None: the widths are those of members, and a row is no number."""
        return

    @property
    def _rows(self) -> Flat:
        return Flat(sum(self.bits))

    def decode_mini(self, chunks: MiniChunks) -> Struct:
        """Join the chunks and split the rows into members."""
        return self._parted(self._rows.decode_mini(chunks))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> Struct:
        """Copy the wanted rows only."""
        return self._parted(self._rows.take_mini(chunks, chunk, index))

    def take_one(
        self, data: pa.Buffer, buffers: ChunkBuffers, count: int, index: int, where: Where
    ) -> Struct:
        """Copy the row."""
        return self._parted(self._rows.take_one(data, buffers, count, index, where))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Pack the rows and divide them into chunks of about 8 KiB."""
        return self._rows.encode_mini(self.encode_values(block))

    def decode_values(self, block: Block, where: Where) -> Struct:
        """Split rows into members."""
        total = sum(self.bits)
        if not isinstance(block, FixedWidth) or block.bits != total:
            width = f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
            raise CorruptFileError(
                "packed rows", expected=f"{total} bits", found=width, where=where
            )
        return self._parted(block)

    def encode_values(self, block: Block) -> FixedWidth:
        """Pack the rows."""
        members = block.members if isinstance(block, Struct) else ()
        fixed = [member for member in members if isinstance(member, FixedWidth)]
        bits = tuple([member.bits for member in fixed])
        if len(fixed) != len(members) or bits != self.bits:
            raise SchemaError(
                f"encoding 'packed_struct' was given {type(block).__name__} with members of "
                f"{bits} bits; it holds {self.bits}"
            )
        widths = [width // 8 for width in self.bits]
        rows = pack_rows([member.values for member in fixed], widths, block.count)
        return FixedWidth(rows, sum(self.bits), block.count)

    def _parted(self, rows: FixedWidth) -> Struct:
        parts = split_rows(rows.values, [width // 8 for width in self.bits], rows.count)
        members = [
            FixedWidth(part, width, rows.count)
            for part, width in zip(parts, self.bits, strict=True)
        ]
        return Struct(tuple(members), rows.count)
