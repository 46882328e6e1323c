"""Changes of rows and columns of a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark
from pyspark.sql.types import BinaryType, DataType, StructType

from glaive.dataset.columns.add_columns import AddedFiles, add_columns, commit_columns
from glaive.dataset.columns.column_files import grow
from glaive.dataset.columns.udf import BatchUDF
from glaive.dataset.merging.merge_insert import refuse_blob_keys
from glaive.dataset.rows import (
    RowsByFragment,
    commit_deleted,
    delete_in_tasks,
    delete_where,
    truncate,
    update_where,
)
from glaive.dataset.tasks import commit_operation
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.format.blobs import has_blobs
from glaive.format.field import quoted_name
from glaive.format.fragment import FragmentList
from glaive.options import one_of
from glaive.spark.api import TableHandle, located
from glaive.spark.failures import naming_columns
from glaive.spark.lance_table.apply_changes import FrameChanges
from glaive.spark.lance_table.merge import MergeBuilder, target_frame
from glaive.spark.merging import (
    ADDRESS,
    CollectRows,
    FillColumns,
    ReplaceColumns,
    ReplacedColumns,
    refuse_reserved,
)
from glaive.spark.runner import SparkJob
from glaive.spark.types import (
    columns_in,
    refuse_unassignable,
    spark_arrow_schema,
    stored_schema,
    stored_types,
    values_by_column,
)
from glaive.table.operations.update import Update, joined_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from glaive.dataset.tasks import Job
    from glaive.dataset.version import OpenedVersion
    from glaive.format.fields import LanceSchema
    from glaive.format.manifest import Manifest


# --- Rows that equal others: Spark finds them, tasks delete them by address -------------

_NUMBER = "__glaive_number"
_KEPT = "__glaive_kept"


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
    names = opened.manifest.schema.names
    compared = names if columns is None else list(columns)
    for name in compared:
        if name not in names:
            raise ColumnNotFoundError.among(name, names, where=opened.uri)
    ordering = columns_in((order_by or "").lower(), names, "order_by")
    read = [name for name in names if name in compared or name in ordering]
    blobs = [name for name in compared if has_blobs(opened.manifest.schema.find(name)[0])]
    # Locations cannot be compared: different files have values at the same location.
    frame = target_frame(spark, opened, read, None, blobs="bytes" if blobs else "descriptor")
    groups = ", ".join(_compared(frame, name) for name in compared)
    group = f"partition by {groups}" if groups else ""
    order = f"{order_by}, {ADDRESS}" if order_by is not None else ADDRESS
    with naming_columns(names, opened.uri):
        rank = F.expr(f"row_number() over ({group} order by {order})")
        kept = F.expr(f"count(1) over ({group})") if last else F.lit(1)
        ranked = frame.select(ADDRESS, rank.alias(_NUMBER), kept.alias(_KEPT))
        others = ranked.where(F.col(_NUMBER) != F.col(_KEPT)).select(ADDRESS)
    runner: Any = job.runner  # runs tasks in a Spark session
    rows = RowsByFragment()
    for part in runner.run_on_rows(opened, others, CollectRows()):
        rows.add_all(part)
    deleted = delete_in_tasks(opened, rows, job)
    described = f"duplicates of {', '.join(compared)}"
    return commit_deleted(opened, [deleted], described, job)


def _compared(frame: DataFrame, name: str) -> str:
    """Return SQL that is equal for equal values of a column; short, as Spark shuffles it."""
    column = quoted_name(name)
    return f"sha2({column}, 256)" if isinstance(frame.schema[name].dataType, BinaryType) else column


class TableRows(TableHandle):
    """The methods of ``LanceTable`` that change rows."""

    def delete(self, condition: str | None = None, *, job_id: str | None = None) -> dict[str, int]:
        """Delete the rows for which a condition holds, in tasks of the cluster.

        Parameters
        ----------
        condition
            Condition in the filter language: ``"day < 3 and name like 'a%'"``; default: all rows.
        job_id
            Name of this job: a second run with the same name returns the result of the first.

        Returns
        -------
        dict
            ``num_deleted_rows`` and ``version``.

        Raises
        ------
        FilterError
            The condition is invalid. This is checked before tasks run.
        CommitContentionError
            Other writers changed the same rows at every attempt. The table is unchanged.

        Notes
        -----
        Tasks read the columns of the condition, and write one small file for each fragment with
        matching rows.
        """
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
            Condition in the filter language; default: all rows.
        set
            Expressions by column: ``{"price": "price * 2"}``. They see the old values.
        job_id
            As for :meth:`delete`.

        Returns
        -------
        dict
            ``num_rows_updated`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, FilterError, SchemaError, OptionError
            A column is missing, an expression is invalid, or its values do not fit the column. The
            table is unchanged.
        CommitContentionError
            As for :meth:`delete`.

        Notes
        -----
        Tasks write the rows again with all columns, at the end of the dataset. Rows bypass Spark.
        """
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
            The rows. Give the frame a name to refer to its columns: ``changes.alias("s")``.
        condition
            Condition for matching rows, in Spark SQL or as a column: ``"t.id = s.id"``.
            Here ``t`` is the name that :meth:`alias` gave to the table.

        Examples
        --------
        >>> changes = spark.createDataFrame(rows).alias("s")
        >>> merge = table.alias("t").merge(changes, "t.id = s.id")
        >>> merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        """
        return MergeBuilder(self._spark, self._dataset, self._name, source, condition)

    def replaceOn(
        self, source: DataFrame, condition: str | Column, *, job_id: str | None = None
    ) -> dict[str, int]:
        """Insert the rows of a frame, and delete the rows of the table that match one of them.

        Parameters
        ----------
        source
            The new rows, with all columns of the table that lack a rule.
        condition
            Condition for rows to delete, as for :meth:`merge`: ``"t.day <=> s.day"``.
        job_id
            As for :meth:`delete`.

        Returns
        -------
        dict
            ``num_inserted_rows``, ``num_updated_rows``, ``num_deleted_rows``, ``version``.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            A column is missing, or a value does not fit its column.
        CommitContentionError
            Other writers changed the same rows at every attempt. The table is unchanged.

        Notes
        -----
        One commit replaces the rows. It has the cost of a merge. An empty frame deletes nothing.
        """
        merge = self.merge(source, condition).whenMatchedDelete().whenNotMatchedInsertAll()
        return replace(merge, replaces=True).execute(job_id=job_id)

    def replaceUsing(
        self, source: DataFrame, columns: str | Sequence[str], *, job_id: str | None = None
    ) -> dict[str, int]:
        """Insert the rows of a frame, and delete rows of the table with equal values in columns.

        Parameters
        ----------
        source
            The new rows, with all columns of the table that lack a rule.
        columns
            Names of the compared columns. Nulls are equal to nothing.
        job_id
            As for :meth:`delete`.

        Returns
        -------
        dict
            The counts and the version, as for :meth:`replaceOn`.

        Examples
        --------
        >>> table.replaceUsing(rows_of_two_days, "day")  # replaces these two days
        """
        names = [columns] if isinstance(columns, str) else list(columns)
        if not names:
            raise OptionError("replaceUsing: columns is empty. Name columns, such as 'day'.")
        old, new = "the table", "the source"
        sides = [[f"`{side}`.{quoted_name(name)}" for side in (old, new)] for name in names]
        condition = " AND ".join(f"{mine} = {other}" for mine, other in sides)
        return self.alias(old).replaceOn(source.alias(new), condition, job_id=job_id)

    def applyChanges(
        self,
        source: DataFrame,
        keys: str | Sequence[str],
        sequence_by: str,
        delete_where: str | Column | None = None,
        *,
        ignore_null_updates: bool = False,
        scd: Literal[1, 2] = 1,
        columns: Sequence[str] | None = None,
        job_id: str | None = None,
    ) -> dict[str, int] | DataStreamWriter:
        """Apply a feed of inserts, updates and deletes, in any order and exactly once.

        Parameters
        ----------
        source
            The changes: one row for each, with all keys. A streaming frame is applied batch by
            batch.
        keys
            Columns that identify a row of the table.
        sequence_by
            Column of the source that orders the changes of a row. Changes at or before the
            sequence of a row have no effect. With ``scd=1`` it is a column of the table, too.
        delete_where
            Condition for changes that delete their row: ``"op = 'd'"``. Columns that only this
            condition names stay out of the table.
        ignore_null_updates
            Keep the value of a column if the change has null there; only with ``scd=1``.
        scd
            With 1, the table keeps the newest values of a row. With 2, it keeps all values in rows
            of their own, with the columns ``valid_from``, ``valid_to`` (types of ``sequence_by``)
            and ``is_current`` (boolean).
        columns
            Columns to set; default: all columns of the source.
        job_id
            As for :meth:`delete`; for a batch only.

        Returns
        -------
        dict or DataStreamWriter
            ``num_inserted_rows``, ``num_updated_rows``, ``num_deleted_rows``, ``version``. For a
            stream a writer: set its ``checkpointLocation``, and start it.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            A column is missing in the table or the source.
        OptionError
            ``keys`` is empty, ``scd`` differs from 1 and 2, or ``ignore_null_updates`` comes with
            ``scd=2``.

        Notes
        -----
        Keys and sequences of deletes stay in a small dataset in the table's directory, so that
        late changes do not bring rows back. Apply the changes of a table in one place at a time.

        Examples
        --------
        >>> table.applyChanges(feed, "id", sequence_by="ts", delete_where="op = 'd'")
        >>> writer = table.applyChanges(spark.readStream.table("feed"), "id", sequence_by="ts")
        >>> writer.option("checkpointLocation", "feed.checkpoint").start()
        """
        rules = FrameChanges(
            (keys,) if isinstance(keys, str) else tuple(keys),
            sequence_by,
            delete_where,
            ignore_null_updates,
            scd,
            None if columns is None else tuple(columns),
        )
        if source.isStreaming:
            return rules.writer(self._latest(), source)
        return rules.apply(self._dataset, source, job_id)

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
            One or several columns to compare; default: all.
        keep
            Keep the first or the last row in the order of ``order_by``.
        order_by
            A column or expression of Spark SQL, as in ``ORDER BY``, such as ``"time desc"``.
            Default: the order of the table.
        job_id
            As for :meth:`delete`.

        Returns
        -------
        dict
            ``num_deleted_rows`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, OptionError
            A column is missing, ``keep`` differs from "first" and "last", or ``order_by`` has a
            ``*`` for all columns.

        Notes
        -----
        Spark shuffles only the compared columns. For binary values and blobs, tasks read the values
        and Spark shuffles their hashes. The commit writes only deletion files.
        """
        one_of("first", "last").check("keep", keep)
        compared = [columns] if isinstance(columns, str) else columns
        return SparkJob.of(self._spark, job_id).change(
            self._dataset,
            lambda at, job: delete_duplicates(
                self._spark, at, compared, job, last=keep == "last", order_by=order_by
            ),
        )


