"""An ingest that is stopped and run again neither loses nor repeats a file."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.crashes import left_by_kills
from tests.kit.system_errors import failing_from

import glaive
from glaive.dataset.tasks import JOB
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    FormatError,
    OptionError,
    SchemaError,
    StoreError,
    VersionNotFoundError,
)
from glaive.format.pb import table_pb2
from glaive.ingestion import IngestResult, IngestTask, ingest
from glaive.ingestion.job import Driver
from glaive.ingestion.task import IngestedPieces, Journal
from glaive.io.access import open_store
from glaive.table.named_jobs import MAX_JOBS, NamedJob

FILES = 5


class Killed(BaseException):
    """Ends a job where it stands, as the end of the process does."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(FILES):
        pq.write_table(pa.table({"n": [number] * 10}), folder / f"{number}.parquet")
    return folder


def recording(ran: list[str], *, killed_after: int | None = None) -> Driver:
    """Runs the tasks one by one, and notes those that wrote files."""

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        for number, task in enumerate(tasks):
            if number == killed_after:
                raise Killed
            assert task.journal is not None
            done = task.journal.finished(task.key, rows=task.write.locations, bad_records=())
            if done is None:
                ran.append(task.pieces[0].file.path)
            yield number, task.execute()
        if killed_after == len(tasks):
            raise Killed

    return driver


def run(source: Path, uri: Path, driver: Driver, mode: str = "create") -> IngestResult:
    return ingest(source, uri, job_id="job", task_bytes=1, driver=driver, mode=mode)  # type: ignore[arg-type]  # one of the names


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
@pytest.mark.parametrize("finished", range(FILES + 1))
def test_a_job_that_was_killed_goes_on_where_it_stood(
    tmp_path: Path, source: Path, finished: int, mode: str
) -> None:
    uri = tmp_path / "t.lance"
    before = [] if mode == "create" else [{"n": 99}]
    if before:
        glaive.write_dataset(pa.Table.from_pylist(before), uri)
    first: list[str] = []
    with pytest.raises(Killed):
        run(source, uri, recording(first, killed_after=finished), mode)
    assert len(first) == finished
    if before:
        assert glaive.dataset(uri).to_table().to_pylist() == before

    second: list[str] = []
    result = run(source, uri, recording(second), mode)

    assert sorted(first + second) == [f"{number}.parquet" for number in range(FILES)]
    expected = [{"n": number} for number in range(FILES) for _ in range(10)]
    rows = glaive.dataset(uri).to_table().to_pylist()
    assert rows == (before if mode == "append" else []) + expected
    assert (result.rows, result.repeated) == (FILES * 10, False)

    third: list[str] = []
    again = run(source, uri, recording(third), mode)
    assert (again.version, again.repeated, third) == (result.version, True, [])
    assert glaive.dataset(uri).version == result.version


@pytest.mark.spec("rel-15", "rel-39")
def test_files_that_a_clean_up_may_delete_soon_are_written_again(
    tmp_path: Path, source: Path
) -> None:
    """One runs between the tasks of the second run and its commit."""
    uri = tmp_path / "t.lance"
    glaive.write_dataset(pa.table({"n": [99]}), uri)
    with pytest.raises(Killed):
        run(source, uri, recording([], killed_after=3), "append")
    old = list((uri / "data").iterdir())
    for path in old:
        os.utime(path, (0, path.stat().st_mtime - 8 * 86_400))

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        yield from enumerate([task.execute() for task in tasks])
        glaive.dataset(uri).cleanup_old_versions()

    assert run(source, uri, driver, "append").rows == FILES * 10
    assert glaive.dataset(uri).to_table().num_rows == FILES * 10 + 1
    assert sum(path.exists() for path in old) == 1


def test_a_job_whose_end_was_not_written_down_is_found_by_its_commit(
    tmp_path: Path, source: Path
) -> None:
    uri = tmp_path / "t.lance"
    made = run(source, uri, recording([]))
    (uri / "_glaive" / "jobs" / "job" / "committed.json").unlink()
    glaive.write_dataset(pa.table({"n": [7]}), uri, mode="append")
    again = run(source, uri, recording([]), "append")
    assert (again.version, again.repeated) == (made.version, True)
    assert glaive.dataset(uri).count_rows() == FILES * 10 + 1


