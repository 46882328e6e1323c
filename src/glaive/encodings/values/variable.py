"""Variable: byte strings with offsets.

======= ========================================================================
context layout
======= ========================================================================
mini    ``n + 1`` offsets from the start of the buffer, the bytes, and padding
        with ``0x48`` to a multiple of the offset width
block   offset width in bits, position of the bytes (both as wide as an
        offset), ``n + 1`` offsets from 0, the bytes
values  the bytes of each value
======= ========================================================================

Specification: "Variable" in ``docs/format/encodings.md``; message ``Variable``.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Self

import pyarrow as pa

from glaive.arrow import blocks
from glaive.arrow.blocks import Block
from glaive.dataclass import dataclass
from glaive.encodings.protocol import (
    ChunkBuffers,
    EncodedBlocks,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    newer_lance,
)
from glaive.encodings.registry import value_encoding
from glaive.encodings.values.split_strings import SplitStrings, checked_offset_bits, stored_strings
from glaive.errors import SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.offsets import read_one, take_variable, unpack_blocks, unpack_variable
from glaive.kernels.strings import CHUNK_BYTES, Strings, pack_blocks, pack_variable
from glaive.types import Int64s, Where

__all__ = ["Variable", "one_string", "strings_of"]


@value_encoding
@dataclass(frozen=True, slots=True)
class Variable(ValueEncoding):
    """Plain strings and binary; ``offset_bits`` is 32 or 64.

    ``chunk_bytes`` matters to the writer only: chunks grow while they have fewer bytes.
    """

    wire_name: ClassVar[str] = "variable"

    offset_bits: int = 32
    chunk_bytes: int = field(default=CHUNK_BYTES, compare=False)

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Parse a ``Variable``: this class if its offsets are flat."""
        if message.HasField("values"):
            raise newer_lance("compressed bytes in a 'variable' encoding", where)
        if message.offsets.WhichOneof("compression") == "flat":
            return cls(checked_offset_bits(message.offsets.flat.bits_per_value, where))
        return SplitStrings.from_wire(message, where)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Variable`` with ``Flat`` offsets."""
        offsets = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=self.offset_bits))
        return pb.CompressiveEncoding(variable=pb.Variable(offsets=offsets))

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Estimate the bytes of a mini-block or full-zip page of such values."""
        # Imported here, so that reading does not load it.
        from glaive.encodings.writing.string_stats import VariableStats

        if not isinstance(stats, VariableStats):
            return None
        bits = stats.block.offset_bits
        return stats.data_bytes + stats.count * bits // 8, cls(bits)

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Join the chunks; a single chunk is not copied."""
        strings = unpack_variable(*chunks.first, self.offset_bits, chunks.where)
        return blocks.Variable(*strings, int(chunks.counts.sum()))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> blocks.Variable:
        """Read the wanted values only."""
        strings = take_variable(*chunks.first, chunk, index, self.offset_bits, chunks.where)
        return blocks.Variable(*strings, len(chunk))

    def take_one(
        self, data: pa.Buffer, buffers: ChunkBuffers, count: int, index: int, where: Where
    ) -> blocks.Variable:
        """Copy the value's bytes."""
        raw = read_one(data, *buffers[0], count, index, self.offset_bits, where)
        return one_string(raw, self.offset_bits)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Divide into chunks of about ``chunk_bytes``."""
        strings = strings_of(block, self.wire_name)
        packed = pack_variable(*strings, block.count, self.offset_bits, target=self.chunk_bytes)
        return EncodedChunks((packed.data,), (packed.sizes,), packed.counts)

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> blocks.Variable:
        """Join the blocks; a single block is not copied."""
        strings = unpack_blocks(data, starts, sizes, counts, self.offset_bits, where)
        return blocks.Variable(*strings, int(counts.sum()))

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Write offsets and bytes of each block."""
        strings = strings_of(block, self.wire_name)
        return EncodedBlocks(*pack_blocks(*strings, counts, self.offset_bits))

    def decode_values(self, block: Block, where: Where) -> blocks.Variable:
        """Return the values: they are plain."""
        return stored_strings(block, where)

    def encode_values(self, block: Block) -> blocks.Variable:
        """Return the values: they are plain."""
        return blocks.Variable(*strings_of(block, self.wire_name), block.count)


def one_string(raw: bytes, offset_bits: int) -> blocks.Variable:
    """A block of one value."""
    offsets = pa.py_buffer(bytes(offset_bits // 8) + len(raw).to_bytes(offset_bits // 8, "little"))
    return blocks.Variable(offsets, offset_bits, pa.py_buffer(raw), 1)


def strings_of(block: Block, encoding: str) -> Strings:
    """Return the parts of a block of strings; ``SchemaError`` for any other block."""
    if not isinstance(block, blocks.Variable):
        raise SchemaError(
            f"encoding {encoding!r} takes strings or binary, found {type(block).__name__}"
        )
    return Strings(block.offsets, block.offset_bits, block.data)
