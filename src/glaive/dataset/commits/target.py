"""The target of a commit that users construct."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any

from glaive.dataclass import dataclass
from glaive.dataset.commits.transactions import Transaction, commit_appends, commit_by_hand
from glaive.dataset.namespaces import reach_table
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import OptionError
from glaive.format.manifest import Manifest
from glaive.io.access import AccessPolicy
from glaive.io.store import ObjectStore
from glaive.table.protocol import CommitOptions
from glaive.table.root import CommitLock, access_of, guarded, open_root

__all__ = ["CommitTarget", "commit_options"]


@dataclass(frozen=True, slots=True)
class CommitTarget:
    """The dataset of a commit: its store, and the opened version if there is one."""

    store: ObjectStore
    uri: str = field(repr=False)  # a URL may have a password
    storage_options: Mapping[str, str] | None = field(repr=False)
    dataset: OpenedVersion | None

    @classmethod
    def of(
        cls,
        place: str | os.PathLike[str] | OpenDataset,
        storage_options: Mapping[str, str] | None,
        commit_lock: CommitLock | None,
        base_store_params: object = None,
        catalogue: tuple[Any, Sequence[str] | None] = (None, None),
    ) -> CommitTarget:
        """From a path, a URI or an opened dataset; ``catalogue`` is a namespace and a table."""
        if isinstance(place, OpenDataset):
            dataset = place.opened
            access = AccessPolicy.of(base_store_params, before=access_of(dataset.store))
            store = guarded(dataset.store, commit_lock=commit_lock, access=access)
            return cls(store, dataset.uri, dataset.storage_options, dataset)
        access = AccessPolicy.of(base_store_params)
        found = reach_table(*catalogue, place, storage_options)
        options = found.storage_options
        guards: dict[str, Any] = {
            "commit_lock": commit_lock,
            "manifest_store": found.manifest_store,
        }
        store = open_root(place, options, access=access, **guards)
        return cls(store, os.fspath(place), options, None)

    def commit(
        self, operation: Any, read_version: int | None, message: str | None, options: CommitOptions
    ) -> Manifest:
        """Commit one operation; see ``LanceDataset.commit``."""
        base = None if self.dataset is None else self.dataset.manifest
        return commit_by_hand(
            self.store, operation, read_version, base, message=message, options=options
        )

    def commit_appends(
        self, transactions: Sequence[Transaction], options: CommitOptions
    ) -> tuple[Manifest, Transaction]:
        """Commit several appends; see ``LanceDataset.commit_batch``."""
        base = None if self.dataset is None else self.dataset.manifest
        return commit_appends(self.store, transactions, base, options)

    def at(self, manifest: Manifest) -> OpenedVersion:
        """The new version."""
        return OpenedVersion.of(
            self.store,
            manifest,
            uri=self.uri,
            storage_options=self.storage_options,
            session=None if self.dataset is None else self.dataset.session,
        )


def commit_options(
    max_retries: int,
    commit_timeout: object,
    detached: bool | None,
    stable: bool | None,
    v2_paths: bool | None,
) -> CommitOptions:
    """Options of a commit, checked."""
    number: object = max_retries
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise OptionError(f"max_retries: expected a number ≥ 0, found {max_retries!r}")
    seconds = None
    if commit_timeout is not None:
        if not isinstance(commit_timeout, timedelta) or commit_timeout <= timedelta(0):
            raise OptionError(
                f"commit_timeout: expected a timedelta > 0, or None, found {commit_timeout!r}"
            )
        seconds = commit_timeout.total_seconds()
    return CommitOptions(
        max_retries=max_retries,
        detached=bool(detached),
        enable_stable_row_ids=bool(stable),
        enable_v2_manifest_paths=v2_paths is not False,
        timeout=seconds,
    )
