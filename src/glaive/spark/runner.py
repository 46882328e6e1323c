"""Run tasks in the workers of a Spark cluster, through classic sessions and Spark Connect alike."""

from __future__ import annotations

import json
import math
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.rows import with_retries
from glaive.dataset.tasks import COUNTS, JOB, FragmentRange, Job, SharingTask, Task, cut_evenly
from glaive.errors import OptionError, VersionNotFoundError
from glaive.format.manifest import Manifest
from glaive.io.pool import task_bytes
from glaive.spark.api import is_connect
from glaive.spark.failures import NOTHING, as_glaive_errors, naming_job
from glaive.spark.versions import partitioned_by_id
from glaive.spark.writer import ENGINE, RELEASE, in_task
from glaive.table.load import find_transaction, open_version, read_transaction
from glaive.table.named_jobs import AppTransaction, NamedJob, forgotten_until, made_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.version import OpenedVersion
    from glaive.io.store import ObjectStore


# --- What the workers of a cluster do: execute tasks ------------------------------------
# A task reads and writes the files of the dataset itself; what passes through Spark is the pickle
# of the task and that of its result. This module is imported by workers: it imports as little as
# it can.

RESULTS: Final[dict[str, pa.DataType]] = {"slot": pa.int32(), "results": pa.binary()}
"""Columns of what a worker returns: the number of the Spark task, and its results."""

RESULTS_DDL = "slot int, results binary"
"""The same for Spark."""


def tasks_function(
    shared: bytes | None, *, rows: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executes the tasks of rows, and returns their results.

    The columns of a row: its number, the driver's release, the pickle of the dataset, and the
    compressed one of a list of tasks. Tasks that need no dataset are given ``None``. A worker that
    has another version of glaive or Python raises an error, and does nothing.

    Parameters
    ----------
    shared
        A pickled value that all tasks get, too: Spark sends it to each worker once.
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
    """A value that tasks of a job share; kept for the next tasks of this worker."""
    return loads(pickled)


def _accepted(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Any, list[Any]]]:
    """Tasks of this worker, whose release is that of the driver, with their dataset or None."""
    for batch in batches:
        columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
        for slot, driver, dataset, work in zip(*columns, strict=True):
            with in_task(driver):
                tasks = loads(zlib.decompress(work))
                yield slot, opened_dataset(dataset) if dataset else None, tasks


class RowTask:
    """A task that gets the rows of one partition of a frame; can be pickled."""

    def execute(self, dataset: LanceDataset, rows: Iterator[pa.RecordBatch]) -> Any:
        """Do the work and return what the commit needs."""
        raise NotImplementedError


