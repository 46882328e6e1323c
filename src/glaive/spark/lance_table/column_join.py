"""Columns from a frame: joined by keys, written by tasks that each have whole fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.columns.add_columns import commit_columns
from glaive.dataset.columns.added_files import AddedFiles
from glaive.dataset.columns.new_columns import grow
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.merging.merge_insert import refuse_blob_keys
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.format.column_path import quoted_name
from glaive.format.fragment_list import FragmentList
from glaive.spark.assignable import refuse_unassignable, stored_types
from glaive.spark.jobs.column_rows import FillColumns, ReplaceColumns, ReplacedColumns
from glaive.spark.jobs.merge_rows import ADDRESS, refuse_reserved
from glaive.spark.lance_table.merge_join import target_frame
from glaive.spark.types import spark_arrow_schema, stored_schema
from glaive.table.operations.update import Update, joined_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.fields import LanceSchema
    from glaive.format.manifest import Manifest

__all__ = ["add_from", "commit_replaced", "update_from"]


def add_from(
    spark: SparkSession,
    opened: OpenedVersion,
    frame: DataFrame,
    keys: Sequence[str],
    vector_columns: Sequence[str],
    job: Job,
) -> tuple[Manifest, None]:
    """Commit new columns with the values of a frame, by keys."""
    names = _values_of(frame, keys, opened)
    stored = stored_schema(frame.select(*map(quoted_name, names)).schema, tuple(vector_columns))
    columns = pa.schema([field.with_nullable(True) for field in stored])
    grown = grow(opened.manifest, columns)  # refuses names that are taken
    rows = _by_fragment(spark, opened, frame, keys, names, job)
    task = FillColumns(opened.manifest.version, columns)
    runner: Any = job.runner  # that of a session
    files = AddedFiles.joined(runner.run_on_rows(opened, rows, task))
    return commit_columns(opened, grown, files, job=job), None


def update_from(
    spark: SparkSession, opened: OpenedVersion, frame: DataFrame, keys: Sequence[str], job: Job
) -> tuple[Manifest, None]:
    """Commit new values of existing columns, by keys; rows keep their addresses."""
    schema = opened.manifest.schema
    names = _values_of(frame, keys, opened)
    for name in names:
        if name not in schema.names:
            raise ColumnNotFoundError.among(name, schema.names, where=opened.uri)
    columns = schema.project(names)
    sent = spark_arrow_schema(frame.select(*map(quoted_name, names)).schema)
    refuse_unassignable(sent, stored_types(columns), where=opened.uri)
    rows = _by_fragment(spark, opened, frame, keys, names, job)
    task = ReplaceColumns(opened.manifest.version, tuple(names))
    runner: Any = job.runner  # that of a session
    parts: list[ReplacedColumns] = runner.run_on_rows(opened, rows, task)
    return commit_replaced(opened, columns, parts, job), None


def commit_replaced(
    opened: OpenedVersion, columns: LanceSchema, parts: Sequence[ReplacedColumns], job: Job
) -> Manifest:
    """Commit what tasks wrote in place of columns."""
    operation = Update(
        updated=FragmentList.joined(part.updated for part in parts),
        fields_modified=tuple(sorted(field.id for field in columns.walk())),
        columns=True,
        changed_offsets=joined_offsets(part.changed for part in parts),
    )
    properties = job.recording(num_updated_rows=sum(part.count for part in parts))
    return commit_operation(opened, operation, properties=properties, once=job.once)


def _values_of(frame: DataFrame, keys: Sequence[str], opened: OpenedVersion) -> list[str]:
    for key in keys:
        if key not in frame.columns:
            raise ColumnNotFoundError.among(key, frame.columns, where="the frame")
        if key not in opened.manifest.schema.names:
            raise ColumnNotFoundError.among(key, opened.manifest.schema.names, where=opened.uri)
    refuse_reserved(frame.columns, "the frame")
    refuse_blob_keys(keys, opened.manifest.schema)
    names = [name for name in frame.columns if name not in keys]
    if not names or not keys:
        raise OptionError(
            f"on: expected the key columns of a frame that has others, too; found {list(keys)} of "
            f"{frame.columns}"
        )
    return names


def _by_fragment(
    spark: SparkSession,
    opened: OpenedVersion,
    frame: DataFrame,
    keys: Sequence[str],
    names: Sequence[str],
    job: Job,
) -> DataFrame:
    """Addresses and values; each fragment within one partition, sorted."""
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    target = target_frame(spark, opened, keys, None)
    joined = target.join(frame, [str(key) for key in keys], "inner")
    rows = joined.select(ADDRESS, *map(quoted_name, names))
    fragment = F.shiftright(F.col(ADDRESS), 32)
    partitions = max(1, len(job.runner.parts(opened)))
    return rows.repartition(partitions, fragment).sortWithinPartitions(ADDRESS)
