"""FSST: text in which frequent pieces of up to 8 bytes are written as one byte.

Each value is encoded on its own, so it can be read alone; the encoded values are then stored
with the inner encoding, ``Variable``. In block context the format has no FSST.

Specification: "FSST" in ``docs/format/encodings.md``; message ``Fsst``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow import blocks
from glaive.arrow.blocks import Block
from glaive.encodings.protocol import EncodedChunks, MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.variable import Variable, one_string, strings_of
from glaive.encodings.writing.string_stats import VariableStats
from glaive.errors import CorruptFileError
from glaive.kernels.fsst import decode_chunks, decode_one, decode_strings, encode_strings
from glaive.kernels.fsst_search import TextTest, search_chunks
from glaive.kernels.offsets import read_one
from glaive.kernels.strings import Strings
from glaive.kernels.symbols import TABLE_BYTES, SymbolTable
from glaive.types import Where

if TYPE_CHECKING:
    from glaive.format.pb import encodings21_pb2 as pb

__all__ = ["Fsst"]

MIN_LONGEST = 5
"""Bytes the longest value needs before codes are worth their table."""

MIN_BYTES = 32_768
"""Bytes of values and offsets below which a page keeps plain values."""

MIN_SAVING = 0.03
"""Share that FSST must save: below it decoding costs more than the bytes."""


@value_encoding
@dataclass(frozen=True, slots=True)
class Fsst(ValueEncoding):
    """Encoded with the symbols of ``table``, then stored by ``values``."""

    wire_name: ClassVar[str] = "fsst"

    table: SymbolTable
    values: ValueEncoding

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse an ``Fsst``; refuses a damaged symbol table."""
        table = SymbolTable.parse(message.symbol_table, where)
        return cls(table, read_encoding(message.values, where))

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write an ``Fsst`` with its table of 2312 bytes."""
        from glaive.format.pb import encodings21_pb2 as pb

        fsst = pb.Fsst(symbol_table=self.table.to_bytes(), values=self.values.to_wire())
        return pb.CompressiveEncoding(fsst=fsst)

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Train on a sample and estimate from it; None where text is short or gains little.

        Ask for text only: binary values are rarely worth it.
        """
        if not isinstance(stats, VariableStats):
            return None
        block = stats.block
        plain = stats.plain_bytes
        if stats.longest < MIN_LONGEST or plain < MIN_BYTES:
            return None
        coding = stats.coding
        left = round(stats.data_bytes * coding.share)
        size = left + plain - stats.data_bytes + TABLE_BYTES
        if size > plain * (1 - MIN_SAVING):
            return None
        return size, cls(coding.table, Variable(block.offset_bits))

    @classmethod
    def trained(cls, stats: VariableStats, values: ValueEncoding) -> Self:
        """Train on a sample, whether it pays or not."""
        return cls(stats.coding.table, values)

    @property
    def num_buffers(self) -> int:
        """Buffers per chunk: those of the inner encoding."""
        return self.values.num_buffers

    def match_text(self, chunks: MiniChunks, test: TextTest) -> pa.Buffer | None:
        """Which texts pass, one bit each; decoded chunk by chunk, and kept nowhere.

        None when the codes are not stored as they are.
        """
        if not isinstance(self.values, Variable) or not self.table.encoded:
            return None
        return search_chunks(
            self.table,
            chunks.data,
            chunks.starts[0],
            chunks.sizes[0],
            chunks.counts,
            self.values.offset_bits,
            test,
            chunks.where,
        )

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Decode all chunks, without an intermediate copy of the codes."""
        if not isinstance(self.values, Variable):
            return self.decode_values(self.values.decode_mini(chunks), chunks.where)
        strings = decode_chunks(
            self.table,
            chunks.data,
            chunks.starts[0],
            chunks.sizes[0],
            chunks.counts,
            self.values.offset_bits,
            chunks.where,
        )
        return blocks.Variable(*strings, int(chunks.counts.sum()))

    def take_mini(
        self, chunks: MiniChunks, chunk: NDArray[np.int64], index: NDArray[np.int64]
    ) -> blocks.Variable:
        """Read and decode the wanted values, and no others."""
        return self.decode_values(self.values.take_mini(chunks, chunk, index), chunks.where)

    def take_one(
        self,
        data: pa.Buffer,
        pieces: Sequence[tuple[int, int]],
        count: int,
        index: int,
        where: Where,
    ) -> blocks.Variable:
        """Read and decode the value."""
        inner = self.values
        if not isinstance(inner, Variable):
            return self.decode_values(inner.take_one(data, pieces, count, index, where), where)
        codes = read_one(data, *pieces[0], count, index, inner.offset_bits, where)
        return one_string(decode_one(self.table, codes, where), inner.offset_bits)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Encode every value, then cut into chunks."""
        return self.values.encode_mini(self._coded(block))

    def decode_values(self, block: Block, where: Where) -> blocks.Variable:
        """Decode every value."""
        inner = self.values.decode_values(block, where)
        if not isinstance(inner, blocks.Variable):
            raise CorruptFileError(
                "FSST values", expected="variable width", found="a fixed width", where=where
            )
        strings = Strings(inner.offsets, inner.offset_bits, inner.data)
        decoded = decode_strings(self.table, strings, inner.count, where)
        return blocks.Variable(*decoded, inner.count)

    def encode_values(self, block: Block) -> Block:
        """Encode every value."""
        return self.values.encode_values(self._coded(block))

    def _coded(self, block: Block) -> blocks.Variable:
        strings = strings_of(block, self.wire_name)
        return blocks.Variable(*encode_strings(self.table, strings, block.count), block.count)