@pytest.mark.spec("rel-20")
def test_a_job_that_made_its_version_says_so_on_a_full_disk(tmp_path: Path, source: Path) -> None:
    at, failed, made = 0, True, 0
    while failed:
        at += 1
        uri = tmp_path / f"{at}.lance"
        glaive.write_dataset(pa.table({"n": [99]}), uri)
        with failing_from(str(uri), errno.ENOSPC, at) as calls:
            try:
                result = run(source, uri, recording([]), "append")
            except StoreError:
                assert glaive.dataset(uri).version == 1
            else:
                made += calls.failed
                assert (result.version, glaive.dataset(uri).version) == (2, 2)
        failed = calls.failed
        again = run(source, uri, recording([]), "append")
        assert (again.version, glaive.dataset(uri).count_rows()) == (2, FILES * 10 + 1)
    assert made


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("mode", "jobs"),
    [("append", 1), ("append", MAX_JOBS), ("overwrite", 1), ("overwrite", MAX_JOBS)],
)
def test_a_job_whose_version_was_cleaned_up_is_not_done_again(
    tmp_path: Path, mode: Any, jobs: int
) -> None:
    """Stopped at any step; then others commit, and clean-up leaves their version only.

    The newest manifest says which versions the last jobs made. A job that it may have forgotten is
    refused, if a run of it was stopped while it committed.
    """
    source = tmp_path / "in.csv"
    source.write_text("n\n7\n")
    begun, refused = tmp_path / "t.lance", []
    glaive.write_dataset(pa.table({"n": [1]}), begun)

    def job(uri: Path) -> IngestResult:
        return ingest(source, uri, mode=mode, job_id="j")

    left = left_by_kills(begun, partial(job, begun), tmp_path / "left")
    for uri in left:
        for number in range(jobs):
            other = NamedJob(f"other {number}").properties
            rows = pa.table({"n": [2] * (not number)}, pa.schema({"n": pa.int64()}))
            glaive.write_dataset(rows, uri, mode="append", transaction_properties=other)
        glaive.dataset(uri).optimize.compact_files()
        glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        found = glaive.dataset(uri).to_table()["n"].to_pylist()
        try:
            repeated, message = job(uri).repeated, ""
        except VersionNotFoundError as error:
            repeated, message = False, str(error)
        if message:
            assert message.startswith("job j on")
            refused.append(found)
        else:
            assert repeated == (7 in found)
        made = [7] if mode == "overwrite" else [*found, 7]
        done = found if message or repeated else made
        assert glaive.dataset(uri).to_table()["n"].to_pylist() == done
    assert len(refused) < len(left) - 4
    if jobs < MAX_JOBS:
        assert refused == []
    else:
        assert sorted(refused[-1]) == ([2, 7] if mode == "overwrite" else [1, 2, 7])


def test_a_job_whose_commit_was_refused_runs_again_after_a_clean_up(tmp_path: Path) -> None:
    uri, source = tmp_path / "t.lance", tmp_path / "in.csv"
    glaive.write_dataset(pa.table({"n": [1], "s": ["old"]}), uri)

    def job() -> IngestResult:
        return ingest(source, uri, mode="merge", merge_keys="n", job_id="j")

    source.write_text("n,s\n1,a\n1,b\n")
    with pytest.raises(SchemaError, match="n = 1"):
        job()
    glaive.dataset(uri).insert(pa.table({"n": [2], "s": ["x"]}))
    glaive.dataset(uri).insert(pa.table({"n": [3], "s": ["x"]}))
    glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    source.write_text("n,s\n1,a\n")

    assert (job().rows, job().repeated) == (1, True)
    assert sorted(glaive.dataset(uri).to_table()["s"].to_pylist()) == ["a", "x", "x"]


def test_a_merging_job_that_another_run_of_it_overtakes_inserts_its_rows_once(
    tmp_path: Path,
) -> None:
    """A run that was taken for dead ends before this one begins to merge, or while it does."""
    uri, source = tmp_path / "t.lance", tmp_path / "in.csv"
    source.write_text("n\n1\n2\n")

    def job(name: str, given: os.PathLike[str] = source) -> IngestResult:
        return ingest(given, uri, mode="merge", merge_keys="n", job_id=name)

    class Late:
        """A source whose place is asked for once the run has begun."""

        def __fspath__(self) -> str:
            job("first")
            return str(source)

    glaive.write_dataset(pa.table({"n": [0]}), uri)
    result = job("first", Late())
    assert (result.version, result.repeated) == (2, True)

    more = pa.table({"n": [3, 4]})
    names = {JOB: "second"}

    def merge(dataset: glaive.LanceDataset, rows: object) -> None:
        inserts = dataset.merge_insert("n").when_not_matched_insert_all()
        inserts.transaction_properties(names).execute(rows)

    def batches() -> Iterator[pa.RecordBatch]:
        merge(glaive.dataset(uri), more)
        yield from more.to_batches()

    merge(glaive.dataset(uri), pa.RecordBatchReader.from_batches(more.schema, batches()))
    assert glaive.dataset(uri).version == 3
    assert sorted(glaive.dataset(uri).to_table()["n"].to_pylist()) == [0, 1, 2, 3, 4]


