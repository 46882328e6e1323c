"""``LanceTable``: find, create and convert tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from glob import escape
from typing import TYPE_CHECKING, Any, Self

from glaive.errors import DatasetNotFoundError, OptionError
from glaive.spark.api import located
from glaive.spark.files import ingest
from glaive.spark.lance_table.maintenance import TableIndices, TableMaintenance
from glaive.spark.lance_table.reading import (
    TableChanges,
    TableDescription,
    TableExport,
    TableSearch,
)
from glaive.spark.lance_table.rows import TableBuilder, TableColumns, TableRows
from glaive.spark.launch import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LanceTable(
    TableDescription,
    TableRows,
    TableColumns,
    TableMaintenance,
    TableIndices,
    TableSearch,
    TableChanges,
    TableExport,
):
    """A dataset whose changes run as jobs of a Spark cluster.

    Get one with :meth:`forPath`. Each method works on the newest version at the time of its call.
    To change rows, this process plans the change, tasks in the cluster write files, and this
    process commits all files as one version.

    Examples
    --------
    >>> flights = glaive.spark.LanceTable.forPath(spark, "flights.lance")
    >>> flights.delete("dep_delay is null")
    {'version': 4, 'num_deleted_rows': 8255}
    >>> flights.optimize().executeCompaction()
    """

    @classmethod
    def forPath(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        branch: str | None = None,
        **storage: str,
    ) -> Self:
        """Open the table at a path or URI.

        Parameters
        ----------
        spark
            The session whose cluster runs the jobs of the table.
        uri
            Path or URI of the dataset; workers need access to it.
        branch
            The branch to work on; default: the main one.
        **storage
            Settings of the object store, such as ``aws_region="eu-central-1"``.

        Raises
        ------
        DatasetNotFoundError, RefNotFoundError
            The dataset or the branch is missing.
        """
        from glaive.dataset.open import dataset

        opened = dataset(
            located(uri),
            version=None if branch is None else (branch, None),
            storage_options=storage or None,
        )
        register(spark)
        return cls(spark, opened)

    @classmethod
    def isLanceTable(cls, spark: SparkSession, uri: str | os.PathLike[str], **storage: str) -> bool:
        """Return whether a dataset is at a path or URI; :meth:`forPath` explains ``storage``."""
        try:
            cls.forPath(spark, uri, **storage)
        except DatasetNotFoundError:
            return False
        return True

    @classmethod
    def create(cls, spark: SparkSession) -> TableBuilder[Self]:
        """Begin to create a table; ``execute`` raises an error if the table exists.

        Examples
        --------
        >>> LanceTable.create(spark).location(uri).addColumn("id", "bigint").execute()
        """
        return TableBuilder(cls._found_in(spark), if_not_exists=False)

    @classmethod
    def createIfNotExists(cls, spark: SparkSession) -> TableBuilder[Self]:
        """Begin to create a table; ``execute`` keeps an existing table as it is."""
        return TableBuilder(cls._found_in(spark), if_not_exists=True)

    @classmethod
    def convertFrom(
        cls,
        spark: SparkSession,
        format: str,
        path: str | os.PathLike[str],
        uri: str | os.PathLike[str],
        *,
        job_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """Create a table from a Delta or Iceberg table, or from all Parquet files below a folder.

        Parameters
        ----------
        format
            ``delta``, ``iceberg`` or ``parquet``.
        path
            The folder. The metadata of a Delta or Iceberg table gives columns and files. Otherwise
            the first file gives the columns and their Arrow types. Names of folders
            (``day=3/a.parquet``) give further columns, with the types that Spark infers.
        uri
            Path or URI of the new table.
        job_id
            Name of this job: a second run with the same name returns the table of the first run.
        storage_options
            Settings of the object store, for the files and the table.
        **options
            Options of :class:`glaive.dataset.writing.plan.WriteOptions`, such as
            ``enable_stable_row_ids`` or ``max_rows_per_file``.

        Raises
        ------
        DatasetExistsError
            A table exists.
        SchemaError, FormatError
            The files differ, or are damaged.
        OptionError
            The folder lacks Parquet files, or the format is unknown.

        Notes
        -----
        This ingests the files: tasks read and write them, and rows bypass Spark.
        """
        if format not in ("parquet", "delta", "iceberg"):
            raise OptionError(
                f'format: expected "parquet", "delta" or "iceberg", found {format!r}. Other '
                "formats: glaive.spark.write(spark.read.format(...).load(path), uri)"
            )
        storage, folder = dict(storage_options or {}), located(path).rstrip("/")
        ingest(
            spark,
            f"{escape(folder)}/**/*.parquet" if format == "parquet" else folder,
            uri,
            format=format,
            job_id=job_id,
            storage_options=storage or None,
            source_options=storage or None,
            write_options=options,
        )
        return cls.forPath(spark, uri, **storage)

    @classmethod
    def _found_in(cls, spark: SparkSession) -> Callable[[str, Mapping[str, str]], Self]:
        return lambda uri, storage: cls.forPath(spark, uri, **storage)
