"""Sets of rows: as sets of Python's."""

from __future__ import annotations

from functools import reduce

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glaive.index.row_sets import RowSet

NUMBERS = st.integers(0, 40) | st.integers(2**32 - 3, 2**32 + 3) | st.just(2**64 - 2)
SETS = st.sets(NUMBERS, max_size=25)


def made(rows: set[int]) -> RowSet:
    return RowSet.of(np.array(sorted(rows, key=hash, reverse=True), np.uint64))


def members(rows: RowSet) -> set[int]:
    """All rows, after a look at the ranges."""
    starts, stops = rows.starts.tolist(), rows.stops.tolist()
    assert all(start < stop for start, stop in zip(starts, stops, strict=True))
    assert all(stop < start for stop, start in zip(stops, starts[1:], strict=False))
    found: list[int] = rows.rows().tolist()
    assert found == sorted(set(found))
    assert rows.count == len(found)
    return set(found)


@given(SETS)
def test_a_set_has_the_rows_it_was_made_of(rows: set[int]) -> None:
    assert members(made(rows)) == rows


def test_the_number_that_no_row_has_is_left_out() -> None:
    assert members(RowSet.of(np.array([2**64 - 1, 5], np.uint64))) == {5}
    assert members(RowSet.of(np.array([2**64 - 1], np.uint64))) == set()


@given(st.lists(SETS, min_size=1, max_size=4))
def test_union_intersection_and_difference_are_those_of_sets(sets: list[set[int]]) -> None:
    row_sets = [made(rows) for rows in sets]
    assert members(RowSet.union(row_sets)) == reduce(set.union, sets)
    assert members(RowSet.intersection(row_sets)) == reduce(set.intersection, sets)
    assert members(row_sets[0].difference(row_sets[-1])) == sets[0] - sets[-1]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_ranges_may_overlap_meet_or_be_empty(ranges: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in ranges], np.uint64)
    stops = np.array([stop for _, stop in ranges], np.uint64)
    expected = {row for start, stop in ranges for row in range(start, stop)}
    assert members(RowSet.of_ranges(starts, stops)) == expected


@given(SETS, st.integers(0, 45), st.integers(0, 45))
def test_the_rows_within_a_range_are_found(rows: set[int], start: int, stop: int) -> None:
    assert members(made(rows).within(start, stop)) == {row for row in rows if start <= row < stop}


@given(SETS, st.lists(NUMBERS, max_size=20))
def test_members_are_known(rows: set[int], asked: list[int]) -> None:
    flags = made(rows).contains(np.array(asked, np.uint64))
    assert flags.tolist() == [row in rows for row in asked]