@pytest.mark.spec("rel-10")
def test_a_job_that_another_run_of_it_overtakes_while_it_lists_files_returns_its_version(
    tmp_path: Path, source: Path
) -> None:
    uri, made = tmp_path / "t", list[IngestResult]()

    class Overtaken(dict[str, object]):
        """Options that are looked at once it is known that there is no dataset."""

        def __bool__(self) -> bool:
            made.append(ingest(source, uri, job_id="job"))
            return False

    late = ingest(source, uri, job_id="job", reader_options=Overtaken())

    assert late.repeated
    assert late.version == made[0].version == 1
    assert glaive.dataset(uri).count_rows() == made[0].rows
    with pytest.raises(DatasetExistsError):
        ingest(source, uri, job_id="other")


def test_a_file_that_was_cleaned_up_is_written_again(tmp_path: Path, source: Path) -> None:
    uri = tmp_path / "t.lance"
    glaive.write_dataset(pa.table({"n": [99]}), uri)
    first: list[str] = []
    with pytest.raises(Killed):
        run(source, uri, recording(first, killed_after=3), "append")
    kept = {file.path for fragment in glaive.dataset(uri).get_fragments()
            for file in fragment.metadata.files}  # fmt: skip
    stray = [path for path in (uri / "data").iterdir() if path.name not in kept]
    assert len(stray) == 3
    stray[1].unlink()
    second: list[str] = []
    run(source, uri, recording(second), "append")
    assert len(second) == FILES - 3 + 1
    assert glaive.dataset(uri).count_rows() == FILES * 10 + 1


def test_a_damaged_journal_costs_time_only(tmp_path: Path, source: Path) -> None:
    uri = tmp_path / "t.lance"
    with pytest.raises(Killed):
        run(source, uri, recording([], killed_after=FILES))
    entries = sorted((uri / "_glaive" / "jobs" / "job").iterdir())
    assert len(entries) == FILES
    for entry, text in zip(
        entries,
        ["", "{", "[]", '{"fragments": 3, "bad_fragments": [], "bad_records": 0}', '{"a": 1}'],
        strict=True,
    ):
        entry.write_text(text)
    ran: list[str] = []
    run(source, uri, recording(ran))
    assert len(ran) == FILES
    assert glaive.dataset(uri).count_rows() == FILES * 10


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_a_journal_with_changed_bytes_costs_no_row(tmp_path: Path, source: Path, mode: str) -> None:
    """As those that a disk changed: the texts are still such as tasks write, of other fragments."""
    uri = tmp_path / "t.lance"
    glaive.write_dataset(pa.table({"n": pa.array([], pa.int64())}), uri)
    if mode == "create":
        shutil.rmtree(uri)
    with pytest.raises(Killed):
        run(source, uri, recording([], killed_after=FILES), mode)
    entries = sorted((uri / "_glaive" / "jobs" / "job").iterdir())
    for number, entry in enumerate(entries[:3]):
        written = json.loads(entry.read_bytes())
        message = table_pb2.DataFragment.FromString(base64.b64decode(written["fragments"][0]))
        if number == 0:
            message.physical_rows = 9
        elif number == 1:
            message.files[0].fields[0] = 1
        else:
            message.ClearField("files")
        changed = base64.b64encode(message.SerializeToString()).decode()
        entry.write_text(json.dumps({**written, "fragments": [changed]}))
    entries[3].write_bytes(entries[4].read_bytes())

    result = run(source, uri, recording([]), mode)
    assert result.rows == FILES * 10
    expected = [{"n": number} for number in range(FILES) for _ in range(10)]
    assert glaive.dataset(uri).to_table().to_pylist() == expected


