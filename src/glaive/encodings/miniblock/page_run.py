"""Several mini-block pages read as one: a run of pages.

Small pages cost far more to open than to decode. Where many have the same encoding, their
small buffers are read and checked with one pass for each kind, a row is found by a number that
counts through all pages, and all their chunks are handed to one codec call. Three kinds of pages
are read like this:

- those of many small files, which lie in one buffer;
- those of a list column in a mapped file: writers begin a new page every 65,535 levels or so,
  hence a column of a million lists has a hundred pages;
- those of a column in several mapped files, out of which rows are taken.

A page that is damaged is named: the tables name it themselves, and when chunks cannot be read,
the pages are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.miniblock.chunk_table import PageClaims
from glaive.encodings.miniblock.layout import MiniBlockLayout
from glaive.encodings.miniblock.opened import Dictionaries, Opened
from glaive.encodings.miniblock.reader import MiniBlockReader
from glaive.encodings.protocol import (
    NO_RANGES,
    MemoryRanges,
    PageBytes,
    PageParts,
    PageReader,
    PageSignature,
)
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.values.fsst_tables import FsstTables
from glaive.errors import CorruptFileError
from glaive.kernels.full_zip import gather_ranges

__all__ = ["PageRun", "join_files", "join_mapped"]

PIECE_VALUES = 2048 * 1024
"""Values after which a reader of all rows should cut.

Threads share the pieces, each of which costs 0.1 ms beside its values.
"""

MAX_PAGES = 1024
"""Pages of a file that are read as one at most: the first use of any loads the tables of all."""


class PageRun(MiniBlockReader):
    """Pages with equal signatures as one page, whose rows are theirs in order."""

    def __init__(self, parts: PageParts[MiniBlockReader]) -> None:
        self._parts = parts
        self._rows = parts.each(lambda page: page.rows)
        self._entries = parts.each(lambda page: page.num_items)
        self._items = parts.each(lambda page: page.num_dictionary_items)
        data, rows = parts.data, int(self._rows.sum())
        page = PageBytes((), [data, data], rows, parts.where)
        super().__init__(_layout(parts), page, int(self._entries.sum()), int(self._items.sum()))
        pieces = (np.cumsum(self._entries) - 1) // PIECE_VALUES
        self.cuts = np.cumsum(self._rows)[:-1][np.diff(pieces) > 0].tolist()

    @property
    def pages(self) -> Sequence[MiniBlockReader]:
        """The pages, in the order of their rows, where they are of mapped files."""
        return self._parts.pages

    @property
    def mapped_end(self) -> int | None:
        """That of the page that ends last."""
        ends = [page.mapped_end for page in self.pages]
        return max(end for end in ends if end is not None) if None not in ends else None

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by all pages."""
        return sum(page.nbytes for page in self._parts.pages)

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
        """Raise the error of the first page that cannot be read alone."""
        if len(self._rows) > 1:
            for at in range(len(self._rows)):
                page = PageRun(self._parts.only(at))
                page.read(0, page.rows)

    def opening_ranges(self, rows: NDArray[np.int64]) -> MemoryRanges:
        """All buffers of all pages but the chunks."""
        if self.small is not None:
            return NO_RANGES
        starts, sizes = np.delete((self._parts.starts, self._parts.sizes), 1, axis=2)
        return np.stack([self._parts.data.address + starts.ravel(), sizes.ravel()], axis=1)

    def load(self, _buffers: list[pa.Buffer]) -> Opened:
        """Read and check the small buffers of all pages, with one pass for each kind."""
        layout, parts, where = self.layout, self._parts, self.page.where
        data, starts, sizes = parts.data, parts.starts.T, parts.sizes.T
        words = gather_ranges(data, starts[0], sizes[0], where)
        index = dictionaries = None
        if layout.rep is not None:
            index = gather_ranges(data, starts[-1], sizes[-1], where)
        if layout.dictionary is not None:
            dictionaries = Dictionaries(data, starts[2], sizes[2], self._items)
        numbers = (sizes[0], sizes[-1], starts[1], sizes[1], self._entries, self._rows)
        claims = PageClaims(*numbers, parts.where_of)
        return Opened.of_pages(layout, claims, words, index, dictionaries, where)


