"""Selections of rows are the same as bits, as flags and as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glaive
from glaive.arrow.blocks import align_bits, pack_flags
from glaive.arrow.conditions import InRange, IsNull, IsOneOf
from glaive.format.deletions import DeletedRuns
from glaive.scan.filter_search import RowSelection
from glaive.scan.snapshot import LiveRows

START, ROWS = 5, 77

Flags = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(np.array)


def as_bits(flags: np.ndarray) -> RowSelection:
    return RowSelection(START, START + ROWS, bits=pack_flags(flags))


def as_numbers(flags: np.ndarray) -> RowSelection:
    return RowSelection(START, START + ROWS, rows=np.flatnonzero(flags) + START)


def as_flags(flags: np.ndarray) -> RowSelection:
    return RowSelection(START, START + ROWS, flags=flags)


WAYS = [as_bits, as_flags, as_numbers]


@given(some=Flags, begin=st.integers(0, ROWS), end=st.integers(0, ROWS))
@pytest.mark.parametrize("make", WAYS)
def test_selected_rows_are_counted_listed_and_cut(make, some, begin, end) -> None:  # type: ignore[no-untyped-def]  # a maker of selections
    rows = (np.flatnonzero(some) + START).tolist()
    assert make(some).count == len(rows)
    assert make(some).rows.tolist() == rows
    assert make(some).offsets.tolist() == np.flatnonzero(some).tolist()
    end = min(end, len(rows))
    assert make(some).numbered(np.arange(end)).tolist() == rows[:end]
    cut = make(some).cut(min(begin, end), end)
    assert cut.rows.tolist() == rows[min(begin, end) : end]
    assert cut.count == len(cut.rows)


def test_without_further_word_all_rows_are_selected() -> None:
    every = RowSelection(START, START + ROWS)
    assert every.count == ROWS
    assert every.rows.tolist() == list(range(START, START + ROWS))
    assert every.numbered(np.array([0, 3])).tolist() == [START, START + 3]
    assert every.intersect(as_numbers(np.arange(ROWS) < 3)).rows.tolist() == [5, 6, 7]


@pytest.mark.sampled(every=2)
@given(some=Flags, others=Flags)
@pytest.mark.parametrize("one", WAYS)
@pytest.mark.parametrize("other", WAYS)
def test_what_two_selections_have_in_common(one, other, some, others) -> None:  # type: ignore[no-untyped-def]  # makers of selections
    both = one(some).intersect(other(others))
    expected = (np.flatnonzero(some & others) + START).tolist()
    assert both.count == len(expected)
    assert both.rows.tolist() == expected


@given(some=Flags, gone=Flags)
@pytest.mark.parametrize("make", WAYS)
def test_deleted_rows_are_left_out(make, some, gone) -> None:  # type: ignore[no-untyped-def]  # a maker of selections
    deleted = (np.flatnonzero(gone) + START).astype(np.uint32)
    live = LiveRows(
        DeletedRuns.of(np.concatenate([[1], deleted]).astype(np.uint32)), START + ROWS + 9
    )
    assert (
        make(some).without_deleted(live).rows.tolist()
        == (np.flatnonzero(some & ~gone) + START).tolist()
    )


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
