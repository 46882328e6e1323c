"""Run tasks in the workers of a Spark cluster, in classic sessions and with Spark Connect."""

from __future__ import annotations

import json
import math
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.rows import with_retries
from glaive.dataset.tasks import (
    COUNTS,
    JOB,
    MAX_TASKS,
    CuttingTask,
    FragmentRange,
    Job,
    RowTask,
    SharingTask,
    Task,
    cut_evenly,
    parts_for,
)
from glaive.errors import OptionError, VersionNotFoundError
from glaive.format.manifest import Manifest
from glaive.spark.api import is_connect
from glaive.spark.failures import UNCOMMITTED, as_glaive_errors, naming_job
from glaive.spark.versions import partitioned_by_id
from glaive.spark.writer import ENGINE, RELEASE, in_task
from glaive.table.load import find_transaction, open_version, read_transaction
from glaive.table.named_jobs import AppTransaction, NamedJob, forgotten_until, made_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.version import OpenedVersion
    from glaive.io.store import ObjectStore


# --- Code that runs in the workers of a cluster: execute tasks --------------------------
# A task reads and writes the files of the dataset itself. Only pickles of the task and of its
# result pass through Spark. Workers import this module, so it imports as little as possible.

RESULTS: Final[dict[str, pa.DataType]] = {"slot": pa.int32(), "results": pa.binary()}
"""Columns that a worker returns: the number of the Spark task, and its results."""

RESULTS_DDL = "slot int, results binary"
"""The columns as a schema for Spark."""

PARTS_DDL: Final = "part int, rows binary"
"""The columns of shuffled rows as a schema for Spark."""


def tasks_function(
    shared: bytes | None, *, rows: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that executes the tasks of rows and returns their results.

    The columns of a row: its number, the driver's release, the pickled dataset, and a compressed
    pickle of a list of tasks. The dataset is optional. A worker with another version of glaive or
    Python raises an error before it runs a task.

    Parameters
    ----------
    shared
        A pickled value that all tasks also get. Spark sends it to each worker once.
    rows
        Whether the tasks return rows.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for slot, dataset, tasks in _accepted(batches):
            given = (dataset,) if shared is None else (dataset, _shared_value(shared))
            if rows:
                for task in tasks:
                    yield from task.rows(*given)
            else:
                results = [task.execute(*given) for task in tasks]
                yield pa.record_batch([[slot], [dump_results(results)]], schema=pa.schema(RESULTS))

    return run


@lru_cache(maxsize=1)
def _shared_value(pickled: bytes) -> Any:
    """Return a value that tasks of a job share; cache it for the next tasks of this worker."""
    return loads(pickled)


def _accepted(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Any, list[Any]]]:
    """Yield tasks of this worker with their dataset or ``None``; check the driver's release."""
    for batch in batches:
        columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
        for slot, driver, dataset, work in zip(*columns, strict=True):
            with in_task(driver):
                tasks = loads(zlib.decompress(work))
                yield slot, opened_dataset(dataset) if dataset else None, tasks


