"""Tasks of change feeds as Spark's partitions: how they are grouped, and read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from glaive.arrow.capacity import batch_parts
from glaive.dataset.changes.columns import CHANGE_COLUMNS
from glaive.dataset.changes.feed import ChangeReader
from glaive.dataset.changes.task import ChangeTask
from glaive.format.fields import LanceSchema
from glaive.spark.cast import conform
from glaive.spark.frame import open_dataset
from glaive.spark.options import Options
from glaive.spark.plan import MIN_SPLIT_BYTES, SPLIT_BYTES, SPLIT_ROWS
from glaive.spark.streams.options import StreamOptions
from glaive.spark.types import spark_arrow_schema

__all__ = ["ChangePartition", "partitions_of", "read_partition"]


_Group = tuple[ChangeTask, NDArray[np.int64]]
"""Tasks that differ only in their fragment and its rows: one of them, and these numbers of all."""


class ChangePartition(InputPartition):
    """Tasks that one Spark task reads, and the schema of their feed.

    The value has 24 bytes for each of many fragments that are read in the same way.
    """

    def __init__(self, schema: LanceSchema, tasks: Sequence[ChangeTask]) -> None:
        groups: list[_Group] = []
        for alike, members in groupby(tasks, _alike):
            places = [(task.fragment_id, task.start, task.stop) for task in members]
            groups.append((alike, np.array(places, np.int64)))
        super().__init__((schema, groups))


def _alike(task: ChangeTask) -> ChangeTask:
    """A task without its place, and without what only planning needs."""
    return replace(task, fragment_id=0, start=0, stop=0, rows=0, file_bytes=0)


def _tasks(groups: Sequence[_Group]) -> Iterator[ChangeTask]:
    for alike, places in groups:
        for fragment_id, start, stop in places.tolist():
            yield replace(alike, fragment_id=fragment_id, start=start, stop=stop)


def partitions_of(
    tasks: Sequence[ChangeTask], schema: LanceSchema, options: Options
) -> list[InputPartition]:
    """Group tasks in order, so that each group has about the same bytes."""
    total = sum(task.file_bytes for task in tasks)
    target = options.split_bytes or SPLIT_BYTES
    if options.split_bytes is None:
        share = total // (options.parallelism or os.cpu_count() or 1)
        target = min(target, max(share, MIN_SPLIT_BYTES))
    groups: list[list[ChangeTask]] = []
    filled = target
    for task in tasks:
        for part in _cut(task, target):
            if filled >= target:
                groups.append([])
                filled = 0
            groups[-1].append(part)
            filled += part.file_bytes
    return [ChangePartition(schema, group) for group in groups]


def _cut(task: ChangeTask, target: int) -> Iterator[ChangeTask]:
    """A task in parts of about ``target`` bytes, if all its rows are read."""
    rows = task.stop - task.start
    parts = -(-task.file_bytes // target) if task.complete else 1
    step = max(SPLIT_ROWS, -(-rows // max(1, parts)))
    if step >= rows:
        yield task
        return
    for start in range(task.start, task.stop, step):
        yield task.part(start, min(start + step, task.stop))


def read_partition(
    partition: InputPartition, options: Options, of_stream: StreamOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, in order, with exactly the schema Spark expects."""
    if partition.value is None:  # Spark's placeholder when there are no partitions
        return
    wanted, groups = partition.value
    # The newest version: the one whose schema the feed has may have been cleaned up.
    dataset = open_dataset(replace(options, version=None))
    names = [name for name in schema.names if name not in CHANGE_COLUMNS.names]
    reader = ChangeReader(
        dataset.opened,
        names,
        schema=wanted,
        preimages=of_stream.preimages,
        batch_size=options.batch_size,
    )
    expected = spark_arrow_schema(schema)
    truncate = options.allow_truncation
    cast = partial(conform, schema=expected, allow_truncation=truncate, writing=False)
    for task in _tasks(groups):
        for batch in reader.read(task):
            yield from batch_parts(cast, batch)
