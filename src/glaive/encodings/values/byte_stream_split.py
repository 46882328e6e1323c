"""Byte stream split: the lowest bytes of a chunk's values, then the next ones, …

Saves nothing by itself; general compression gains more on streams of similar bytes, such as
the signs and exponents of floats. One buffer per chunk, in mini-blocks only.

Specification: "Byte stream split" in ``docs/format/encodings.md``; message
``ByteStreamSplit``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import dataclass
from glaive.encodings.protocol import (
    ChunkBuffers,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    newer_lance,
)
from glaive.encodings.registry import value_encoding
from glaive.encodings.writing.fixed_stats import fixed_width
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.flat import WORD_BITS, join_bytes, split_bytes, take_bytes
from glaive.types import Int64s, Where

CHUNK_BYTES = 4096


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

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> FixedWidth:
        """Join the bytes of the wanted values only."""
        self._check_sizes(chunks.sizes[0], chunks.counts, chunks.where)
        values = take_bytes(
            chunks.data, chunks.starts[0], chunks.counts, chunk, index, self.bits, chunks.where
        )
        return FixedWidth(values, self.bits, len(chunk))

    def take_one(
        self, data: pa.Buffer, buffers: ChunkBuffers, count: int, index: int, where: Where
    ) -> FixedWidth:
        """Join the bytes of one value."""
        start, size = buffers[0]
        if size != count * self.bits // 8:
            self._check_sizes(np.array([size]), np.array([count]), where)
        if not 0 <= index < count:
            raise IndexError(f"value {index} of a chunk of {count} values (in {where})")
        raw = data.slice(start, size).to_pybytes()[index::count]
        return FixedWidth(pa.py_buffer(raw), self.bits, 1)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Cut into chunks of 4 KiB."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        width = self.bits // 8
        values = CHUNK_BYTES // width
        counts = np.full(-(-fixed.count // values), values, np.int64)
        if len(counts):
            counts[-1] = fixed.count - values * (len(counts) - 1)
        data = split_bytes(fixed.values, counts, self.bits)
        return EncodedChunks((data,), (counts * width,), counts)

    def _check_sizes(self, sizes: Int64s, counts: Int64s, where: Where) -> None:
        width = self.bits // 8
        wrong = sizes != counts * width
        if wrong.any():
            i = int(np.argmax(wrong))
            raise CorruptFileError(
                "byte streams of a chunk",
                expected=f"{counts[i] * width} bytes for {counts[i]} values",
                found=f"{sizes[i]} bytes",
                where=where,
            )