def _layout(parts: PageParts[MiniBlockReader]) -> MiniBlockLayout:
    """The layout of all pages, with the FSST symbols of each where these may differ."""
    layouts = [page.layout for page in parts.pages]
    layout, *others = layouts
    if layout.rep is not None or all(other is layout for other in others):
        return layout
    if not isinstance(layout.value, Fsst) or not layout.value.joins:
        return layout
    values = [layouts[at].value for at in parts.which.tolist()]
    return replace(layout, value=FsstTables.of_pages(values, parts.starts[:, 1]))


def join_mapped(pages: Sequence[PageReader]) -> list[PageReader]:
    """Neighbouring pages with lists of a mapped file, those of equal signatures as one.

    Pages without lists stay apart: one is large enough, and its chunks stay in the cache.
    """

    def signature(page: PageReader) -> PageSignature | None:
        lists = isinstance(page, MiniBlockReader) and page.layout.rep is not None
        return page.page_signature() if lists else None

    return list(pages) if len(pages) < 2 else _joined(pages, signature)


def join_files(pages: Sequence[PageReader]) -> list[PageReader]:
    """Neighbouring pages of mapped files, those of equal signatures as one.

    Over-reads of kernels end before the memory of a file does: see ``file/v2/reading/joined.py``.
    """

    def signature(page: PageReader) -> PageSignature | None:
        found = page.page_signature()
        if isinstance(page, MiniBlockReader) and found is not None:
            return PageSignature(page.layout.signature, found.join)  # wherever it is mapped
        return found

    return _joined(_separate(pages), signature)


def _joined(
    pages: Sequence[PageReader], signature_of: Callable[[PageReader], PageSignature | None]
) -> list[PageReader]:
    joined: list[PageReader] = []
    for signature, group in groupby(pages, signature_of):
        neighbours = list(group)
        if signature is None or len(neighbours) == 1:
            joined += neighbours
            continue
        for first in range(0, len(neighbours), MAX_PAGES):
            some = neighbours[first : first + MAX_PAGES]
            parts = _parts(some)
            joined += some if _share_bytes(parts) else [signature.join(parts)]
    return joined


def _share_bytes(parts: PageParts[Any]) -> bool:
    """Whether pages have bytes in common: where a chunk lies says which page it is of."""
    starts, sizes = parts.starts[parts.sizes > 0], parts.sizes[parts.sizes > 0]
    order = np.argsort(starts)
    starts, sizes = starts[order], sizes[order]
    return bool((starts[1:] - starts[:-1] < sizes[:-1]).any())


def _separate(pages: Sequence[PageReader]) -> list[PageReader]:
    """The pages that runs among these were joined of, in their order."""
    separated: list[PageReader] = []
    for page in pages:
        separated += page.pages if isinstance(page, PageRun) else [page]
    return separated


def _parts(pages: Sequence[Any]) -> PageParts[Any]:
    """Mapped pages, counted from the lowest address of all; any of their buffers keeps a file."""
    held = [page.page.at_hand or [] for page in pages]
    starts = np.array([[part.address for part in buffers] for buffers in held], np.int64)
    sizes = np.array([[part.size for part in buffers] for buffers in held], np.int64)
    # An empty buffer may be anywhere.
    low = int(starts[sizes > 0].min(initial=np.iinfo(np.int64).max))
    starts = np.where(sizes > 0, starts - low, 0)
    data = pa.foreign_buffer(low, int((starts + sizes).max()), held)
    where = replace(pages[0].page.where, page=None)
    which = np.arange(len(pages))
    return PageParts(pages, which, data, starts, sizes, where, lambda at: pages[at].page.where)
