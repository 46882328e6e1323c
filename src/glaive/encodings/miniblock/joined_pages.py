"""Mini-block pages of a list column read as one.

Writers begin a new page of a list column every 65,535 levels or so, hence a column of a
million lists has a hundred pages. For mapped files they are joined when they are encoded
alike: rows from all of them are taken with one call, and read in pieces of any size.

A page that is damaged is named: when the joined pages cannot be read, they are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.encodings.miniblock.chunks import Items
from glaive.encodings.miniblock.joined_table import TablePart, join_tables
from glaive.encodings.pages.miniblock import MiniBlockPage, Opened
from glaive.encodings.protocol import Fetch, Leaf, PageBytes
from glaive.errors import CorruptFileError

__all__ = ["JoinedPages"]

PIECE_VALUES = 512 * 1024
"""Values after which a reader of all rows should cut: what is decoded at once stays in cache."""


class JoinedPages(MiniBlockPage):
    """Neighbouring pages of equal kin, at hand in one mapping."""

    def __init__(self, pages: Sequence[MiniBlockPage]) -> None:
        first = pages[0]
        self._pages = pages
        parts = [page.page for page in pages]
        held = [part.at_hand[1] for part in parts if part.at_hand is not None]
        base = min(buffer.address for buffer in held)
        end = max(buffer.address + buffer.size for buffer in held)
        # The pages are of one mapping (equal kin), which any of their buffers keeps.
        data = pa.foreign_buffer(base, end - base, held)
        rows = sum(page.rows for page in pages)
        where = replace(first.page.where, page=None)
        super().__init__(first.form, PageBytes((), [data, data], rows, where), 0, 0)
        cuts, row, waiting = [], 0, 0
        for page in pages:
            if waiting + page.num_items > PIECE_VALUES and waiting:
                cuts.append(row)
                waiting = 0
            row += page.rows
            waiting += page.num_items
        self.cuts = cuts

    @property
    def pages(self) -> Sequence[MiniBlockPage]:
        """The pages, one by one."""
        return self._pages

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all pages."""
        return sum(page.nbytes for page in self._pages)

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """Rows ``start`` to ``stop``, over any number of pages."""
        try:
            return super().read(start, stop)
        except CorruptFileError:
            self._name_damaged()
            raise

    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """The rows at these positions of all pages."""
        try:
            return super().take(rows)
        except CorruptFileError:
            self._name_damaged()
            raise

    def _name_damaged(self) -> None:
        for page in self._pages:
            page.read(0, page.rows)

    def _load(self, buffers: list[pa.Buffer]) -> Opened:
        """Read and check the small buffers of all pages, with one pass for each kind."""
        form, where = self.form, self.page.where
        base = buffers[0].address
        parts = []
        for page in self._pages:
            at_hand = page.page.at_hand or []
            parts.append(
                TablePart(
                    at_hand[0],
                    at_hand[-1],
                    at_hand[1].address - base,
                    at_hand[1].size,
                    page.num_items,
                    page.rows,
                    page.page.where,
                )
            )
        table, chunks = join_tables(parts, form.value_width)
        items = None
        if form.dictionary is not None:
            items = self._join_items(chunks)
        self.small = small = Opened.of(form, table, items, where)
        return small

    def _join_items(self, chunks: NDArray[np.int64]) -> Items | None:
        """Decode the dictionaries of all pages into one."""
        form, where = self.form, self.page.where
        if form.dictionary is None:
            return None
        counts = np.array([page.num_dictionary_items for page in self._pages], np.int64)
        buffers = [(page.page.at_hand or [])[2] for page in self._pages]
        sizes = np.array([buffer.size for buffer in buffers], np.int64)
        data = pa.py_buffer(b"".join(buffers))
        starts = np.cumsum(sizes) - sizes
        block = form.dictionary.decode_blocks(data, starts, sizes, counts, where)
        bases = np.cumsum(counts) - counts
        total = int(counts.sum())
        return Items(block, total, np.repeat(bases, chunks), np.repeat(counts, chunks))
