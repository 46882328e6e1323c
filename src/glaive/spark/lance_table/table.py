"""``LanceTable``: find tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from glaive.errors import DatasetNotFoundError
from glaive.spark.api import located
from glaive.spark.lance_table.maintenance import TableIndices, TableMaintenance
from glaive.spark.lance_table.reading import TableDescription, TableExport, TableSearch
from glaive.spark.lance_table.rows import TableColumns, TableRows
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
        """Return whether a dataset is at a path or URI.

        Parameters
        ----------
        spark
            A Spark session.
        uri
            Path or URI to look at.
        **storage
            Storage options, as for :meth:`forPath`.
        """
        try:
            cls.forPath(spark, uri, **storage)
        except DatasetNotFoundError:
            return False
        return True
