"""Ingests that merge in tasks, on files that other tasks wrote: as a merge in one process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.crashes import left_by_kills

import glaive
from glaive.dataset.tasks import FragmentRange
from glaive.dataset.version import OpenedVersion
from glaive.errors import CommitConflictError, SchemaError
from glaive.ingestion import IngestResult, IngestTask, ingest
from glaive.ingestion.merging import CompleteTask, MatchTask, MergeDivision
from glaive.ingestion.task import IngestedPieces
from glaive.table.load import read_transaction

Row = dict[str, Any]


class Runner:
    """A cluster with a worker for each fragment: tasks, and what they share, are pickled."""

    parallelism = 4

    def __init__(self, division: MergeDivision | None = None) -> None:
        self.division = division or MergeDivision()
        self.sent: list[bytes] = []
        self.returned: list[bytes] = []

    def parts(self, dataset: OpenedVersion) -> list[FragmentRange]:
        version, count = dataset.manifest.version, dataset.manifest.num_fragments
        return [FragmentRange(version, at, at + 1) for at in range(count)]

    def run(
        self, dataset: OpenedVersion, tasks: Sequence[Any], shared: object | None = None
    ) -> list[Any]:
        opened = glaive.dataset(dataset.uri, version=dataset.manifest.version)
        results = []
        for task in tasks:
            self.sent.append(pickle.dumps((task, shared)))
            mine, given = pickle.loads(self.sent[-1])
            self.returned.append(pickle.dumps(mine.execute(opened, given)))
            results.append(pickle.loads(self.returned[-1]))
        return results


def by_tasks(source: Path, uri: Path, **options: Any) -> IngestResult:
    given = {"merge_keys": "id", "task_bytes": 1, "merge_runner": Runner(), **options}
    return ingest(source, uri, mode="merge", **given)


def alone(source: Path, uri: Path, **options: Any) -> IngestResult:
    return ingest(source, uri, mode="merge", **{"merge_keys": "id", **options})


def files(folder: Path, *parts: pa.Table) -> Path:
    folder.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet")
    return folder


def rows_of(uri: Path, **options: Any) -> list[Row]:
    return sorted(glaive.dataset(uri).to_table(**options).to_pylist(), key=repr)


def numbered(ids: list[int | None], text: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "s": [f"{text}{at}" for at in ids]})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Rows that replace some, also several, rows that are new, and rows whose key is null."""
    parts = [numbered([3, 40, 5], "a"), numbered([9, 41, None], "b"), numbered([42, None], "c")]
    return files(tmp_path / "in", *parts)


def target(uri: Path, *, stable: bool, ids: list[int | None] | None = None) -> Path:
    rows = numbered(list(range(10)) if ids is None else ids, "old")
    glaive.write_dataset(rows, uri, max_rows_per_file=4, enable_stable_row_ids=stable)
    return uri


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    "ids",
    [list(range(10)), [3, 3, 9, 5, 1, 3, None, 9], [100, 101]],
    ids=["each row once", "some rows several times", "no row"],
)
@pytest.mark.parametrize("block", [1 << 20, 2], ids=["one block", "blocks of two rows"])
def test_rows_are_those_of_a_merge_in_one_process(
    tmp_path: Path, source: Path, ids: list[int | None], block: int, *, stable: bool
) -> None:
    runner = Runner(MergeDivision(block_rows=block))
    ours = target(tmp_path / "ours.lance", stable=stable, ids=ids)
    theirs = target(tmp_path / "theirs.lance", stable=stable, ids=ids)
    lineage = ["id", "s", "_row_created_at_version", "_row_last_updated_at_version"]
    columns = lineage if stable else lineage[:2]

    result = by_tasks(source, ours, merge_runner=runner)
    expected = alone(source, theirs)

    assert rows_of(ours, columns=columns) == rows_of(theirs, columns=columns)
    assert (result.rows, result.version) == (expected.rows, expected.version)
    if stable:  # rows that replace others have their ids
        old = {row["_rowid"] for row in target_ids(ours)}
        assert {row["_rowid"] for row in rows_of(ours, with_row_id=True)} >= old
    glaive.dataset(ours).validate()


