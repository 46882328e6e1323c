"""Flat: plain values of a fixed width, back to back.

======= ========================================================================
context layout
======= ========================================================================
mini    one buffer of ``ceil(bits * count / 8)`` bytes; single bits are packed,
        least significant first, and every chunk begins at bit 0
block   the same
values  the bytes of each value
======= ========================================================================

Specification: "Flat" in ``docs/format/encodings.md``; message ``Flat``.
"""

from __future__ import annotations

from dataclasses import field
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
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.chunks import CHUNK_BYTES, CHUNK_VALUES
from glaive.kernels.flat import WORD_BITS, join_bits, join_bytes, split_bytes, take_flat
from glaive.kernels.full_zip import gather_ranges
from glaive.types import Int64s, Where, as_array

if TYPE_CHECKING:
    from glaive.kernels.match import IntegerRanges


COMPRESSED_CHUNK_BYTES = 16_385
"""Maximum bytes of a chunk of values that zstd compresses. Chunks of 16 KiB take half the time to
write and less to read than chunks of 4 KiB, and fewer bytes. An incompressible chunk fits, too.
"""

MAX_BITS = 2**34
"""Maximum bits of a value: 2 GiB."""


@value_encoding
@dataclass(frozen=True, slots=True)
class Flat(ValueEncoding):
    """Plain values, the quickest to read; ``bits`` is 1 or a multiple of 8.

    Writers make chunks of less than ``chunk_bytes``; readers ignore it.
    """

    wire_name: ClassVar[str] = "flat"

    bits: int
    chunk_bytes: int = field(default=CHUNK_BYTES, compare=False, repr=False)

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Flat``; refuse buffer compression."""
        if message.HasField("data"):
            raise newer_lance("compressed buffer in a 'flat' encoding", where)
        bits = message.bits_per_value
        if bits != 1 and (bits == 0 or bits % 8 or bits > MAX_BITS):
            raise CorruptFileError(
                "width of flat values",
                expected=f"1 bit or a multiple of 8, up to {MAX_BITS}",
                found=f"{bits} bits",
                where=where,
            )
        return cls(bits)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Flat``."""
        return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=self.bits))

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Propose plain values for any fixed width."""
        if not isinstance(stats, FixedStats):
            return None
        bits = stats.block.bits
        chunks = -(-stats.block.count // _chunk_values(bits, CHUNK_BYTES))
        return stats.raw_bytes + stats.overhead(chunks), cls(bits)

    def decode_mini(self, chunks: MiniChunks) -> FixedWidth:
        """Join the chunks; a view when their values are adjacent, as in one chunk."""
        return self._join(*chunks.first, chunks.where)

    def match_mini(self, chunks: MiniChunks, test: IntegerRanges) -> pa.Buffer | None:
        """Compare the values in place."""
        from glaive.kernels.match import match_plain

        if test.bits != self.bits:
            return None
        self._check(chunks.sizes[0], chunks.counts, chunks.where)
        return match_plain(chunks.data, chunks.starts[0], chunks.counts, test, chunks.where)

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> FixedWidth:
        """Copy the wanted values only."""
        starts, sizes = chunks.starts[0], chunks.sizes[0]
        values = take_flat(chunks.data, starts, sizes, chunk, index, self.bits, chunks.where)
        return FixedWidth(values, self.bits, len(chunk))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Divide into chunks, by default of about 4 KiB; chunks are views."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        values = _chunk_values(self.bits, self.chunk_bytes)
        counts = chunk_counts(fixed.count, values)
        sizes = (counts * self.bits + 7) // 8
        return EncodedChunks((as_array(fixed.values)[: int(sizes.sum())],), (sizes,), counts)

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Join the blocks; return a view of a single one."""
        return self._join(data, starts, sizes, counts, where)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Divide into blocks; only bits of several blocks are copied."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        sizes = (counts * self.bits + 7) // 8
        values = as_array(fixed.values)
        if self.bits == 1 and len(counts) > 1:
            flags = np.unpackbits(values, count=int(counts.sum()), bitorder="little")
            padded = np.zeros((int(sizes.sum()), 8), np.uint8)
            within = np.arange(len(flags)) - (counts.cumsum() - counts).repeat(counts)
            at = ((sizes.cumsum() - sizes) * 8).repeat(counts) + within
            padded.reshape(-1)[at] = flags
            values = np.packbits(padded, bitorder="little")
        return EncodedBlocks(values[: int(sizes.sum())], sizes)

    def decode_values(self, block: Block, where: Where) -> FixedWidth:
        """Return the values as they are: in a full-zip page they are plain already."""
        return fixed_width(block, self.bits, self.wire_name)

    def encode_values(self, block: Block) -> FixedWidth:
        """Return the values as they are: in a full-zip page they are plain."""
        return fixed_width(block, self.bits, self.wire_name)

    def _check(self, sizes: Int64s, counts: Int64s, where: Where) -> None:
        # First limit the count to what the bytes can hold: products might wrap around.
        capacity = 8 * sizes // max(self.bits, 1)  # pages have only values with bits
        wrong = (counts > capacity) | (sizes != (counts * self.bits + 7) // 8)
        if np.count_nonzero(wrong):
            i = int(np.argmax(wrong))
            count = int(counts[i])
            raise CorruptFileError(
                "flat values",
                expected=f"{(count * self.bits + 7) // 8} bytes for {count} values",
                found=f"{sizes[i]} bytes",
                where=where,
            )

    def _join(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        self._check(sizes, counts, where)
        total = int(counts.sum())
        if len(counts) == 0:
            return FixedWidth(data.slice(0, 0), self.bits, 0)
        uneven = self.bits == 1 and bool((counts[:-1] % 8 != 0).any())
        if uneven:
            values = join_bits(data, starts, counts, where)
        elif not np.count_nonzero(starts[1:] != starts[:-1] + sizes[:-1]):
            values = data.slice(int(starts[0]), (total * self.bits + 7) // 8)
        else:
            values = gather_ranges(data, starts, sizes, where)
        return FixedWidth(values, self.bits, total)


def _chunk_values(bits: int, chunk_bytes: int) -> int:
    """Return the values of a chunk: doubled from 2 while below ``chunk_bytes``, at most 4,096."""
    values = 2
    while 2 * ((values * bits + 7) // 8) < chunk_bytes and 2 * values <= CHUNK_VALUES:
        values *= 2
    return values


# --- Byte stream split: the lowest bytes of a chunk's values, then the next ones, … -----
#
# General compression gains more on streams of similar bytes, such as
# the signs and exponents of floats. One buffer per chunk, in mini-blocks only.
#
# Specification: "Byte stream split" in ``docs/format/encodings.md``; message
# ``ByteStreamSplit``.

SPLIT_CHUNK_BYTES = 4096


@value_encoding
@dataclass(frozen=True, slots=True)
class ByteStreamSplit(ValueEncoding):
    """Good for floats under lz4 or zstd; ``bits`` is 32 or 64."""

    wire_name: ClassVar[str] = "byte_stream_split"

    bits: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``ByteStreamSplit`` of flat values."""
        if message.values.WhichOneof("compression") != "flat":
            raise newer_lance("values of a 'byte_stream_split' encoding that are not flat", where)
        bits = message.values.flat.bits_per_value
        if bits not in WORD_BITS:
            raise CorruptFileError(
                "width of split values", expected="32 or 64 bits", found=f"{bits} bits", where=where
            )
        return cls(bits)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``ByteStreamSplit``."""
        values = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=self.bits))
        return pb.CompressiveEncoding(byte_stream_split=pb.ByteStreamSplit(values=values))

    def decode_mini(self, chunks: MiniChunks) -> FixedWidth:
        """Join the streams of all chunks."""
        self._check_sizes(chunks.sizes[0], chunks.counts, chunks.where)
        values = join_bytes(chunks.data, chunks.starts[0], chunks.counts, self.bits, chunks.where)
        return FixedWidth(values, self.bits, int(chunks.counts.sum()))

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Cut into chunks of 4 KiB."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        width = self.bits // 8
        values = SPLIT_CHUNK_BYTES // width
        counts = chunk_counts(fixed.count, values)
        data = split_bytes(fixed.values, counts, self.bits)
        return EncodedChunks((data,), (counts * width,), counts)

    def _check_sizes(self, sizes: Int64s, counts: Int64s, where: Where) -> None:
        width = self.bits // 8
        wrong = sizes != counts * width
        if np.count_nonzero(wrong):
            i = int(np.argmax(wrong))
            raise CorruptFileError(
                "byte streams of a chunk",
                expected=f"{counts[i] * width} bytes for {counts[i]} values",
                found=f"{sizes[i]} bytes",
                where=where,
            )
