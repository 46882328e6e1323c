"""Columns in several chunks, and as NumPy has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.arrow.chunked import as_numpy

ARRAYS = {
    "numbers": pa.array([3, 1, 2], pa.uint32()),
    "a part of numbers": pa.array([9, 3, 1, 2, 9], pa.int64()).slice(1, 3),
    "fractions": pa.array([0.5, float("nan"), -1.0], pa.float32()),
    "half fractions": pa.array(np.array([0.5, 2.0], np.float16)),
    "flags": pa.array([True, False, True, True]),
    "a part of flags": pa.array([False] * 11 + [True, False]).slice(9, 4),
    "numbers with nulls": pa.array([1, None, 3], pa.int32()),
    "flags with nulls": pa.array([True, None]),
    "texts": pa.array(["a", "b"]),
    "nothing": pa.array([], pa.uint64()),
    "no flags": pa.array([], pa.bool_()),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_becomes_what_arrow_makes_of_it(name: str) -> None:
    array: Any = ARRAYS[name]
    expected = array.to_numpy(zero_copy_only=False)
    for column in (array, pa.chunked_array([array]), pa.chunked_array([array[:1], array[1:]])):
        found = as_numpy(column)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_numbers_of_one_array_are_not_copied() -> None:
    array: Any = pa.array([1, 2, 3], pa.int64())
    assert as_numpy(array).ctypes.data == array.buffers()[1].address
