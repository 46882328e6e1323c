"""Ranges are copied to aligned positions; both tiers agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.errors import CorruptFileError
from glaive.kernels.flat import space_ranges


@given(st.lists(st.integers(0, 300), max_size=20), st.sampled_from([1, 8, 64]), st.integers(0, 99))
def test_each_range_begins_at_a_multiple_of_the_alignment(
    sizes: list[int], alignment: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, 1000, np.uint8).tobytes()
    starts = [int(rng.integers(0, 1001 - size)) for size in sizes]
    expected = b""
    for start, size in zip(starts, sizes, strict=True):
        expected += b"-" * (-len(expected) % alignment) + data[start : start + size]
    spaced = space_ranges(
        pa.py_buffer(data), np.array(starts, np.int64), np.array(sizes, np.int64),
        alignment, ord("-"), "test",
    )  # fmt: skip
    assert spaced.to_pybytes() == expected


@pytest.mark.parametrize(("start", "size"), [(0, 17), (-1, 1), (16, 1), (8, 2**63 - 1), (4, -1)])
def test_ranges_outside_the_data_are_refused(start: int, size: int) -> None:
    data = pa.py_buffer(bytes(16))
    with pytest.raises(CorruptFileError, match="ranges within 16 bytes"):
        space_ranges(data, np.array([0, start]), np.array([3, size]), 64, 0, "test")
