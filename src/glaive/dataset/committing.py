"""Committing what was made by hand, and telling what others committed. Each method hands on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from glaive.dataset.opened import OpenedVersion

if TYPE_CHECKING:
    from glaive.dataset.commits.lance_operation import LanceOperation
    from glaive.dataset.commits.transactions import Transaction
    from glaive.table.root import CommitLock

__all__ = ["Committing"]

_COMMIT_TIMEOUT = timedelta(minutes=30)

Place = str | os.PathLike[str] | OpenedVersion


class Committing(OpenedVersion):
    """The part of ``LanceDataset`` that deals with transactions."""

    @classmethod
    def commit(
        cls,
        base_uri: Place,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        *,
        commit_message: str | None = None,
        enable_stable_row_ids: bool | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        commit_timeout: timedelta | None = _COMMIT_TIMEOUT,
        **options: Any,
    ) -> Self:
        """Commit an operation whose files were written before; returns the new version.

        Parameters
        ----------
        base_uri
            The dataset: a place, or one that is opened.
        operation
            A ``LanceOperation``, or a ``Transaction`` with one.
        read_version
            The version the operation was made for; only Overwrite and Restore need none.
        commit_lock
            Called with the version; the context manager it returns is held meanwhile.
        storage_options
            Credentials and settings of the object store.
        enable_v2_manifest_paths, enable_stable_row_ids
            How a new dataset is made.
        detached
            Make a version outside the history, under a random number.
        max_retries
            Attempts after the first one.
        commit_message
            Kept with the version.
        commit_timeout
            No further attempt is begun after this time; ``None`` for no limit.
        base_store_params
            As :func:`glaive.dataset` takes them; a dataset given as ``base_uri`` keeps its own.
        namespace_client, table_id, namespace_client_managed_versioning
            Not supported here: the place says where the dataset is.

        Raises
        ------
        CommitConflictError
            Another writer changed the same thing since ``read_version``.
        CommitContentionError
            Other writers were first at every attempt.
        DatasetNotFoundError
            There is no dataset, and the operation creates none.
        OptionError
            The version is missing, or the operation is none; or an option does not exist.
        UnsupportedFeatureError
            An option is not supported.
        """
        from glaive.dataset.commits.place import CommitPlace, commit_options, refuse

        catalogue = (namespace_client, table_id, namespace_client_managed_versioning)
        refuse(cls.commit, options, catalogue)
        place = CommitPlace.of(base_uri, storage_options, commit_lock, base_store_params)
        kind = (enable_stable_row_ids, enable_v2_manifest_paths)
        limits = commit_options(max_retries, commit_timeout, detached, *kind)
        made = place.commit(operation, read_version, commit_message, limits)
        return place.opened(cls, made)

    @classmethod
    def commit_batch(
        cls,
        dest: Place,
        transactions: Sequence[Transaction],
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = 20,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        commit_timeout: timedelta | None = _COMMIT_TIMEOUT,
        **options: Any,
    ) -> dict[str, Any]:
        """Commit several appends as one version; parameters as for :meth:`commit`.

        Returns ``dataset``, the new version, and ``merged``, the transaction it holds.

        Raises
        ------
        UnsupportedFeatureError
            One of them is no append.
        """
        from glaive.dataset.commits.place import CommitPlace, commit_options, refuse

        refuse(cls.commit_batch, options)
        place = CommitPlace.of(dest, storage_options, commit_lock, base_store_params)
        kind = (None, enable_v2_manifest_paths)
        limits = commit_options(max_retries, commit_timeout, detached, *kind)
        made, merged = place.commit_together(transactions, limits)
        return {"dataset": place.opened(cls, made), "merged": merged}

    def read_transaction(self, version: int) -> Transaction | None:
        """What the commit of a version did; ``None`` if that is no longer known."""
        from glaive.dataset.commits.transactions import transaction_of

        return transaction_of(self, version)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """What this version and those before it did, the newest first.

        ``None`` where that is no longer known. A listing, and two requests per version at most.
        """
        from glaive.dataset.commits.transactions import recent

        return recent(self, recent_transactions)
