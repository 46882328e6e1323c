"""Sets of rows are the same as bits and as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.arrow.buffers import align_bits, pack_flags
from glaive.arrow.conditions import InRange, IsNull, IsOneOf
from glaive.scan.deletions import LiveRows
from glaive.scan.filter.rows import RowSet

START, ROWS = 5, 77

Flags = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(np.array)


def as_bits(flags: np.ndarray) -> RowSet:
    return RowSet(START, START + ROWS, bits=pack_flags(flags))


def as_numbers(flags: np.ndarray) -> RowSet:
    return RowSet(START, START + ROWS, numbers=np.flatnonzero(flags) + START)


@given(some=Flags, others=Flags)
@pytest.mark.parametrize("one", [as_bits, as_numbers])
@pytest.mark.parametrize("other", [as_bits, as_numbers])
def test_what_two_sets_have_in_common(one, other, some, others) -> None:  # type: ignore[no-untyped-def]  # makers of sets
    both = one(some).among(other(others))
    expected = (np.flatnonzero(some & others) + START).tolist()
    assert both.count == len(expected)
    assert both.rows.tolist() == expected


@given(some=Flags, gone=Flags)
@pytest.mark.parametrize("make", [as_bits, as_numbers])
def test_deleted_rows_are_left_out(make, some, gone) -> None:  # type: ignore[no-untyped-def]  # a maker of sets
    deleted = (np.flatnonzero(gone) + START).astype(np.uint32)
    live = LiveRows(np.concatenate([[1], deleted]).astype(np.uint32), START + ROWS + 9)
    assert make(some).live(live).rows.tolist() == (np.flatnonzero(some & ~gone) + START).tolist()


@given(flags=Flags, begin=st.integers(0, ROWS), count=st.integers(0, ROWS))
def test_bits_are_moved_to_the_front(flags: np.ndarray, begin: int, count: int) -> None:
    count = min(count, ROWS - begin)
    found = align_bits(pack_flags(flags), begin, count)
    assert found.size == (count + 7) // 8
    expected = pack_flags(flags[begin : begin + count]).to_pybytes()
    assert found.to_pybytes() == expected


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_columns_match_the_rows_they_find(tmp_path: Path, version: str) -> None:
    rng = np.random.default_rng(0)
    values = pa.array(rng.integers(0, 30, 9000), mask=rng.random(9000) < 0.1)
    opened = glaive.write_dataset(pa.table({"a": values}), tmp_path, data_storage_version=version)
    conditions = [
        InRange(low=pa.scalar(3), high=pa.scalar(9)),
        IsOneOf(pa.array([1, 17])),
        IsNull(),
    ]
    # What is found with either is what a scan with the condition returns.
    for text, condition in zip(
        ("a between 3 and 9", "a in (1, 17)", "a is null"), conditions, strict=True
    ):
        rows = np.flatnonzero(np.asarray(condition.mask(values)))
        found = opened.to_table(["_rowoffset"], text, offset=1)["_rowoffset"].to_pylist()
        assert found == rows.tolist()[1:]
        assert opened.count_rows(text) == len(rows)
