"""A job that goes on takes files of an earlier run that fit, where the same places have them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glaive
from glaive import DatasetBasePath
from glaive.ingestion import IngestTask, ingest
from glaive.ingestion.sources import BAD_RECORDS
from glaive.ingestion.task import IngestedPieces


class Killed(BaseException):
    """Ends a job where it stands, as the end of the process does."""


def stopped(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
    """Finishes all tasks, and does not come to the commit."""
    for number, task in enumerate(tasks):
        yield number, task.execute()
    raise Killed


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        letters = pa.array(["a", "b", "b"]).dictionary_encode()
        pq.write_table(pa.table({"n": [number] * 3, "c": letters}), folder / f"{number}.parquet")
    return folder


def options(base: Path) -> dict[str, object]:
    return {
        "initial_bases": [DatasetBasePath(str(base), name="more", id=1)],
        "target_bases": ["more"],
    }


@pytest.mark.spec("rel-39")
@pytest.mark.parametrize("changed", ["removed", "old", "another base path"])
def test_files_below_a_base_path_are_written_again_if_they_may_not_stay(
    tmp_path: Path, source: Path, changed: str
) -> None:
    uri, first, second = tmp_path / "t.lance", tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with pytest.raises(Killed):
        ingest(source, uri, job_id="j", task_bytes=1, driver=stopped, write_options=options(first))
    written = sorted(first.glob("*.lance"))
    assert len(written) == 3
    for file in written:
        if changed == "removed":
            file.unlink()
        elif changed == "old":
            os.utime(file, (0, file.stat().st_mtime - 4 * 86_400))
    base = second if changed == "another base path" else first
    made = ingest(source, uri, job_id="j", task_bytes=1, write_options=options(base))
    assert made.rows == 9
    found = glaive.dataset(uri)
    assert sorted(found.to_table()["n"].to_pylist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    kept = found.tracked_files().read_all()["path"].to_pylist()
    assert not {file.name for file in written} & {Path(str(path)).name for path in kept}


def test_files_with_other_items_of_a_dictionary_are_written_again(
    tmp_path: Path, source: Path
) -> None:
    """Format 0.1 has the items once for all files of a dataset."""
    uri = tmp_path / "t.lance"

    def letters(items: list[str]) -> pa.Table:
        codes = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(items))
        return pa.table({"n": [8, 9], "c": codes})

    glaive.write_dataset(letters(["a", "b"]), uri, data_storage_version="0.1")
    with pytest.raises(Killed):
        ingest(source, uri, mode="append", job_id="j", task_bytes=1, driver=stopped)
    glaive.write_dataset(letters(["b", "a"]), uri, mode="overwrite", data_storage_version="0.1")
    ingest(source, uri, mode="append", job_id="j", task_bytes=1)
    assert glaive.dataset(uri).to_table()["c"].to_pylist() == ["b", "a", *"abbabbabb"]


@pytest.mark.parametrize("made", ["other order", "other format"])
def test_bad_records_are_written_again_for_a_dataset_that_was_made_meanwhile(
    tmp_path: Path, made: str
) -> None:
    uri, bad = tmp_path / "t.lance", tmp_path / "bad.lance"
    (tmp_path / "a.csv").write_text("id\n1\nx\n3\n")
    aside: dict[str, Any] = {"schema": "id bigint", "bad_records": bad, "job_id": "j"}
    with pytest.raises(Killed):
        ingest(tmp_path / "a.csv", uri, driver=stopped, **aside)
    columns = [*BAD_RECORDS][::-1] if made == "other order" else [*BAD_RECORDS]
    version = "0.1" if made == "other format" else None
    glaive.write_dataset(pa.schema(columns).empty_table(), bad, data_storage_version=version)
    assert ingest(tmp_path / "a.csv", uri, **aside).bad_records == 1
    assert glaive.dataset(uri).to_table()["id"].to_pylist() == [1, 3]
    (record,) = glaive.dataset(bad).to_table().to_pylist()
    assert (record["line"], record["record"].strip(), record["job_id"]) == (3, b"x", "j")
