"""Sets of numbers as tests on words say what the condition's own mask says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.conditions import IsOneOf
from glaive.encodings.predicate import integer_ranges
from glaive.kernels.match import list_rows, match_plain
from glaive.types import as_buffer

KINDS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]


@given(kind=st.sampled_from(KINDS), negated=st.booleans(), nulls=st.booleans(), data=st.data())
def test_sets_of_numbers(kind: Any, negated: bool, nulls: bool, data: st.DataObject) -> None:
    limits = np.iinfo(kind.to_pandas_dtype())
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0]
    numbers = st.integers(int(limits.min), int(limits.max)) | st.sampled_from(ends)
    numbers |= st.integers(0, 40)
    some = data.draw(st.lists(numbers, max_size=60))
    near = [min(max(value + step, limits.min), limits.max) for value in some for step in (-1, 1)]
    values_tested = [*ends, *range(42), *some, *near]
    values: Any = pa.array([*some, None] if nulls else some, kind)
    condition = IsOneOf(values, negated)
    test = integer_ranges(condition, kind)
    assert test is not None
    array: Any = pa.array(values_tested, kind)
    words = array.to_numpy().view(f"u{limits.bits // 8}")
    mask = condition.mask(array).to_pylist()
    assert test.flags(words).tolist() == mask
    many, count = np.resize(words, 200), np.array([200])
    rows = list_rows(
        match_plain(as_buffer(many), np.zeros(1, np.int64), count, test, ""), 0, 200, 0
    )
    assert rows.tolist() == np.flatnonzero(np.resize(mask, 200)).tolist()
    assert integer_ranges(condition, kind) is test, "worked out once"


@pytest.mark.parametrize("negated", [False, True])
def test_sets_of_floats_are_sets_of_bits(negated: bool) -> None:
    condition = IsOneOf(pa.array([0.0, float("nan"), 1.5]), negated)
    test = integer_ranges(condition, pa.float64())
    assert test is not None
    values_tested = np.array([0.0, -0.0, float("nan"), 1.5, 2.0])
    expected = np.array([True, False, True, True, False]) ^ negated
    assert test.flags(values_tested.view(np.uint64)).tolist() == expected.tolist()


SETS = {"ranges": (20, 150_000, 1 << 30), "hashed": (1 << 16, 1, 999), "bitset": (99, 2, 9)}


@pytest.mark.parametrize("kind", SETS)
def test_sets_of_many_numbers_are_ranges_hashes_or_bits(kind: str) -> None:
    runs, size, gap = SETS[kind]
    numbers = (np.arange(runs)[:, None] * gap + np.arange(size)).ravel()
    test = integer_ranges(IsOneOf(pa.array(numbers)), pa.int64())
    assert test is not None
    assert (test.bitset is not None) == (kind == "bitset")
    assert (test.hashed is not None) == (kind == "hashed")
    near = (numbers[[0, 1, -2, -1], None] + np.arange(-16, 16)).ravel()
    found = match_plain(as_buffer(near), np.zeros(1, np.int64), np.array([len(near)]), test, "")
    rows = list_rows(found, 0, len(near), 0)
    assert rows.tolist() == np.flatnonzero(np.isin(near, numbers)).tolist()
