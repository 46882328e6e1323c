"""Integers in ascending order, each once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.blocks import ascending, distinct


@given(st.lists(st.integers(-(2**63), 2**63 - 1)) | st.lists(st.integers(-3, 3)))
def test_numbers_come_in_ascending_order_and_each_once(numbers: list[int]) -> None:
    assert ascending(np.array(numbers, np.int64)).tolist() == sorted(set(numbers))


@given(st.lists(st.integers(0, 2**62)) | st.lists(st.integers(0, 9)))
def test_dense_and_sparse_positions_come_in_ascending_order_and_each_once(rows: list[int]) -> None:
    assert distinct(np.array(rows, np.int64)).tolist() == sorted(set(rows))


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64, np.int64])
def test_the_largest_numbers_of_each_type_keep_their_order_and_type(kind: type[np.integer]) -> None:
    most = np.iinfo(kind).max
    found = ascending(np.array([most, 0, most - 1, most, 1], kind))
    assert found.tolist() == [0, 1, most - 1, most]
    assert found.dtype == kind


def test_keys_that_are_python_objects_are_ordered_too() -> None:
    words = np.array([b"bb", b"", b"a", b"bb"], object)
    assert ascending(words).tolist() == [b"", b"a", b"bb"]


def test_numbers_that_are_in_order_already_are_not_copied_and_the_others_stay_as_they_are() -> None:
    rows = np.arange(5)
    assert ascending(rows) is rows
    mixed = np.array([3, 1, 3])
    assert ascending(mixed).tolist() == [1, 3]
    assert mixed.tolist() == [3, 1, 3]
