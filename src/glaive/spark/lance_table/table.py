"""``LanceTable``, and how one is found or created."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from glaive.errors import DatasetNotFoundError
from glaive.spark.lance_table.columns import TableColumns
from glaive.spark.lance_table.create import TableBuilder
from glaive.spark.lance_table.description import TableDescription
from glaive.spark.lance_table.handle import located
from glaive.spark.lance_table.maintenance import TableMaintenance
from glaive.spark.lance_table.rows import TableRows
from glaive.spark.launch import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LanceTable"]


class LanceTable(TableDescription, TableRows, TableColumns, TableMaintenance):
    """A dataset whose changes run as jobs of a Spark cluster.

    Get one with :meth:`forPath`. Each method works on the newest version at the time of its call.
    What changes rows is planned by this process, done by tasks in the cluster, and committed by
    this process as one version: all of it or nothing.

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
        """The table at a path or URI.

        Parameters
        ----------
        branch
            The branch to work on; default: the main one.
        **storage
            Settings of the object store, such as ``aws_region="eu-central-1"``.

        Raises
        ------
        DatasetNotFoundError, RefNotFoundError
            There is no dataset, or no such branch.
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
        """Whether there is a dataset at a path or URI."""
        try:
            cls.forPath(spark, uri, **storage)
        except DatasetNotFoundError:
            return False
        return True

    @classmethod
    def create(cls, spark: SparkSession) -> TableBuilder[Self]:
        """Begin to create a table; it is an error if there is one.

        Examples
        --------
        >>> LanceTable.create(spark).location(uri).addColumn("id", "bigint").execute()
        """
        return TableBuilder(cls._found_in(spark), if_not_exists=False)

    @classmethod
    def createIfNotExists(cls, spark: SparkSession) -> TableBuilder[Self]:
        """Begin to create a table; one that exists is used as it is."""
        return TableBuilder(cls._found_in(spark), if_not_exists=True)

    @classmethod
    def _found_in(cls, spark: SparkSession) -> Callable[[str, Mapping[str, str]], Self]:
        return lambda uri, storage: cls.forPath(spark, uri, **storage)
