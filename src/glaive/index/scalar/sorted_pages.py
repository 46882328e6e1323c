"""Pages of sorted values: their bounds, and which of them hold the answers to a condition.

Specification: "BTREE" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf
from glaive.arrow.scalars import constants
from glaive.dataclass import dataclass
from glaive.index.scalar.ordering import SortKeys, distinct_keys, key_of, prefix_range, sort_keys
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["PageBounds", "PageSelection"]


class PageSelection(NamedTuple):
    """The pages that matter for a condition.

    Parameters
    ----------
    whole
        Ranges of pages of which all rows pass: half-open, ascending, not adjacent.
    partly
        Pages of which some rows may pass, whose values have to be tested; ascending.
    """

    whole: list[tuple[int, int]]
    partly: Int64s

    @classmethod
    def of(cls, whole: Flags, partly: Flags) -> Self:
        """The same from one flag per page."""
        edges = np.flatnonzero(np.diff(whole, prepend=False, append=False)).tolist()
        return cls(list(zip(edges[::2], edges[1::2], strict=True)), np.flatnonzero(partly))


@dataclass(frozen=True, eq=False)
class PageBounds:
    """Smallest and largest value of each page of sorted values, nulls first.

    Parameters
    ----------
    kind
        Type of the values.
    lows, highs
        Keys of the first and the last value of each page that has values; of a page that
        begins with nulls, the low key stands for any lower one.
    null_rows
        Rows that are null: the first ones.
    all_null
        Pages of nulls only: the first ones.
    straddles
        Whether the first page with values begins with nulls.
    rows
        Rows of each page.
    nbytes
        Bytes of memory, about.
    """

    kind: pa.DataType
    lows: SortKeys
    highs: SortKeys
    null_rows: int
    all_null: int
    straddles: bool
    rows: Int64s
    nbytes: int

    @classmethod
    def of(cls, lowest: pa.Array, highest: pa.Array, nulls: Int64s, rows: Int64s) -> Self | None:
        """Bounds from the first and the last value of each page and its nulls.

        None if they are not those of sorted pages.
        """
        null_rows, all_null = int(nulls.sum()), int((nulls == rows).sum())
        before = np.cumsum(rows) - rows
        straddles = bool(((nulls > 0) & (nulls < rows)).any())
        if not bool((nulls == np.clip(null_rows - before, 0, rows)).all()):
            return None
        if lowest.null_count != all_null + straddles or highest.null_count != all_null:
            return None
        lows, highs = sort_keys(lowest[all_null:]), sort_keys(highest[all_null:])
        present = int(straddles)
        if bool((highs[present:] < lows[present:]).any()) or bool((lows[1:] < highs[:-1]).any()):
            return None
        nbytes = lows.nbytes + highs.nbytes + rows.nbytes
        if lows.dtype == np.object_:
            nbytes += lowest.nbytes + highest.nbytes + _OBJECT_BYTES * 2 * len(lows)
        return cls(lowest.type, lows, highs, null_rows, all_null, straddles, rows, int(nbytes))

    def select(self, condition: Condition) -> PageSelection:
        """The pages for a condition that :meth:`accepts`."""
        if isinstance(condition, IsNull):
            return self._nulls(condition)
        if isinstance(condition, IsOneOf):
            selection = self._one_of(condition.values)
            return self._without(selection, condition) if condition.negated else selection
        if isinstance(condition, InRange):
            low = _Bound(_keys_of(condition.low), condition.low_included)
            return self._range(low, _Bound(_keys_of(condition.high), condition.high_included))
        if condition.ends:
            return self._one_of(constants([condition.word], self.kind))
        first, after = prefix_range(condition.word)
        return self._range(_Bound(first, True), _Bound(after, False))

    def keys_by_page(self, values: Any, pages: Int64s) -> list[SortKeys]:
        """The distinct keys of some values that each of some pages may have."""
        keys = distinct_keys(values)
        at = pages - self.all_null
        first = np.searchsorted(keys, self.lows[at], "left")
        if self.straddles:
            first[at == 0] = 0
        last = np.searchsorted(keys, self.highs[at], "right")
        bounds = zip(first.tolist(), last.tolist(), strict=True)
        return [keys[start:stop] for start, stop in bounds]

    def accepts(self, condition: object) -> bool:
        """Whether pages can be selected for a condition."""
        if isinstance(condition, IsNull):
            return True
        if isinstance(condition, IsOneOf):
            return bool(condition.values.type == self.kind)
        if isinstance(condition, InRange):
            bounds = [one for one in (condition.low, condition.high) if one is not None]
            return all(bound.type == self.kind for bound in bounds)
        is_text = pa.types.is_string(self.kind) or pa.types.is_large_string(self.kind)
        return isinstance(condition, HasText) and condition.begins and is_text

    # ------------------------------------------------------------------ by condition

    def _nulls(self, condition: IsNull) -> PageSelection:
        first, count = self.all_null + self.straddles, len(self.rows)
        start, stop = (first, count) if condition.negated else (0, self.all_null)
        whole = [(start, stop)] if start < stop else []
        return PageSelection(whole, np.arange(self.all_null, first))

    def _range(self, low: _Bound, high: _Bound) -> PageSelection:
        first = inner_first = _FIRST
        last = inner_last = np.array([len(self.lows)])
        if low.key is not None:
            side = "left" if low.included else "right"
            first, inner_first = self._search_highs(low.key, side), self._search_lows(low.key, side)
        if high.key is not None:
            side = "right" if high.included else "left"
            last, inner_last = self._search_lows(high.key, side), self._search_highs(high.key, side)
        return self._selection(first, last, inner_first, inner_last)

    def _one_of(self, values: Any) -> PageSelection:
        keys = sort_keys(values.drop_null() if values.null_count else values)
        return self._selection(
            self._search_highs(keys, "left"),
            self._search_lows(keys, "right"),
            self._search_lows(keys, "left"),
            self._search_highs(keys, "right"),
        )

    def _without(self, found: PageSelection, condition: IsOneOf) -> PageSelection:
        """All pages with values, but for those that were found whole."""
        if condition.values.null_count:
            return PageSelection([], _NO_PAGES)
        whole = np.ones(len(self.rows), np.bool_)
        partly = np.zeros(len(self.rows), np.bool_)
        for start, stop in found.whole:
            whole[start:stop] = False
        whole[found.partly] = False
        partly[found.partly] = True
        whole[: self.all_null] = False
        if self.straddles:
            partly[self.all_null] |= whole[self.all_null]
            whole[self.all_null] = False
        return PageSelection.of(whole, partly)

    # ------------------------------------------------------------------ ranges of pages

    def _search_highs(self, keys: SortKeys, side: Any) -> Int64s:
        return self.highs.searchsorted(keys, side)

    def _search_lows(self, keys: SortKeys, side: Any) -> Int64s:
        """``searchsorted`` in the low keys; that of a page that begins with nulls is the lowest."""
        skipped = int(self.straddles)
        found = self.lows[skipped:].searchsorted(keys, side)
        return found + 1 if skipped else found

    def _selection(
        self, first: Int64s, last: Int64s, inner_first: Int64s, inner_last: Int64s
    ) -> PageSelection:
        """The union of ranges of pages, numbered among those with values.

        Those from ``inner_first`` to ``inner_last`` pass as a whole, if there are no nulls.
        """
        if len(first) == 1:
            inner = max(inner_first.item(), int(self.straddles))
            return self._single(first.item(), last.item(), inner, inner_last.item())
        inner_first = np.maximum(inner_first, int(self.straddles))
        found, whole = self._union(first, last), self._union(inner_first, inner_last)
        return PageSelection.of(whole, found & ~whole)

    def _single(self, first: int, last: int, inner_first: int, inner_last: int) -> PageSelection:
        """One range of pages: where it begins and ends, some rows may pass."""
        before = self.all_null
        inner_first, inner_last = max(first, inner_first), min(last, inner_last)
        if inner_first >= inner_last:
            return PageSelection([], np.arange(before + first, before + last))
        edges = [*range(first, inner_first), *range(inner_last, last)]
        return PageSelection(
            [(before + inner_first, before + inner_last)], np.array(edges, np.int64) + before
        )

    def _union(self, first: Int64s, last: Int64s) -> Flags:
        last = np.maximum(first, last)
        depth = np.zeros(len(self.lows) + 1, np.int64)
        np.add.at(depth, first, 1)
        np.subtract.at(depth, last, 1)
        flags = np.zeros(len(self.rows), np.bool_)
        flags[self.all_null :] = np.cumsum(depth[:-1]) > 0
        return flags

    # ------------------------------------------------------------------ numbers of rows

    def rows_of(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Rows of ranges of pages."""
        return sum(int(self.rows[start:stop].sum()) for start, stop in ranges)

    @cached_property
    def rows_per_value(self) -> float:
        """Rows with the same value, about.

        The more rows have the same value, the more pages end within these: where each does, there
        are as many rows as in some pages, as far as bounds tell.
        """
        pages = max(1, len(self.lows))
        changes = int(np.count_nonzero(self.lows[1:] != self.highs[:-1]))
        return pages / (changes + 1)

    @cached_property
    def are_apart(self) -> bool:
        """Whether no value is in two pages."""
        return self.rows_per_value == 1 and not self.null_rows

    def rows_of_values(self, condition: IsOneOf) -> int:
        """Rows that have one of some values, about, wherever they are."""
        return math.ceil(len(condition.values) * self.rows_per_value)

    def estimate(self, condition: Condition, selection: PageSelection) -> int:
        """Rows that pass a condition, about, by the pages that were selected for it."""
        whole, partly = selection
        tested = (
            self.rows.item(partly.item()) if len(partly) == 1 else self.rows[partly].sum().item()
        )
        if isinstance(condition, IsOneOf) and not condition.negated:
            single = self.rows_of_values(condition)
            # A value that goes on in the next page has about half of either.
            goes_on = len(whole) > 0 or len(partly) > len(condition.values)
            tested = max(tested // 2, single) if goes_on else min(tested, single)
        elif isinstance(condition, InRange) and self.lows.dtype != np.object_:
            tested = math.ceil(sum(self._share(condition, page) for page in partly.tolist()))
        else:
            tested = -(-tested // 2)
        return self.rows_of(whole) + tested

    def _share(self, condition: InRange, page: int) -> float:
        """Rows of a page that are in a range, if values are spread evenly between its bounds."""
        at = page - self.all_null
        low, high = int(self.lows[at]), int(self.highs[at])
        first = low if condition.low is None else int(_first(condition.low))
        last = high if condition.high is None else int(_first(condition.high))
        if not low < high or (self.straddles and at == 0):
            return int(self.rows[page]) / 2
        share = (min(last, high) - max(first, low) + 1) / (high - low + 1)
        return int(self.rows[page]) * max(0.0, share)


def _first(bound: Any) -> Any:
    return key_of(bound)[0]


_NO_PAGES = np.empty(0, np.int64)
_FIRST = np.zeros(1, np.int64)

_OBJECT_BYTES = 33
"""Bytes of memory of an empty ``bytes`` object."""


class _Bound(NamedTuple):
    """An end of a range: its key, in an array of one; None if the range is open."""

    key: SortKeys | None
    included: bool


def _keys_of(bound: Any) -> SortKeys | None:
    return None if bound is None else key_of(bound)
