"""Checkpoints of functions that compute new columns, when the dataset changes between two runs."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from glaive.udf import BatchUDFCheckpoint, batch_udf

import glaive
from glaive.dataset.columns.udf import CheckpointFolder
from glaive.errors import OptionError, StoreError


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


def test_a_database_of_something_else_is_no_checkpoint_and_stays(tmp_path: Path) -> None:
    """A checkpoint is deleted when the columns are committed."""
    mine = tmp_path / "mine.sqlite"
    with closing(sqlite3.connect(mine)) as connection, connection:
        connection.execute("CREATE TABLE orders (id INT)")
        connection.execute("INSERT INTO orders VALUES (7)")
    dataset = glaive.write_dataset({"a": [1]}, tmp_path / "t")

    @batch_udf(output_schema=pa.schema([("b", pa.int64())]), checkpoint_file=mine)
    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"b": batch["a"]})

    with pytest.raises(OptionError, match="other tables, such as 'orders'"):
        dataset.add_columns(same)
    with pytest.raises(OptionError, match="other tables, such as 'orders'"):
        BatchUDFCheckpoint(mine)
    with closing(sqlite3.connect(mine)) as connection:
        assert connection.execute("SELECT * FROM orders").fetchall() == [(7,)]
        assert len(connection.execute("SELECT * FROM sqlite_master").fetchall()) == 1


def test_a_checkpoint_that_another_process_writes_to_is_not_to_be_deleted(tmp_path: Path) -> None:
    """It would lose what that process has computed."""
    dataset = glaive.write_dataset({"a": [1]}, tmp_path / "t")

    @batch_udf(output_schema=pa.schema([("b", pa.int64())]), checkpoint_file=tmp_path / "results")
    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"b": batch["a"]})

    with closing(sqlite3.connect(tmp_path / "results")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OptionError) as raised:
            dataset.add_columns(same)
    assert "wait until the other process that has it open has ended" in str(raised.value)
    assert "delete" not in str(raised.value)
    dataset.add_columns(same)
    assert dataset.to_table()["b"].to_pylist() == [1]


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


@pytest.mark.spec("rel-20")
def test_columns_are_there_though_the_file_of_results_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = glaive.write_dataset({"a": [1, 2]}, tmp_path / "t")
    results = tmp_path / "results"

    def refused(path: str, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    @batch_udf(output_schema=pa.schema([("b", pa.int64())]), checkpoint_file=results)
    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"b": batch["a"]})

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "unlink", refused)
        dataset.add_columns(same)
    assert (dataset.version, dataset.to_table()["b"].to_pylist()) == (2, [1, 2])
    assert f"{results} is no longer needed, and could not be deleted: Perm" in caplog.text
    kept = BatchUDFCheckpoint(results)
    kept.cleanup()
    with pytest.raises(StoreError, match=r"cannot delete .*results: there is no such file"):
        kept.cleanup()


@pytest.mark.spec("rel-15", "rel-39")
@pytest.mark.parametrize("days", [1, 6, 9])
def test_a_file_of_an_earlier_run_is_not_cleaned_up_before_it_is_committed(
    tmp_path: Path, days: int
) -> None:
    """A clean-up runs while the job goes on, when the file has become a week old."""
    dataset = glaive.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "t", max_rows_per_file=1)
    calls: list[int] = []

    def grow_older(days: int) -> None:
        then = time.time() - days * 86_400
        for path in (tmp_path / "t/data").iterdir():
            os.utime(path, (then, min(then, path.stat().st_mtime - 2 * 86_400)))

    @batch_udf(
        output_schema=pa.schema([("doubled", pa.int64())]), checkpoint_file=tmp_path / "results"
    )
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        value = int(batch["a"].to_numpy()[0])
        calls.append(value)
        if calls == [1, 2]:
            raise KeyboardInterrupt
        grow_older(0)
        glaive.dataset(tmp_path / "t").cleanup_old_versions()
        return pa.RecordBatch.from_pydict({"doubled": [2 * value]})

    with pytest.raises(KeyboardInterrupt):
        dataset.add_columns(doubled, read_columns=["a"])
    grow_older(days)
    dataset.add_columns(doubled, read_columns=["a"])
    assert calls == [1, 2, 2]
    assert glaive.dataset(tmp_path / "t").to_table()["doubled"].to_pylist() == [2, 4]


@pytest.mark.spec("rel-15", "rel-39")
@pytest.mark.parametrize("size", [100_000, 5_000_000], ids=["packed", "of_their_own"])
def test_a_file_of_an_earlier_run_that_is_copied_keeps_its_blobs(tmp_path: Path, size: int) -> None:
    """They lie in files beside it, in a folder with its name."""
    rows = pa.table({"a": [1, 2]})
    dataset = glaive.write_dataset(
        rows, tmp_path / "t", max_rows_per_file=1, data_storage_version="2.2"
    )
    calls: list[int] = []
    images = pa.schema([glaive.blob_field("image")])

    @batch_udf(output_schema=images, checkpoint_file=tmp_path / "results")
    def image(batch: pa.RecordBatch) -> pa.RecordBatch:
        value = int(batch["a"].to_numpy()[0])
        calls.append(value)
        if calls == [1, 2]:
            raise KeyboardInterrupt
        return pa.record_batch([glaive.blob_array([bytes([value]) * size])], schema=images)

    with pytest.raises(KeyboardInterrupt):
        dataset.add_columns(image, read_columns=["a"])
    then = time.time() - 6 * 86_400
    for path in (tmp_path / "t/data").rglob("*"):
        os.utime(path, (then, then))
    dataset.add_columns(image, read_columns=["a"])
    assert calls == [1, 2, 2]
    found = glaive.dataset(tmp_path / "t").read_blobs("image", indices=[0, 1])
    assert [value for _, value in found] == [bytes([1]) * size, bytes([2]) * size]


@pytest.mark.spec("sec-7")
def test_new_columns_that_are_given_up_delete_no_files_behind_a_link(tmp_path: Path) -> None:
    """Others who may write to the folder of data see the names of files that are being written."""
    mine = tmp_path / "mine"
    for folder in (mine, mine / "deep"):
        folder.mkdir()
        (folder / f"{1:032b}.blob").write_bytes(b"of another dataset")
        (folder / "thesis.odt").write_bytes(b"mine")
    place = tmp_path / "d"
    ds = glaive.write_dataset(pa.table({"x": range(4)}), str(place), max_rows_per_file=2)
    before = {*(place / "data").iterdir()}

    def once(batch: pa.RecordBatch) -> pa.RecordBatch:
        for written in {*(place / "data").glob("*.lance")} - before:
            written.with_suffix("").symlink_to(mine, target_is_directory=True)
            raise ValueError("later")
        return pa.record_batch({"y": batch["x"]})

    with pytest.raises(ValueError, match="later"):
        ds.add_columns(glaive.batch_udf(output_schema=pa.schema({"y": pa.int64()}))(once))
    assert len([path for path in mine.rglob("*") if path.is_file()]) == 4
    assert {*(place / "data").glob("*.lance")} == before


def test_results_of_extension_types_are_kept(tmp_path: Path) -> None:
    results = BatchUDFCheckpoint(tmp_path / "results")
    tensors = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    stored = pa.ExtensionArray.from_storage(tensors, pa.array([[1, 2, 3, 4]], tensors.storage_type))
    texts = pa.array(["{}"], pa.json_())
    batch = pa.RecordBatch.from_arrays([stored, texts], ["t", "j"])
    results.insert_batch(BatchUDFCheckpoint.BatchInfo(0, 0), batch)
    assert results.get_batch(BatchUDFCheckpoint.BatchInfo(0, 0)) == batch


@pytest.mark.parametrize("kept", [b"", b"\xff\xff\xff\xff\0\0\0\0", b"x" * 100], ids=len)
def test_what_is_no_result_is_an_error(kept: bytes, tmp_path: Path) -> None:
    results = BatchUDFCheckpoint(tmp_path / "results")
    with closing(sqlite3.connect(tmp_path / "results")) as connection, connection:
        connection.execute("INSERT INTO batches VALUES ('0', 0, ?)", (kept,))
    with pytest.raises(OptionError, match="cannot be read"):
        results.get_batch(BatchUDFCheckpoint.BatchInfo(0, 0))


@pytest.mark.parametrize(
    "use",
    [
        lambda kept: kept.get_batch(BatchUDFCheckpoint.BatchInfo(0, -(2**70))),
        lambda kept: kept.insert_fragment(0, "\ud800"),
    ],
    ids=["batch", "a text"],
)
def test_what_the_file_cannot_hold_is_an_error(use: Callable[[Any], Any], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="results: no value that it can hold"):
        use(BatchUDFCheckpoint(tmp_path / "results"))
