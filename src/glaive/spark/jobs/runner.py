"""Run tasks in the workers of a Spark cluster, through classic sessions and Spark Connect alike."""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.tasks import FragmentRange, SharingTask, Task, cut_evenly
from glaive.spark.api import is_connect
from glaive.spark.failures import as_glaive_errors
from glaive.spark.jobs.worker import (
    RESULTS_DDL,
    RowTask,
    execute,
    execute_rows,
    load_results,
    naming_function,
    rows_function,
    sharing_function,
)
from glaive.spark.release import RELEASE
from glaive.spark.versions import partitioned_by_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.version import OpenedVersion

__all__ = [
    "MAX_TASKS",
    "SparkRunner",
    "divide",
    "dump_tasks",
    "dumps",
    "map_rows",
    "parts_for",
    "pickled_dataset",
]

R = TypeVar("R")

SPLIT_BYTES = 128 << 20
"""Bytes of files for one task, about."""

MIN_SPLIT_BYTES = 4 << 20
"""Fewer are not worth the start of a task."""

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
            work = execute if shared is None else sharing_function(dumps(shared), rows=False)
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
        work = execute_rows if shared is None else sharing_function(dumps(shared), rows=True)
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
    wanted = math.ceil(total_bytes / SPLIT_BYTES)
    wanted = max(wanted, min(parallelism, math.ceil(total_bytes / MIN_SPLIT_BYTES)), 1)
    return min(wanted, MAX_TASKS)


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