@pytest.mark.parametrize("damaged", ["the end", "a note"])
def test_a_job_that_was_forgotten_is_done_once_though_its_journal_was_damaged(
    tmp_path: Path, damaged: str
) -> None:
    uri, source = tmp_path / "t.lance", tmp_path / "in.csv"
    source.write_text("n\n7\n")
    glaive.write_dataset(pa.table({"n": [1]}), uri)
    if damaged == "the end":
        ingest(source, uri, mode="append", job_id="j")
        (uri / "_glaive" / "jobs" / "j" / "committed.json").write_bytes(b"\x00" * 14)
    else:
        journal = Journal(open_store(str(uri)), "j")
        mine = {JOB: "j", **NamedJob("j").properties}
        glaive.write_dataset(pa.table({"n": [7]}), uri, mode="append", transaction_properties=mine)
        with pytest.raises(Killed), journal.committing("rows", 1):
            raise Killed
        [note] = (uri / "_glaive" / "jobs" / "j").iterdir()
        note.write_bytes(note.read_bytes().replace(b": 1", b": 5"))
    for number in range(MAX_JOBS):
        other = NamedJob(f"other {number}").properties
        glaive.write_dataset(pa.table({"n": [2]}), uri, mode="append", transaction_properties=other)

    again = ingest(source, uri, mode="append", job_id="j")
    assert (again.version, again.repeated) == (2, True)
    assert glaive.dataset(uri).to_table()["n"].to_pylist().count(7) == 1


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-3")
@pytest.mark.parametrize(
    ("place", "again"),
    [
        ("disk", "nothing"),  # a bucket is not asked for the files before a dataset is made
        ("disk", "another"),
        ("disk", "itself"),
        ("memory", "another"),
        ("memory", "itself"),
    ],
)
@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_a_late_run_does_not_commit_files_of_a_folder_that_was_removed(
    tmp_path: Path, source: Path, place: str, again: str, mode: str
) -> None:
    """There was no dataset yet, so no version tells that another one is in its place."""
    uri = f"{tmp_path}/t" if place == "disk" else f"memory://{tmp_path.name}-{mode}-{again}"
    rows = pa.table({"n": pa.array([9], pa.int64())})
    versions: list[int] = []

    def remove() -> None:
        store = open_store(uri)
        store.delete([meta.path for meta in store.walk("")])

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        results = [task.execute() for task in tasks]
        remove()
        if again == "another":
            versions.append(glaive.write_dataset(rows, uri).version)
        elif again == "itself":
            versions.append(ingest(source, uri, job_id="job", mode="append").version)
        yield from enumerate(results)

    def late() -> IngestResult:
        return ingest(source, uri, job_id="job", task_bytes=1, driver=driver, mode=mode)  # type: ignore[arg-type]  # one of the names

    if again == "itself":
        assert late().version == 1
        assert glaive.dataset(uri).to_table().num_rows == FILES * 10
    else:
        with pytest.raises((CommitConflictError, DatasetExistsError)):
            late()
        if again == "another":
            assert glaive.dataset(uri).to_table() == rows
    assert [glaive.dataset(uri).version for _ in versions] == versions


def test_a_file_that_changed_since_is_read_again(tmp_path: Path, source: Path) -> None:
    uri = tmp_path / "t.lance"
    with pytest.raises(Killed):
        run(source, uri, recording([], killed_after=FILES))
    pq.write_table(pa.table({"n": [-1] * 3}), source / "0.parquet")
    ran: list[str] = []
    result = run(source, uri, recording(ran))
    assert ran == ["0.parquet"]
    assert result.rows == FILES * 10 - 7


def test_a_job_without_a_name_that_fails_leaves_no_file(tmp_path: Path, source: Path) -> None:
    (source / "9.parquet").write_bytes((source / "0.parquet").read_bytes())
    uri = tmp_path / "t.lance"

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        for number, task in enumerate(tasks[:3]):
            yield number, task.execute()
        raise Killed

    with pytest.raises(Killed):
        ingest(source, uri, task_bytes=1, driver=driver)
    assert [path for path in uri.rglob("*") if path.is_file()] == []


def test_tasks_that_run_when_another_one_fails_leave_no_file_either(tmp_path: Path) -> None:
    source, uri = tmp_path / "in", tmp_path / "t.lance"
    source.mkdir()
    (source / "0.csv").write_text("n\nx\n")
    for number in range(1, 8):
        (source / f"{number}.csv").write_text("n\n" + "123456\n" * 300_000)
    with pytest.raises(FormatError, match=r"0\.csv, line 2"):
        ingest(source, uri, schema="n int", task_bytes=1 << 20)
    assert [path for path in uri.rglob("*") if path.is_file()] == []

    def stopped(done: int, _count: int) -> None:
        raise Killed(done)

    (source / "0.csv").write_text("n\n1\n")
    with pytest.raises(Killed):
        ingest(source, uri, schema="n int", task_bytes=1 << 20, progress=stopped)
    assert [path for path in uri.rglob("*") if path.is_file()] == []