def target_ids(uri: Path) -> list[Row]:
    before: pa.Table = glaive.dataset(uri, version=1).to_table(with_row_id=True)
    return before.to_pylist()


def test_files_become_fragments_as_they_are_and_nothing_is_stray(
    tmp_path: Path, source: Path
) -> None:
    uri = target(tmp_path / "t.lance", stable=False)
    kept = {path.name for path in (uri / "data").iterdir()}
    by_tasks(source, uri)
    written = {path.name for path in (uri / "data").iterdir()} - kept
    assert len(written) == 3
    assert stray(uri) == set()


def test_files_that_were_written_again_are_removed(tmp_path: Path, source: Path) -> None:
    uri = target(tmp_path / "t.lance", stable=True)
    by_tasks(source, uri, job_id="j")
    assert stray(uri) == set()


def stray(uri: Path) -> set[str]:
    dataset = glaive.dataset(uri)
    versions = [dataset.checkout_version(entry["version"]) for entry in dataset.versions()]
    known = {
        file.path
        for version in versions
        for fragment in version.manifest.fragments()
        for file in fragment.files
    }
    return {path.name for path in (uri / "data").iterdir()} - known


def test_a_dataset_that_is_missing_is_created(tmp_path: Path, source: Path) -> None:
    ours, theirs = tmp_path / "ours.lance", tmp_path / "theirs.lance"
    result, expected = by_tasks(source, ours), alone(source, theirs)
    assert rows_of(ours) == rows_of(theirs)
    assert (result.rows, result.version) == (expected.rows, expected.version)


@pytest.mark.parametrize("job_id", [None, "j"])
@pytest.mark.parametrize(
    "ids", [[[1, 7, 7]], [[1, 7], [7, 8]]], ids=["in one file", "in different files"]
)
def test_several_rows_for_one_row_are_the_error_of_a_merge_in_one_process(
    tmp_path: Path, ids: list[list[int | None]], job_id: str | None
) -> None:
    blocks = {"merge_runner": Runner(MergeDivision(block_rows=2))}
    source = files(tmp_path / "in", *[numbered(part, "n") for part in ids])
    uri = target(tmp_path / "t.lance", stable=False)
    messages = []
    ways: list[tuple[Any, dict[str, Any]]] = [(alone, {}), (by_tasks, blocks)]
    for merge, options in ways:
        with pytest.raises(SchemaError, match="several rows of the source have id = 7") as raised:
            merge(source, uri, job_id=job_id, **options)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert glaive.dataset(uri).version == 1
    # The next run of a job with an id need not read the files again.
    assert bool(stray(uri)) == (job_id is not None)


def test_several_new_rows_of_one_key_are_inserted(tmp_path: Path) -> None:
    source = files(tmp_path / "in", numbered([50, 50], "n"), numbered([50], "m"))
    ours = target(tmp_path / "ours.lance", stable=False)
    theirs = target(tmp_path / "theirs.lance", stable=False)
    assert by_tasks(source, ours).rows == alone(source, theirs).rows == 3
    assert rows_of(ours) == rows_of(theirs)


def test_keys_are_of_several_columns_and_named_in_any_case(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 1, 2], "B": ["x", "y", None], "v": [1, 2, 3]})
    more = pa.table({"a": [1, 2, 2], "B": ["y", None, "y"], "v": [20, 30, 40]})
    source = files(tmp_path / "in", more)
    for name, merge in (("ours", by_tasks), ("theirs", alone)):
        glaive.write_dataset(rows, tmp_path / name)
        assert merge(source, tmp_path / name, merge_keys=["A", "b"]).rows == 3
    assert rows_of(tmp_path / "ours") == rows_of(tmp_path / "theirs")


