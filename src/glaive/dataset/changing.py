"""Changing rows and columns of a dataset. Each method hands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from glaive.dataset.reading import Reading

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from glaive.dataset.compaction.optimize import DatasetOptimizer
    from glaive.dataset.merging.merge_insert import MergeInsertBuilder

__all__ = ["Changing"]


class Changing(Reading):
    """The part of ``LanceDataset`` that writes rows and columns."""

    def insert(self, data: object, *, mode: str = "append", **options: Any) -> None:
        """Write rows and move this object to the new version; options of ``write_dataset``."""
        from glaive.dataset.open import write_dataset

        written = write_dataset(data, self, mode=mode, **options)
        self._open(written.manifest)

    def delete(
        self,
        predicate: str | pc.Expression,
        *,
        conflict_retries: int = 10,
        retry_timeout: timedelta = timedelta(seconds=30),
    ) -> dict[str, int]:
        """Delete the rows that pass and move this object to the new version.

        Parameters
        ----------
        predicate
            A filter, as text or as a pyarrow expression.
        conflict_retries, retry_timeout
            How often, and for how long, it is done again when another writer changed the
            same rows.

        Returns
        -------
        dict
            ``num_deleted_rows``.

        Raises
        ------
        FilterError
            The filter is wrong; nothing was deleted.
        CommitConflictError, CommitContentionError
            Other writers were in the way; nothing was deleted.

        Notes
        -----
        Reads the columns of the filter; writes one small file per fragment with such rows.
        """
        from glaive.dataset.rows.delete import delete_where
        from glaive.dataset.rows.retry import with_retries

        limits: Any = {"conflict_retries": conflict_retries, "retry_timeout": retry_timeout}
        count = with_retries(self, lambda at: delete_where(at, predicate), **limits)
        return {"num_deleted_rows": count}

    def truncate_table(self) -> None:
        """Delete all rows and move this object to the new version; columns stay."""
        from glaive.dataset.rows.delete import truncate
        from glaive.dataset.rows.retry import with_retries

        with_retries(self, truncate)

    def update(
        self,
        updates: Mapping[str, str],
        where: str | pc.Expression | None = None,
        conflict_retries: int = 10,
        retry_timeout: timedelta = timedelta(seconds=30),
        data_storage_version: str | None = None,
    ) -> dict[str, int]:
        """Give the rows that pass new values and move this object to the new version.

        Parameters
        ----------
        updates
            Expressions over the old values, by column: ``{"price": "price * 2"}``.
        where
            A filter, as text or as a pyarrow expression; all rows when omitted.
        conflict_retries, retry_timeout
            As for :meth:`delete`.
        data_storage_version
            Format of the files with the rows; that of the dataset when omitted.

        Returns
        -------
        dict
            ``num_rows_updated``.

        Raises
        ------
        ColumnNotFoundError, FilterError, SchemaError
            A column does not exist, an expression is wrong, or gives values that the column
            cannot hold; nothing was changed.
        CommitConflictError, CommitContentionError
            Other writers were in the way; nothing was changed.

        Notes
        -----
        The rows are rewritten with all columns, at the end of the dataset.
        """
        from glaive.dataset.rows.retry import with_retries
        from glaive.dataset.rows.update import update_where

        limits: Any = {"conflict_retries": conflict_retries, "retry_timeout": retry_timeout}
        change = (updates, where, data_storage_version)
        count = with_retries(self, lambda at: update_where(at, *change), **limits)
        return {"num_rows_updated": count}

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Begin to say what a merge of other rows into these does.

        Parameters
        ----------
        on
            Columns to match by; the declared primary key when omitted.

        Raises
        ------
        ColumnNotFoundError
            A key column does not exist.
        """
        from glaive.dataset.merging.merge_insert import MergeInsertBuilder

        return MergeInsertBuilder(self, on)

    @property
    def optimize(self) -> DatasetOptimizer:
        """Keeps the dataset quick to read: ``compact_files``."""
        from glaive.dataset.compaction.optimize import DatasetOptimizer

        return DatasetOptimizer(self)
