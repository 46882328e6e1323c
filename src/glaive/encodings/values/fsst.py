"""FSST: text in which frequent substrings of up to 8 bytes are written as one byte.

Each value is encoded on its own, so it can be read alone; the encoded values are then stored
with the inner encoding, ``Variable``. In block context the format has no FSST.

Specification: "FSST" in ``docs/format/encodings.md``; message ``Fsst``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from glaive.arrow import blocks
from glaive.arrow.blocks import Block
from glaive.dataclass import dataclass
from glaive.encodings.protocol import ChunkBuffers, EncodedChunks, MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.variable import Variable, one_string, strings_of
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.fsst import decode_chunks, decode_one, decode_strings, encode_strings
from glaive.kernels.offsets import read_one
from glaive.kernels.strings import Strings
from glaive.kernels.symbols import TABLE_BYTES, SymbolTable
from glaive.types import Int64s, Where

if TYPE_CHECKING:
    from glaive.encodings.writing.string_stats import VariableStats
    from glaive.kernels.fsst_search import StringTest

__all__ = ["Fsst"]

MIN_LONGEST = 5
"""A page whose longest value has fewer bytes keeps plain values."""

MIN_BYTES = 32_768
"""A page with fewer bytes of values and offsets keeps plain values."""

MIN_SAVING = 0.03
"""Share that FSST must save: decoding costs more than a smaller saving gains."""


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
        fsst = pb.Fsst(symbol_table=self.table.to_bytes(), values=self.values.to_wire())
        return pb.CompressiveEncoding(fsst=fsst)

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Train on a sample and estimate from it; None where text is short or gains little.

        Call it for text only: binary values rarely gain.
        """
        # Imported here, so that reading does not load it.
        from glaive.encodings.writing.string_stats import VariableStats

        if not isinstance(stats, VariableStats):
            return None
        block = stats.block
        plain = stats.plain_bytes
        if stats.longest < MIN_LONGEST or plain < MIN_BYTES:
            return None
        coding = stats.coding
        encoded = round(stats.data_bytes * coding.share)
        size = encoded + plain - stats.data_bytes + TABLE_BYTES
        if size > plain * (1 - MIN_SAVING):
            return None
        return size, cls(coding.table, Variable(block.offset_bits))

    @classmethod
    def trained(cls, stats: VariableStats, values: ValueEncoding) -> Self:
        """Train on a sample, whether it gains or not."""
        return cls(stats.coding.table, values)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.values,)

    @property
    def num_buffers(self) -> int:
        """Buffers per chunk: those of the inner encoding."""
        return self.values.num_buffers

    @property
    def joins(self) -> bool:
        """Whether the page can be joined with pages of other symbols; see ``FsstTables``."""
        return isinstance(self.values, Variable) and self.table.encoded

    def match_text(self, chunks: MiniChunks, test: StringTest) -> pa.Buffer | None:
        """Which strings pass, one bit each; decoded chunk by chunk, and not kept.

        None when the codes are encoded further.
        """
        from glaive.kernels.fsst_search import search_chunks

        if not isinstance(self.values, Variable) or not self.table.encoded:
            return None
        bits = self.values.offset_bits
        return search_chunks(self.table, *chunks.first, bits, test, chunks.where)

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Decode all chunks, without an intermediate copy of the codes."""
        if not isinstance(self.values, Variable):
            return self.decode_values(self.values.decode_mini(chunks), chunks.where)
        bits = self.values.offset_bits
        strings = decode_chunks(self.table, *chunks.first, bits, chunks.where)
        return blocks.Variable(*strings, int(chunks.counts.sum()))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> blocks.Variable:
        """Read and decode the wanted values only."""
        return self.decode_values(self.values.take_mini(chunks, chunk, index), chunks.where)

    def take_one(
        self, data: pa.Buffer, buffers: ChunkBuffers, count: int, index: int, where: Where
    ) -> blocks.Variable:
        """Read and decode the value."""
        inner = self.values
        if not isinstance(inner, Variable):
            return self.decode_values(inner.take_one(data, buffers, count, index, where), where)
        codes = read_one(data, *buffers[0], count, index, inner.offset_bits, where)
        return one_string(decode_one(self.table, codes, where), inner.offset_bits)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Encode every value, then divide into chunks."""
        return self.values.encode_mini(self._encoded(block))

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
        return self.values.encode_values(self._encoded(block))

    def _encoded(self, block: Block) -> blocks.Variable:
        strings = strings_of(block, self.wire_name)
        return blocks.Variable(*encode_strings(self.table, strings, block.count), block.count)
