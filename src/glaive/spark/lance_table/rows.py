"""Changes of rows: delete, update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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

        job = SparkJob.of(self._spark, job_id)
        values = {} if set is None else set
        return job.change(
            self._dataset, lambda at, commit: update_where(at, values, condition, job=commit)
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
