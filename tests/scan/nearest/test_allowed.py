"""Rows that a search is restricted to: known one by one, in whatever order they are asked for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glaive.scan.nearest.indexed import AllowedRows

ROWS = st.tuples(st.integers(0, 6), st.integers(0, 40))


@given(allowed=st.sets(ROWS), asked=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50))))
def test_rows_are_allowed_if_they_passed(
    allowed: set[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    fragments = sorted({position for position, _ in allowed}, reverse=True)
    parts = [
        (position, np.array(sorted(row for at, row in allowed if at == position), np.int64))
        for position in fragments
    ]
    halves = [(position, rows[cut]) for position, rows in parts for cut in _halves(len(rows))]
    made = AllowedRows(halves)
    fragment, row = np.array(asked, np.int64).reshape(-1, 2).T
    assert made.contains(fragment, row).tolist() == [pair in allowed for pair in asked]
    assert made.count == len(allowed)
    assert set(zip(*(numbers.tolist() for numbers in made.pairs()), strict=True)) == allowed


def _halves(count: int) -> list[slice]:
    return [slice(0, count // 2), slice(count // 2, count)]


def test_far_rows_take_no_memory_of_their_own() -> None:
    made = AllowedRows([(0, np.array([5, 1 << 40])), (3, np.array([7]))])
    asked = np.array([[0, 5], [0, 6], [0, 1 << 40], [3, 7], [2, 7], [9, 7]])
    assert made.contains(*asked.T).tolist() == [True, False, True, True, False, False]
