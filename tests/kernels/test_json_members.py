"""Members of JSONB: both tiers find what parsing finds, and report objects that are cut."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.arrow.jsonb import encode_jsonb
from glaive.errors import CorruptFileError
from glaive.kernels.offsets import find_members

TIERS = ("numpy", "numba")
KEYS = st.text("abä", max_size=9)
OBJECTS = st.dictionaries(KEYS, st.integers(-300, 300) | KEYS | st.none(), max_size=6)


def memory(objects: list[dict[str, Any]]) -> tuple[Any, Any]:
    made: Any = encode_jsonb(pa.array([json.dumps(value) for value in objects], pa.string()))
    pieces = made.to_pylist()
    ends = np.cumsum([3, *map(len, pieces)])
    return np.frombuffer(b"\xff" * 3 + b"".join(pieces), np.uint8), ends


@given(objects=st.lists(OBJECTS, min_size=1, max_size=20), key=KEYS)
def test_a_member_is_found_by_its_name(objects: list[dict[str, Any]], key: str) -> None:
    raw, ends = memory(objects)
    results = []
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # names of tiers
            results.append(find_members(raw, ends[:-1], ends[1:], key.encode()))
    for numpy_result, numba_result in zip(*results, strict=True):
        np.testing.assert_array_equal(numpy_result, numba_result)
    words, places = results[0]
    for made, word, place in zip(objects, words.tolist(), places.tolist(), strict=True):
        assert (place >= 0) == (key in made)
        value = made.get(key)
        if isinstance(value, str):
            assert word >> 28 == 1
            assert raw[place : place + (word & 0xFFFFFFF)].tobytes().decode() == value
        elif value is None:
            assert word == 0


@pytest.mark.parametrize("tier", TIERS)
def test_names_longer_than_the_number_of_objects_are_compared_as_a_whole(tier: Any) -> None:
    name = "a" * 50_000
    raw, ends = memory([{"a": 1}, {name: 2}, {name[:-1] + "b": 3}])
    with force_tier(tier):
        _, places = find_members(raw, ends[:-1], ends[1:], name.encode())
    assert (places >= 0).tolist() == [False, True, False]


@pytest.mark.parametrize("tier", TIERS)
def test_objects_that_are_cut_are_reported(tier: Any) -> None:
    raw, ends = memory([{"name": "value", "other": 5}])
    for size in range(ends[1] - ends[0]):
        cut = raw[: ends[0] + size].copy()
        with force_tier(tier), pytest.raises(CorruptFileError, match="JSONB"):
            find_members(cut, ends[:1], ends[:1] + size, b"name")


@pytest.mark.parametrize("tier", TIERS)
def test_objects_outside_the_memory_are_reported(tier: Any) -> None:
    raw, _ = memory([{"a": 1}])
    for begin, end in ((-1, 20), (3, len(raw) + 1), (5, 4)):
        with force_tier(tier), pytest.raises(CorruptFileError, match="JSONB"):
            find_members(raw, np.array([begin]), np.array([end]), b"a")
