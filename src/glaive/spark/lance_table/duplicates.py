"""Rows that equal others: found by Spark, deleted by address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import commit_deleted, delete_in_tasks
from glaive.errors import ColumnNotFoundError
from glaive.format.blobs import has_blobs
from glaive.format.column_path import quoted_name
from glaive.spark.failures import naming_columns
from glaive.spark.jobs.column_rows import CollectRows
from glaive.spark.jobs.merge_rows import ADDRESS
from glaive.spark.lance_table.merge_join import columns_in, target_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest

__all__ = ["delete_duplicates"]

_NUMBER = "__glaive_number"

_DIRECTED: Final = re.compile(
    r"(.*?\S)\s+(?:(asc|desc)(?:\s+nulls\s+(first|last))?|nulls\s+(first|last))",
    re.IGNORECASE | re.DOTALL,
)
"""An expression with the words of ``ORDER BY`` behind it, which alone Spark takes for an alias."""


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
    ordering = columns_in((order_by or "").lower(), names, "order_by")
    read = [name for name in names if name in compared or name in ordering]
    blobs = [name for name in compared if has_blobs(opened.manifest.schema.find(name)[0])]
    # Where values are says nothing of what they are: files have the same places for others.
    frame = target_frame(spark, opened, read, None, blobs="bytes" if blobs else "descriptor")
    ordered = [F.col(ADDRESS).desc() if last else F.col(ADDRESS).asc()]
    if order_by is not None:
        ordered.insert(0, _ordering(order_by, reverse=last))
    groups = [_compared(frame, name) for name in compared]
    rank = F.row_number().over(Window.partitionBy(*groups).orderBy(*ordered))
    with naming_columns(names, opened.uri):
        others = frame.withColumn(_NUMBER, rank).where(F.col(_NUMBER) > 1).select(ADDRESS)
    runner: Any = job.runner  # that of a session
    rows = RowsByFragment()
    for part in runner.run_on_rows(opened, others, CollectRows()):
        rows.add_all(part)
    deleted = delete_in_tasks(opened, rows, job)
    described = f"duplicates of {', '.join(compared)}"
    return commit_deleted(opened, [deleted], described, job)


def _compared(frame: DataFrame, name: str) -> Column:
    """What is equal where the values of a column are; short, as it is shuffled."""
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
    from pyspark.sql.types import BinaryType

    column = F.col(quoted_name(name))
    return F.sha2(column, 256) if isinstance(frame.schema[name].dataType, BinaryType) else column


def _ordering(text: str, *, reverse: bool) -> Column:
    """What ``ORDER BY text`` sorts by in Spark SQL, or the same from the end."""
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    expression, descending, nulls_first = text, False, True
    directed = _DIRECTED.fullmatch(text.strip())
    if directed is not None:
        expression = directed[1]
        descending = (directed[2] or "asc").lower() == "desc"
        placed = directed[3] or directed[4]
        nulls_first = not descending if placed is None else placed.lower() == "first"
    column = F.expr(expression)
    if descending != reverse:
        first, others = column.desc_nulls_first, column.desc_nulls_last
    else:
        first, others = column.asc_nulls_first, column.asc_nulls_last
    return first() if nulls_first != reverse else others()
