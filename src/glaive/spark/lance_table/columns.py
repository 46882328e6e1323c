"""Changes of the columns of a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.errors import OptionError
from glaive.spark.jobs.job import SparkJob
from glaive.spark.lance_table.column_join import add_from, update_from
from glaive.spark.lance_table.create import arrow_type
from glaive.spark.lance_table.handle import TableHandle, located

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TableColumns"]


class TableColumns(TableHandle):
    """The methods of ``LanceTable`` that change columns."""

    def dropColumns(self, *names: str) -> int:
        """Drop columns, or members of structs (``"s.x"``); returns the new version.

        The values stay in the files until compaction and clean-up.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            There is no such column, or no column would be left.
        """
        dataset = self._latest()
        dataset.drop_columns(list(names))
        return dataset.version

    def renameColumn(self, name: str, new_name: str) -> int:
        """Rename a column; returns the new version. No file is rewritten.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            There is no such column, or the name is taken.
        """
        return self.alterColumn(name, name=new_name)

    def alterColumn(
        self, column: str, *, name: str | None = None, data_type: Any = None, nullable: Any = None
    ) -> int:
        """Change name, type or nullability of a column; returns the new version.

        Parameters
        ----------
        column
            Path of the column.
        data_type
            A type of Arrow or of Spark (``"bigint"``, too) to which the values are cast; its files
            are written again, by this process.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            There is no such column, a value cannot be cast, or nothing is to be changed.
        """
        arrow = None if data_type is None else arrow_type("alterColumn", data_type)
        change = {"path": column, "name": name, "data_type": arrow, "nullable": nullable}
        dataset = self._latest()
        dataset.alter_columns({key: value for key, value in change.items() if value is not None})
        return dataset.version

    def addColumns(
        self,
        columns: Mapping[str, str] | Callable[[pa.RecordBatch], Any] | pa.Schema,
        schema: pa.Schema | None = None,
        read_columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        job_id: str | None = None,
    ) -> dict[str, int]:
        """Add columns that tasks of the cluster compute; no row passes through Spark.

        Parameters
        ----------
        columns
            Expressions by name, in the language of filters: ``{"total": "price * amount"}``; a
            function of a record batch that returns one with as many rows; or a schema, for
            columns of nulls, which writes no file.
        schema
            What the function returns; default: what it returns for the first row.
        read_columns
            Columns that the function gets; default: all.
        batch_size
            Rows of a call of the function, at most; default: 8192.
        checkpoint
            A folder that all workers share, outside of the table. Each fragment that a function
            has finished is noted there: run the same call again after a failure, and those are
            not computed again. It is emptied when the columns are committed.
        job_id
            Names this job: running it again with the same id returns what it did.

        Returns
        -------
        dict
            ``num_fragments`` that got a file, and ``version``.

        Raises
        ------
        SchemaError
            A name is taken; or the function returned other columns or another number of rows.
        FilterError, ColumnNotFoundError, OptionError
            An expression is invalid, or a column does not exist.
        CommitContentionError
            Other writers changed the table at every attempt; nothing was changed.

        Notes
        -----
        Writes one file for each fragment, with the new columns only. A function is sent to the
        workers with what it refers to; load a model within it, once for each worker: through
        ``functools.cache`` in a module that the workers can import.
        """
        from glaive.dataset.columns.add_columns import add_columns
        from glaive.dataset.columns.udf import BatchUDF

        if not isinstance(columns, Mapping | pa.Schema):
            if not callable(columns):
                raise OptionError(
                    f"addColumns: expected expressions or a function, not {columns!r}"
                )
            if isinstance(columns, BatchUDF):
                schema = columns.output_schema if schema is None else schema
                columns = columns.func
            columns = BatchUDF(columns, schema)
            if schema is not None:
                self._refuse_same_names("addColumns", schema.names)
        elif schema is not None or read_columns is not None or checkpoint is not None:
            raise OptionError("schema, read_columns and checkpoint are for functions only")
        else:
            names = columns.names if isinstance(columns, pa.Schema) else columns
            self._refuse_same_names("addColumns", names)
        folder = None if checkpoint is None else located(checkpoint)
        given = (columns, read_columns, None, batch_size)
        return SparkJob.of(self._spark, job_id).change(
            self._dataset,
            lambda at, job: (add_columns(at, *given, checkpoint=folder, job=job), None),
        )

    def addColumnsFrom(
        self,
        frame: DataFrame,
        on: str | Sequence[str],
        *,
        vector_columns: Sequence[str] = (),
        job_id: str | None = None,
    ) -> dict[str, int]:
        """Add the other columns of a frame, joined by key columns; null where no row matches.

        Parameters
        ----------
        on
            Columns of both the table and the frame.
        vector_columns
            Columns to store as fixed-size lists, such as ``"emb:128:float16"``.
        job_id
            As for :meth:`addColumns`.

        Returns
        -------
        dict
            ``num_fragments`` that got a file, and ``version``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            A key does not exist, a name is taken, or several rows of the frame have one key.
        CommitContentionError
            As for :meth:`addColumns`.

        Notes
        -----
        Spark joins the keys with the frame and shuffles the new values. A task holds those of
        one fragment in memory.
        """
        keys = [on] if isinstance(on, str) else list(on)
        self._refuse_same_names("addColumnsFrom", set(frame.columns) - set(keys))
        return SparkJob.of(self._spark, job_id).change(
            self._dataset,
            lambda at, job: add_from(self._spark, at, frame, keys, vector_columns, job),
        )

    def updateColumnsFrom(
        self, frame: DataFrame, on: str | Sequence[str], *, job_id: str | None = None
    ) -> dict[str, int]:
        """Set columns of the rows that match a frame, in place: only these columns are rewritten.

        Parameters
        ----------
        frame
            Key columns, and columns of the table with new values.
        on
            Columns of both.
        job_id
            As for :meth:`addColumns`.

        Returns
        -------
        dict
            ``num_updated_rows`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            A column does not exist, a value does not fit, or several rows have one key.
        CommitContentionError
            As for :meth:`addColumns`.

        Notes
        -----
        The columns of every fragment with a matching row are written again, whole: for few rows,
        :meth:`merge` writes less.
        """
        keys = [on] if isinstance(on, str) else list(on)
        return SparkJob.of(self._spark, job_id).change(
            self._dataset, lambda at, job: update_from(self._spark, at, frame, keys, job)
        )
