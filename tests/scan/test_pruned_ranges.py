"""Filters on row addresses, and what indices found, cut fragments down to rows that may pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import glaive


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    """Three fragments of ten rows; the first two are in an index."""
    made = glaive.write_dataset({"id": range(20)}, tmp_path / "t", max_rows_per_file=10)
    made.create_scalar_index("id", "BTREE")
    made.insert({"id": range(20, 30)})
    return made


def looked_at(dataset: glaive.LanceDataset, condition: str, **options: Any) -> tuple[Any, int]:
    """What a filter finds, and how many rows were tested for it."""
    seen: list[Any] = []
    found = dataset.to_table(["id"], condition, scan_stats_callback=seen.append, **options)
    return found["id"].to_pylist(), seen[0].all_counts.get("rows_scanned", 0)


SECOND = 1 << 32
"""Address of the first row of the second fragment."""


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"_rowaddr <= {SECOND + 3}", range(14)),
        (f"_rowaddr < {SECOND + 3}", range(13)),
        (f"_rowaddr >= {SECOND + 3} AND _rowaddr <= {SECOND + 6}", range(13, 17)),
        (f"_rowaddr IN (4, 7, {SECOND + 2})", [4, 7, 12]),
        (f"_rowaddr > {SECOND + 9}", range(20, 30)),
    ],
)
def test_rows_beyond_the_addresses_of_a_filter_are_not_looked_at(
    dataset: glaive.LanceDataset, condition: str, expected: Any
) -> None:
    found, tested = looked_at(dataset, condition)
    assert found == list(expected)
    assert tested == (5 if "IN" in condition else len(expected))  # from the first to the last


def test_addresses_in_any_order_more_than_once_and_of_no_row_are_found_as_often_as_rows_have_them(
    dataset: glaive.LanceDataset,
) -> None:
    listed = f"{SECOND + 2}, 7, {2**64 - 1}, 10, {SECOND}, 7, 4, {SECOND + 10}, {9 * SECOND}"
    found, _ = looked_at(dataset, f"_rowaddr IN ({listed})")
    assert found == [4, 7, 10, 12]


def test_only_a_fast_search_leaves_out_rows_that_the_index_does_not_know(
    dataset: glaive.LanceDataset,
) -> None:
    condition = "id IN (3, 5, 24) AND id % 2 < 2"
    assert looked_at(dataset, condition, use_scalar_index=True) == ([3, 5, 24], 2 + 10)
    fast = looked_at(dataset, condition, use_scalar_index=True, fast_search=True)
    assert fast == ([3, 5], 2)
