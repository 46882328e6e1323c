"""The two phases of a write, step by step as Spark's processes run them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StructField, StructType
from tests.kit.crashes import killed_at_step

import glaive
import glaive.spark
from glaive.dataset.tasks import JOB
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WritePlan
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    MissingDependencyError,
    SchemaError,
    StoreError,
)
from glaive.format.fragment import Fragment
from glaive.io.access import open_store
from glaive.spark.options import Options
from glaive.spark.writer import FragmentsWritten, LanceArrowWriter, plan_job
from glaive.table.load import open_latest, read_transaction

FRAME = StructType([StructField("id", LongType())])


def plan(uri: str, *, overwrite: bool = False, **options: Any) -> LanceArrowWriter:
    return LanceArrowWriter(plan_job(FRAME, Options(uri=uri, **options), overwrite=overwrite))


def run(writer: LanceArrowWriter, tasks: Sequence[Sequence[int]]) -> list[WriterCommitMessage]:
    """Run tasks as Spark does: each with a copy of the writer, messages through pickle."""
    messages = []
    for numbers in tasks:
        copy: LanceArrowWriter = pickle.loads(pickle.dumps(writer))
        batches = iter([pa.record_batch({"id": pa.array(numbers, pa.int64())})])
        messages.append(pickle.loads(pickle.dumps(copy.write(batches))))
    return messages


def create(uri: str, numbers: Sequence[int]) -> None:
    writer = plan(uri)
    writer.commit(list(run(writer, [numbers])))


def ids(uri: str) -> list[int]:
    return sorted(glaive.dataset(uri).to_table()["id"].to_pylist())


def data_files(uri: str) -> set[str]:
    return {path.name for path in Path(uri, "data").glob("*.lance")}


def test_nothing_is_visible_before_the_commit(uri: str) -> None:
    writer = plan(uri)
    messages = run(writer, [[1, 2], [3]])

    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(uri)

    writer.commit(list(messages))
    assert ids(uri) == [1, 2, 3]


def test_the_version_carries_the_id_of_the_job(uri: str) -> None:
    writer = plan(uri)
    writer.commit(list(run(writer, [[1]])))

    store = open_store(uri)
    transaction = read_transaction(store, open_latest(store))
    assert transaction is not None
    assert transaction.properties[JOB] == writer.job.id


def test_small_batches_are_joined_before_a_task_writes_them(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def noting(job_plan: WritePlan, rows: Iterator[pa.RecordBatch]) -> list[Fragment]:
        pieces = list(rows)
        sizes.extend(piece.num_rows for piece in pieces)
        return write_fragments(job_plan, pieces)

    monkeypatch.setattr("glaive.spark.writer.write_fragments", noting)
    writer = plan(uri)
    batches = (pa.record_batch({"id": range(at, at + 100)}) for at in range(0, 10_000, 100))
    writer.commit([writer.write(batches)])

    assert sizes == [10_000]
    assert ids(uri) == list(range(10_000))


def test_a_message_is_small(uri: str) -> None:
    writer = plan(uri)
    (message,) = run(writer, [range(100_000)])

    assert len(pickle.dumps(message)) < 1_000


def test_a_task_without_rows_writes_no_file(uri: str) -> None:
    writer = plan(uri)
    messages = run(writer, [[], [1]])

    assert messages[0] == FragmentsWritten(())
    assert len(data_files(uri)) == 1


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("exists", [False, True])
def test_a_repeated_commit_is_recognised(uri: str, overwrite: bool, exists: bool) -> None:
    if exists:
        create(uri, [0])
    writer = plan(uri, overwrite=overwrite)
    messages = list(run(writer, [[1], [2]]))

    writer.commit(messages)
    writer.commit(messages)

    assert glaive.dataset(uri).version == 1 + exists
    assert ids(uri) == ([0] if exists and not overwrite else []) + [1, 2]


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ({}, [], [1, 2]),
        ({}, [0], [0, 1, 2]),
        ({"overwrite": True}, [0], [1, 2]),
        ({"overwrite": True, "replace_where": "id < 9"}, [0, 20], [1, 2, 20]),
        ({"overwrite": True, "replace_using": ("id",)}, [0, 1], [0, 1, 2]),
    ],
    ids=["create", "append", "overwrite", "replace_where", "replace_using"],
)
def test_a_commit_killed_before_any_change_of_a_file_is_finished_by_the_next_one(
    tmp_path: Path, options: dict[str, Any], before: list[int], after: list[int]
) -> None:
    killed, step = True, 0
    while killed:
        step += 1
        uri = str(tmp_path / f"{step}.lance")
        if before:
            create(uri, before)
        writer = plan(uri, **options)
        messages = run(writer, [[1], [2]])

        killed = killed_at_step(uri, partial(writer.commit, messages), step)

        if before or any(Path(uri).glob("_versions/*.manifest")):
            assert ids(uri) in (before, after)
        writer.commit(messages)
        assert ids(uri) == after
        assert glaive.dataset(uri).version == 1 + bool(before)
        dataset = glaive.dataset(uri)
        dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
        dataset.validate()
        assert len(data_files(uri)) == len(after)
        assert not [*Path(uri).rglob(".*.tmp")]
    assert step > 2


def test_a_repeated_commit_is_recognised_after_other_writers(uri: str) -> None:
    create(uri, [0])
    writer = plan(uri)
    messages = list(run(writer, [[1]]))
    writer.commit(messages)
    glaive.write_dataset(pa.table({"id": [5]}), uri, mode="append")

    writer.commit(messages)

    assert ids(uri) == [0, 1, 5]


def test_a_second_attempt_of_a_task_adds_its_rows_once(uri: str) -> None:
    writer = plan(uri)
    run(writer, [[1, 2]])
    messages = list(run(writer, [[1, 2]]))

    writer.commit(messages)

    assert ids(uri) == [1, 2]
    assert len(data_files(uri)) == 2


def test_an_abort_after_a_failed_task_removes_what_others_wrote(uri: str) -> None:
    create(uri, [0])
    before = data_files(uri)
    writer = plan(uri)
    messages = run(writer, [[1], [2]])

    writer.abort([messages[0], None, messages[1]])

    assert data_files(uri) == before
    assert ids(uri) == [0]


def test_an_abort_after_a_commit_deletes_nothing(uri: str) -> None:
    create(uri, [0])
    writer = plan(uri)
    messages = list(run(writer, [[1], [2]]))
    writer.commit(messages)

    writer.abort(messages)
    writer.abort([*messages, None])

    assert ids(uri) == [0, 1, 2]


def test_an_abort_of_an_unclear_commit_deletes_nothing(uri: str) -> None:
    create(uri, [0])
    writer = plan(uri)
    messages = list(run(writer, [[1]]))

    writer.abort(messages)

    assert len(data_files(uri)) == 2
    writer.commit(messages)
    assert ids(uri) == [0, 1]


def test_an_abort_where_nothing_was_created_is_quiet(uri: str) -> None:
    writer = plan(uri)
    messages = run(writer, [[1]])

    writer.abort([*messages, None])
    plan(uri).abort([None])

    assert data_files(uri) == set()


# --- two writers ------------------------------------------------------------------------------


def test_two_appends_both_succeed(uri: str) -> None:
    create(uri, [0])
    one, two = plan(uri), plan(uri)
    rows = [list(run(one, [[1]])), list(run(two, [[2]]))]

    one.commit(rows[0])
    two.commit(rows[1])

    assert ids(uri) == [0, 1, 2]


def test_two_appends_may_both_find_nothing_to_append_to(uri: str) -> None:
    one, two = plan(uri), plan(uri)
    rows = [list(run(one, [[1]])), list(run(two, [[2]]))]

    one.commit(rows[0])
    two.commit(rows[1])
    two.commit(rows[1])

    assert ids(uri) == [1, 2]


def test_an_append_does_not_follow_a_dataset_of_other_columns(uri: str) -> None:
    writer = plan(uri)
    messages = list(run(writer, [[1]]))
    glaive.write_dataset(pa.table({"other": ["x"]}), uri)

    with pytest.raises(SchemaError, match="'id' is not a column"):
        writer.commit(messages)


@pytest.mark.parametrize("replaces", [{}, {"replace_where": "id < 9"}], ids=["append", "replace"])
def test_rows_do_not_go_to_a_dataset_made_in_the_place_of_the_one_that_was_read(
    uri: str, replaces: dict[str, str]
) -> None:
    """Its columns may have the same field ids: here ``x`` has that of ``id``."""
    create(uri, [0])
    writer = plan(uri, overwrite=bool(replaces), **replaces)
    glaive.LanceDataset.drop(uri)
    glaive.write_dataset(pa.table({"x": [5], "id": [6]}), uri)
    messages = run(writer, [[1]])

    driver: LanceArrowWriter = pickle.loads(pickle.dumps(writer))
    with pytest.raises(CommitConflictError, match="another dataset made in its place"):
        driver.commit(list(messages))
    assert glaive.dataset(uri).to_table().to_pydict() == {"x": [5], "id": [6]}


def test_a_dataset_that_must_not_exist_is_not_followed(uri: str) -> None:
    writer = plan(uri, must_not_exist=True)
    messages = list(run(writer, [[1]]))
    create(uri, [0])

    with pytest.raises(DatasetExistsError):
        writer.commit(messages)
    with pytest.raises(DatasetExistsError):
        plan(uri, must_not_exist=True)
    assert ids(uri) == [0]


def test_two_overwrites_conflict(uri: str) -> None:
    create(uri, [0])
    one, two = plan(uri, overwrite=True), plan(uri, overwrite=True)
    rows = [list(run(one, [[1]])), list(run(two, [[2]]))]
    one.commit(rows[0])

    with pytest.raises(CommitConflictError):
        two.commit(rows[1])

    assert ids(uri) == [1]


def test_an_overwrite_of_nothing_does_not_replace_what_came_meanwhile(uri: str) -> None:
    writer = plan(uri, overwrite=True)
    messages = list(run(writer, [[1]]))
    create(uri, [0])

    with pytest.raises(CommitConflictError, match="was created by another writer"):
        writer.commit(messages)
    assert ids(uri) == [0]


# --- in a session -----------------------------------------------------------------------------


@pytest.mark.spark
def test_a_failed_job_leaves_the_dataset_as_it_was(spark: SparkSession, uri: str) -> None:
    glaive.spark.write(spark.range(10), uri)
    before = data_files(uri)
    failing = spark.range(0, 1000, 1, 4).selectExpr("if(id = 999, raise_error('boom'), id) as id")

    with pytest.raises(Exception, match="boom"):
        glaive.spark.write(failing, uri, mode="append")

    assert glaive.dataset(uri).version == 1
    assert ids(uri) == list(range(10))
    assert before <= data_files(uri)


@pytest.mark.spark
def test_a_failed_job_creates_nothing(spark: SparkSession, uri: str) -> None:
    failing = spark.range(0, 1000, 1, 2).selectExpr("if(id = 999, raise_error('boom'), id) as id")

    with pytest.raises(Exception, match="boom"):
        glaive.spark.write(failing, uri)

    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(uri)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_task_that_succeeds_at_the_second_attempt_writes_once(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    mark = str(tmp_path / "first attempt")

    # A function within a test travels to the workers by value; they cannot import tests.
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if 999 in batch["id"].to_pylist() and not Path(mark).exists():
                Path(mark).touch()
                raise RuntimeError("the first attempt fails after some rows")

    flaky = spark.range(0, 1000, 1, 2).mapInArrow(fail_once, "id long")

    glaive.spark.write(flaky, uri)

    assert Path(mark).exists()
    assert ids(uri) == list(range(1000))
    assert glaive.dataset(uri).version == 1


def test_columns_are_encoded_as_the_options_say(uri: str) -> None:
    numbers = range(5000)
    plain = {"id": {"compression": "none", "structural_encoding": "miniblock"}}
    for place, options in ((uri, None), (f"{uri}-plain", plain)):
        job = plan_job(FRAME, Options(uri=place, encoding_options=options), overwrite=False)
        writer = LanceArrowWriter(job)
        writer.commit(list(run(writer, [numbers])))
        assert ids(place) == [*numbers]
    small, large = (
        sum(file.stat().st_size for file in Path(place, "data").iterdir())
        for place in (uri, f"{uri}-plain")
    )
    assert large > 5000 * 8 > 2 * small


def test_encoding_options_of_other_columns_fail_on_the_driver(uri: str) -> None:
    with pytest.raises(ColumnNotFoundError, match="idd"):
        plan_job(
            FRAME,
            Options(uri=uri, encoding_options={"idd": {"compression": "zstd"}}),
            overwrite=False,
        )


def test_an_overwrite_of_an_expected_version_conflicts_with_any_other_commit(uri: str) -> None:
    create(uri, [0])
    writer = plan(uri, overwrite=True, expected_version=1)
    messages = list(run(writer, [[1]]))
    glaive.write_dataset(pa.table({"id": [5]}), uri, mode="append")

    with pytest.raises(CommitConflictError, match=r"concurrent transaction Append at version 2"):
        writer.commit(messages)
    assert ids(uri) == [0, 5]


def test_a_repeated_commit_of_a_replacement_is_recognised(uri: str) -> None:
    create(uri, [0, 1, 2])
    writer = plan(uri, overwrite=True, replace_where="id < 2")
    messages = list(run(writer, [[-1], [-2]]))
    glaive.write_dataset(pa.table({"id": [1]}), uri, mode="append")

    writer.commit(messages)
    writer.commit(messages)

    assert ids(uri) == [-2, -1, 1, 2]
    assert glaive.dataset(uri).version == 3


def test_a_repeated_commit_of_replaced_values_is_recognised(uri: str) -> None:
    create(uri, [0, 1, 2])
    writer = plan(uri, overwrite=True, replace_using=("id",))
    messages = list(run(writer, [[1, 1], [1, 2, 7]]))
    glaive.write_dataset(pa.table({"id": [1]}), uri, mode="append")

    writer.commit(messages)
    writer.commit(messages)

    assert ids(uri) == [0, 1, 1, 1, 1, 2, 7]  # a 1 is from the other writer
    assert glaive.dataset(uri).version == 3


def test_replaced_rows_that_another_writer_changed_are_a_conflict(uri: str) -> None:
    create(uri, [0, 1, 2])
    writer = plan(uri, overwrite=True, replace_where="id < 2")
    messages = list(run(writer, [[-1]]))
    glaive.dataset(uri).delete("id = 1")

    with pytest.raises(CommitConflictError):
        writer.commit(messages)
    assert ids(uri) == [0, 2]


def test_another_version_of_glaive_in_a_task_is_refused(uri: str) -> None:
    writer = plan(uri)
    writer.job = replace(writer.job, release="0.0.9")

    with pytest.raises(MissingDependencyError, match=r"the driver has 0\.0\.9\. Install"):
        run(writer, [[1]])
    assert not Path(uri).exists()


# --- paths ------------------------------------------------------------------------------------


def test_files_that_the_driver_does_not_see_are_not_committed(uri: str, tmp_path: Path) -> None:
    """As on a cluster whose machines have no common disk: tasks write to their own."""
    writer = plan(uri)
    messages = run(writer, [[1], [2]])
    Path(uri).rename(tmp_path / "disk of the executor")

    with pytest.raises(StoreError, match=r"wrote 2 files to .* does not see.*object store"):
        writer.commit(list(messages))
    assert not Path(uri).exists()


def test_a_task_without_the_dataset_fails_before_it_writes(uri: str, tmp_path: Path) -> None:
    create(uri, [0])
    writer = plan(uri)
    Path(uri).rename(tmp_path / "disk of the driver")

    with pytest.raises(StoreError, match=r"does not exist on the executor .*mounted everywhere"):
        run(writer, [[1]])
    assert not Path(uri).exists()
