"""Files are loaded once: whatever is killed, repeated, or runs at the same time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.crashes import left_by_kills

import glaive
from glaive.errors import DatasetNotFoundError, FormatError, OptionError, VersionNotFoundError
from glaive.ingestion import IngestResult, IngestTask, ingest
from glaive.ingestion.loads import LOADED_FILES, Ledger, newest_of
from glaive.ingestion.task import IngestedPieces
from glaive.io.access import open_store

MERGE = {"mode": "merge", "merge_keys": "n"}
LONG = pytest.mark.nightly(reason="another load for each change of a file")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        add(folder, number)
    return folder


def add(folder: Path, number: int) -> None:
    pq.write_table(pa.table({"n": [number, number + 100]}), folder / f"{number}.parquet")


def load(source: Path, uri: Path, **options: Any) -> IngestResult:
    return ingest(source, uri, **{"mode": "append", "once": True, **options})


def numbers(uri: Path) -> list[int]:
    return sorted(glaive.dataset(uri).to_table()["n"].to_pylist())


def records(bad: Path) -> list[str]:
    return [row.decode().strip() for row in glaive.dataset(bad).to_table()["record"].to_pylist()]


def expected(*files: int) -> list[int]:
    return sorted([*files, *(number + 100 for number in files)])


@pytest.mark.parametrize("options", [{}, MERGE])
def test_each_load_reads_the_files_that_are_new(
    source: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    uri = tmp_path / "t.lance"
    assert load(source, uri, **options).files == 3
    first = glaive.dataset(uri).version
    again = load(source, uri, **options)
    assert (again.version, again.files, again.rows) == (first, 0, 0)
    add(source, 7)
    assert load(source, uri, **options).files == 1
    assert numbers(uri) == expected(0, 1, 2, 7)


def test_rows_of_other_writers_and_other_folders_do_not_disturb(
    source: Path, tmp_path: Path
) -> None:
    uri, other = tmp_path / "t.lance", tmp_path / "other"
    lance.write_dataset(pa.table({"n": [50]}), str(uri))
    load(source, uri)
    lance.write_dataset(pa.table({"n": [51]}), str(uri), mode="append")
    glaive.dataset(uri).delete("n = 50")
    lance.dataset(str(uri)).optimize.compact_files()
    other.mkdir()
    add(other, 0)
    assert load(other, uri).files == 1
    assert load(source, uri).files == 0
    found = lance.dataset(str(uri)).to_table()["n"].to_pylist()
    assert sorted(found) == sorted([*expected(0, 0, 1, 2), 51])


def test_a_changed_file_is_left_out_and_counted(source: Path, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    load(source, uri)
    pq.write_table(pa.table({"n": [1, 2, 3, 4]}), source / "1.parquet")
    os.utime(source / "2.parquet", (1, 1))
    result = load(source, uri)
    assert (result.files, result.changed) == (0, 2)
    assert numbers(uri) == expected(0, 1, 2)


def test_a_bucket_tells_files_apart_by_their_etags() -> None:
    folder, uri = "memory://loads/in", "memory://loads/t.lance"
    store = open_store(folder)
    store.put("a.csv", [b"n\n1\n"])
    options: Any = {"mode": "append", "once": True}
    assert ingest(folder, uri, **options).files == 1
    store.put("a.csv", [b"n\n2\n"], mode="overwrite")
    store.put("b.csv", [b"n\n3\n"])
    result = ingest(folder, uri, **options)
    assert (result.files, result.changed) == (1, 1)
    assert glaive.dataset(uri).to_table()["n"].to_pylist() == [1, 3]
    etags = glaive.dataset(f"{uri}/{LOADED_FILES}").to_table(filter="file is not null")["etag"]
    assert etags.null_count == 0


def test_an_overwrite_by_another_writer_keeps_the_list(source: Path, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    load(source, uri)
    lance.write_dataset(pa.table({"n": [50]}), str(uri), mode="overwrite")
    assert load(source, uri).files == 0
    add(source, 7)
    assert load(source, uri).files == 1
    assert numbers(uri) == sorted([50, *expected(7)])


def test_a_file_that_is_removed_from_the_ledger_is_loaded_again(
    source: Path, tmp_path: Path
) -> None:
    uri = tmp_path / "t.lance"
    load(source, uri)
    glaive.dataset(uri / LOADED_FILES).delete("file like '%/1.parquet'")
    assert load(source, uri).files == 1
    assert numbers(uri) == expected(0, 1, 1, 2)


def test_a_restored_version_loads_again_what_it_lacks(source: Path, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    load(source, uri)
    add(source, 7)
    load(source, uri)
    glaive.dataset(uri, version=1).restore()
    assert numbers(uri) == expected(0, 1, 2)
    assert load(source, uri).files == 1
    assert numbers(uri) == expected(0, 1, 2, 7)


def test_a_clone_without_the_ledger_is_refused(source: Path, tmp_path: Path) -> None:
    uri, clone = tmp_path / "t.lance", tmp_path / "clone.lance"
    load(source, uri)
    glaive.dataset(uri).shallow_clone(str(clone), 1)
    with pytest.raises(VersionNotFoundError, match="Copy the folder"):
        load(source, clone)
    shutil.copytree(uri / LOADED_FILES, clone / LOADED_FILES)
    add(source, 7)
    assert load(source, clone).files == 1
    assert numbers(clone) == expected(0, 1, 2, 7)
    assert numbers(uri) == expected(0, 1, 2)


def test_files_without_rows_and_with_bad_records_alone_count_as_loaded(tmp_path: Path) -> None:
    folder, uri, bad = tmp_path / "in", tmp_path / "t.lance", tmp_path / "bad.lance"
    folder.mkdir()
    (folder / "a.csv").write_text("n\n1\n2\n3\n4\n5\n6\nx\n")
    load(folder, uri, bad_records=bad)
    (folder / "b.csv").write_text("n\n")
    (folder / "c.csv").write_text("n\ny\n")
    result = load(folder, uri, bad_records=bad)
    assert (result.files, result.rows, result.bad_records) == (2, 0, 1)
    assert load(folder, uri, bad_records=bad).files == 0
    assert records(bad) == ["x", "y"]
    assert numbers(uri) == [1, 2, 3, 4, 5, 6]


def test_a_failed_load_leaves_its_files_to_the_next(source: Path, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    load(source, uri)
    (source / "8.parquet").write_bytes(b"PAR1 broken PAR1")
    add(source, 7)
    with pytest.raises(FormatError, match=r"8\.parquet"):
        load(source, uri)
    (source / "8.parquet").unlink()
    assert load(source, uri).files == 1
    assert numbers(uri) == expected(0, 1, 2, 7)


def test_an_overwrite_cannot_read_files_once(source: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="mode='append'"):
        load(source, tmp_path / "t.lance", mode="overwrite")


@pytest.mark.parametrize("options", [{}, MERGE])
@pytest.mark.parametrize("exists", [False, True])
def test_a_load_that_another_load_precedes_reads_what_is_left(
    source: Path, tmp_path: Path, options: dict[str, Any], exists: bool
) -> None:
    uri, bad = tmp_path / "t.lance", tmp_path / "bad.lance"
    if exists:
        glaive.write_dataset(pa.table({"n": pa.array([], pa.int64())}), uri)
    raced: list[IngestResult] = []

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        """Another load commits between the tasks of this one and its commit."""
        yield from enumerate([task.execute() for task in tasks])
        if not raced:
            raced.append(load(source, uri, bad_records=bad, **options))
            add(source, 9)

    result = load(source, uri, driver=driver, bad_records=bad, **options)
    assert (raced[0].files, result.files) == (3, 1)
    assert numbers(uri) == expected(0, 1, 2, 9)
    assert load(source, uri, **options).files == 0


def test_only_loads_that_another_load_preceded_are_lost(source: Path, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    load(source, uri)
    store = open_store(str(uri))
    first, second = (Ledger.begin(uri, None, newest_of(store)) for _ in range(2))
    first.record([])
    second.record([])
    assert Ledger.begin(uri, None, newest_of(store)).lost == ()  # both can still commit
    add(source, 9)
    load(source, uri)
    lost = Ledger.begin(uri, None, newest_of(store)).lost
    assert set(lost) == {first.load.id, second.load.id}


def test_bad_records_of_a_load_that_lost_are_removed(tmp_path: Path) -> None:
    folder, uri, bad = tmp_path / "in", tmp_path / "t.lance", tmp_path / "bad.lance"
    folder.mkdir()
    (folder / "a.csv").write_text("n\n1\n2\n3\n4\n5\n6\nx\n")
    raced: list[IngestResult] = []

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        yield from enumerate([task.execute() for task in tasks])
        if not raced:
            raced.append(load(folder, uri, bad_records=bad))

    assert load(folder, uri, driver=driver, bad_records=bad).files == 0
    assert records(bad) == ["x"]
    assert numbers(uri) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("options", "job_id"),
    [
        ({}, None),
        (MERGE, "tonight"),
        pytest.param({}, "tonight", marks=LONG),
        pytest.param(MERGE, None, marks=LONG),
    ],
)
def test_a_load_killed_before_any_change_loses_and_doubles_nothing(
    tmp_path: Path, options: dict[str, Any], job_id: str | None
) -> None:
    folder, begun = tmp_path / "in", tmp_path / "begun"
    folder.mkdir()
    (folder / "a.csv").write_text("n\n1\n2\n3\n4\n5\n6\nx\n")

    def run(place: Path, job: str | None) -> None:
        load(folder, place / "t.lance", bad_records=place / "bad.lance", job_id=job, **options)

    left = left_by_kills(begun, partial(run, begun, job_id), tmp_path / "left")
    for place in left:
        if job_id is not None:
            run(place, job_id)
        (folder / "b.csv").write_text("n\n9\n")
        run(place, None)
        run(place, None)
        assert numbers(place / "t.lance") == [1, 2, 3, 4, 5, 6, 9], place
        assert records(place / "bad.lance") == ["x"], place
        (folder / "b.csv").unlink()
    assert len(left) > 8


def test_the_ledger_stays_small_after_many_loads(tmp_path: Path) -> None:
    folder, uri = tmp_path / "in", tmp_path / "t.lance"
    folder.mkdir()
    for number in range(70):
        add(folder, number)
        assert load(folder, uri).files == 1
    assert numbers(uri) == expected(*range(70))
    assert len(glaive.dataset(uri / LOADED_FILES).get_fragments()) < 10


def test_no_dataset_is_made_of_a_folder_without_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(OptionError, match="no such file"):
        load(tmp_path / "in", tmp_path / "t.lance")
    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(tmp_path / "t.lance")
