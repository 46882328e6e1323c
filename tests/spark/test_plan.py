"""Rows cut into parts for tasks: all of them once, in order, of about equal size."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.spark import frame
from glaive.spark.frame import MAX_PARTS, Part, batch_rows, row_bytes


def split(rows: list[int], width: float, **options: Any) -> list[Part]:
    return frame.split(range(len(rows)), rows, width, **options)


def rows_of(part: Part, rows: list[int]) -> list[tuple[int, int]]:
    """Return (fragment, row) of each row of a part, as a scan of it would."""
    line = [(number, row) for number in part.fragment_ids for row in range(rows[number])]
    return line[part.offset : part.offset + part.rows]


@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 5), st.integers(1, 4_000))
def test_each_row_is_read_once_and_in_order(rows: list[int], cores: int, width: int) -> None:
    parts = split(rows, width * 10_000, parallelism=cores)

    everything = [(number, row) for number, count in enumerate(rows) for row in range(count)]
    assert [row for part in parts for row in rows_of(part, rows)] == everything
    assert all(part.rows > 0 for part in parts)


def test_a_dataset_without_rows_needs_no_task() -> None:
    assert split([], 8) == []
    assert split([0, 0], 8) == []


def test_a_large_fragment_is_split_among_the_cores() -> None:
    parts = split([1_000_000], 100, parallelism=4)

    assert len(parts) == 4
    assert max(part.rows for part in parts) < 300_000


def test_parts_stay_below_the_limit_for_one_task() -> None:
    parts = split([10_000_000], 100, parallelism=1, split_bytes=100_000_000)

    assert len(parts) == 10


def test_rows_that_only_the_manifest_tells_do_not_make_any_number_of_tasks() -> None:
    parts = split([2**32] * 4, 2.0**33, parallelism=4)
    assert len(parts) <= MAX_PARTS + 4
    assert sum(part.rows for part in parts) == 2**34


@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 300))
def test_a_limit_keeps_the_first_rows(rows: list[int], limit: int) -> None:
    parts = split(rows, 10_000_000, parallelism=3, limit=limit)

    everything = [(number, row) for number, count in enumerate(rows) for row in range(count)]
    assert [row for part in parts for row in rows_of(part, rows)] == everything[:limit]


def test_many_small_fragments_share_a_task() -> None:
    assert split([100] * 1_000, 30, parallelism=2) == [Part(tuple(range(1_000)), 0, 100_000)]


def test_fragments_are_not_cut_for_a_few_rows() -> None:
    parts = split([500_000, 500_010], 100, parallelism=2)

    assert [part.fragment_ids for part in parts] == [(0,), (1,)]


def test_the_width_of_a_row_counts_only_the_columns_read() -> None:
    whole = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 128))])

    assert row_bytes(pa.schema([whole.field("id")]), whole, 10, 0) == 8
    assert row_bytes(whole, whole, 10, 0) == 8 + 512


def test_files_tell_the_width_of_long_values() -> None:
    whole = pa.schema([("id", pa.int64()), ("image", pa.binary())])

    wide = row_bytes(whole, whole, 100, file_bytes=100 * 50_000)

    assert wide == pytest.approx(50_000, rel=0.01)
    assert batch_rows(wide) < 200


def test_batches_neither_crumble_nor_burst() -> None:
    assert batch_rows(1) == 65_536
    assert batch_rows(1e9) == 64