LONG = [pytest.mark.slow, pytest.mark.nightly(reason="runs a job for each change of a file")]


@pytest.mark.parametrize(
    "start",
    ["append", pytest.param("merge", marks=LONG), pytest.param("merge into nothing", marks=LONG)],
)
def test_rows_and_bad_records_of_a_job_killed_at_any_step_are_there_once(
    tmp_path: Path, start: str
) -> None:
    (tmp_path / "in.csv").write_text("n\n1\nx\n2\n")
    mode = start.split(maxsplit=1)[0]
    options: dict[str, Any] = {"merge_keys": "n"} if mode == "merge" else {}
    begun = tmp_path / "begun"
    if start == mode:
        glaive.write_dataset(pa.table({"n": [1]}), begun / "t.lance")

    def run(folder: Path) -> IngestResult:
        source, uri = tmp_path / "in.csv", folder / "t.lance"
        given: dict[str, Any] = {"mode": mode, "bad_records": folder / "bad.lance", **options}
        return ingest(source, uri, schema="n bigint", job_id="j", **given)

    left = left_by_kills(begun, partial(run, begun), tmp_path / "left")
    for folder in left:
        run(folder)
        expected = [1, 1, 2] if mode == "append" else [1, 2]
        found = glaive.dataset(folder / "t.lance").to_table()["n"].to_pylist()
        assert sorted(found) == expected, folder
        aside = glaive.dataset(folder / "bad.lance")
        assert aside.to_table()["record"].to_pylist() == [b"x\n"], folder
        assert run(folder).repeated
    assert len(left) > 10


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-6")
@pytest.mark.parametrize("rule", ["fail", "widen", "add"])
def test_a_merge_into_a_new_dataset_with_chosen_columns_is_finished_by_the_same_call(
    tmp_path: Path, rule: Any
) -> None:
    """It makes the dataset, without rows, in a commit of its own."""
    source = tmp_path / "in.jsonl"
    more = ', "m": 1' if rule == "add" else ""
    source.write_text(f'{{"n": 7, "v": [1, 2]{more}}}\n')
    columns = "n int, v array<float>"
    begun, moments = tmp_path / "t.lance", set()

    def run(uri: Path) -> IngestResult:
        given: dict[str, Any] = {"schema": columns, "vectors": ["v:2"], "schema_drift": rule}
        return ingest(source, uri, mode="merge", merge_keys="n", job_id="j", **given)

    for uri in left_by_kills(begun, partial(run, begun), tmp_path / "left"):
        moments.add(len(list(uri.glob("_versions/*.manifest"))))
        run(uri)
        dataset = glaive.dataset(uri)
        assert dataset.schema.field("n").type == pa.int32()
        assert dataset.schema.field("v").type == pa.list_(pa.float32(), 2)
        assert dataset.to_table(columns=["n", "v"]).to_pylist() == [{"n": 7, "v": [1.0, 2.0]}]
        assert run(uri).repeated
    assert moments == {0, 1, 2}


@pytest.mark.parametrize(
    "given",
    [
        {"schema": "n bigint"},
        {"schema": "n bigint, t string"},
        {"schema": "n bigint, t bigint, u string"},
        {"vectors": ["t:2"]},
    ],
)
def test_columns_that_a_dataset_does_not_have_are_refused(tmp_path: Path, given: Any) -> None:
    uri, source = tmp_path / "t.lance", tmp_path / "in.csv"
    glaive.write_dataset({"n": [1], "t": [2]}, uri)
    source.write_text("n,t\n1,2\n")
    with pytest.raises(OptionError, match="the dataset has its own, which differ"):
        ingest(source, uri, mode="append", **given)
    ingest(source, uri, mode="append", schema="n bigint, t bigint")
    assert glaive.dataset(uri).count_rows() == 2


