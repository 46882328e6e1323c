"""The root of a dataset as a store, with its commit lock, register of manifests and permissions.

Most datasets only need atomic put-if-absent. A commit lock or a register belongs to the root, so
it is available in threads, other processes and workers. So are the locations that the caller
allows the dataset to access.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from glaive.errors import OptionError
from glaive.io.access import NOTHING, AccessPolicy
from glaive.io.local import LocalStore
from glaive.io.renewed import open_renewed
from glaive.io.storage_options import normalise_options
from glaive.io.store import ObjectStore
from glaive.io.uri import open_sibling
from glaive.io.wrapped import WrappedStore
from glaive.table.manifest_store.choose import OPTION, choose, split_uri
from glaive.table.manifest_store.protocol import ManifestStore

__all__ = [
    "CommitLock",
    "RootStore",
    "access_of",
    "confine",
    "guarded",
    "lock_of",
    "open_beside",
    "open_root",
    "plain_store",
    "register_of",
]

CommitLock = Callable[[int], AbstractContextManager[Any]]
"""Called with the number of a new version; its context manager is held during the commit."""


def open_root(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    commit_lock: CommitLock | None = None,
    manifest_store: ManifestStore | str | None = None,
    access: AccessPolicy | None = None,
) -> ObjectStore:
    """Open the root of a dataset; nothing is read.

    Parameters
    ----------
    uri
        As for :func:`glaive.io.uri.open_store`, or ``s3+ddb://bucket/path?ddbTableName=T``.
    storage_options
        Options of the store; the option ``manifest_store`` specifies a register, and
        ``allow_external_blobs`` and ``base_store_params`` what ``access`` leaves open.
    commit_lock
        Held during commits.
    manifest_store
        Register of manifests; overrides the URI and the option.
    access
        Other locations that the dataset may access; none by default.

    Raises
    ------
    OptionError
        As for :func:`glaive.io.uri.open_store`; or the lock or register is invalid.
    """
    location: Any = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    from_uri: ManifestStore | str | None = None
    if isinstance(location, str):
        location, from_uri = split_uri(location)
    store = open_renewed(location, storage_options)
    options = normalise_options(storage_options) if storage_options else {}
    from_option = next((options[key] for key in options if key.lower() == OPTION), None)
    register = manifest_store or from_uri or from_option
    access = AccessPolicy.of_options(options, over=access)
    return guarded(store, commit_lock=commit_lock, manifest_store=register, access=access)


def guarded(
    store: ObjectStore,
    *,
    commit_lock: CommitLock | None = None,
    manifest_store: ManifestStore | str | None = None,
    access: AccessPolicy | None = None,
) -> ObjectStore:
    """The root with another lock, register or access policy; see :func:`open_root`."""
    if commit_lock is not None and not callable(commit_lock):
        raise OptionError(
            "commit_lock must be a function of the version that returns a context manager, "
            f"found {commit_lock!r}"
        )
    if commit_lock is None and manifest_store is None and access in (None, access_of(store)):
        return store
    inner = store.inner if isinstance(store, RootStore) else store
    register = register_of(store)
    if manifest_store is not None:
        register = choose(manifest_store, inner)
    lock = commit_lock or lock_of(store)
    return RootStore(inner, lock=lock, register=register, access=access or access_of(store))


def open_beside(store: ObjectStore, uri: str) -> ObjectStore:
    """Another root of the same dataset, such as a branch.

    It has the same storage options, lock, register and permissions.
    """
    folder = uri.removeprefix(f"{store.uri}/")
    opened = None if folder == uri else store.below(folder)
    if opened is None:
        opened = store.beside(uri)
    if opened is None:
        opened = open_sibling(store, uri)
    root = _root(store)
    if root is None:
        return opened
    return RootStore(opened, lock=root.lock, register=root.register, access=root.access)


def register_of(store: ObjectStore) -> ManifestStore | None:
    """The register of a root, which may be wrapped."""
    root = _root(store)
    return None if root is None else root.register


def lock_of(store: ObjectStore) -> CommitLock | None:
    """The commit lock of a root, which may be wrapped."""
    root = _root(store)
    return None if root is None else root.lock


def access_of(store: ObjectStore) -> AccessPolicy:
    """Other locations that the caller allows the dataset to access."""
    root = _root(store)
    return NOTHING if root is None else root.access


def confine(store: ObjectStore, above: ObjectStore) -> None:
    """Have deletions in a store begin at a folder above it, which the caller named.

    Then none is made behind a link that leads out of that folder, also where it takes the place of
    the root between a look and the deletion.
    """
    inner = plain_store(store)
    if isinstance(inner, LocalStore) and isinstance(above, LocalStore):
        inner.anchor = above.anchor


def plain_store(store: ObjectStore) -> ObjectStore:
    """The underlying store of a root."""
    root = _root(store)
    return store if root is None else root.inner


def _root(store: ObjectStore) -> RootStore | None:
    while isinstance(store, WrappedStore):
        if isinstance(store, RootStore):
            return store
        store = store.inner
    return None


class RootStore(WrappedStore):
    """A store with a commit lock, a register of manifests, and permissions."""

    __slots__ = ("access", "lock", "register")

    def __init__(
        self,
        inner: ObjectStore,
        *,
        lock: CommitLock | None = None,
        register: ManifestStore | None = None,
        access: AccessPolicy = NOTHING,
    ) -> None:
        super().__init__(inner)
        self.lock, self.register, self.access = lock, register, access

    def __repr__(self) -> str:
        return f"RootStore({self.inner!r}, lock={self.lock!r}, register={self.register!r})"
