"""Lookups among the fragments of a version, with lists of ids that nobody checked."""

import numpy as np
import pytest

from glaive.table.index_coverage import FragmentPositions

POSITIONS = FragmentPositions(np.array([7, 3, 9, 4], np.int64))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], []),
        ([9, 7], [2, 0]),
        ([3, 3], [1, 1]),
        ([5, 10, 4], [3]),
        ([-1, -(2**70), 2**63, 2**70, 3], [1]),
    ],
    ids=["none", "two", "one twice", "unknown ones", "what no id can be"],
)
def test_ids_are_found_in_the_order_of_the_question(wanted: list[int], expected: list[int]) -> None:
    assert POSITIONS.of(wanted).tolist() == expected


def test_flags_are_those_of_the_found_fragments() -> None:
    assert POSITIONS.marked({4, 7, 1000}).tolist() == [True, False, False, True]


def test_an_id_that_a_damaged_manifest_has_twice_is_its_first_fragment() -> None:
    assert FragmentPositions(np.array([5, 8, 5], np.int64)).of([5]).tolist() == [0]


def test_a_version_without_fragments_has_none_of_them() -> None:
    empty = FragmentPositions(np.array([], np.int64))
    assert empty.of([1, 2]).tolist() == []
    assert empty.marked([1]).tolist() == []