def rows_function(
    driver: str, dataset: bytes, task: bytes
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executes a :class:`RowTask` on a partition of a frame."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with in_task(driver):
            result = loads(task).execute(opened_dataset(dataset), batches)
        yield pa.record_batch([[0], [dump_results([result])]], schema=pa.schema(RESULTS))

    return run


def naming_function(
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], names: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function of batches, for those that come with other names of columns than it knows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(batch.rename_columns(names) for batch in batches)

    return run


def dump_results(results: list[Any]) -> bytes:
    """Results of tasks on their way to the driver: a compressed pickle.

    Those of a change have an entry for each fragment, most of it the same as that before.
    """
    return zlib.compress(pickle.dumps(results), 1)


def load_results(dumped: bytes) -> list[Any]:
    """The results that a worker returned."""
    results: list[Any] = loads(zlib.decompress(dumped))
    return results


def loads(pickled: bytes) -> Any:
    """A value that the driver or a worker pickled; they trust each other, as Spark's do."""
    return pickle.loads(pickled)  # noqa: S301  # see above


@lru_cache(maxsize=2)
def opened_dataset(pickled: bytes) -> LanceDataset:
    """The dataset that tasks are for; kept for the next tasks of this worker."""
    dataset: LanceDataset = loads(pickled)
    return dataset


R = TypeVar("R")

MAX_FRAGMENTS = 1024
"""Fragments of one task, at most: each has files to open."""

MAX_TASKS = 10_000
"""Tasks of one Spark job; where there are more, a Spark task executes several."""

_TASKS: Final[dict[str, pa.DataType]] = {
    "slot": pa.int32(),
    "release": pa.string(),
    "dataset": pa.binary(),
    "tasks": pa.binary(),
}


class SparkRunner:
    """Runs tasks in the workers of a session.

    Parameters
    ----------
    spark
        The session.
    parallelism
        Tasks that the cluster runs at a time; by default as Spark reports.
    """

    def __init__(self, spark: SparkSession, parallelism: int | None = None) -> None:
        self.spark = spark
        self._parallelism = parallelism

    @property
    def parallelism(self) -> int:
        """Tasks that the cluster runs at a time; with Spark Connect, asking takes a query."""
        if self._parallelism is None:
            self._parallelism = _cores(self.spark)
        return self._parallelism

    def parts(self, dataset: OpenedVersion) -> list[FragmentRange]:
        """The fragments of a version, divided by bytes of files and cores.

        Neither reads files nor takes time per fragment in Python; from 1 TiB on, the largest file
        is asked for its size.
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
        """Execute tasks in the cluster; their results in the order of the tasks.

        ``dataset`` may be None for tasks that need none. With ``shared``, each task gets this value
        as a second argument.

        Raises
        ------
        MissingDependencyError
            The workers lack glaive, or have another version of it.
        GlaiveError
            As the tasks raise.
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
        """The rows that tasks return by their method ``rows``, as a frame; runs when it is used.

        With ``shared``, each task gets this value as a second argument.
        """
        frame, _ = self._task_frame(dataset, tasks)
        work = tasks_function(None if shared is None else dumps(shared), rows=True)
        return frame.mapInArrow(work, schema)

    def _task_frame(
        self, dataset: OpenedVersion | None, tasks: Sequence[Any]
    ) -> tuple[DataFrame, int]:
        """Tasks as a frame with a partition for each Spark task; and the number of these."""
        slots = min(len(tasks), MAX_TASKS)
        bounds = [len(tasks) * slot // slots for slot in range(slots + 1)]
        pickled = [dump_tasks(tasks[start:stop]) for start, stop in pairwise(bounds)]
        described = b"" if dataset is None else pickled_dataset(dataset)
        table = pa.table(
            [list(range(slots)), [RELEASE] * slots, [described] * slots, pickled],
            schema=pa.schema(_TASKS),
        )
        frame = self.spark.createDataFrame(table)
        # A shuffle would be one more job, longer than a small task.
        return partitioned_by_id(frame, slots, "slot") if slots > 1 else frame.coalesce(1), slots

    def run_on_rows(self, dataset: OpenedVersion, frame: DataFrame, task: RowTask) -> list[Any]:
        """Execute a task on each partition of a frame; the results in no order.

        A partition without rows may give a result or none.
        """
        work = rows_function(RELEASE, pickled_dataset(dataset), dumps(task))
        with as_glaive_errors():
            returned = map_rows(frame, work, RESULTS_DDL).toArrow()
        parts: list[Any] = returned.column("results").to_pylist()
        return [result for part in parts for result in load_results(part)]


def map_rows(frame: DataFrame, work: Any, schema: Any) -> DataFrame:
    """``frame.mapInArrow``, for columns of any names.

    Spark's own takes a name as an expression: it finds no ``a`b``, every column by ``*``, and
    another one by a name in backticks.
    """
    names = frame.columns
    plain = all(map(str.isidentifier, names))
    if plain and len({name.lower() for name in names}) == len(names):
        return frame.mapInArrow(work, schema)
    numbered = frame.toDF(*(f"column_{at}" for at in range(len(names))))
    return numbered.mapInArrow(naming_function(work, names), schema)


def dump_tasks(tasks: Sequence[Any]) -> bytes:
    """Tasks on their way to a worker: a compressed pickle; names of many files repeat a lot."""
    return zlib.compress(dumps(list(tasks)), 1)


def dumps(value: object) -> bytes:
    """The pickle of a value; functions of scripts and notebooks go by value."""
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # it has no types
    return pickled


def divide(rows: Any, total_bytes: int, parallelism: int) -> list[int]:
    """Positions at which fragments are cut into parts of about equal size.

    Parameters
    ----------
    rows
        Rows of each fragment; shape ``(fragments,)``, int64, at least one.
    total_bytes
        Bytes of all their files, as far as known.
    parallelism
        Tasks that run at a time.

    Returns
    -------
    list of int
        Ascending, from 0 to the number of fragments.
    """
    wanted = max(parts_for(total_bytes, parallelism), math.ceil(len(rows) / MAX_FRAGMENTS))
    return cut_evenly(rows, min(wanted, MAX_TASKS))


def parts_for(total_bytes: int, parallelism: int) -> int:
    """Parts that so many bytes are worth, at least one."""
    return max(1, min(math.ceil(total_bytes / task_bytes(total_bytes, parallelism)), MAX_TASKS))


def pickled_dataset(dataset: OpenedVersion | None) -> bytes:
    """The version as tasks open it, without its manifest; ``None`` before there is one.

    Workers keep what they opened, by these bytes, which say what the version is recognised by: a
    dataset or branch that is deleted and made again has other rows under the same path and number.
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

_SO_FAR = "What it had committed before, if anything, stays"

LOOK_BACK = 256
"""Newest versions among which the commit of a job is looked for that the newest manifest does not
name."""


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A change whose tasks run in a Spark cluster.

    Parameters
    ----------
    spark
        The session.
    id
        Names the change: running it again with the same id returns the version that it made.
    named
        Whether the caller chose the id, so that an earlier run may have made a version.
    transaction
        Of an application: nothing is done if the dataset has it, or a later one.
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
        """A job with the caller's id, or with a new one.

        Raises
        ------
        OptionError
            The id is no text, or empty; or ``txn`` is no transaction.
        """
        given: object = job_id
        transaction = given_transaction(txn)
        if given is None:
            return cls(spark, str(uuid4()), transaction=transaction)
        if not isinstance(given, str) or not given:
            raise OptionError(f"job_id: expected a text that names this change, found {given!r}")
        return cls(spark, given, named=True, transaction=transaction)

    @property
    def commit(self) -> Job:
        """Where tasks run, and what the only commit records."""
        if not self.named:
            return self.each_commit
        job = self.each_commit
        return replace(job, properties={**job.properties, **NamedJob(self.id).properties})

    @property
    def each_commit(self) -> Job:
        """Where tasks run, and what each commit records, if there may be several."""
        properties = {JOB: self.id, ENGINE: "spark"}
        if self.transaction is not None:
            properties |= self.transaction.properties
        return Job(runner=self.runner, properties=properties, once=JOB)

    def change(
        self,
        dataset: LanceDataset,
        change: Callable[[OpenedVersion, Job], tuple[Manifest, Any]],
        *,
        retries: int = 10,
        several_commits: bool = False,
    ) -> dict[str, int]:
        """Run a change on the newest version and move the dataset to the version it makes.

        Parameters
        ----------
        change
            Plans, runs tasks and commits; called again on the newest version if other writers
            changed the same rows.
        several_commits
            Whether the change may commit more than once, so that no version is the job's only one.

        Returns
        -------
        dict
            The counts that the change recorded, and ``version``.

        Raises
        ------
        JobError
            The cluster lost processes of the job; nothing was committed, or with several commits
            none after the last that was made.
        """
        dataset.checkout_latest()
        done = self.made(dataset, several_commits=several_commits)
        if done is None:
            job = self.each_commit if several_commits else self.commit
            first = dataset.version

            def unless_made(opened: OpenedVersion) -> tuple[Manifest, Any]:
                # Commits look at later versions only: before a retry, another driver of this job,
                # taken for dead, may have been first.
                if opened.manifest.version > first:
                    made = self._made(opened.store, opened.manifest, first, several_commits)
                    if made is not None:
                        return made, None
                return change(opened, job)

            what = _SO_FAR if several_commits else NOTHING
            with naming_job(self.id, dataset.uri, named=self.named, made=what):
                with_retries(dataset, unless_made, conflict_retries=retries)
        else:
            dataset.go_back(done)
        return {"version": dataset.version, **self._counts(dataset)}

    def made(self, dataset: LanceDataset, *, several_commits: bool = False) -> Manifest | None:
        """The version that an earlier run with this id made.

        The newest one, if it has the job's transaction of an application, or if clean-up removed
        the version of the job. At most one request, but for ids that the caller chose one for each
        of the newest versions whose jobs the newest manifest does not know, or, with several
        commits, for each of the newest versions.
        """
        since = max(0, dataset.version - LOOK_BACK)
        return self._made(dataset.store, dataset.manifest, since, several_commits)

    def _made(
        self, store: ObjectStore, newest: Manifest, since: int, several_commits: bool
    ) -> Manifest | None:
        """The same among the versions after ``since``."""
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
        """The counts that this job recorded; none if it made no version."""
        transaction = read_transaction(dataset.store, dataset.manifest)
        if transaction is None or transaction.properties.get(JOB) != self.id:
            return {}
        return parse_counts(transaction.properties.get(COUNTS))


def given_transaction(txn: object) -> AppTransaction | None:
    """The transaction of an application that a caller names, if any.

    Raises
    ------
    OptionError
        It is neither ``None`` nor a name and a number.
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
    """Counts as they are recorded; what is no such text has none."""
    if text is None:
        return {}
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # written by another tool
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: count for name, count in values.items() if isinstance(count, int)}
