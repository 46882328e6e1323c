"""RTREE, searched: geometries whose boxes meet a box, and those that are null.

The boxes of the lowest pages are in memory: 40 bytes for 4,096 geometries. So a search is one read,
of the pages that the box meets.

Specification: "RTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from glaive.arrow.conditions import IsNull
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery, MeetsBox
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.geometries import Boxes
from glaive.index.segment import IndexFile
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["ITEMS", "OpenedRTree", "PageBoxes", "boxes_of", "page_boxes", "stored_items"]

ITEMS: Final = "num_items"
_BOX, _ROW = "bbox", "id"
_ROWS_AT_ONCE: Final = 1 << 20
"""Boxes that are read and compared at a time."""

_FEW_BOXES: Final = 1 << 20
_BOXES_PER_BYTE: Final = 8
"""Geometries of a small file, and those per byte of a larger one, at most: boxes may be equal, and
take no bytes, but the numbers of their rows differ."""

_TEST_BYTES: Final = 4096
"""A test of a geometry takes as long as looking at so many bytes, about."""


class PageBoxes(NamedTuple):
    """The lowest pages of a tree.

    Parameters
    ----------
    boxes
        Around the geometries of each page; without any if there is one page at most.
    page_size
        Geometries of each page but the last.
    items
        All geometries.
    """

    boxes: Boxes
    page_size: int
    items: int


def stored_items(file: IndexFile) -> int:
    """The number of geometries, which come before the boxes of pages.

    Raises
    ------
    CorruptFileError
        There are fewer rows, or more geometries than the file can hold.
    """
    items = file.number(ITEMS)
    most = min(file.num_rows, max(_FEW_BOXES, _BOXES_PER_BYTE * file.size))
    if items > most:
        raise file.corrupt(f"metadata {ITEMS!r}", f"at most {most}", f"{items}")
    return items


def page_boxes(file: IndexFile, page_size: int) -> PageBoxes:
    """Read the boxes of the lowest pages, which come behind those of all geometries.

    Raises
    ------
    CorruptFileError
        There are fewer rows than these need, or a bound is null.
    """
    items = stored_items(file)
    pages = -(-items // page_size)
    if pages <= 1:
        return PageBoxes(np.empty((0, 4)), page_size, items)
    if items + pages > file.num_rows:
        expected = f"{items} geometries and {pages} pages"
        raise file.corrupt("rows of a tree", expected, f"{file.num_rows} rows")
    rows = file.read([_BOX], items, items + pages)
    return PageBoxes(boxes_of(file, rows[_BOX].combine_chunks()), page_size, items)


def boxes_of(file: IndexFile, stored: Any) -> Boxes:
    """A column of boxes as numbers."""
    bounds = stored.flatten()
    for column in (stored, *bounds):
        file.check_present(column)
    return np.stack([np.asarray(column) for column in bounds], axis=1)


class OpenedRTree(ScalarIndex):
    """The boxes of the lowest pages, and the rows whose geometry is null.

    Parameters
    ----------
    file
        Of the boxes.
    pages
        The lowest ones.
    nulls
        Rows that are null.
    """

    def __init__(self, file: IndexFile, pages: PageBoxes, nulls: RowSet) -> None:
        self._file, self._pages, self._nulls = file, pages, nulls

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._nulls.nbytes + int(self._pages.boxes.nbytes) + self._file.nbytes

    @property
    def value_bytes(self) -> int:
        """As many as are looked at in the time of a test of a geometry."""
        return _TEST_BYTES

    def answers(self, query: IndexQuery) -> bool:
        """Whether it asks for geometries that may meet a box, or for nulls."""
        return isinstance(query, MeetsBox) or (isinstance(query, IsNull) and not query.negated)

    def estimate(self, query: IndexQuery) -> int:
        """How many are null, or as many as the share of each page that is in the box."""
        if not isinstance(query, MeetsBox):
            return self._nulls.count
        boxes, size, items = self._pages
        if not len(boxes):
            return items
        low, high = _cut(boxes, query)
        with np.errstate(all="ignore"):  # bounds may be infinite, and as far apart as numbers are
            extents = np.maximum(boxes[:, 2:] - boxes[:, :2], np.finfo(np.float64).tiny)
            shares = np.clip((high - low) / extents, 0.0, 1.0).prod(axis=1)
        # Points, and lines along an axis, have boxes without extent.
        shares = np.where(_meeting(boxes, query), np.maximum(np.nan_to_num(shares), 1 / size), 0.0)
        return min(items, int(np.ceil(shares.sum() * size)))

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """The rows that are null, exactly; or those whose box meets the box, to be tested."""
        if not isinstance(query, MeetsBox):
            return Candidates(self._nulls, _NO_ROWS if nulls else None, exact=True)
        found = [rows for ranges in self._ranges(query) for rows in self._find(query, ranges)]
        rows = RowSet.of(np.concatenate([np.empty(0, np.uint64), *found]))
        return Candidates(rows, self._nulls if nulls else None, exact=False)

    def _ranges(self, query: MeetsBox) -> Sequence[Sequence[tuple[int, int]]]:
        """Ranges of geometries whose pages meet the box, those that are read together."""
        boxes, size, items = self._pages
        if not items:
            return []
        pages = np.flatnonzero(_meeting(boxes, query)) if len(boxes) else np.zeros(1, np.int64)
        if not len(pages):
            return []
        step = max(1, _ROWS_AT_ONCE // size)
        return [
            _runs(pages[start : start + step], size, items) for start in range(0, len(pages), step)
        ]

    def _find(self, query: MeetsBox, ranges: Sequence[tuple[int, int]]) -> Iterator[RowNumbers]:
        for stored, rows in self._file.read_ranges([((_BOX, _ROW), ranges)]):
            self._file.check_present(rows)
            yield np.asarray(rows)[_meeting(boxes_of(self._file, stored), query)]


def _runs(pages: Int64s, size: int, items: int) -> Sequence[tuple[int, int]]:
    """Ranges of the geometries of pages, neighbours joined."""
    edges = np.flatnonzero(np.diff(pages) != 1) + 1
    return [
        (int(run[0]) * size, min(items, (int(run[-1]) + 1) * size))
        for run in np.split(pages, edges)
    ]


def _meeting(boxes: Boxes, query: MeetsBox) -> Flags:
    """Which boxes have a point in common with that of the query."""
    x, y, right, top = query.bounds
    flags: Flags = (boxes[:, 0] <= right) & (boxes[:, 2] >= x)
    flags &= (boxes[:, 1] <= top) & (boxes[:, 3] >= y)
    return flags


def _cut(boxes: Boxes, query: MeetsBox) -> tuple[Boxes, Boxes]:
    """Lowest and highest corners of what boxes have in common with that of the query."""
    low, high = np.array(query.bounds[:2]), np.array(query.bounds[2:])
    return np.maximum(boxes[:, :2], low), np.minimum(boxes[:, 2:], high)


_NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
