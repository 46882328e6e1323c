"""BTREE, searched: the pages that a condition needs are read, their values tested.

Specification: "BTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import Condition, InRange, IsNull, IsOneOf
from glaive.index.keeping import Keep, keep_nothing
from glaive.index.protocol import Candidates, ScalarIndex
from glaive.index.queries import IndexQuery
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.ordering import is_number, key_of, sort_keys
from glaive.index.scalar.sorted_pages import PageBounds
from glaive.index.segment import IndexFile
from glaive.types import Flags, Int64s

__all__ = ["OpenedBTree"]

_KEPT_PAGES = 16
"""So many pages whose values are tested are kept, for the next search."""

_FOUND_PER_PAGE = 16
"""Part of a page that is expected to pass, where single values are looked for."""


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
        """Rows of the pages that pass, and a part of those of others."""
        condition: Any = query
        whole, partly = self._bounds.select(condition)
        rows = self._bounds.rows
        tested = int(rows[partly].sum())
        single = isinstance(condition, IsOneOf) and not condition.negated
        return int(rows[whole].sum()) + -(-tested // (_FOUND_PER_PAGE if single else 2))

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
        whole, partly = self._bounds.select(condition)
        at = np.flatnonzero(partly)
        if len(at) <= _KEPT_PAGES:
            pages, rest = self._kept(at, list(self._ranges(whole)))
            return self._row_set([*rest, *(page.find(condition) for page in pages)])
        tested = list(self._ranges(partly))
        columns = self._pages.read_ranges(
            [(("values", "ids"), tested), (("ids",), self._ranges(whole))]
        )
        found = [self._numbers(ids) for (ids,) in columns[len(tested) :]]
        for values, ids in columns[: len(tested)]:
            found.append(self._numbers(ids)[_passing(condition, values)])
        return self._row_set(found)

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
                pages, rest[:] = self._read(at, others)
                fetched.update(zip(at.tolist(), pages, strict=True))
            page = fetched[number]
            return page, page.values.nbytes + page.rows.nbytes

        found = [self._keep(("page", number), partial(load, number)) for number in at.tolist()]
        if others and not rest:
            _, rest = self._read(at[:0], others)
        return found, rest

    def _read(
        self, at: Int64s, others: list[tuple[int, int]]
    ) -> tuple[list[_Page], list[RowNumbers]]:
        starts = at * self._per_page
        stops = np.minimum(starts + self._per_page, self._pages.num_rows)
        ranges = list(zip(starts.tolist(), stops.tolist(), strict=True))
        columns = self._pages.read_ranges([(("values", "ids"), ranges), (("ids",), others)])
        pages = [_Page(values, self._numbers(ids)) for values, ids in columns[: len(ranges)]]
        return pages, [self._numbers(ids) for (ids,) in columns[len(ranges) :]]

    def _ranges(self, pages: Flags) -> Iterable[tuple[int, int]]:
        """Rows of neighbouring pages as ranges."""
        edges = np.flatnonzero(np.diff(pages, prepend=False, append=False)) * self._per_page
        edges = np.minimum(edges, self._pages.num_rows)
        return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)

    def _numbers(self, ids: Any) -> RowNumbers:
        self._pages.check_present(ids)
        return np.asarray(ids)

    def _row_set(self, found: list[RowNumbers]) -> RowSet:
        rows = np.sort(np.concatenate([_NO_ROWS.starts, *found]))
        if len(rows) and rows[-1] == _NO_ROW:
            raise self._pages.corrupt("rows of an index", "a number below 2^64 - 1", f"{_NO_ROW}")
        return RowSet.of(rows)


class _Page(NamedTuple):
    """The values of a page, and their rows."""

    values: Any
    rows: RowNumbers

    def find(self, condition: Condition) -> RowNumbers:
        """Rows that pass."""
        if not is_number(self.values.type):
            return self.rows[_passing(condition, self.values)]
        # Values are in order, as their keys are, which needs no pass over all of them.
        nulls = self.values.null_count
        keys, rows = sort_keys(self.values[nulls:]), self.rows[nulls:]
        if isinstance(condition, InRange):
            first, last = 0, len(keys)
            if condition.low is not None:
                side = _SIDES[not condition.low_included]
                first = int(np.searchsorted(keys, key_of(condition.low), side)[0])
            if condition.high is not None:
                side = _SIDES[condition.high_included]
                last = int(np.searchsorted(keys, key_of(condition.high), side)[0])
            return rows[first:last]
        if isinstance(condition, IsOneOf) and not condition.negated:
            wanted = np.unique(sort_keys(condition.values.drop_null()))
            starts, stops = (np.searchsorted(keys, wanted, side) for side in _SIDES)
            present = np.flatnonzero(starts < stops)
            bounds = zip(starts[present].tolist(), stops[present].tolist(), strict=True)
            return np.concatenate([rows[:0], *(rows[start:stop] for start, stop in bounds)])
        return self.rows[_passing(condition, self.values)]


_SIDES: tuple[Any, Any] = ("left", "right")

_NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))
_NO_ROW = np.iinfo(np.uint64).max


def _passing(condition: Condition, values: pa.Array) -> Flags:
    return np.asarray(condition.mask(values))
