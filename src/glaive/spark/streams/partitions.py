"""Tasks of change feeds as Spark's partitions: how they are grouped, and read."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from glaive.arrow.capacity import batch_parts
from glaive.dataset.changes.columns import CHANGE_COLUMNS
from glaive.dataset.changes.feed import ChangeReader
from glaive.dataset.changes.task import ChangeTask
from glaive.dataset.changes.task_list import ChangeTasks, TaskGroup
from glaive.format.fields import LanceSchema
from glaive.spark.cast import conform
from glaive.spark.frame import open_dataset
from glaive.spark.options import Options
from glaive.spark.plan import MIN_SPLIT_BYTES, SPLIT_BYTES, SPLIT_ROWS
from glaive.spark.streams.options import StreamOptions
from glaive.spark.types import spark_arrow_schema
from glaive.spark.versions import is_placeholder

__all__ = ["MAX_PARTITIONS", "ChangePartition", "partitions_of", "read_partition", "tasks_in"]


MAX_PARTITIONS = 10_000
"""Of one batch; each holds the schema."""


class ChangePartition(InputPartition):
    """Tasks that one Spark task reads, and the schema of their feed.

    The value has a few bytes for each of many fragments that are read in the same way.

    Parameters
    ----------
    schema
        Packed, once for all partitions.
    tasks
        The tasks.
    """

    def __init__(self, schema: bytes, tasks: ChangeTasks) -> None:
        # Without rows and bytes, which only planning needs.
        groups = [(one.template, one.places[:, :3].copy(), one.offsets) for one in tasks.groups]
        super().__init__((schema, _packed(groups)))


def tasks_in(partition: InputPartition) -> Iterator[ChangeTask]:
    """The tasks of a :class:`ChangePartition`."""
    for template, places, offsets in _unpacked(partition.value[1]):
        yield from TaskGroup(template, np.pad(places, ((0, 0), (0, 2))), offsets)


def _packed(value: object) -> bytes:
    return zlib.compress(pickle.dumps(value), 1)


def _unpacked(packed: bytes) -> Any:
    # Through Spark's own channel, between processes that trust each other.
    return pickle.loads(zlib.decompress(packed))  # noqa: S301  # see above


def partitions_of(
    tasks: ChangeTasks, schema: LanceSchema, options: Options
) -> list[InputPartition]:
    """Group tasks in order, so that each group has about the same bytes."""
    total = tasks.file_bytes
    target = options.split_bytes or SPLIT_BYTES
    if options.split_bytes is None:
        share = total // (options.parallelism or os.cpu_count() or 1)
        target = min(target, max(share, MIN_SPLIT_BYTES))
    target = max(target, -(-total // MAX_PARTITIONS))
    parts = ChangeTasks(_cut(group, target) for group in tasks.groups)
    described = _packed(schema)
    ends = np.cumsum(parts.sizes)
    found: list[InputPartition] = []
    start = 0
    while start < len(parts):
        wanted = (float(ends[start - 1]) if start else 0.0) + target
        stop = min(int(np.searchsorted(ends, wanted)) + 1, len(parts))
        found.append(ChangePartition(described, parts[start:stop]))
        start = stop
    return found


def _cut(group: TaskGroup, target: int) -> TaskGroup:
    """Tasks in parts of about ``target`` bytes, if all their rows are read."""
    if not group.template.complete:
        return group
    _, start, stop, _, size = group.places.T
    parts = np.maximum(-(-size // target), 1)
    return group.cut(np.maximum(SPLIT_ROWS, -(-(stop - start) // parts)))


def read_partition(
    partition: InputPartition, options: Options, of_stream: StreamOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, in order, with exactly the schema Spark expects."""
    if is_placeholder(partition):
        return
    wanted: LanceSchema = _unpacked(partition.value[0])
    # The newest version: the one whose schema the feed has may have been cleaned up.
    dataset = open_dataset(replace(options, version=None, identity=None))
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
    for task in tasks_in(partition):
        for batch in reader.read(task):
            yield from batch_parts(cast, batch)
