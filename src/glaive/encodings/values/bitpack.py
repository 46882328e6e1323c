"""Inline bit-packing: up to 1,024 words with only the bits the largest of them needs.

====================== =========================================================
item                   meaning
====================== =========================================================
one word               the width ``W``, 0 to ``bits``
``128 * W`` bytes      one FastLanes block of 1,024 values, missing ones 0
====================== =========================================================

The same in a mini-block chunk and in a block. Signed numbers and floats are packed as the
unsigned words of their bytes.

Specification: "Bit-packing" in ``docs/format/encodings.md``; message ``InlineBitpacking``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import dataclass
from glaive.encodings.protocol import (
    EncodedBlocks,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    newer_lance,
)
from glaive.encodings.registry import value_encoding
from glaive.encodings.writing.fixed_stats import FixedStats, chunk_counts, fixed_width
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels._bitpack import BLOCK, WORD_BITS
from glaive.kernels.bitpack import (
    chunk_widths,
    pack_inline,
    pack_out_of_line,
    take_inline,
    unpack_inline,
    unpack_out_of_line,
)
from glaive.types import Int64s, Where, as_array, as_buffer

if TYPE_CHECKING:
    from glaive.kernels.match import IntegerRanges


@value_encoding
@dataclass(frozen=True, slots=True)
class InlineBitpacking(ValueEncoding):
    """Good for small or similar numbers; unpacks as fast as memory is copied."""

    wire_name: ClassVar[str] = "inline_bitpacking"

    bits: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse an ``InlineBitpacking`` of words of 8, 16, 32 or 64 bits."""
        if message.HasField("values"):
            raise newer_lance("compressed buffer in an 'inline_bitpacking' encoding", where)
        bits = message.uncompressed_bits_per_value
        if bits not in WORD_BITS:
            raise CorruptFileError(
                "width of values before bit-packing",
                expected="8, 16, 32 or 64 bits",
                found=f"{bits} bits",
                where=where,
            )
        return cls(bits)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write an ``InlineBitpacking``."""
        return pb.CompressiveEncoding(
            inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=self.bits)
        )

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Propose packing for words, when it makes them smaller."""
        if not isinstance(stats, FixedStats) or stats.word_bits is None:
            return None
        if stats.packed_bytes >= stats.raw_bytes:
            return None
        chunks = len(stats.chunk_widths)
        return stats.packed_bytes + stats.overhead(chunks), cls(stats.word_bits)

    def decode_mini(self, chunks: MiniChunks) -> FixedWidth:
        """Unpack all chunks."""
        return self.decode_blocks(*chunks.first, chunks.where)

    def match_mini(self, chunks: MiniChunks, test: IntegerRanges) -> pa.Buffer | None:
        """Unpack and compare one chunk after the other; skip chunks too narrow to pass."""
        from glaive.kernels.match import match_inline

        if test.bits != self.bits:
            return None
        return match_inline(*chunks.first, test, chunks.where)

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> FixedWidth:
        """Unpack the wanted values only: one or two words each."""
        starts, sizes = chunks.starts[0], chunks.sizes[0]
        values = take_inline(chunks.data, starts, sizes, chunk, index, self.bits, chunks.where)
        return FixedWidth(values, self.bits, len(chunk))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Pack every 1,024 values with the width they need."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        data, sizes = pack_inline(fixed.values, fixed.count, self.bits)
        return EncodedChunks((data,), (sizes,), chunk_counts(fixed.count, BLOCK))

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Unpack blocks of up to 1,024 values each."""
        values = unpack_inline(data, starts, sizes, counts, self.bits, where)
        return FixedWidth(values, self.bits, int(counts.sum()))

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Pack blocks of up to 1,024 values each, every one with its own width."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        if len(counts) and int(counts.max()) > BLOCK:
            raise SchemaError(
                f"an inline bit-packed block holds up to {BLOCK} values, not {counts.max()}: "
                "use out-of-line bit-packing"
            )
        values, count = fixed.values, int(counts.sum())
        if (counts[:-1] != BLOCK).any() or not counts[-1:].all():
            # Pad every block to 1,024 values: the kernel packs at that stride.
            padded = np.zeros((len(counts), BLOCK), f"<u{self.bits // 8}")
            padded[np.arange(BLOCK) < counts[:, None]] = as_array(values, padded.dtype)[:count]
            values, count = as_buffer(padded), padded.size
        data, sizes = pack_inline(values, count, self.bits)
        return EncodedBlocks(data, sizes)


# --- Out-of-line bit-packing: many words with one width, which the message specifies ----
#
# A block of ``n`` words of ``bits`` bits, packed to ``width`` bits:
#
# ============================== =================================================
# item                           meaning
# ============================== =================================================
# ``n // 1024`` times            a FastLanes block of ``128 * width`` bytes
# tail of ``t = n % 1024``       one more such block, padded with 0, if ``width * (1024 - t)``
#                                is below ``(bits - width) * t``; else ``t`` plain words
# ============================== =================================================
#
# Specification: "Bit-packing" in ``docs/format/encodings.md``; message ``OutOfLineBitpacking``.

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
        """Unpack all blocks; check the number of values of width 0, which take 0 bytes."""
        if not self.width and len(counts) and int(counts.max()) > MAX_IMPLIED_VALUES:
            raise CorruptFileError(
                "values packed to 0 bits",
                expected=f"at most {MAX_IMPLIED_VALUES} in a block",
                found=str(int(counts.max())),
                where=where,
            )
        values = unpack_out_of_line(data, starts, sizes, counts, self.bits, self.width, where)
        return FixedWidth(values, self.bits, int(counts.sum()))

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
