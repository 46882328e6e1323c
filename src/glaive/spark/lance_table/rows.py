"""Changes of rows: delete, update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from glaive.errors import OptionError
from glaive.spark.assignable import values_by_column
from glaive.spark.jobs.job import SparkJob
from glaive.spark.lance_table.handle import TableHandle
from glaive.spark.lance_table.merge import MergeBuilder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["TableRows"]


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
        from glaive.dataset.rows.selected_rows import delete_where, truncate

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
        from glaive.dataset.rows.update import update_where

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
        from glaive.spark.lance_table.duplicates import delete_duplicates

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
