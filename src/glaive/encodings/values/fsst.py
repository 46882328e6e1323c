"""FSST: text whose frequent substrings of up to 8 bytes are written as one byte.

Each value is encoded on its own, so it can be read alone; the encoded values are then stored
with the inner encoding, ``Variable``. The format has FSST in mini-block and value context.

Specification: "FSST" in ``docs/format/encodings.md``; message ``Fsst``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, inverse_permutation
from glaive.arrow.build import take_block
from glaive.dataclass import dataclass
from glaive.encodings.protocol import EncodedChunks, MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.variable import Variable, strings_of
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.fsst import (
    TABLE_BYTES,
    SymbolTable,
    decode_chunks,
    decode_pages,
    decode_strings,
    decode_values,
    encode_strings,
)
from glaive.kernels.strings import Strings
from glaive.types import Int64s, Where

if TYPE_CHECKING:
    from glaive.kernels.fsst import StringTest


MIN_LONGEST_BYTES = 5
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
        """Train on a sample and estimate from it; ``None`` where text is short or gains little.

        Call it for text only: binary values rarely gain.
        """
        # Imported here, because only writers need it.
        from glaive.encodings.writing.string_stats import VariableStats

        if not isinstance(stats, VariableStats):
            return None
        block = stats.block
        plain = stats.plain_bytes
        if stats.longest < MIN_LONGEST_BYTES or plain < MIN_BYTES:
            return None
        coding = stats.coding
        encoded = round(stats.data_bytes * coding.share)
        size = encoded + plain - stats.data_bytes + TABLE_BYTES
        if size > plain * (1 - MIN_SAVING):
            return None
        return size, cls(coding.table, Variable(block.offset_bits))

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.values,)

    @property
    def num_buffers(self) -> int:
        """Buffers per chunk: the buffers of the inner encoding."""
        return self.values.num_buffers

    @property
    def joins(self) -> bool:
        """Whether the page can be joined with pages of other symbols; see ``FsstTables``."""
        return isinstance(self.values, Variable) and self.table.encoded

    def match_text(self, chunks: MiniChunks, test: StringTest) -> pa.Buffer | None:
        """Return which strings pass, one bit each; chunks are decoded one by one, and dropped.

        ``None`` when the codes are encoded further.
        """
        from glaive.kernels.fsst import search_chunks

        if not isinstance(self.values, Variable) or not self.table.encoded:
            return None
        bits = self.values.offset_bits
        return search_chunks(self.table, *chunks.first, bits, test, chunks.where)

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Decode all chunks from their bytes in the page."""
        if not isinstance(self.values, Variable):
            return self.decode_values(self.values.decode_mini(chunks), chunks.where)
        bits = self.values.offset_bits
        strings = decode_chunks(self.table, *chunks.first, bits, chunks.where)
        return blocks.Variable(*strings, int(chunks.counts.sum()))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> blocks.Variable:
        """Read and decode the wanted values only."""
        return self.decode_values(self.values.take_mini(chunks, chunk, index), chunks.where)

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


# --- FSST of joined pages with a symbol table each; see :mod:`glaive.encodings.values.fsst`
# Specification: "FSST" in ``docs/format/encodings.md``; message ``Fsst``.


@dataclass(frozen=True, eq=False, slots=True)
class FsstTables(ValueEncoding):
    """Text of pages in one buffer, in any order. Read only.

    Parameters
    ----------
    tables
        The symbols of each page.
    pages, starts
        Numbers of the pages in their order in the buffer, and the first byte of the chunks of
        each, ascending.
    offset_bits
        Width of offsets: 32 or 64.
    """

    wire_name: ClassVar[str] = "fsst"

    tables: Sequence[SymbolTable]
    pages: Int64s
    starts: Int64s
    offset_bits: int

    @classmethod
    def of_pages(cls, values: Sequence[ValueEncoding], starts: Int64s) -> FsstTables:
        """Join the encodings of pages, all ``Fsst`` that :attr:`~Fsst.joins`."""
        tables = [value.table for value in values if isinstance(value, Fsst)]
        inner = getattr(values[0], "values", None)
        if len(tables) != len(values) or not isinstance(inner, Variable):
            raise TypeError("only pages of plain strings with FSST symbols can be joined")
        pages = np.argsort(starts, kind="stable")
        return cls(tables, pages, starts[pages], inner.offset_bits)

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Parse the ``Fsst`` of one page."""
        return Fsst.from_wire(message, where)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Refuse: each page has its own message."""
        raise TypeError("symbols of several pages are not written")

    def decode_mini(self, chunks: MiniChunks) -> blocks.Variable:
        """Decode chunks of any of the pages, in their order."""
        pages, counts = np.unique(self._pages_of(chunks), return_counts=True)
        tables = [self.tables[page] for page in pages.tolist()]
        strings = decode_pages(tables, counts, *chunks.first, self.offset_bits, chunks.where)
        return blocks.Variable(*strings, int(chunks.counts.sum()))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> blocks.Block:
        """Read and decode the wanted values, page by page."""
        page = self._pages_of(chunks)[chunk]
        order = np.argsort(page, kind="stable")
        codes = Variable(self.offset_bits).take_mini(chunks, chunk[order], index[order])
        pages, counts = np.unique(page, return_counts=True)
        strings = decode_values(
            [self.tables[number] for number in pages.tolist()],
            counts,
            Strings(codes.offsets, codes.offset_bits, codes.data),
            chunks.where,
        )
        values = blocks.Variable(*strings, len(page))
        in_order = bool((order[1:] > order[:-1]).all())
        return values if in_order else take_block(values, inverse_permutation(order))

    def _pages_of(self, chunks: MiniChunks) -> Int64s:
        """Return the page of each chunk."""
        rank = self.starts.searchsorted(chunks.starts[0], "right") - 1
        return self.pages[rank]
