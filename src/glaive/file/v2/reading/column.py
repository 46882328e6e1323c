"""One physical column of a file: its pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import is_

import numpy as np

from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.miniblock.page_run import join_mapped
from glaive.encodings.pages.blob import BlobPage
from glaive.encodings.protocol import PageReader
from glaive.errors import CorruptFileError
from glaive.types import Int64s, Where

__all__ = ["COLUMN_BYTES", "Column"]

COLUMN_BYTES = 512
"""Bytes of memory of a column besides its pages."""


class Column:
    """One physical column: its pages, and the first row of each.

    ``cuts`` are the rows at which a reader of all rows should divide it.
    """

    __slots__ = ("__weakref__", "cuts", "pages", "starts", "where")

    def __init__(self, pages: Sequence[PageReader], where: Where) -> None:
        self.pages = join_mapped([page for page in pages if page.rows])
        self.where = where
        self.starts = [0]
        self.cuts: list[int] = []
        for page in self.pages:
            start = self.starts[-1]
            self.cuts += [start, *[start + cut for cut in page.cuts]]
            self.starts.append(start + page.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held after all pages were read from; an estimate."""
        return COLUMN_BYTES + sum(page.nbytes for page in self.pages)

    @property
    def rows(self) -> int:
        """Rows of the column."""
        return self.starts[-1]

    @property
    def entries(self) -> int:
        """Entries of all rows, by what the pages say of themselves."""
        return sum(page.entries for page in self.pages)

    def read(self, start: int, stop: int) -> Iterator[tuple[int, Fetch[Leaf] | Leaf]]:
        """Rows ``start`` to ``stop``, page by page, with the number of rows of each."""
        at = bisect_right(self.starts, start) - 1
        while start < stop:
            first, end = self.starts[at], min(stop, self.starts[at + 1])
            yield end - start, self.pages[at].read(start - first, end - first)
            start, at = end, at + 1

    def take(self, rows: Int64s) -> Iterator[tuple[int, Fetch[Leaf] | Leaf]]:
        """The rows at these ascending positions, page by page, with the number of each."""
        pages = np.searchsorted(self.starts, rows, side="right") - 1
        edges = np.flatnonzero(pages[1:] != pages[:-1]) + 1
        numbers = pages[np.append(0, edges)].tolist()
        for part, at in zip(np.split(rows, edges), numbers, strict=True):
            yield len(part), self.pages[at].take(part - self.starts[at])

    def with_values(self, end: int) -> Column:
        """The same column with blobs as values, which are stored before ``end``."""
        pages = [page.with_values(end) for page in self.pages]
        if all(map(is_, pages, self.pages)):
            return self
        return Column(pages, self.where)

    def with_inline_descriptors(self) -> Column:
        """The same column with descriptors of ``lance.blob.v2`` where a page has older ones."""
        if not any(isinstance(page, BlobPage) for page in self.pages):
            return self
        pages = [
            page.with_inline_descriptors() if isinstance(page, BlobPage) else page
            for page in self.pages
        ]
        return Column(pages, self.where)

    def grouped(self, size: int) -> Column:
        """The same column for rows of ``size`` entries each.

        Raises
        ------
        CorruptFileError
            A page ends within a row.
        """
        if size == 1:
            return self
        uneven = next((page.rows for page in self.pages if page.rows % size), None)
        if uneven is not None:
            raise CorruptFileError(
                "page rows", expected=f"a multiple of {size}", found=str(uneven), where=self.where
            )
        from glaive.file.v2.reading.grouped_page import GroupedPage

        return Column([GroupedPage(page, size) for page in self.pages], self.where)
