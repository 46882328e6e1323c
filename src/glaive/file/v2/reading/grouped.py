"""Pages of fixed-size lists of structs: every row has the same number of entries.

Such a page counts entries where others count rows.

Specification: "Fixed-size lists of structs" in ``docs/format/levels.md``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from glaive.encodings.protocol import Fetch, Leaf, PageBytes, PageReader

__all__ = ["GroupedPage"]


class GroupedPage(PageReader):
    """A page seen as rows of ``size`` entries each."""

    def __init__(self, page: PageReader, size: int) -> None:
        self.page = page
        self.size = size
        self.rows = page.rows // size
        self.cuts = [cut // size for cut in page.cuts if cut % size == 0]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the page."""
        return self.page.nbytes

    @classmethod
    def from_wire(cls, message: Any, page: PageBytes) -> Self:
        """Refuse: the wire has no layout of this kind, see the constructor."""
        raise TypeError("grouped pages are made of pages of other layouts")

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """All entries of the rows."""
        return self.page.read(start * self.size, stop * self.size)

    def take(self, rows: NDArray[np.int64]) -> Fetch[Leaf] | Leaf:
        """All entries of the rows, row by row."""
        entries = np.add.outer(rows * self.size, np.arange(self.size)).reshape(-1)
        return self.page.take(entries)
