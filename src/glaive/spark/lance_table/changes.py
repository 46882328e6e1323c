"""The change feed of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glaive.dataset.versions.references import branch_of
from glaive.spark.lance_table.handle import TableHandle
from glaive.spark.streams.frames import read_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TableChanges"]


class TableChanges(TableHandle):
    """The method of ``LanceTable`` that tells what versions changed."""

    def changes(
        self,
        startVersion: int,  # Delta's spelling, as of all methods here
        endVersion: int | None = None,  # the same
        columns: Sequence[str] | None = None,
        preimages: bool = True,
        net: bool = False,
    ) -> DataFrame:
        """Return the rows that versions inserted, updated and deleted.

        Parameters
        ----------
        startVersion, endVersion
            The first and the last version whose changes are read, both included; default for the
            last: the newest.
        columns
            Columns of the dataset; default: all.
        preimages
            Whether updated rows are also returned as they were before.
        net
            The difference of the two ends, instead of the changes of every version in between.

        Returns
        -------
        DataFrame
            The columns, then ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

        Raises
        ------
        OptionError, ColumnNotFoundError, SchemaError, VersionNotFoundError
            As for ``LanceDataset.changes``, before any job runs.
        """
        dataset = self._latest()
        storage = dataset.storage_options
        return read_changes(
            self._spark,
            dataset.uri,
            startVersion,
            endVersion,
            columns=columns,
            preimages=preimages,
            net=net,
            branch=branch_of(dataset.manifest),
            storage_options=None if storage is None else dict(storage),
        )
