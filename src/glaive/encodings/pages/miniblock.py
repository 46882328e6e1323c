"""Mini-block pages: small values in chunks of a few KiB, each decoded on its own.

====== ====================== ===========================================================
buffer content                present
====== ====================== ===========================================================
0      chunk words            always
1      chunks, back to back   always
2      dictionary             when the layout names a dictionary encoding
last   repetition index       when the column has lists
====== ====================== ===========================================================

Reading finds the chunks in the chunk table, parses all their headers at once, and decodes all
levels and all values with one codec call each. On a mapped file nothing is fetched; else the
small buffers are read first and kept, then only the chunks that are needed. A page that is
small or read as a whole takes one request.

Memory: a chunk has as many levels as rows and values, and with lists in lists at most 255 more
for each of its bytes. Values that take no bytes (all null, all equal) are limited by the rows
of the file, and by 2 GiB for an array.

Specification: "Mini-block pages" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.encodings.miniblock.layout import MiniBlockLayout, PageClaims
from glaive.encodings.miniblock.reader import (
    Dictionaries,
    MiniBlockReader,
    Opened,
    PageRun,
    without_chunks,
)
from glaive.encodings.protocol import NO_RANGES, MemoryRanges, PageBytes, PageSignature, page_bytes
from glaive.encodings.registry import page_layout
from glaive.types import Int64s

MAX_JOINED_DICTIONARY = 32 * 1024
"""Bytes of a dictionary at most in pages with lists that are joined: all are loaded."""

_ZERO = np.zeros(1, np.int64)
_ZERO.setflags(write=False)


@page_layout
class MiniBlockPage(MiniBlockReader):
    """One page of chunks."""

    wire_name: ClassVar[str] = "mini_block_layout"

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the chunk table and the dictionary; an estimate."""
        words, *further = [part.size for part in without_chunks(self.page.ranges)]
        return page_bytes(words // self.layout.value_width, sum(further))

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> MiniBlockPage:
        """Parse a ``MiniBlockLayout``."""
        layout = MiniBlockLayout.from_wire(message, page.where)
        layout.check_page(page, message.num_items, message.num_dictionary_items)
        return MiniBlockPage(layout, page, message.num_items, message.num_dictionary_items)

    def load(self, buffers: list[pa.Buffer]) -> Opened:
        """Read and check chunk words, dictionary and repetition index."""
        layout, page, words = self.layout, self.page, buffers[0]
        index = buffers[-1] if layout.rep is not None else None
        sizes = (words.size, 0 if index is None else index.size, page.ranges[1].size)
        # One array, because a page may be opened for a few rows only.
        numbers = np.array([(*sizes, self.num_items, self.rows)], np.int64).T
        word_sizes, index_sizes, chunk_sizes, num_items, rows = numbers
        claims = PageClaims(
            word_sizes, index_sizes, _ZERO, chunk_sizes, num_items, rows, lambda _: page.where
        )
        dictionary = None
        if layout.dictionary is not None:
            items, size = np.array([[self.num_dictionary_items], [buffers[1].size]], np.int64)
            dictionary = Dictionaries(buffers[1], _ZERO, size, items)
        return Opened.of_pages(layout, claims, words, index, dictionary, page.where)

    def opening_ranges(self, rows: Int64s) -> MemoryRanges:
        """All buffers but the chunks."""
        at_hand = self.page.at_hand
        if self.small is not None or at_hand is None:
            return NO_RANGES
        buffers = without_chunks(at_hand)
        return np.array([(buffer.address, buffer.size) for buffer in buffers], np.int64)

    def page_signature(self) -> PageSignature | None:
        """Equal encodings; with lists also small dictionaries."""
        layout, ranges = self.layout, self.page.ranges
        if (
            layout.rep is not None
            and layout.dictionary is not None
            # Indices are shifted by the position of their dictionary among all of them.
            and ((layout.value.number_bits or 0) < 32 or ranges[2].size > MAX_JOINED_DICTIONARY)
        ):
            return None
        return PageSignature(layout.signature, PageRun)
