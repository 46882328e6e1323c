"""BTREE, searched: the pages that a condition needs are read, their values tested.

Specification: "BTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import spread
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import Condition, InRange, IsNull, IsOneOf
from glaive.arrow.decimals import comparable_decimals
from glaive.index.keeping import Keep, keep_nothing
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.ordering import (
    SortKeys,
    bytes_of,
    distinct_keys,
    is_number,
    key_of,
    sort_keys,
)
from glaive.index.scalar.sorted_pages import PageBounds, PageSelection
from glaive.index.segment import IndexFile
from glaive.memory import items_of
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["OpenedBTree"]

_KEPT_PAGES = 16
"""So many pages whose values are tested are kept, for the next search."""

_KEPT_ROWS, _KEPT_BYTES = 1 << 21, 1 << 25
"""Rows and bytes of a file whose pages are all kept, once a search has to test more of them."""

_BISECTED = 2_000
"""Values are looked up where there are as many for each; else all are tested, in one go."""


class OpenedBTree(ScalarIndex):
    """The bounds of all pages, and the file they are in.

    Parameters
    ----------
    pages
        File of the sorted values with the number of their rows.
    bounds
        Of each page.
    per_page
        Rows of each page but the last.
    keep
        Keeps single pages that were read.
    """

    def __init__(
        self, pages: IndexFile, bounds: PageBounds, per_page: int, keep: Keep = keep_nothing
    ) -> None:
        self._pages, self._bounds, self._per_page = pages, bounds, per_page
        self._keep = keep
        self._last: tuple[Condition, PageSelection] | None = None
        self._fits = pages.num_rows <= _KEPT_ROWS and pages.size <= _KEPT_BYTES
        self._tested = 0  # pages, one by one, since all were read

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._bounds.nbytes + self._pages.nbytes

    @property
    def null_rows(self) -> int:
        """Rows that are null."""
        return self._bounds.null_rows

    def answers(self, query: IndexQuery) -> bool:
        """Whether it is a condition on values of this type; of texts, on how they begin."""
        return self._bounds.accepts(query)

    def estimate(self, query: IndexQuery) -> int:
        """Rows of the pages that pass, and of others as many as their bounds suggest."""
        condition: Any = query
        if isinstance(condition, IsOneOf) and not condition.negated and self._bounds.are_apart:
            return self._bounds.rows_of_values(condition)
        return self._bounds.estimate(condition, self._select(condition))

    def compared(self, query: IndexQuery) -> int:
        """Bounds of pages, and the values of pages that have to be tested."""
        condition: Any = query
        pages = len(self._bounds.rows)
        return pages + min(len(self._select(condition)[1]) * self._per_page, self._pages.num_rows)

    def search(self, query: IndexQuery, *, nulls: bool = False) -> Candidates:
        """Find rows, exactly.

        One read of the values and rows of pages that have to be tested, and the rows of others.
        """
        condition: Any = query
        rows = self._find(condition)
        return Candidates(rows, self._unknown(condition) if nulls else None, exact=True)

    def _unknown(self, condition: Condition) -> RowSet:
        """Rows for which a condition is null."""
        if isinstance(condition, IsNull):
            return _NO_ROWS
        if isinstance(condition, IsOneOf) and condition.values.null_count:
            # What is not equal to a known value may be equal to the null.
            found = self._find(IsOneOf(condition.values.drop_null()))
            return self._row_set([self._rows(0, self._pages.num_rows)]).difference(found)
        return self._row_set([self._rows(0, self._bounds.null_rows)])

    def _rows(self, start: int, stop: int) -> RowNumbers:
        return self._numbers(self._pages.read_ranges([(("ids",), [(start, stop)])])[0][0])

    def _find(self, condition: Condition) -> RowSet:
        if isinstance(condition, IsNull):
            # Nulls come first: no value has to be looked at.
            nulls, end = self._bounds.null_rows, self._pages.num_rows
            return self._row_set([self._rows(*((nulls, end) if condition.negated else (0, nulls)))])
        places = _has_places(condition)
        if places and self._fits and self._tested >= len(self._bounds.rows):
            # As much was read of single pages as there is: all of them are searched at once.
            return self._few(self._keep("pages", self._load_all).find(condition))
        whole, partly = self._select(condition)
        self._tested += len(partly)
        if len(partly) <= _KEPT_PAGES:
            pages, rest = self._kept(partly, self._ranges(whole))
            if len(pages) > 1 and places and isinstance(condition, IsOneOf):
                keys = self._bounds.keys_by_page(condition.values, partly)
                found = [
                    page.find_keys(some, condition) for page, some in zip(pages, keys, strict=True)
                ]
            else:
                found = [page.find(condition) for page in pages]
            return self._row_set([*rest, *found]) if rest or len(found) != 1 else self._few(*found)
        if self._fits:
            return self._few(self._keep("pages", self._load_all).find(condition))
        edges = np.flatnonzero(np.diff(partly) != 1) + 1
        runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(partly, edges)]
        pages, rest = self._read(runs, self._ranges(whole))
        return self._row_set([*rest, *(page.find(condition) for page in pages)])

    def _load_all(self) -> tuple[_Page, int]:
        """All pages as one."""
        self._tested = 0  # They may be forgotten again.
        rows = [(0, self._pages.num_rows)]
        ((values, ids),) = self._pages.read_ranges([(("values", "ids"), rows)])
        page = _Page.of(values, self._numbers(ids))
        return page, page.nbytes

    def _select(self, condition: Condition) -> PageSelection:
        """The pages for a condition; those for the last one are remembered."""
        last = self._last  # other threads may replace it meanwhile
        if last is None or last[0] is not condition:
            self._last = last = (condition, self._bounds.select(condition))
        return last[1]

    def _kept(
        self, at: Int64s, others: list[tuple[int, int]]
    ) -> tuple[list[_Page], list[RowNumbers]]:
        """Some pages, and the rows of other ranges.

        If a page is not kept yet, all that is asked for is read at once.
        """
        fetched: dict[int, _Page] = {}
        rest: list[RowNumbers] = []

        def load(number: int) -> tuple[_Page, int]:
            if number not in fetched:
                pages, rest[:] = self._read([(one, one + 1) for one in at.tolist()], others)
                fetched.update(zip(at.tolist(), pages, strict=True))
            page = fetched[number]
            return page, page.nbytes

        found = [self._keep(("page", number), partial(load, number)) for number in at.tolist()]
        if others and not rest:
            _, rest = self._read([], others)
        return found, rest

    def _read(
        self, runs: list[tuple[int, int]], others: list[tuple[int, int]]
    ) -> tuple[list[_Page], list[RowNumbers]]:
        """Runs of pages, each as one, and the rows of other ranges. One read."""
        ranges = self._ranges(runs)
        columns = self._pages.read_ranges([(("values", "ids"), ranges), (("ids",), others)])
        pages = [_Page.of(values, self._numbers(ids)) for values, ids in columns[: len(ranges)]]
        return pages, [self._numbers(ids) for (ids,) in columns[len(ranges) :]]

    def _ranges(self, pages: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Rows of ranges of pages."""
        size = self._per_page
        return [(start * size, min(stop * size, self._pages.num_rows)) for start, stop in pages]

    def _numbers(self, ids: Any) -> RowNumbers:
        self._pages.check_present(ids)
        return as_numpy(ids)

    def _few(self, rows: RowNumbers) -> RowSet:
        """The rows of a set: those of one value are ascending."""
        if len(rows) != 1 or rows.item(0) == _NO_ROW:
            return self._row_set([rows])
        return RowSet(rows, rows + _ONE)

    def _row_set(self, found: list[RowNumbers]) -> RowSet:
        rows = np.sort(np.concatenate([_NO_ROWS.starts, *found]))
        if len(rows) and rows[-1] == _NO_ROW:
            raise self._pages.corrupt("rows of an index", "a number below 2^64 - 1", f"{_NO_ROW}")
        return RowSet.of(rows)