@pytest.mark.parametrize("drift", ["widen", "add"])
def test_columns_of_the_dataset_change_as_for_a_merge_in_one_process(
    tmp_path: Path, drift: str
) -> None:
    rows = pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32())})
    more = pa.table({"id": [2, 3], "n": pa.array([2**40, 3], pa.int64())})
    if drift == "add":
        more = more.append_column("new", pa.array(["x", "y"]))
    source = files(tmp_path / "in", more)
    for name, merge in (("ours", by_tasks), ("theirs", alone)):
        glaive.write_dataset(rows, tmp_path / name)
        merge(source, tmp_path / name, schema_drift=drift)
    ours, theirs = (glaive.dataset(tmp_path / name) for name in ("ours", "theirs"))
    assert (ours.schema, ours.version) == (theirs.schema, theirs.version)
    assert rows_of(tmp_path / "ours") == rows_of(tmp_path / "theirs")


@pytest.mark.parametrize("violation", ["drop", "quarantine"])
def test_bad_records_and_expectations_are_as_for_a_merge_in_one_process(
    tmp_path: Path, violation: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,n\n1,5\nx,6\n2,-1\n")
    (folder / "b.csv").write_text("id,n\n3,7\n4,y\n")
    results = []
    for name, merge in (("ours", by_tasks), ("theirs", alone)):
        uri, aside = tmp_path / name, tmp_path / f"{name}.bad"
        glaive.write_dataset(pa.table({"id": [1, 2], "n": [0, 0]}), uri)
        expected: dict[str, Any] = {"expect": "n > 0", "on_violation": violation}
        done = merge(folder, uri, bad_records=aside, **expected)
        bad = rows_of(aside, columns=["file", "line", "reason", "record"])
        results.append((rows_of(uri), bad, done.rows, done.bad_records, done.dropped))
    assert results[0] == results[1]
    assert results[0][2:] == ((2, 2, 1) if violation == "drop" else (2, 3, 0))


def test_the_rows_of_a_primary_key_are_inserted_by_one_of_two_writers(tmp_path: Path) -> None:
    """What a merge in one process records, so that other writers see which keys it inserts."""
    key = pa.field("id", pa.int64(), nullable=False).with_metadata(
        {b"lance-schema:unenforced-primary-key": b"true"}
    )
    schema = pa.schema([key, pa.field("s", pa.string())])
    source = files(tmp_path / "in", numbered([1, 7], "n"), numbered([8], "n"))
    recorded = []
    for name, merge in (("ours", by_tasks), ("theirs", alone)):
        glaive.write_dataset(pa.table([[1, 2], ["a", "b"]], schema=schema), tmp_path / name)
        merge(source, tmp_path / name)
        dataset = glaive.dataset(tmp_path / name)
        transaction = read_transaction(dataset.store, dataset.manifest)
        assert transaction is not None
        message = transaction.operation.to_wire()
        assert message.HasField("inserted_rows")
        recorded.append(message.inserted_rows)
    assert recorded[0] == recorded[1]


def test_columns_that_change_while_files_are_read_are_an_error(
    tmp_path: Path, source: Path
) -> None:
    uri = target(tmp_path / "t.lance", stable=False)

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        yield from ((number, task.execute()) for number, task in enumerate(tasks))
        glaive.dataset(uri).add_columns(pa.schema([pa.field("other", pa.int64())]))

    with pytest.raises(CommitConflictError, match="changed while the files were read"):
        by_tasks(source, uri, driver=driver)
    assert stray(uri) == set()


def test_rows_that_others_change_meanwhile_are_looked_for_again(
    tmp_path: Path, source: Path
) -> None:
    uri = target(tmp_path / "t.lance", stable=False)

    class Slow(Runner):
        def run(self, *given: Any) -> list[Any]:
            found = super().run(*given)
            if glaive.dataset(uri).version == 1:
                glaive.dataset(uri).delete("id in (3, 4)")
            return found

    by_tasks(source, uri, merge_runner=Slow())
    expected = {row["id"]: row["s"] for row in numbered([0, 1, 2, 6, 7, 8], "old").to_pylist()}
    for part in (numbered([3, 40, 5], "a"), numbered([9, 41], "b"), numbered([42], "c")):
        expected |= {row["id"]: row["s"] for row in part.to_pylist()}
    rows = rows_of(uri)
    assert {row["id"]: row["s"] for row in rows if row["id"] is not None} == expected
    assert len(rows) == len(expected) + 2  # those whose key is null


@pytest.mark.parametrize("stable", [False, True])
def test_a_job_that_another_run_finished_while_it_was_retried_merges_once(
    tmp_path: Path, source: Path, *, stable: bool
) -> None:
    uri = target(tmp_path / "t.lance", stable=stable)
    done: list[IngestResult] = []
    last = CompleteTask if stable else MatchTask

    class Slow(Runner):
        def run(self, dataset: OpenedVersion, tasks: Sequence[Any], *shared: Any) -> list[Any]:
            found = super().run(dataset, tasks, *shared)
            if isinstance(tasks[0], last) and glaive.dataset(uri).version == 1:
                glaive.dataset(uri).update({"s": "'other'"}, "id < 4")  # a fragment
                done.append(by_tasks(source, uri, job_id="j"))  # a run that was taken for dead
            return found

    again = by_tasks(source, uri, merge_runner=Slow(), job_id="j")
    assert (again.repeated, again.version) == (True, done[0].version) == (True, 3)
    rows = rows_of(uri)
    assert [row["s"] for row in rows if row["id"] is None] == ["bNone", "cNone"]
    assert len(rows) == 10 + 3 + 2  # of the table, new ones, and those whose key is null
    assert glaive.dataset(uri).version == 3
    glaive.dataset(uri).validate()


class Overtaken(Runner):
    """Has something happen before its first tasks read the files."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self.happens: Callable[[], object] | None = happens

    def run(self, *given: Any) -> list[Any]:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().run(*given)


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_job_whose_files_another_run_removed_returns_the_version_of_that_run(
    tmp_path: Path, source: Path, *, cleaned: bool
) -> None:
    """That run wrote again what tasks of both had written; also if its version is gone since."""
    uri = target(tmp_path / "t.lance", stable=True)

    def other_run() -> None:
        by_tasks(source, uri, job_id="j")
        if cleaned:
            glaive.dataset(uri).delete("id = 41")
            glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0))

    again = by_tasks(source, uri, merge_runner=Overtaken(other_run), job_id="j")

    assert (again.repeated, again.version) == (True, 2)
    assert glaive.dataset(uri).version == 2 + cleaned
    assert len(rows_of(uri)) == 10 + 3 + 2 - cleaned
    glaive.dataset(uri).validate()


@pytest.mark.parametrize("job_id", [None, "j"])
def test_a_merge_whose_version_was_cleaned_up_is_made_on_the_newest(
    tmp_path: Path, source: Path, job_id: str | None
) -> None:
    uri = target(tmp_path / "t.lance", stable=False)

    def others() -> None:
        glaive.dataset(uri).update({"s": "'other'"}, "id < 3")
        glaive.dataset(uri).delete("id = 8")
        glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0))

    result = by_tasks(source, uri, merge_runner=Overtaken(others), job_id=job_id)

    assert (result.repeated, result.version, result.rows) == (False, 4, 8)
    rows = {row["id"]: row["s"] for row in rows_of(uri)}
    assert [rows[at] for at in (0, 3, 4, 42)] == ["other", "a3", "old4", "c42"]
    assert len(rows_of(uri)) == 9 + 3 + 2
    glaive.dataset(uri).validate()


@pytest.mark.parametrize("job_id", [None, "j"])
def test_a_merge_whose_files_were_cleaned_up_changes_nothing_and_says_to_run_again(
    tmp_path: Path, source: Path, job_id: str | None
) -> None:
    uri = target(tmp_path / "t.lance", stable=False)

    def vacuum() -> None:
        glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    with pytest.raises(CommitConflictError, match=r"files were removed while .*Run it again"):
        by_tasks(source, uri, merge_runner=Overtaken(vacuum), job_id=job_id)
    assert glaive.dataset(uri).version == 1

    assert by_tasks(source, uri, job_id=job_id).rows == 8
    assert len(rows_of(uri)) == 10 + 3 + 2


def test_a_job_that_was_stopped_before_its_commit_runs_again_after_a_clean_up(
    tmp_path: Path, source: Path
) -> None:
    uri = target(tmp_path / "t.lance", stable=False)

    class Stopped(Runner):
        def run(self, dataset: OpenedVersion, tasks: Sequence[Any], *shared: Any) -> list[Any]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        by_tasks(source, uri, merge_runner=Stopped(), job_id="j")
    for name in ("first", "second"):
        glaive.dataset(uri).update({"s": f"'{name}'"}, "id < 4")
    glaive.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    assert not by_tasks(source, uri, job_id="j").repeated
    assert len(rows_of(uri)) == 10 + 3 + 2  # of the table, new ones, and those whose key is null


@pytest.mark.spec("sec-6")
def test_files_that_a_journal_names_behind_a_link_stay(tmp_path: Path, source: Path) -> None:
    uri, others = target(tmp_path / "t.lance", stable=True), tmp_path / "others"

    class Stopped(Runner):
        def run(self, dataset: OpenedVersion, tasks: Sequence[Any], *shared: Any) -> list[Any]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        by_tasks(source, uri, merge_runner=Stopped(), job_id="j")
    (uri / "data").rename(others)
    (uri / "data").symlink_to(others)
    before = set(others.iterdir())
    assert not by_tasks(source, uri, job_id="j").repeated
    assert len(rows_of(uri)) == 10 + 3 + 2
    assert before <= set(others.iterdir())


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("stable", [False, True])
def test_a_job_killed_at_any_step_merges_once(tmp_path: Path, *, stable: bool) -> None:
    """Whether it is stopped before the files are written, between, or before its end is noted."""
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.csv").write_text("id,s\n1,new\nx,bad\n")
    (source / "b.csv").write_text("id,s\n7,new\n")
    begun = tmp_path / "begun"
    target(begun / "t.lance", stable=stable, ids=[0, 1, 2])

    def run(place: Path) -> IngestResult:
        given: dict[str, Any] = {"bad_records": place / "bad.lance", "task_bytes": 20}
        return by_tasks(source, place / "t.lance", job_id="j", **given)

    left = left_by_kills(begun, partial(run, begun), tmp_path / "left")
    for place in left:
        uri, done = place / "t.lance", run(place)
        assert done.repeated or done.rows == 2
        assert rows_of(uri) == [
            {"id": 0, "s": "old0"}, {"id": 1, "s": "new"}, {"id": 2, "s": "old2"},
            {"id": 7, "s": "new"},
        ]  # fmt: skip
        assert len(rows_of(place / "bad.lance")) == 1
        assert (run(place).repeated, glaive.dataset(uri).version) == (True, 2)
        glaive.dataset(uri).cleanup_old_versions(
            older_than=None, retain_versions=2, delete_unverified=True
        )
        assert stray(uri) == set()
        notes = {path.name for path in (uri / "_glaive" / "jobs" / "j").glob("[!.]*")}
        assert notes == {"committed.json"}
    assert len(left) > 8


def test_tasks_are_bounded_however_many_fragments_there_are(tmp_path: Path, source: Path) -> None:
    """Parts of the dataset are joined; each block of the source meets all of them."""
    ours, theirs = tmp_path / "ours.lance", tmp_path / "theirs.lance"
    for uri in (ours, theirs):
        glaive.write_dataset(numbered([*range(10)], "old"), uri, max_rows_per_file=1)
    runner = Runner(MergeDivision(block_rows=3, match_tasks=6))
    by_tasks(source, ours, merge_runner=runner)
    alone(source, theirs)
    assert len(runner.sent) == 3 * 2  # three blocks, and the dataset in two parts
    assert rows_of(ours) == rows_of(theirs)


def test_a_driver_gets_names_and_sets_of_rows_only(tmp_path: Path) -> None:
    count = 20_000
    text = "a long text that is not to pass through the driver " * 4
    rows = pa.table({"id": range(count), "s": [f"{text}{at}" for at in range(count)]})
    source = files(tmp_path / "in", rows.slice(0, count // 2), rows.slice(count // 2))
    uri = tmp_path / "t.lance"
    glaive.write_dataset(rows, uri)
    runner = Runner()
    result = by_tasks(source, uri, merge_runner=runner)
    assert result.rows == count
    assert sum(map(len, runner.returned)) < 10 * count
    assert sum(map(len, runner.sent)) < 10_000