def _refuse_columns(method: str, *given: object) -> None:
    """Refuse conditions and values that only a JVM can evaluate."""
    for one in given:
        if isinstance(one, Column):
            raise OptionError(
                f'{method}: expected a string in the language of filters, such as "id < 5", found '
                f"{one!r}: its tasks have no JVM. Write it as a string, or use a merge, whose "
                "conditions and values may be columns"
            )


# --- Changes of the columns of a table --------------------------------------------------


def arrow_type(method: str, given: Any) -> pa.DataType:
    """Return the type given to a method: a Spark type (also as SQL) or an Arrow type."""
    if isinstance(given, pa.DataType):
        return given
    try:
        parsed = DataType.fromDDL(given) if isinstance(given, str) else given
    except PySparkException as error:
        raise OptionError(f"{method}: {given!r} is not a type of Spark: {error}") from error
    if not isinstance(parsed, DataType):
        raise OptionError(f"{method}: expected a type of Spark or Arrow, found {given!r}")
    columns = stored_schema(StructType().add("column", parsed), ())
    arrow: pa.DataType = columns.field(0).type
    return arrow


# --- Columns from a frame: joined by keys, written by tasks with whole fragments each ---


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
    grown = grow(opened.manifest, columns)  # raises for existing names
    rows = _by_fragment(spark, opened, frame, keys, names, job)
    task = FillColumns(opened.manifest.version, columns)
    runner: Any = job.runner  # runs tasks in a Spark session
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
    runner: Any = job.runner  # runs tasks in a Spark session
    parts: list[ReplacedColumns] = runner.run_on_rows(opened, rows, task)
    return commit_replaced(opened, columns, parts, job), None


