"""Format 0.1 keeps no nulls of numbers, though statistics count them: tests agree with scans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive

ROWS, PAGE = 1200, 200
VALUES: dict[str, Any] = {
    "int64": pa.array([None if row > 700 else row for row in range(ROWS)]),
    "float": pa.array([None if row % 3 else float(row) for row in range(ROWS)]),
    "all": pa.nulls(ROWS, pa.int32()),
    "bool": pa.array([None if row < 500 else True for row in range(ROWS)]),
    "date": pa.array([None if row % 2 else row for row in range(ROWS)], pa.int32()).cast("date32"),
    "string": pa.array([None if row > 700 else str(row) for row in range(ROWS)]),
    "binary": pa.array([None if row % 3 else b"a" for row in range(ROWS)]),
    "list": pa.array([None if row % 3 else [row] for row in range(ROWS)]),
    "dictionary": pa.array([None if row > 700 else str(row % 5) for row in range(ROWS)]),
}
VALUES["dictionary"] = VALUES["dictionary"].dictionary_encode()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("use_stats", [True, False])
def test_null_tests_keep_the_rows_that_a_scan_shows_as_null(
    tmp_path: Path, name: str, *, use_stats: bool
) -> None:
    table = pa.table({"v": VALUES[name], "id": range(ROWS)})
    dataset = glaive.write_dataset(
        table, tmp_path, data_storage_version="0.1", max_rows_per_group=PAGE
    )
    seen = dataset.to_table()["v"].to_pylist()
    null = [row for row, value in enumerate(seen) if value is None]
    there = [row for row, value in enumerate(seen) if value is not None]
    for text, rows in (
        ("v IS NULL", null),
        ("v IS NOT NULL", there),
        ("NOT v IS NULL", there),
        ("v IS NULL AND id >= 600", [row for row in null if row >= 600]),
        ("v NOT NULL AND id < 100", [row for row in there if row < 100]),
    ):
        found = dataset.to_table(columns=["id"], filter=text, use_stats=use_stats)
        assert found["id"].to_pylist() == rows, text
        assert dataset.count_rows(filter=text) == len(rows)


def test_numbers_are_never_null(tmp_path: Path) -> None:
    table = pa.table({"v": VALUES["int64"]})
    dataset = glaive.write_dataset(table, tmp_path, data_storage_version="0.1")
    assert dataset.to_table()["v"].null_count == 0
    assert dataset.count_rows(filter="v IS NULL") == 0
