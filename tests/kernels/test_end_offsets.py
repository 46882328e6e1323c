"""Stored ends: both tiers agree, and ends that are out of order are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.tiers import force_tier

from glaive.errors import CorruptFileError, SchemaError
from glaive.kernels.offsets import (
    NullableOffsets,
    decode_end_offsets,
    encode_end_offsets,
    pair_end_offsets,
)
from glaive.types import Where

TIERS = ("numpy", "numba")
WHERE = Where("a.lance")


def stored_ends(lengths: list[int | None]) -> tuple[Any, int]:
    adjustment = sum(length or 0 for length in lengths) + 1
    ends, at = [], 0
    for length in lengths:
        at += length or 0
        ends.append(at + (adjustment if length is None else 0))
    return np.array(ends, np.uint64), adjustment


@pytest.mark.spec("ends-1", "ends-2", "ends-3")
@given(
    lengths=st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=40),
    bits=st.sampled_from([32, 64]),
    skip=st.integers(0, 1),
)
def test_offsets_and_validity_come_back(lengths: list[int | None], bits: int, skip: int) -> None:
    stored, adjustment = stored_ends(lengths)
    requested = lengths[skip:]
    sizes = [length or 0 for length in requested]
    for tier in TIERS:
        with force_tier(tier):  # type: ignore[arg-type]  # one of the two
            result = decode_end_offsets(stored, skip, adjustment, bits, WHERE)
        offsets = np.frombuffer(result.offsets, f"<i{bits // 8}")
        assert offsets.tolist() == [0, *np.cumsum(sizes).tolist()][: len(requested) + 1]
        assert result.null_count == requested.count(None)
        assert result.stop - result.start == sum(sizes)
        if result.validity is not None:
            flags = np.unpackbits(np.frombuffer(result.validity, np.uint8), bitorder="little")
            assert flags[: len(requested)].tolist() == [length is not None for length in requested]
        if not skip:
            again, other = encode_end_offsets(result)
            assert other == adjustment
            assert np.frombuffer(again, np.uint64).tolist() == stored.tolist()


@given(lengths=st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=40))
def test_spans_of_single_values(lengths: list[int | None]) -> None:
    stored, adjustment = stored_ends(lengths)
    rows = np.arange(len(lengths))[::-1]
    before = stored[np.maximum(rows - 1, 0)]
    spans = pair_end_offsets(before, stored[rows], rows > 0, adjustment, WHERE)
    expected = [length or 0 for length in lengths][::-1]
    assert spans.sizes.tolist() == expected
    assert (spans.starts + spans.sizes).tolist() == (stored % np.uint64(adjustment))[rows].tolist()
    valid = [length is not None for length in lengths][::-1]
    assert (spans.valid is None) == all(valid)
    if spans.valid is not None:
        assert spans.valid.tolist() == valid


@pytest.mark.spec("ends-4")
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("stored", "adjustment"),
    [
        ([5, 3], 9),
        ([5, 9 + 3], 9),
        ([18], 9),
        ([3, 2**63, 5], 9),
        ([1, 7, 3, 8], 9),
        ([0], 0),
        ([0], 2**63),
    ],
)
def test_ends_out_of_order_are_reported(tier: Any, stored: list[int], adjustment: int) -> None:
    words = np.array(stored, np.uint64)
    with force_tier(tier), pytest.raises(CorruptFileError, match=r"a\.lance"):
        decode_end_offsets(words, 0, adjustment, 32, WHERE)


@pytest.mark.spec("ends-4")
@pytest.mark.parametrize(("before", "stored"), [(5, 3), (0, 18), (9 + 5, 4)])
def test_spans_out_of_order_are_reported(before: int, stored: int) -> None:
    first, last = (np.array([number], np.uint64) for number in (before, stored))
    with pytest.raises(CorruptFileError, match="ends of values"):
        pair_end_offsets(first, last, np.array([True]), 9, WHERE)


def test_more_than_32_bits_can_say_is_refused() -> None:
    stored = np.array([2**31], np.uint64)
    with pytest.raises(SchemaError, match="fewer rows at a time"):
        decode_end_offsets(stored, 0, 2**31 + 1, 32, WHERE)
    assert decode_end_offsets(stored, 0, 2**31 + 1, 64, WHERE).stop == 2**31


def test_nothing_ends_nowhere() -> None:
    result = decode_end_offsets(np.empty(0, np.uint64), 0, 1, 32, WHERE)
    assert result == NullableOffsets(pa.py_buffer(bytes(4)), 32, None, 0, 0, 0)
