"""Changes of rows: delete, update."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from glaive.dataset.rows import RowsByFragment, commit_deleted, delete_in_tasks
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.format.blobs import has_blobs
from glaive.format.field import quoted_name
from glaive.spark.failures import naming_columns
from glaive.spark.jobs.merge_rows import ADDRESS, CollectRows
from glaive.spark.jobs.runner import SparkJob
from glaive.spark.lance_table.handle import TableHandle
from glaive.spark.lance_table.merge import MergeBuilder, columns_in, target_frame
from glaive.spark.types import values_by_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.manifest import Manifest


# --- Rows that equal others: found by Spark, deleted by address -------------------------

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


class TableRows(TableHandle):
    """The methods of ``LanceTable`` that change rows."""

    def delete(self, condition: str | None = None, *, job_id: str | None = None) -> dict[str, int]:
        """Delete the rows for which a condition holds, in tasks of the cluster.

        Parameters
        ----------
        condition
            In the language of filters: ``"day < 3 and name like 'a%'"``; default: all rows.
        job_id
            Names this job: running it again with the same id returns what it did.

        Returns
        -------
        dict
            ``num_deleted_rows`` and ``version``.

        Raises
        ------
        FilterError
            The condition is invalid; no task ran.
        CommitContentionError
            Other writers changed the same rows at every attempt; nothing was changed.

        Notes
        -----
        Tasks read the columns of the condition, and write one small file for each fragment with
        matching rows.
        """
        from glaive.dataset.rows import delete_where, truncate

        _refuse_columns("delete", condition)
        job = SparkJob.of(self._spark, job_id)
        if condition is None:
            return job.change(self._dataset, lambda at, commit: truncate(at, job=commit))
        return job.change(self._dataset, lambda at, commit: delete_where(at, condition, commit))

    def update(
        self,
        condition: str | None = None,
        set: Mapping[str, str] | None = None,  # Delta's name
        *,
        job_id: str | None = None,
    ) -> dict[str, int]:
        """Set columns of the rows for which a condition holds, in tasks of the cluster.

        Parameters
        ----------
        condition
            In the language of filters; default: all rows.
        set
            Expressions over the old values, by column: ``{"price": "price * 2"}``.
        job_id
            As for :meth:`delete`.

        Returns
        -------
        dict
            ``num_rows_updated`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, FilterError, SchemaError, OptionError
            A column does not exist, an expression is invalid, or its values do not fit the
            column; nothing was changed.
        CommitContentionError
            As for :meth:`delete`.

        Notes
        -----
        The rows are written again with all columns, at the end of the dataset; no row passes
        through Spark.
        """
        from glaive.dataset.rows import update_where

        values = {} if set is None else set
        _refuse_columns("update", condition, *values.values())
        job = SparkJob.of(self._spark, job_id)
        return job.change(
            self._dataset,
            lambda at, commit: update_where(
                at, values_by_column(values, at.manifest.schema.names), condition, job=commit
            ),
        )

    def merge(self, source: DataFrame, condition: str | Column) -> MergeBuilder:
        """Begin a merge of a frame into this table.

        Parameters
        ----------
        source
            The rows; give it a name to refer to its columns: ``changes.alias("s")``.
        condition
            Which rows match, in Spark SQL or as a column: ``"t.id = s.id"``, where ``t`` is
            the name given by :meth:`alias`.

        Examples
        --------
        >>> changes = spark.createDataFrame(rows).alias("s")
        >>> merge = table.alias("t").merge(changes, "t.id = s.id")
        >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        """
        return MergeBuilder(self._spark, self._dataset, self._name, source, condition)

    def dropDuplicates(
        self,
        columns: str | Sequence[str] | None = None,
        keep: Literal["first", "last"] = "first",
        order_by: str | None = None,
        *,
        job_id: str | None = None,
    ) -> dict[str, int]:
        """Delete all but one of the rows with equal values; null equals null.

        Parameters
        ----------
        columns
            The columns to compare, or one; default: all.
        keep
            Which row stays, by ``order_by``.
        order_by
            A column or expression of Spark SQL, as in ``ORDER BY``: ``"time desc"``, too; default:
            the order of the table.
        job_id
            As for :meth:`delete`.

        Returns
        -------
        dict
            ``num_deleted_rows`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, OptionError
            A column does not exist, ``keep`` is neither "first" nor "last", or ``order_by`` means
            all columns by ``*``.

        Notes
        -----
        Spark shuffles these columns only, and of binary values and those of blobs, which tasks
        read, their hashes; rows are deleted, not written again.
        """
        given: object = keep
        if given not in ("first", "last"):
            raise OptionError(f'keep: expected "first" or "last", found {given!r}')
        compared = [columns] if isinstance(columns, str) else columns
        return SparkJob.of(self._spark, job_id).change(
            self._dataset,
            lambda at, job: delete_duplicates(
                self._spark, at, compared, job, last=keep == "last", order_by=order_by
            ),
        )


def _refuse_columns(method: str, *given: object) -> None:
    """Refuse conditions and values that only a JVM can evaluate."""
    from pyspark.sql import Column

    for one in given:
        if isinstance(one, Column):
            raise OptionError(
                f'{method}: expected a text in the language of filters, such as "id < 5", found '
                f"{one!r}: its tasks have no JVM. Write it as a text, or use a merge, whose "
                "conditions and values may be columns"
            )