def rows_function(
    driver: str, dataset: bytes, task: bytes
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that executes a :class:`RowTask` on a partition of a frame."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with in_task(driver):
            result = loads(task).execute(opened_dataset(dataset), batches)
        yield pa.record_batch([[0], [dump_results([result])]], schema=pa.schema(RESULTS))

    return run


def dump_results(results: list[Any]) -> bytes:
    """Pickle results of tasks for the driver, compressed.

    Results of a change have an entry per fragment, mostly equal to the entry before.
    """
    return zlib.compress(pickle.dumps(results), 1)


def load_results(dumped: bytes) -> list[Any]:
    """Return the results that a worker sent."""
    results: list[Any] = loads(zlib.decompress(dumped))
    return results


def loads(pickled: bytes) -> Any:
    """Unpickle a value of the driver or a worker; they trust each other, as Spark's do."""
    return pickle.loads(pickled)  # noqa: S301  # see above


@lru_cache(maxsize=2)
def opened_dataset(pickled: bytes) -> LanceDataset:
    """Return the dataset of tasks; cache it for the next tasks of this worker."""
    dataset: LanceDataset = loads(pickled)
    return dataset


R = TypeVar("R")

MAX_FRAGMENTS = 1024
"""Maximum fragments of one task: each has files to open."""

_TASKS: Final[dict[str, pa.DataType]] = {
    "slot": pa.int32(),
    "release": pa.string(),
    "dataset": pa.binary(),
    "tasks": pa.binary(),
}


class SparkRunner:
    """Runs tasks in the workers of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @cached_property
    def parallelism(self) -> int:
        """Number of tasks that the cluster runs at a time; Spark Connect needs a query for it."""
        return _cores(self.spark)

    def parts(self, dataset: OpenedVersion) -> list[FragmentRange]:
        """Divide the fragments of a version by bytes of files and by cores.

        Computes the parts from arrays of the manifest. From 1 TiB on, it requests the size of the
        largest file.
        """
        manifest = dataset.manifest
        if not manifest.num_fragments:
            return []
        sizes = manifest.physical_rows
        cuts = divide(sizes, dataset.snapshot.file_bytes(), self.parallelism)
        return [FragmentRange(manifest.version, start, stop) for start, stop in pairwise(cuts)]

    def run(
        self,
        dataset: OpenedVersion | None,
        tasks: Sequence[Task[R] | SharingTask[R]],
        shared: object | None = None,
    ) -> list[R]:
        """Execute tasks in the cluster; return results in the order of the tasks.

        ``dataset`` may be ``None`` if the tasks ignore it. With ``shared``, each task gets this
        value as a second argument.

        Raises
        ------
        MissingDependencyError
            The workers lack glaive, or have another version of it.
        GlaiveError
            A task raised the error.
        """
        if not tasks:
            return []
        with as_glaive_errors():
            frame, slots = self._task_frame(dataset, tasks)
            work = tasks_function(None if shared is None else dumps(shared), rows=False)
            returned = frame.mapInArrow(work, RESULTS_DDL).toArrow()
        by_slot = dict(zip(*(column.to_pylist() for column in returned.columns), strict=True))
        return [result for slot in range(slots) for result in load_results(by_slot[slot])]

    def rows_of(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[Any],
        schema: Any,
        shared: object | None = None,
    ) -> DataFrame:
        """Return a frame of the rows from the tasks' methods ``rows``; it runs when used.

        With ``shared``, each task gets this value as a second argument.
        """
        frame, _ = self._task_frame(dataset, tasks)
        work = tasks_function(None if shared is None else dumps(shared), rows=True)
        return frame.mapInArrow(work, schema)

    def _task_frame(
        self, dataset: OpenedVersion | None, tasks: Sequence[Any]
    ) -> tuple[DataFrame, int]:
        """Return tasks as a frame with a partition per Spark task, and the number of partitions."""
        slots = min(len(tasks), MAX_TASKS)
        bounds = [len(tasks) * slot // slots for slot in range(slots + 1)]
        # Names of many files repeat a lot.
        pickled = [zlib.compress(dumps(list(tasks[a:b])), 1) for a, b in pairwise(bounds)]
        described = b"" if dataset is None else pickled_dataset(dataset)
        table = pa.table(
            [list(range(slots)), [RELEASE] * slots, [described] * slots, pickled],
            schema=pa.schema(_TASKS),
        )
        frame = self.spark.createDataFrame(table)
        # A shuffle would be another job, longer than a small task.
        return partitioned_by_id(frame, slots, "slot") if slots > 1 else frame.coalesce(1), slots

    def run_on_rows(self, dataset: OpenedVersion, frame: DataFrame, task: RowTask) -> list[Any]:
        """Execute a task on each partition of a frame; return the results in any order.

        An empty partition may give a result.
        """
        work = rows_function(RELEASE, pickled_dataset(dataset), dumps(task))
        with as_glaive_errors():
            returned = map_rows(frame, work, RESULTS_DDL).toArrow()
        parts: list[Any] = returned.column("results").to_pylist()
        return [result for part in parts for result in load_results(part)]

    def shuffled(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[CuttingTask],
        shared: object,
        parts: int,
        then: RowTask,
    ) -> list[Any]:
        """Execute tasks that cut rows into parts; Spark sends each part to a task ``then``."""
        cut = self.rows_of(dataset, tasks, PARTS_DDL, shared)
        return self.run_on_rows(dataset, partitioned_by_id(cut, parts, "part"), then)


def map_rows(frame: DataFrame, work: Any, schema: Any) -> DataFrame:
    """Call ``frame.mapInArrow`` for columns of any names.

    Spark parses a name as an expression. It misses ``a`b``, takes ``*`` for every column, and may
    find another column for a name in backticks.
    """
    names = frame.columns
    plain = all(map(str.isidentifier, names))
    if plain and len({name.lower() for name in names}) == len(names):
        return frame.mapInArrow(work, schema)
    numbered = frame.toDF(*(f"column_{at}" for at in range(len(names))))

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(batch.rename_columns(names) for batch in batches)

    return numbered.mapInArrow(named, schema)


def dumps(value: object) -> bytes:
    """Pickle a value; functions of scripts and notebooks are pickled by value."""
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # it has no types
    return pickled


def divide(rows: Any, total_bytes: int, parallelism: int) -> list[int]:
    """Return positions that cut fragments into parts of about equal size.

    Parameters
    ----------
    rows
        Number of rows of each fragment; shape ``(fragments,)``, int64, at least one.
    total_bytes
        Bytes of all their files, if known.
    parallelism
        Number of tasks that run at a time.

    Returns
    -------
    list of int
        Ascending, from 0 to the number of fragments.
    """
    wanted = max(parts_for(total_bytes, parallelism), math.ceil(len(rows) / MAX_FRAGMENTS))
    return cut_evenly(rows, min(wanted, MAX_TASKS))


def pickled_dataset(dataset: OpenedVersion | None) -> bytes:
    """Pickle the version for tasks; leave its manifest out. ``None`` before the first version.

    Workers cache datasets by these bytes, which include the identity of the version. A dataset or
    branch that is deleted and created again has other rows under the same path and number.
    """
    return pickle.dumps(None if dataset is None else LanceDataset.holding(dataset))


def _cores(spark: SparkSession) -> int:
    if not is_connect(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    # A range has as many partitions as the cluster runs tasks at a time.
    numbered = spark.range(1 << 20).select(F.spark_partition_id().alias("partition"))
    (row,) = numbered.agg(F.max("partition").alias("last")).collect()
    return int(row["last"]) + 1


# --- A change of a dataset by a job: its id, and the version that it made ---------------

EARLIER_COMMITS = "What it had committed before, if anything, stays"

MAX_SEARCHED_VERSIONS = 256
"""Number of newest versions to search for the commit of a job that the newest manifest omits."""


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A change whose tasks run in a Spark cluster.

    Parameters
    ----------
    spark
        The session.
    id
        Id of the change: a rerun with the same id returns the version of the first run.
    named
        Whether the caller chose the id, so that an earlier run may have made a version.
    transaction
        Transaction of an application: the change is skipped if the dataset has it, or a later one.
    """

    spark: SparkSession
    id: str
    named: bool = False
    transaction: AppTransaction | None = None
    runner: SparkRunner = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runner", SparkRunner(self.spark))

    @classmethod
    def of(cls, spark: SparkSession, job_id: str | None, txn: object = None) -> SparkJob:
        """Return a job with the caller's id, or with a new id.

        Raises
        ------
        OptionError
            The id is empty or has another type than ``str``, or ``txn`` is invalid.
        """
        given: object = job_id
        transaction = given_transaction(txn)
        if given is None:
            return cls(spark, str(uuid4()), transaction=transaction)
        if not isinstance(given, str) or not given:
            raise OptionError(f"job_id: expected a string for this change, found {given!r}")
        return cls(spark, given, named=True, transaction=transaction)

    @property
    def commit(self) -> Job:
        """The runner of tasks, and the properties of the only commit."""
        if not self.named:
            return self.each_commit
        job = self.each_commit
        return replace(job, properties={**job.properties, **NamedJob(self.id).properties})

    @property
    def each_commit(self) -> Job:
        """The runner of tasks, and the properties of each commit, if there may be several."""
        properties = {JOB: self.id, ENGINE: "spark"}
        if self.transaction is not None:
            properties |= self.transaction.properties
        return Job(runner=self.runner, properties=properties, once=JOB)

    def change(
        self,
        dataset: LanceDataset,
        change: Callable[[OpenedVersion, Job], tuple[Manifest, Any]],
        *,
        several_commits: bool = False,
    ) -> dict[str, int]:
        """Run a change on the newest version and move the dataset to the version it makes.

        Parameters
        ----------
        change
            Plans, runs tasks and commits; called again on the newest version if other writers
            changed the same rows.
        several_commits
            Whether the change may commit more than once, so that a version may be its first of
            several.

        Returns
        -------
        dict
            The counts that the change recorded, and ``version``.

        Raises
        ------
        JobError
            The cluster lost processes of the job. The dataset keeps its version; with several
            commits, the version of the last one.
        """
        dataset.checkout_latest()
        done = self.made(dataset, several_commits=several_commits)
        if done is None:
            job = self.each_commit if several_commits else self.commit
            first = dataset.version

            def unless_made(opened: OpenedVersion) -> tuple[Manifest, Any]:
                # Commits check later versions only. Before a retry, another driver of this job,
                # believed dead, may have committed.
                if opened.manifest.version > first:
                    made = self._made(opened.store, opened.manifest, first, several_commits)
                    if made is not None:
                        return made, None
                return change(opened, job)

            what = EARLIER_COMMITS if several_commits else UNCOMMITTED
            with naming_job(self.id, dataset.uri, named=self.named, made=what):
                with_retries(dataset, unless_made)
        else:
            dataset.reset_to(done)
        return {"version": dataset.version, **self._counts(dataset)}

    def made(self, dataset: LanceDataset, *, several_commits: bool = False) -> Manifest | None:
        """Return the version that an earlier run with this id made.

        Returns the newest version if it has the job's transaction of an application, or if clean-up
        removed the version of the job. Makes at most one request. Exception: for ids that the
        caller chose, one request for each newest version whose job the newest manifest omits. With
        several commits, one request for each newest version.
        """
        since = max(0, dataset.version - MAX_SEARCHED_VERSIONS)
        return self._made(dataset.store, dataset.manifest, since, several_commits)

    def _made(
        self, store: ObjectStore, newest: Manifest, since: int, several_commits: bool
    ) -> Manifest | None:
        """Search the version among versions after ``since``."""
        if self.transaction is not None and self.transaction.is_applied(newest):
            return newest
        if not self.named:
            return None
        made = made_version(newest, self.id)
        if made is not None:
            try:
                return open_version(store, made, scheme=newest.scheme)
            except VersionNotFoundError:
                return newest
        until = newest.version if several_commits else forgotten_until(newest)
        if until <= since:
            return None
        return find_transaction(store, since, JOB, self.id, until=until, known=newest.version)

    def _counts(self, dataset: LanceDataset) -> dict[str, int]:
        """Return the counts that this job recorded; empty before it made a version."""
        transaction = read_transaction(dataset.store, dataset.manifest)
        if transaction is None or transaction.properties.get(JOB) != self.id:
            return {}
        return parse_counts(transaction.properties.get(COUNTS))


def given_transaction(txn: object) -> AppTransaction | None:
    """Return the application's transaction that a caller names, if any.

    Raises
    ------
    OptionError
        The value is not a pair of a name and a number.
    """
    match txn:
        case None:
            return None
        case [str() as application, int() as number]:
            return AppTransaction(application, number)
    raise OptionError(
        f'txn: expected an application and a number, such as ("nightly", 20260512), found {txn!r}'
    )


def parse_counts(text: str | None) -> dict[str, int]:
    """Parse recorded counts; return an empty dictionary for any other text."""
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # written by another tool
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: count for name, count in values.items() if isinstance(count, int)}