@pytest.mark.spec("rel-10")
@pytest.mark.parametrize("version", [3, 1_000_000, 1 << 64, 1 << 70])
@pytest.mark.parametrize("there", [True, False])
def test_a_journal_that_names_a_version_there_is_not_leaves_no_rows_out_in_silence(
    tmp_path: Path, source: Path, version: int, there: bool
) -> None:
    uri = tmp_path / "t"
    if there:
        glaive.write_dataset(pa.table({"n": [1]}), uri)
    end = uri / "_glaive" / "jobs" / "j" / "committed.json"
    end.parent.mkdir(parents=True)
    end.write_text(f'{{"version": {version}}}')
    mode: Any = "append" if there else "create"
    with pytest.raises(VersionNotFoundError, match=r"jobs/j/committed\.json says that it made"):
        ingest(source, uri, mode=mode, job_id="j")
    end.unlink()
    assert ingest(source, uri, mode=mode, job_id="j").rows == 10 * FILES


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
@pytest.mark.parametrize("place", ["t.lance", "in/../t.lance", "link"])
def test_bad_records_have_a_dataset_of_their_own(
    source: Path, tmp_path: Path, mode: Any, place: str
) -> None:
    uri = tmp_path / "t.lance"
    (tmp_path / "link").symlink_to(uri)
    with pytest.raises(OptionError, match=r"bad_records: .* is the dataset itself"):
        ingest(source, uri, mode=mode, bad_records=f"{tmp_path}/{place}")
    assert not uri.exists()


def test_bad_records_that_changed_since_they_were_put_aside_are_not_lost(tmp_path: Path) -> None:
    path, uri, bad = tmp_path / "a.csv", tmp_path / "t.lance", tmp_path / "bad.lance"
    glaive.write_dataset(pa.table({"id": [1], "v": ["old"]}), uri)

    def merge(text: str, job: str = "job") -> IngestResult:
        path.write_text(text)
        return ingest(path, uri, mode="merge", merge_keys="id", job_id=job, bad_records=bad)

    with pytest.raises(SchemaError, match="id = 1"):
        merge("id,v\n1,x\n1,y\nbad,a\n")
    with pytest.raises(OptionError, match="another job_id"):
        merge("id,v\n1,x\n2,y\nbad,a\nbad,b\n")
    assert glaive.dataset(uri).to_table()["v"].to_pylist() == ["old"]
    merged = merge("id,v\n1,x\n2,y\nbad,a\nbad,b\n", "other")
    assert (merged.rows, merged.bad_records) == (2, 2)
    rows = glaive.dataset(bad).to_table()["job_id"].to_pylist()
    assert rows == ["job", "other", "other"]
    with pytest.raises(SchemaError, match="id = 1"):
        merge("id,v\n1,x\n1,y\nbad,a\n", "third")
    assert merge("id,v\n1,x\n3,y\nbad,a\n", "third").rows == 2
    assert glaive.dataset(bad).count_rows() == 4


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("corrected", ["1\n2\n3\n", "1\n2\ny\n", "1\nx\ny\n", "1\nx\n3\n"])
def test_records_that_were_put_aside_are_not_ingested_as_well(
    tmp_path: Path, mode: Any, corrected: str
) -> None:
    path, begun = tmp_path / "a.csv", tmp_path / "begun"
    glaive.write_dataset(pa.table({"id": [0]}), begun / "t.lance")
    damaged = "1\nx\n3\n"
    path.write_text(f"id\n{damaged}")

    def job(folder: Path) -> IngestResult:
        keys = "id" if mode == "merge" else None
        aside = {"bad_records": folder / "bad.lance", "job_id": "job"}
        return ingest(path, folder / "t.lance", mode=mode, merge_keys=keys, **aside)

    def numbers(folder: Path) -> list[int]:
        return sorted(glaive.dataset(folder / "t.lance").to_table()["id"].to_pylist())

    def put_aside(folder: Path) -> list[bytes]:
        try:
            found = glaive.dataset(folder / "bad.lance").to_table()["record"].to_pylist()
            return [record.strip() for record in found]
        except DatasetNotFoundError:
            return []

    left = left_by_kills(begun, partial(job, begun), tmp_path / "left")
    path.write_text(f"id\n{corrected}")
    refused = 0
    for folder in left:
        done, before = numbers(folder), put_aside(folder)
        if before and done == [0] and corrected != damaged:
            refused += 1
            with pytest.raises(OptionError, match=r"put 1 bad records .* were found"):
                job(folder)
            assert (numbers(folder), put_aside(folder)) == ([0], before)
            continue
        text = damaged if len(done) > 1 else corrected
        job(folder)
        expected = [0, *(int(line) for line in text.split() if line.isdecimal())]
        assert numbers(folder) == expected, folder
        put = [line.encode() for line in text.split() if line.isalpha()]
        assert put_aside(folder) == put, folder
    assert refused > 1 or corrected == damaged
