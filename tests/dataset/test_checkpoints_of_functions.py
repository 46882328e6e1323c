"""Checkpoints of functions that compute new columns, when the dataset changes between two runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.columns.checkpoint_folder import CheckpointFolder
from glaive.udf import batch_udf


def test_results_from_another_column_of_the_same_name_are_not_taken(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": [10, 20, 30]})
    dataset = glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=1)
    calls: list[int] = []

    @batch_udf(
        output_schema=pa.schema([("doubled", pa.int64())]), checkpoint_file=tmp_path / "results"
    )
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        value = int(batch["a"].to_numpy()[0])
        calls.append(value)
        if calls == [1, 2]:
            raise KeyboardInterrupt
        return pa.RecordBatch.from_pydict({"doubled": [2 * value]})

    with pytest.raises(KeyboardInterrupt):
        dataset.add_columns(doubled, read_columns=["a"])
    dataset.alter_columns({"path": "a", "name": "c"})
    dataset.alter_columns({"path": "b", "name": "a"})
    dataset.add_columns(doubled, read_columns=["a"])
    assert calls == [1, 2, 10, 20, 30]
    assert dataset.to_table()["doubled"].to_pylist() == [20, 40, 60]


def test_a_checkpoint_in_a_folder_removes_its_own_files_only(tmp_path: Path) -> None:
    fragment = glaive.write_dataset({"a": [1]}, tmp_path / "t").manifest.fragment(0)
    folder = tmp_path / "folder"
    others = ["x" * 64 + ".json", f"mine/{'x' * 59}.json", f"mine/{'0' * 64}.json"]
    for name in others:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    checkpoint = CheckpointFolder.open(str(folder), "job")
    checkpoint.keep_file(fragment, fragment.files[0])
    assert len(list(folder.glob("*.json"))) == 2
    checkpoint.remove()
    left = {str(path.relative_to(folder)) for path in folder.rglob("*.json")}
    assert left == set(others)
