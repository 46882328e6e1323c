"""What the workers of a cluster do: execute tasks.

A task reads and writes the files of the dataset itself; what passes through Spark is the pickle of
the task and that of its result. This module is imported by workers: it imports as little as it can.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from glaive.spark.task import in_task

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = [
    "RESULTS",
    "RESULTS_DDL",
    "RowTask",
    "dump_results",
    "execute",
    "execute_rows",
    "load_results",
    "loads",
    "naming_function",
    "opened_dataset",
    "rows_function",
    "sharing_function",
]

RESULTS: Final[dict[str, pa.DataType]] = {
    "slot": pa.int32(),
    "results": pa.binary(),
}
"""Columns of what a worker returns: the number of the Spark task, and its results."""

RESULTS_DDL = "slot int, results binary"
"""The same for Spark."""


def execute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Execute the tasks of the rows, and return their results.

    The columns of a row: its number, the driver's release, the pickle of the dataset, and the
    compressed one of a list of tasks. Tasks that need no dataset are given ``None``.

    Raises
    ------
    MissingDependencyError
        This worker has another version of glaive or Python; nothing was done.
    """
    for slot, dataset, tasks in _accepted(batches):
        results = [task.execute(dataset) for task in tasks]
        yield pa.record_batch([[slot], [dump_results(results)]], schema=pa.schema(RESULTS))


def execute_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same for tasks that return rows."""
    for _, dataset, tasks in _accepted(batches):
        for task in tasks:
            yield from task.rows(dataset)


def sharing_function(
    shared: bytes, *, rows: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The same as :func:`execute` or :func:`execute_rows` for tasks that also get a pickled value.

    Spark sends it to each worker once, not with each task.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for slot, dataset, tasks in _accepted(batches):
            value = _shared_value(shared)
            if rows:
                for task in tasks:
                    yield from task.rows(dataset, value)
            else:
                results = [task.execute(dataset, value) for task in tasks]
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
