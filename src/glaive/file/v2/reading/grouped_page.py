"""Pages of fixed-size lists of structs, whose entries are items: several are a row."""

from __future__ import annotations

from glaive.arrow.buffers import spread_equal
from glaive.encodings.fetch import Fetch
from glaive.encodings.leaf import Leaf
from glaive.encodings.protocol import PageReader
from glaive.types import Int64s

__all__ = ["GroupedPage"]


class GroupedPage(PageReader):
    """A page of fixed-size lists of structs: ``size`` entries are a row.

    Specification: "Fixed-size lists of structs" in ``docs/format/levels.md``.
    """

    def __init__(self, page: PageReader, size: int) -> None:
        self.page = page
        self.size = size
        self.rows = page.rows // size
        self.cuts = [cut // size for cut in page.cuts if cut % size == 0]

    @property
    def entries(self) -> int:
        """Those of the page."""
        return self.page.entries

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the page."""
        return self.page.nbytes

    def read(self, start: int, stop: int) -> Fetch[Leaf] | Leaf:
        """All entries of the rows."""
        return self.page.read(start * self.size, stop * self.size)

    def take(self, rows: Int64s) -> Fetch[Leaf] | Leaf:
        """All entries of the rows, row by row.

        Raises
        ------
        CapacityError
            Several rows have more entries than are listed at once.
        """
        if len(rows) == 1:  # not listed: the type alone says how many there are
            row = rows.item(0)
            return self.read(row, row + 1)
        return self.page.take(spread_equal(rows, self.size))
