"""Rows whose texts are views of the same bytes, and more than offsets of 32 bits can count."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.damaged_views import equal_views

import glaive

SIZE, COUNT = 2**20, 2**11 + 1


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_they_are_written_as_they_are(tmp_path: Path, kind: pa.DataType) -> None:
    written = glaive.write_dataset(pa.table({"a": equal_views(kind, COUNT, SIZE)}), tmp_path / "t")
    assert written.count_rows() == COUNT
    last = written.take([COUNT - 1])["a"][0].as_py()
    assert last in ("x" * SIZE, b"x" * SIZE)


@pytest.mark.nightly(reason="compares two gigabytes of texts")
def test_they_are_merged_as_they_are(tmp_path: Path) -> None:
    kept = glaive.write_dataset(pa.table({"n": [0], "a": ["x"]}), tmp_path / "t")
    rows = pa.table({"n": range(COUNT), "a": equal_views(pa.string_view(), COUNT, SIZE)})
    merge = kept.merge_insert("n").when_matched_update_all().when_not_matched_insert_all()
    assert merge.execute(rows)["num_inserted_rows"] == COUNT - 1
    merged = glaive.dataset(tmp_path / "t")
    assert merged.take([0, COUNT - 1])["a"].to_pylist() == ["x" * SIZE] * 2
