"""General compression: zstd or lz4 around another encoding.

The compressed part depends on the context:

======= =======================================================================
context compressed
======= =======================================================================
mini    value buffer 0 of each chunk; the other buffers stay as they are
block   the whole buffer
values  each value on its own; the inner encoding must be of variable width
======= =======================================================================

Specification: "General compression" in ``docs/format/encodings.md``; message ``General``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, Variable
from glaive.dataclass import dataclass
from glaive.encodings.compression import Scheme, compress, compress_strings, decompress
from glaive.encodings.protocol import (
    EncodedBlocks,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    join_buffers,
)
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.variable import Variable as Strings
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.full_zip import gather_ranges
from glaive.types import Int64s, Where, as_array

if TYPE_CHECKING:
    from glaive.kernels.fsst import StringTest


_SCHEMES: dict[int, Scheme] = {1: "lz4", 2: "zstd"}


@value_encoding
@dataclass(frozen=True, slots=True)
class General(ValueEncoding):
    """``values``, compressed with ``scheme``; ``level`` matters to the writer only."""

    wire_name: ClassVar[str] = "general"

    scheme: Scheme
    values: ValueEncoding
    level: int | None = None

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``General``; refuses schemes other than lz4 and zstd."""
        scheme = _SCHEMES.get(message.compression.scheme)
        if scheme is None:
            raise CorruptFileError(
                "compression scheme",
                expected="1 (lz4) or 2 (zstd)",
                found=str(message.compression.scheme),
                where=where,
            )
        level = message.compression.level if message.compression.HasField("level") else None
        return cls(scheme, read_encoding(message.values, where), level)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``General`` around the inner encoding."""
        number = pb.COMPRESSION_ALGORITHM_LZ4
        if self.scheme == "zstd":
            number = pb.COMPRESSION_ALGORITHM_ZSTD
        compression = pb.BufferCompression(scheme=number, level=self.level)
        general = pb.General(compression=compression, values=self.values.to_wire())
        return pb.CompressiveEncoding(general=general)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.values,)

    @property
    def num_buffers(self) -> int:
        """Buffers per chunk: the buffers of the inner encoding."""
        return self.values.num_buffers

    @property
    def number_bits(self) -> int | None:
        """Width of the inner encoding."""
        return self.values.number_bits

    def decode_mini(self, chunks: MiniChunks) -> Block:
        """Decompress buffer 0 of every chunk, then decode all chunks."""
        return self.values.decode_mini(self._decompressed(chunks))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> Block:
        """Decompress the given chunks, then take from them by the inner encoding."""
        return self.values.take_mini(self._decompressed(chunks), chunk, index)

    def match_text(self, chunks: MiniChunks, test: StringTest) -> pa.Buffer | None:
        """Match compressed FSST strings: all chunks are decompressed first."""
        from glaive.encodings.values.fsst import Fsst  # not loaded for numbers

        if not isinstance(self.values, Fsst):
            return None
        return self.values.match_text(self._decompressed(chunks), test)

    def _decompressed(self, chunks: MiniChunks) -> MiniChunks:
        """Return the same chunks with buffer 0 decompressed, all in one new buffer."""
        where = chunks.where
        first, sizes = decompress(
            self.scheme, chunks.data, chunks.starts[0], chunks.sizes[0], where
        )
        parts, all_sizes = [first], (sizes, *chunks.sizes[1:])
        for starts, further in zip(chunks.starts[1:], chunks.sizes[1:], strict=True):
            parts.append(gather_ranges(chunks.data, starts, further, where))
        all_starts, at = [], 0
        for part, each in zip(parts, all_sizes, strict=True):
            all_starts.append(at + each.cumsum() - each)
            at += part.size
        data = join_buffers(parts)
        return MiniChunks(data, tuple(all_starts), all_sizes, chunks.counts, where)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Encode, then compress buffer 0 of every chunk."""
        return self.compressed(self.values.encode_mini(block))

    def compressed(self, inner: EncodedChunks) -> EncodedChunks:
        """Compress buffer 0 of every chunk of encoded values."""
        sizes, values = inner.sizes[0], pa.py_buffer(inner.buffers[0].data)
        if self.scheme == "zstd" and _has_offsets(self.values):
            data, packed = compress_strings(self.level, values, sizes, 4 * (inner.counts + 1))
        else:
            data, packed = compress(self.scheme, self.level, values, sizes.cumsum() - sizes, sizes)
        return EncodedChunks(
            (as_array(data), *inner.buffers[1:]), (packed, *inner.sizes[1:]), inner.counts
        )

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> Block:
        """Decompress every buffer, then decode them at once."""
        inner, inner_sizes = decompress(self.scheme, data, starts, sizes, where)
        inner_starts = inner_sizes.cumsum() - inner_sizes
        return self.values.decode_blocks(inner, inner_starts, inner_sizes, counts, where)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode, then compress every buffer."""
        return self.compressed_blocks(self.values.encode_blocks(block, counts))

    def compressed_blocks(self, inner: EncodedBlocks) -> EncodedBlocks:
        """Compress every buffer of encoded values."""
        starts = inner.sizes.cumsum() - inner.sizes
        data, sizes = compress(
            self.scheme, self.level, pa.py_buffer(inner.data.data), starts, inner.sizes
        )
        return EncodedBlocks(as_array(data), sizes)

    def decode_values(self, block: Block, where: Where) -> Block:
        """Decompress every value; values of 0 bytes (nulls) stay empty."""
        if not isinstance(block, Variable):
            raise CorruptFileError(
                "compressed values",
                expected="values of variable width",
                found="values of fixed width",
                where=where,
            )
        starts, sizes = _value_ranges(block)
        data, sizes = decompress(self.scheme, block.data, starts, sizes, where)
        return self.values.decode_values(Variable.of_sizes(data, sizes, block.offset_bits), where)

    def encode_values(self, block: Block) -> Block:
        """Encode, then compress every value.

        Writers choose zstd here: pylance fails to read lz4 pages that have nulls.
        """
        inner = self.values.encode_values(block)
        if not isinstance(inner, Variable):
            raise SchemaError(
                f"{self.scheme} on each value takes values of variable width, "
                f"found {type(inner).__name__}; store fixed widths without it"
            )
        starts, sizes = _value_ranges(inner)
        data, sizes = compress(self.scheme, self.level, inner.data, starts, sizes)
        return Variable.of_sizes(data, sizes, inner.offset_bits)


def _has_offsets(values: ValueEncoding) -> bool:
    """Return whether chunks begin with offsets of 32 bits."""
    strings = values.parts[0] if values.wire_name == "fsst" else values
    return isinstance(strings, Strings) and strings.offset_bits == 32


def _value_ranges(block: Variable) -> tuple[Int64s, Int64s]:
    dtype = f"<i{block.offset_bits // 8}"
    offsets = as_array(block.offsets, dtype)[: block.count + 1].astype(np.int64)
    return offsets[:-1], np.diff(offsets)
