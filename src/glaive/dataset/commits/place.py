"""Where a commit made by hand goes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from glaive.dataset.commits.transactions import Transaction, commit_by_hand, commit_together
from glaive.dataset.opened import OpenedVersion
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.manifest import Manifest
from glaive.io.store import ObjectStore
from glaive.table.protocol import CommitOptions
from glaive.table.root import CommitLock, guarded, open_root

__all__ = ["CommitPlace"]

_IGNORED = frozenset({"commit_timeout"})
_LATER = frozenset(
    {"base_store_params", "namespace_client", "namespace_client_managed_versioning", "table_id"}
)

D = TypeVar("D", bound=OpenedVersion)


@dataclass(frozen=True, slots=True)
class CommitPlace:
    """A dataset to be committed to: its store, and the opened version if there is one."""

    store: ObjectStore
    uri: str
    storage_options: Mapping[str, str] | None
    dataset: OpenedVersion | None

    @classmethod
    def of(
        cls,
        place: str | os.PathLike[str] | OpenedVersion,
        storage_options: Mapping[str, str] | None,
        commit_lock: CommitLock | None,
    ) -> CommitPlace:
        """From a path, a URI or an opened dataset."""
        if isinstance(place, OpenedVersion):
            store = guarded(place.store, commit_lock=commit_lock)
            return cls(store, place.uri, place.storage_options, place)
        store = open_root(place, storage_options, commit_lock=commit_lock)
        return cls(store, os.fspath(place), storage_options, None)

    def commit(
        self,
        operation: Any,
        read_version: int | None,
        message: str | None,
        max_retries: int,
        detached: bool | None,
        stable: bool | None,
        v2_paths: bool | None,
        ignored: Mapping[str, object],
    ) -> Manifest:
        """Commit one operation; see ``LanceDataset.commit``."""
        options = _options("commit", max_retries, detached, stable, v2_paths, ignored)
        base = None if self.dataset is None else self.dataset.manifest
        return commit_by_hand(
            self.store, operation, read_version, base, message=message, options=options
        )

    def commit_together(
        self,
        transactions: Sequence[Transaction],
        max_retries: int,
        detached: bool | None,
        stable: bool | None,
        v2_paths: bool | None,
        ignored: Mapping[str, object],
    ) -> tuple[Manifest, Transaction]:
        """Commit several appends; see ``LanceDataset.commit_batch``."""
        options = _options("commit_batch", max_retries, detached, stable, v2_paths, ignored)
        base = None if self.dataset is None else self.dataset.manifest
        return commit_together(self.store, transactions, base, options)

    def opened(self, kind: type[D], manifest: Manifest) -> D:
        """The version that was made, opened."""
        session = None if self.dataset is None else self.dataset.session()
        return kind(
            self.store,
            manifest,
            uri=self.uri,
            storage_options=self.storage_options,
            session=session,
        )


def _options(
    function: str,
    max_retries: int,
    detached: bool | None,
    stable: bool | None,
    v2_paths: bool | None,
    ignored: Mapping[str, object],
) -> CommitOptions:
    for name, value in ignored.items():
        if name in _LATER:
            if value:
                raise UnsupportedFeatureError(
                    f"{function}: the option {name!r} is not supported yet. Leave it out."
                )
        elif name not in _IGNORED:
            raise OptionError(f"{function}: unknown option {name!r}")
    if max_retries < 0:
        raise OptionError(f"max_retries: expected a number ≥ 0, found {max_retries!r}")
    return CommitOptions(
        max_retries=max_retries,
        detached=bool(detached),
        enable_stable_row_ids=bool(stable),
        enable_v2_manifest_paths=v2_paths is not False,
    )
