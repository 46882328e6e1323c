"""Variable: byte strings behind offsets.

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import blocks
from glaive.arrow.blocks import Block
from glaive.encodings.protocol import EncodedBlocks, EncodedChunks, MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.split_strings import SplitStrings
from glaive.encodings.writing.string_stats import VariableStats
from glaive.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from glaive.kernels.offsets import read_one, take_variable, unpack_blocks, unpack_variable
from glaive.kernels.strings import CHUNK_BYTES, Strings, pack_blocks, pack_variable
from glaive.types import Where

if TYPE_CHECKING:
    from glaive.format.pb import encodings21_pb2 as pb

__all__ = ["Variable", "one_string", "strings_of"]


@value_encoding
@dataclass(frozen=True, slots=True)
class Variable(ValueEncoding):
    """Strings and binary as they are; ``offset_bits`` is 32 or 64.

    ``chunk_bytes`` matters to the writer only: chunks grow while they have fewer bytes.
    """

    wire_name: ClassVar[str] = "variable"

    offset_bits: int = 32
    chunk_bytes: int = field(default=CHUNK_BYTES, compare=False)

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Parse a ``Variable``: this class if its offsets are flat."""
        if message.HasField("values"):
            raise UnsupportedFeatureError(
                f"compressed bytes in a 'variable' encoding (in {where}): "
                "the file was probably written by a newer Lance"
            )
        if message.offsets.WhichOneof("compression") == "flat":
            return cls(_checked_bits(message.offsets.flat.bits_per_value, where))
        offsets = read_encoding(message.offsets, where)
        return SplitStrings(_checked_bits(offsets.number_bits, where), offsets)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Variable`` with ``Flat`` offsets."""
        from glaive.format.pb import encodings21_pb2 as pb

        offsets = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=self.offset_bits))
        return pb.CompressiveEncoding(variable=pb.Variable(offsets=offsets))

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Estimate the bytes of a mini-block or full-zip page of such values."""
        if not isinstance(stats, VariableStats):
            return None
        bits = stats.block.offset_bits
        return stats.data_bytes + stats.count * bits // 8, cls(bits)

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Join the chunks; a single chunk is not copied."""
        strings = unpack_variable(
            chunks.data,
            chunks.starts[0],
            chunks.sizes[0],
            chunks.counts,
            self.offset_bits,
            chunks.where,
        )
        return blocks.Variable(*strings, int(chunks.counts.sum()))

    def take_mini(
        self, chunks: MiniChunks, chunk: NDArray[np.int64], index: NDArray[np.int64]
    ) -> blocks.Variable:
        """Read the wanted values, and no others."""
        strings = take_variable(
            chunks.data,
            chunks.starts[0],
            chunks.sizes[0],
            chunks.counts,
            chunk,
            index,
            self.offset_bits,
            chunks.where,
        )
        return blocks.Variable(*strings, len(chunk))

    def take_one(
        self,
        data: pa.Buffer,
        pieces: Sequence[tuple[int, int]],
        count: int,
        index: int,
        where: Where,
    ) -> blocks.Variable:
        """Copy the value's bytes."""
        raw = read_one(data, *pieces[0], count, index, self.offset_bits, where)
        return one_string(raw, self.offset_bits)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Cut into chunks of about ``chunk_bytes``."""
        strings = strings_of(block, self.wire_name)
        packed = pack_variable(*strings, block.count, self.offset_bits, target=self.chunk_bytes)
        return EncodedChunks((packed.data,), (packed.sizes,), packed.counts)

    def decode_blocks(
        self,
        data: pa.Buffer,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        counts: NDArray[np.int64],
        where: Where,
    ) -> blocks.Variable:
        """Join the blocks; a single block is not copied."""
        strings = unpack_blocks(data, starts, sizes, counts, self.offset_bits, where)
        return blocks.Variable(*strings, int(counts.sum()))

    def encode_blocks(self, block: Block, counts: NDArray[np.int64]) -> EncodedBlocks:
        """Write offsets and bytes of each block."""
        strings = strings_of(block, self.wire_name)
        return EncodedBlocks(*pack_blocks(*strings, counts, self.offset_bits))

    def decode_values(self, block: Block, where: Where) -> blocks.Variable:
        """Return the values: they are stored as they are."""
        if not isinstance(block, blocks.Variable):
            raise CorruptFileError(
                "values of a full-zip page",
                expected="a length in front of each",
                found="a fixed width",
                where=where,
            )
        return block

    def encode_values(self, block: Block) -> blocks.Variable:
        """Return the values: they are stored as they are."""
        return blocks.Variable(*strings_of(block, self.wire_name), block.count)


def _checked_bits(bits: int | None, where: Where) -> int:
    if bits not in (32, 64):
        raise CorruptFileError(
            "offset width", expected="32 or 64 bits", found=f"{bits} bits", where=where
        )
    return bits


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
