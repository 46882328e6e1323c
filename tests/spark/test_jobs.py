"""The engine of jobs: tasks in workers, their number, their results, workers of other releases."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import glaive
from glaive import LanceDataset
from glaive.dataset.rows import DeleteTask, update_where
from glaive.dataset.tasks import FragmentRange, InProcess, Job
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import MissingDependencyError, SchemaError
from glaive.format.manifest import Manifest
from glaive.io.access import open_store
from glaive.spark import LanceTable
from glaive.spark.runner import (
    MAX_TASKS,
    SparkJob,
    SparkRunner,
    divide,
    opened_dataset,
    pickled_dataset,
    tasks_function,
)
from glaive.spark.writer import RELEASE
from glaive.table.load import open_latest
from glaive.testing import CountingStore

SMALL = pa.table({"id": list(range(12))})


@dataclass(frozen=True)
class Number:
    """A task that returns its number and the version it sees."""

    value: int

    def execute(self, dataset: OpenDataset) -> tuple[int, int]:
        return self.value, dataset.opened.manifest.version


@dataclass(frozen=True)
class Failing:
    """A task that fails."""

    def execute(self, dataset: OpenDataset) -> None:
        raise SchemaError(f"version {dataset.opened.manifest.version} is not to my liking")


def test_results_come_in_the_order_of_the_tasks(spark: SparkSession, uri: str) -> None:
    dataset = glaive.write_dataset(SMALL, uri)
    # Functions of a test module are sent by value, as those of a user's script are.
    tasks = [Number(value) for value in range(5)]
    assert SparkRunner(spark).run(dataset.opened, tasks) == [(value, 1) for value in range(5)]
    assert SparkRunner(spark).run(dataset.opened, []) == []


def test_a_lone_task_is_one_stage(spark: SparkSession, uri: str) -> None:
    dataset = glaive.write_dataset(SMALL, uri)
    spark.sparkContext.setJobGroup("lone", "a lone task")
    assert SparkRunner(spark).run(dataset.opened, [Number(7)]) == [(7, 1)]
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("lone")]
    assert [len(job.stageIds) for job in jobs if job is not None] == [1]


def test_an_error_of_a_task_is_raised_as_itself(spark: SparkSession, uri: str) -> None:
    dataset = glaive.write_dataset(SMALL, uri)
    with pytest.raises(SchemaError, match=r"^version 1 is not to my liking"):
        SparkRunner(spark).run(dataset.opened, [Failing()])
    assert glaive.dataset(uri).version == 1


def test_a_worker_of_another_release_refuses_to_work(uri: str) -> None:
    dataset = glaive.write_dataset(SMALL, uri)
    row = [[0], ["glaive 0.0.1, Python 2.7"], [pickle.dumps(dataset)], [b"never unpickled"]]
    batch = pa.record_batch(row, names=["slot", "release", "dataset", "tasks"])
    with pytest.raises(MissingDependencyError, match=f"has {RELEASE}, the driver has glaive 0.0"):
        list(tasks_function(None, rows=False)(iter([batch])))


def test_a_worker_sees_the_rows_of_a_dataset_that_was_made_again(uri: str) -> None:
    """Workers keep what they opened: deleted and made again, it has the same path and version."""
    for number in range(3):
        shutil.rmtree(uri, ignore_errors=True)
        made = glaive.write_dataset({"n": [number]}, uri)
        seen = opened_dataset(pickled_dataset(made.opened))
        assert (seen.version, seen.to_table()["n"].to_pylist()) == (1, [number])
        assert opened_dataset(pickled_dataset(glaive.dataset(uri).opened)) is seen


@pytest.mark.parametrize(
    ("rows", "size", "cores", "parts"),
    [
        ([10] * 8, 1 << 10, 4, 1),  # nothing to divide
        ([10] * 8, 64 << 20, 4, 4),  # one part for each core
        ([10] * 8, 64 << 30, 4, 8),  # one part for each fragment
        ([10] * 1_000_000, 1 << 30, 4, 977),  # as many fragments as a task may open
        ([10] * 1_000_000, 1 << 60, 4, MAX_TASKS),
        ([1000, 1, 1, 1], 1 << 40, 2, 2),  # one of them is nearly all
    ],
)
def test_the_number_of_tasks_follows_bytes_and_cores(
    rows: list[int], size: int, cores: int, parts: int
) -> None:
    cuts = divide(np.array(rows, np.int64), size, cores)
    assert len(cuts) - 1 == pytest.approx(parts, abs=max(0, parts // 50))
    assert (cuts[0], cuts[-1]) == (0, len(rows))
    assert all(first < second for first, second in pairwise(cuts))


def test_tasks_for_a_million_fragments_are_small() -> None:
    cuts = divide(np.full(1_000_000, 1000, np.int64), 1 << 50, 200)
    tasks = [DeleteTask(FragmentRange(7, start, stop), "id = 1") for start, stop in pairwise(cuts)]
    assert sum(len(pickle.dumps([task])) for task in tasks) < 8 << 20


def test_a_task_that_runs_twice_or_after_the_commit_changes_nothing(
    spark: SparkSession, uri: str
) -> None:
    dataset = glaive.write_dataset(SMALL, uri, max_rows_per_file=4)
    zombie = DeleteTask(FragmentRange(1), "id > 3")
    zombie.execute(dataset)
    table = LanceTable.forPath(spark, uri)
    table.delete("id = 1")
    zombie.execute(glaive.dataset(uri))
    assert sorted(glaive.dataset(uri).to_table()["id"].to_pylist()) == [0, *range(2, 12)]
    table.vacuum(0, delete_unverified=True)
    assert len(list((Path(uri) / "_deletions").iterdir())) == 1


def test_a_commit_whose_answer_was_lost_is_found_again(spark: SparkSession, uri: str) -> None:
    dataset = glaive.write_dataset(SMALL, uri)
    job = SparkJob.of(spark, "once")
    counts = LanceTable.forPath(spark, uri).delete("id = 1", job_id="once")
    # A driver that had planned before the first one committed.
    from glaive.dataset.rows import delete_where

    manifest, _ = delete_where(dataset.opened, "id = 1", replace(job).commit)
    assert manifest.version == counts["version"] == glaive.dataset(uri).version


def test_whether_a_job_ran_takes_no_request_for_each_version(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(SMALL, uri)
    LanceTable.forPath(spark, uri).delete("id = 1", job_id="first")
    for number in range(20):
        glaive.dataset(uri).delete(f"id = {number}")
    store = CountingStore(open_store(uri))
    dataset = LanceDataset.of(store, open_latest(store))
    store.reset()
    assert SparkJob.of(spark, "second").made(dataset) is None
    assert store.requests == 0
    found = SparkJob.of(spark, "first").made(dataset)
    assert found is not None
    assert found.version == 2
    assert store.requests <= 1


@pytest.mark.parametrize("named", [("tonight", None), (None, ("nightly", 7))], ids=["id", "txn"])
def test_a_job_that_another_driver_finished_while_it_was_retried_is_not_done_twice(
    spark: SparkSession, uri: str, named: tuple[str | None, tuple[str, int] | None]
) -> None:
    dataset = glaive.write_dataset({"id": [1], "n": [0]}, uri)
    job = SparkJob.of(spark, *named)
    runs: list[int] = []
    others: list[Callable[[], object]] = [
        lambda: glaive.dataset(uri).update({"n": "n + 10"}),
        # A driver that was taken for dead.
        lambda: job.change(glaive.dataset(uri), plus_one),
    ]

    def plus_one(opened: OpenedVersion, of: Job) -> tuple[Manifest, int]:
        runs.append(opened.manifest.version)
        while others:
            others.pop(0)()
        return update_where(opened, {"n": "n + 1"}, None, job=replace(of, runner=InProcess()))

    counts = job.change(dataset, plus_one)

    assert counts == {"num_rows_updated": 1, "version": 3}
    assert runs == [1, 2]
    assert glaive.dataset(uri).to_table()["n"].to_pylist() == [11]
    assert (dataset.version, glaive.dataset(uri).version) == (3, 3)