class _Texts(NamedTuple):
    """Texts, or other bytes, that ascend: looked up where they lie, without a value of Arrow each.

    Text i are the bytes of ``data`` from ``ends[i]`` to ``ends[i + 1]``.
    """

    ends: memoryview
    data: memoryview

    @classmethod
    def of(cls, values: Any) -> _Texts | None:
        """Those of an array without nulls; None if it has others, or none."""
        types, kind = pa.types, values.type
        if not len(values) or not (types.is_binary(kind) or types.is_large_binary(kind)):
            return None
        _, offsets, data = values.buffers()
        dtype = np.dtype("<i4" if types.is_binary(kind) else "<i8")
        ends: Any = items_of(offsets, dtype, len(values) + 1, values.offset * dtype.itemsize)
        return cls(memoryview(ends), memoryview(b"" if data is None else data))

    def place(self, key: bytes, side: _Side) -> int:
        """Where a key belongs: before, or behind those that equal it."""
        ends, data = self
        low, high, is_left = 0, len(ends) - 1, side == "left"
        while low < high:
            middle = (low + high) >> 1
            text = data[ends[middle] : ends[middle + 1]].tobytes()
            if text < key or (text == key and not is_left):
                low = middle + 1
            else:
                high = middle
        return low


class _Page(NamedTuple):
    """The values of neighbouring pages, and their rows.

    Parameters
    ----------
    present
        The values that are not null, behind those that are; keys of numbers, binary values of
        strings.
    is_ascending
        Whether these are in order, as they should be, so that places among them can be looked up.
    texts
        The same, where they are bytes in order.
    """

    values: Any
    rows: RowNumbers
    present: Any
    is_ascending: bool
    texts: _Texts | None = None

    @classmethod
    def of(cls, values: Any, rows: RowNumbers) -> _Page:
        """A page as it is read."""
        present = values[values.null_count :]
        if present.null_count:
            return cls(values, rows, present, is_ascending=False)
        if is_number(values.type):
            present = sort_keys(present)
            descends = present[1:] < present[:-1]
        else:
            import pyarrow.compute as pc

            present = bytes_of(present)
            ordered = comparable_decimals(present)
            descends = as_numpy(pc.less(ordered[1:], ordered[:-1]))
        ascends = not bool(descends.any())
        texts = _Texts.of(present) if ascends and isinstance(present, pa.Array) else None
        return cls(values, rows, present, is_ascending=ascends, texts=texts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.values.nbytes + self.rows.nbytes + self.present.nbytes)

    def find(self, condition: Condition) -> RowNumbers:
        """Rows that pass."""
        if self.is_ascending and isinstance(condition, InRange):
            first, last = 0, len(self.present)
            if condition.low is not None:
                first = self._place(key_of(condition.low), _SIDES[not condition.low_included])
            if condition.high is not None:
                last = self._place(key_of(condition.high), _SIDES[condition.high_included])
            return self.rows[len(self.rows) - len(self.present) :][first:last]
        if self.is_ascending and isinstance(condition, IsOneOf) and _has_places(condition):
            return self.find_keys(distinct_keys(condition.values), condition)
        return self.rows[_passing(condition, self.values)]

    def find_keys(self, keys: SortKeys, condition: Condition) -> RowNumbers:
        """Rows whose value has one of some distinct keys; ``condition`` is the same test."""
        rows = self.rows[len(self.rows) - len(self.present) :]
        if not self.is_ascending:
            return self.rows[_passing(condition, self.values)]
        if len(keys) == 1:
            first = self._place(keys, "left")
            return rows[first : self._end(first, keys)]
        if isinstance(self.present, np.ndarray):
            starts, stops = (np.searchsorted(self.present, keys, side) for side in _SIDES)
            return rows[spread(starts, stops - starts)]
        if len(keys) * _BISECTED > len(self.present):
            return self.rows[_passing(condition, self.values)]
        firsts = [self._place([key], "left") for key in keys]
        ends = [self._end(first, [key]) for first, key in zip(firsts, keys, strict=True)]
        parts = [rows[first:end] for first, end in zip(firsts, ends, strict=True)]
        return np.concatenate([rows[:0], *parts])

    def _end(self, first: int, key: Sequence[Any] | SortKeys) -> int:
        """Where the values behind those with a key begin, of which ``first`` may be the first."""
        # Mostly there is one, if any: a look at two values is quicker than another search.
        two: Any = self.present[first : first + 2]
        same = [value == key[0] for value in two.tolist()]
        return self._place(key, "right") if all(same) else first + same[0]

    def _place(self, key: Sequence[Any] | SortKeys, side: _Side) -> int:
        """Where a key belongs among those of the values that are not null."""
        if isinstance(self.present, np.ndarray):
            return int(self.present.searchsorted(key, side)[0])
        if self.texts is not None:
            return self.texts.place(key[0], side)
        bisect = bisect_left if side == "left" else bisect_right
        values, places = self.present, range(len(self.present))
        return bisect(places, key[0], key=lambda at: values[at].as_py())


_Side: TypeAlias = Literal["left", "right"]
_SIDES: tuple[_Side, _Side] = ("left", "right")

_NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
_NO_ROW = np.iinfo(np.uint64).max
_ONE = np.uint64(1)


def _has_places(condition: Condition) -> bool:
    """Whether the values that pass lie side by side, or in a few places, among sorted ones."""
    return isinstance(condition, InRange) or (
        isinstance(condition, IsOneOf) and not condition.negated
    )


def _passing(condition: Condition, values: pa.Array) -> Flags:
    return as_numpy(condition.mask(values))
