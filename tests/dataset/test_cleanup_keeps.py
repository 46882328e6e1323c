"""A clean-up keeps the files of versions outside of the history."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.fragment import write_fragments


@pytest.mark.spec("rel-14")
def test_files_of_a_detached_version_stay(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    append = glaive.LanceOperation.Append(write_fragments(rows, dataset))
    made = LanceDataset.commit(dataset, append, read_version=1, detached=True)
    glaive.write_dataset(rows, tmp_path / "t", mode="append")
    glaive.dataset(tmp_path / "t").cleanup_old_versions(timedelta(0), delete_unverified=True)
    opened = glaive.dataset(tmp_path / "t", version=made.version)
    assert opened.to_table()["id"].to_pylist() == [1, 2, 3] * 2
