"""Rows are matched by the values of their keys, whatever the type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.dataset.merging.matching import SourceKeys


@given(
    kind=st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "int64", "uint64"]),
    data=st.data(),
)
def test_whole_numbers_match_themselves_only_however_far_apart(
    kind: str, data: st.DataObject
) -> None:
    info = np.iinfo(kind)
    ends = st.sampled_from([info.min, info.min + 1, info.max - 1, info.max])
    numbers = st.integers(int(info.min), int(info.max)) | ends | st.integers(0, 100)
    source = data.draw(st.lists(numbers, min_size=1, max_size=8))
    rows = data.draw(st.lists(numbers | st.sampled_from(source), max_size=20))
    keys = SourceKeys(["k"], [pa.array(source, kind)])
    found = keys.find([pa.array(rows, kind)])
    assert found.tolist() == [source.index(one) if one in source else -1 for one in rows]


def test_a_distance_beyond_the_type_is_no_other_number() -> None:
    keys = SourceKeys(["k"], [pa.array([-100, 46, 100], pa.int8())])
    assert keys.find([pa.array(range(-128, 128), pa.int8())]).tolist() == [
        {-100: 0, 46: 1, 100: 2}.get(one, -1) for one in range(-128, 128)
    ]


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, 2.5, None], pa.float16()),
        pa.array([b"0" * 16, b"1" * 16, None], pa.uuid()),
        pa.array(["a", "b", None]).dictionary_encode(),
    ],
    ids=["float16", "uuid", "dictionary"],
)
def test_keys_of_types_that_arrow_does_not_look_up(values: pa.Array, columns: int) -> None:
    keys = SourceKeys([f"k{n}" for n in range(columns)], [values] * columns)
    assert keys.find([values.take([1, 0, 2])] * columns).tolist() == [1, 0, -1]


def test_a_null_key_is_not_the_number_zero() -> None:
    keys = SourceKeys(["k"], [pa.array([0, 5], pa.int64())])
    assert keys.find([pa.array([None, 0, 5, None], pa.int64())]).tolist() == [-1, 0, 1, -1]
