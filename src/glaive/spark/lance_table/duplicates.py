"""Rows that equal others: found by Spark, deleted by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import commit_deleted, delete_in_tasks
from glaive.errors import ColumnNotFoundError
from glaive.spark.jobs.column_rows import CollectRows
from glaive.spark.jobs.merge_rows import ADDRESS
from glaive.spark.lance_table.merge_join import target_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["delete_duplicates"]

_NUMBER = "__glaive_number"


def delete_duplicates(
    spark: SparkSession,
    opened: OpenedVersion,
    columns: Sequence[str] | None,
    job: Job,
    *,
    last: bool,
    order_by: str | None,
) -> tuple[Manifest, int]:
    """Commit the deletion of all but the first or last row of each group."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    names = opened.manifest.schema.names
    compared = names if columns is None else list(columns)
    for name in compared:
        if name not in names:
            raise ColumnNotFoundError.among(name, names, where=opened.uri)
    text = (order_by or "").lower()
    read = [name for name in names if name in compared or name.lower() in text]
    frame = target_frame(spark, opened, read, None)
    order = [F.col(ADDRESS)] if order_by is None else [F.expr(order_by), F.col(ADDRESS)]
    ordered = [column.desc() if last else column.asc() for column in order]
    groups = [F.col("`" + name.replace("`", "``") + "`") for name in compared]
    rank = F.row_number().over(Window.partitionBy(*groups).orderBy(*ordered))
    others = frame.withColumn(_NUMBER, rank).where(F.col(_NUMBER) > 1).select(ADDRESS)
    runner: Any = job.runner  # that of a session
    rows = RowsByFragment()
    for part in runner.run_on_rows(opened, others, CollectRows()):
        rows.add_all(part)
    deleted = delete_in_tasks(opened, rows, job)
    described = f"duplicates of {', '.join(compared)}"
    return commit_deleted(opened, [deleted], described, job)