def commit_replaced(
    opened: OpenedVersion, columns: LanceSchema, parts: Sequence[ReplacedColumns], job: Job
) -> Manifest:
    """Commit the columns that tasks rewrote."""
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
    """Return addresses and values; each fragment is in one partition, sorted."""
    target = target_frame(spark, opened, keys, None)
    joined = target.join(frame, [str(key) for key in keys], "inner")
    rows = joined.select(ADDRESS, *map(quoted_name, names))
    fragment = F.shiftright(F.col(ADDRESS), 32)
    partitions = max(1, len(job.runner.parts(opened)))
    return rows.repartition(partitions, fragment).sortWithinPartitions(ADDRESS)


class TableColumns(TableHandle):
    """The methods of ``LanceTable`` that change columns."""

    def dropColumns(self, *names: str) -> int:
        """Drop columns, and return the new version.

        The values stay in the files until compaction and clean-up.

        Parameters
        ----------
        *names
            Paths of columns; ``"s.x"`` drops a member of a struct.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            A column is missing, or the table would lose its last column.
        """
        dataset = self._latest()
        dataset.drop_columns(list(names))
        return dataset.version

    def renameColumn(self, name: str, new_name: str) -> int:
        """Rename a column, and return the new version. The data files stay as they are.

        Parameters
        ----------
        name
            Path of the column.
        new_name
            New name of the column, without a path.

        Raises
        ------
        ColumnNotFoundError, SchemaError
            The column is missing, or the name is taken.
        """
        return self.alterColumn(name, name=new_name)

    def addConstraint(self, name: str, expression: str) -> int:
        """Add a ``CHECK`` constraint, and return the new version.

        This process reads the columns of the expression.

        Parameters
        ----------
        name
            Name of the constraint.
        expression
            Condition on each row, as for :meth:`glaive.LanceDataset.add_constraint`.

        Raises
        ------
        OptionError, SchemaError
            The name is taken, or existing rows break the condition.
        """
        dataset = self._latest()
        dataset.add_constraint(name, expression)
        return dataset.version

    def dropConstraint(self, name: str, *, ignore_not_found: bool = False) -> int:
        """Remove a ``CHECK`` constraint, and return the new version.

        Parameters
        ----------
        name
            Name of the constraint.
        ignore_not_found
            Return the current version if the constraint is missing.

        Raises
        ------
        OptionError
            The table lacks the constraint.
        """
        dataset = self._latest()
        dataset.drop_constraint(name, ignore_not_found=ignore_not_found)
        return dataset.version

    def alterColumn(
        self,
        column: str,
        *,
        name: str | None = None,
        data_type: Any = None,
        nullable: Any = None,
        default: str | Literal[False] | None = None,
        generated: str | Literal[False] | None = None,
    ) -> int:
        """Change name, type, nullability or rule of a column, and return the new version.

        Parameters
        ----------
        column
            Path of the column.
        name
            New name; default: unchanged.
        data_type
            A type of Arrow or of Spark, also as a string (``"bigint"``). This process casts the
            values and writes the files of the column again. Default: unchanged.
        nullable
            Whether the column may have nulls; default: unchanged.
        default, generated
            Expressions of the filter language: for rows that lack the column, or that compute it
            from other columns. ``False`` removes it; default: unchanged.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            The column is missing, a value cannot be cast, or all changes are missing.
        """
        arrow = None if data_type is None else arrow_type("alterColumn", data_type)
        change = {"path": column, "name": name, "data_type": arrow, "nullable": nullable}
        given = {key: value for key, value in change.items() if value is not None}
        rules = {"default": default, "generated": generated}
        given |= {key: value or None for key, value in rules.items() if value is not None}
        dataset = self._latest()
        dataset.alter_columns(given)
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
        """Add columns that tasks of the cluster compute; rows bypass Spark.

        Parameters
        ----------
        columns
            Expressions by name, in the filter language: ``{"total": "price * amount"}``. Or a
            function that takes a record batch and returns a batch with as many rows. Or a schema,
            which adds columns of nulls in the manifest only.
        schema
            Schema of the result of the function; default: its result for the first row tells.
        read_columns
            Columns that the function gets; default: all.
        batch_size
            Maximum number of rows in a call of the function; default: 8192.
        checkpoint
            A folder outside the table that all workers share. glaive records each finished
            fragment there. Run the same call again after a failure to compute only the other
            fragments. The commit empties the folder.
        job_id
            Name of this job: a second run with the same name returns the result of the first.

        Returns
        -------
        dict
            ``num_fragments`` that got a file, and ``version``.

        Raises
        ------
        SchemaError
            A name is taken, or the function returned other columns or another number of rows.
        FilterError, ColumnNotFoundError, OptionError
            An expression is invalid, or a column is missing.
        CommitContentionError
            Other writers changed the table at every attempt. The table lacks the columns.

        Notes
        -----
        Tasks write one file for each fragment, with the new columns only. Spark sends a function
        to the workers together with the objects that it refers to. Load a model inside the
        function. To load it once for each worker, use ``functools.cache`` in a module that the
        workers can import.
        """
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
        """Add the other columns of a frame, joined by key columns; null in unmatched rows.

        Parameters
        ----------
        frame
            Key columns, and the columns to add.
        on
            Key columns, which the table and the frame have in common.
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
            A key is missing, a name is taken, or several rows of the frame have one key.
        CommitContentionError
            As for :meth:`addColumns`.

        Notes
        -----
        Spark joins the keys with the frame and shuffles the new values. A task holds the new
        values of one fragment in memory.
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
            Key columns, which the table and the frame have in common.
        job_id
            As for :meth:`addColumns`.

        Returns
        -------
        dict
            ``num_updated_rows`` and ``version``.

        Raises
        ------
        ColumnNotFoundError, SchemaError, OptionError
            A column is missing, a value does not fit, or several rows have one key.
        CommitContentionError
            As for :meth:`addColumns`.

        Notes
        -----
        Tasks write these columns of every fragment with a matching row again, for all its rows.
        For few rows, :meth:`merge` writes less.
        """
        keys = [on] if isinstance(on, str) else list(on)
        return SparkJob.of(self._spark, job_id).change(
            self._dataset, lambda at, job: update_from(self._spark, at, frame, keys, job)
        )
