"""FSST of joined pages with a symbol table each; see :mod:`glaive.encodings.values.fsst`.

Specification: "FSST" in ``docs/format/encodings.md``; message ``Fsst``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from glaive.arrow import blocks
from glaive.arrow.buffers import inverse_permutation
from glaive.arrow.gather import take_block
from glaive.dataclass import dataclass
from glaive.encodings.protocol import MiniChunks, ValueEncoding
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.variable import Variable
from glaive.kernels.fsst_pages import decode_pages, decode_values
from glaive.kernels.strings import Strings
from glaive.kernels.symbols import SymbolTable
from glaive.types import Int64s, Where

if TYPE_CHECKING:
    from glaive.format.pb import encodings21_pb2 as pb

__all__ = ["FsstTables"]


@dataclass(frozen=True, eq=False, slots=True)
class FsstTables(ValueEncoding):
    """Text of pages in one buffer, in any order. Read only.

    Parameters
    ----------
    tables
        The symbols of each page.
    pages, starts
        Numbers of the pages in the order in which they lie in the buffer, and the first byte of
        the chunks of each, ascending.
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
        """The page of each chunk."""
        rank = self.starts.searchsorted(chunks.starts[0], "right") - 1
        numbers: Int64s = self.pages[rank]
        return numbers
