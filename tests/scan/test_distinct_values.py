"""Tests that are computed once for each distinct value of a column that is stored so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import FilterError

EACH = 1000
VERSIONS = pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])


def stored(place: Path, version: str) -> LanceDataset:
    """Few distinct texts, so many times that files have each of them once."""
    rows = {
        "id": range(3 * EACH),
        "number": ["1234567", "7654321", None] * EACH,
        "mixed": ["1234567", "no number", "7654321"] * EACH,
    }
    return glaive.write_dataset(pa.table(rows), place, data_storage_version=version)


@VERSIONS
@pytest.mark.parametrize(
    "text",
    [
        "CAST(number AS bigint) = 1234567",
        "CAST(number AS bigint) % 10 = 7",
        "mixed != 'no number' AND CAST(mixed AS bigint) = 1234567",
        "id % 3 != 1 AND CAST(mixed AS bigint) = 1234567",
    ],
)
def test_a_value_of_no_row_that_is_tested_cannot_fail_a_filter(
    tmp_path: Path, version: str, text: str
) -> None:
    made = stored(tmp_path, version)
    assert made.count_rows(text) == EACH
    assert made.to_table(["id"], text)["id"].to_pylist() == list(range(0, 3 * EACH, 3))


@VERSIONS
def test_a_value_that_only_deleted_rows_have_cannot_fail_a_filter(
    tmp_path: Path, version: str
) -> None:
    made = stored(tmp_path, version)
    with pytest.raises(FilterError, match="no number"):
        made.count_rows("CAST(mixed AS bigint) = 1234567")
    made.delete("mixed = 'no number'")
    assert made.count_rows("CAST(mixed AS bigint) = 1234567") == EACH


@VERSIONS
@pytest.mark.parametrize(
    "text", ["random() < length(mixed) / 16.0", "nvl(random(), length(mixed) / 1.0) < 0.5"]
)
def test_rows_of_one_value_are_drawn_each_for_itself(
    tmp_path: Path, version: str, text: str
) -> None:
    made = stored(tmp_path, version)
    counts = {made.count_rows(f"mixed = 'no number' AND {text}") for _ in range(3)}
    assert all(EACH / 4 < count < EACH * 3 / 4 for count in counts)


def test_a_test_that_is_written_twice_is_drawn_twice(tmp_path: Path) -> None:
    made = stored(tmp_path, "2.1")
    both, either = (made.count_rows(f"random() < 0.5 {op} random() < 0.5") for op in ("AND", "OR"))
    assert 3 * EACH * 0.15 < both < 3 * EACH * 0.35
    assert 3 * EACH * 0.65 < either < 3 * EACH * 0.85
