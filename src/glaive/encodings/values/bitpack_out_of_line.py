"""Out-of-line bit-packing: many words with one width, which the message specifies.

A block of ``n`` words of ``bits`` bits, packed to ``width`` bits:

============================== =================================================
item                           meaning
============================== =================================================
``n // 1024`` times            a FastLanes block of ``128 * width`` bytes
tail of ``t = n % 1024``       one more such block, padded with 0, if ``width * (1024 - t)``
                               is below ``(bits - width) * t``; else ``t`` plain words
============================== =================================================

Specification: "Bit-packing" in ``docs/format/encodings.md``; message ``OutOfLineBitpacking``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import dataclass
from glaive.encodings.protocol import ChunkBuffers, EncodedBlocks, ValueEncoding, newer_lance
from glaive.encodings.registry import value_encoding
from glaive.encodings.writing.fixed_stats import WORD_BITS, fixed_width
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.bitpack import (
    chunk_widths,
    pack_out_of_line,
    unpack_one_of_blocks,
    unpack_out_of_line,
)
from glaive.types import Int64s, Where

__all__ = ["OutOfLineBitpacking"]

MAX_IMPLIED_VALUES = 65_536
"""Values of a block of width 0 at most."""


@value_encoding
@dataclass(frozen=True, slots=True)
class OutOfLineBitpacking(ValueEncoding):
    """For levels: all levels of a page have the width of the highest one."""

    wire_name: ClassVar[str] = "out_of_line_bitpacking"

    bits: int
    width: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse an ``OutOfLineBitpacking`` whose values are ``Flat`` of the packed width."""
        if message.values.WhichOneof("compression") != "flat":
            raise newer_lance("'out_of_line_bitpacking' values that are not flat", where)
        bits, width = message.uncompressed_bits_per_value, message.values.flat.bits_per_value
        if bits not in WORD_BITS or width > bits:
            raise CorruptFileError(
                "widths of out-of-line bit-packing",
                expected="words of 8, 16, 32 or 64 bits, packed to fewer",
                found=f"words of {bits} bits, packed to {width}",
                where=where,
            )
        return cls(bits, width)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write an ``OutOfLineBitpacking``."""
        packed = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=self.width))
        return pb.CompressiveEncoding(
            out_of_line_bitpacking=pb.OutOfLineBitpacking(
                uncompressed_bits_per_value=self.bits, values=packed
            )
        )

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Unpack all blocks; with width 0 no bytes limit the number of values, so it is checked."""
        if not self.width and len(counts) and int(counts.max()) > MAX_IMPLIED_VALUES:
            raise CorruptFileError(
                "values packed to 0 bits",
                expected=f"at most {MAX_IMPLIED_VALUES} in a block",
                found=str(int(counts.max())),
                where=where,
            )
        values = unpack_out_of_line(data, starts, sizes, counts, self.bits, self.width, where)
        return FixedWidth(values, self.bits, int(counts.sum()))

    def take_one(
        self, data: pa.Buffer, buffers: ChunkBuffers, count: int, index: int, where: Where
    ) -> FixedWidth:
        """Unpack one value of one block, from one or two words."""
        start, size = buffers[0]
        value = unpack_one_of_blocks(data, start, size, count, index, self.bits, self.width, where)
        return FixedWidth(pa.py_buffer(value.to_bytes(self.bits // 8, "little")), self.bits, 1)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Pack all blocks.

        Raises
        ------
        SchemaError
            A value needs more than ``width`` bits.
        """
        fixed = fixed_width(block, self.bits, self.wire_name)
        widest = int(chunk_widths(fixed.values, fixed.count, self.bits).max(initial=0))
        if widest > self.width:
            raise SchemaError(f"values of {widest} bits cannot be packed to {self.width} bits")
        data, sizes = pack_out_of_line(fixed.values, counts, self.bits, self.width)
        return EncodedBlocks(data, sizes)
