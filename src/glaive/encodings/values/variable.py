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

import numpy as np
import pyarrow as pa

from glaive.arrow import blocks
from glaive.arrow.blocks import Block
from glaive.dataclass import dataclass
from glaive.encodings.protocol import (
    EncodedBlocks,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    newer_lance,
)
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.sequences import numbers_of
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.offsets import take_variable, unpack_blocks, unpack_variable
from glaive.kernels.strings import CHUNK_BYTES, Strings, pack_blocks, pack_variable
from glaive.types import MAX_OFFSET, Int64s, Where, as_buffer

# --- Variable with encoded offsets, in mini-block chunks; from 2.3 on -------------------
#
# The ``n + 1`` offsets of a chunk, from 0, have their own buffer before the buffer with the bytes.
# An encoding that lacks a payload omits it, as for values of equal length.
#
# Specification: "Variable" in ``docs/format/encodings.md``; message ``Variable``.


@dataclass(frozen=True, slots=True)
class SplitStrings(ValueEncoding):
    """Bytes after offsets of ``offset_bits`` bits, encoded by ``offsets``. Read only."""

    wire_name: ClassVar[str] = "variable"

    offset_bits: int
    offsets: ValueEncoding

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Parse a ``Variable`` whose offsets are encoded."""
        offsets = read_encoding(message.offsets, where)
        return cls(checked_offset_bits(offsets.number_bits, where), offsets)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Variable``."""
        return pb.CompressiveEncoding(variable=pb.Variable(offsets=self.offsets.to_wire()))

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.offsets,)

    @property
    def num_buffers(self) -> int:
        """Offsets, if they have a payload, and bytes."""
        return 1 + self.offsets.has_payload

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Decode the offsets of all chunks, and join their bytes."""
        total = int(chunks.counts.sum())
        first, last = self._bounds(chunks)
        sizes = np.zeros(len(chunks.counts), np.int64)
        ends = chunks.counts.cumsum()
        filled = chunks.counts > 0
        sizes[filled] = last[ends[filled] - 1]
        data = gather_ranges(chunks.data, chunks.starts[-1], sizes, chunks.where)
        bits = 64 if data.size > MAX_OFFSET else self.offset_bits
        offsets = np.empty(total + 1, f"<i{bits // 8}")
        offsets[:total] = first
        if len(chunks.counts) > 1:
            offsets[:total] += (sizes.cumsum() - sizes).repeat(chunks.counts).astype(offsets.dtype)
        offsets[total] = data.size
        return blocks.Variable(as_buffer(offsets), bits, data, total)

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> blocks.Variable:
        """Decode the offsets of the chunks, and copy the bytes of the wanted values."""
        first, last = self._bounds(chunks)
        at = (chunks.counts.cumsum() - chunks.counts)[chunk] + index
        starts, sizes = first[at], last[at] - first[at]
        starts += chunks.starts[-1][chunk]
        data = gather_ranges(chunks.data, starts, sizes, chunks.where, at)
        return blocks.Variable.of_sizes(data, sizes, self.offset_bits)

    def _bounds(self, chunks: MiniChunks) -> tuple[Int64s, Int64s]:
        """Start and end of every value within the bytes of its chunk, checked."""
        counts, where = chunks.counts + 1, chunks.where
        ends = counts.cumsum()
        sizes = chunks.sizes[0] if self.offsets.has_payload else np.zeros_like(counts)
        block = self.offsets.decode_blocks(chunks.data, chunks.starts[0], sizes, counts, where)
        numbers = numbers_of(block, self.offset_bits, int(ends[-1]), "offsets", where)
        offsets = numbers.astype(np.int64)
        inside = np.ones(len(offsets), np.bool_)
        inside[ends - 1] = False
        begins = inside.nonzero()[0]
        first, last = offsets[begins], offsets[begins + 1]
        bad = offsets[ends - counts] != 0
        bad |= offsets[ends - 1] > chunks.sizes[-1]
        if bad.any() or (last < first).any():
            raise CorruptFileError(
                "offsets of a mini-block chunk",
                expected="ascending from 0, within the bytes of the chunk",
                found="others",
                where=where,
            )
        return first, last

    def decode_values(self, block: Block, where: Where) -> blocks.Variable:
        """Return the values: in a full-zip page each has a length instead."""
        return stored_strings(block, where)


def checked_offset_bits(bits: int | None, where: Where) -> int:
    """Return the width of offsets; raise ``CorruptFileError`` for an invalid one."""
    if bits not in (32, 64):
        raise CorruptFileError(
            "offset width", expected="32 or 64 bits", found=f"{bits} bits", where=where
        )
    return bits


def stored_strings(block: Block, where: Where) -> blocks.Variable:
    """Return the values of a full-zip page, which are plain."""
    if not isinstance(block, blocks.Variable):
        raise CorruptFileError(
            "values of a full-zip page",
            expected="variable width",
            found="a fixed width",
            where=where,
        )
    return block


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
        # Imported here, because only writers need it.
        from glaive.encodings.writing.string_stats import VariableStats

        if not isinstance(stats, VariableStats):
            return None
        bits = stats.block.offset_bits
        return stats.data_bytes + stats.count * bits // 8, cls(bits)

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Join the chunks; return a view of a single one."""
        strings = unpack_variable(*chunks.first, self.offset_bits, chunks.where)
        return blocks.Variable(*strings, int(chunks.counts.sum()))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> blocks.Variable:
        """Read the wanted values only."""
        strings = take_variable(*chunks.first, chunk, index, self.offset_bits, chunks.where)
        return blocks.Variable(*strings, len(chunk))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Divide into chunks of about ``chunk_bytes``."""
        strings = strings_of(block, self.wire_name)
        packed = pack_variable(*strings, block.count, self.offset_bits, target=self.chunk_bytes)
        return EncodedChunks((packed.data,), (packed.sizes,), packed.counts)

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> blocks.Variable:
        """Join the blocks; return a view of a single one."""
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


def strings_of(block: Block, encoding: str) -> Strings:
    """Return the parts of a block of strings; ``SchemaError`` for any other block."""
    if not isinstance(block, blocks.Variable):
        raise SchemaError(
            f"encoding {encoding!r} takes strings or binary, found {type(block).__name__}"
        )
    return Strings(block.offsets, block.offset_bits, block.data)
