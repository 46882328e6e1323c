"""The root of a dataset as a store, with whatever else decides who makes the next version.

Most datasets need nothing else: putting the manifest where none is decides it. A commit lock
or a register of manifests belongs to the root, so it travels with the store, to threads,
other processes and workers. So does what the caller allows the dataset to lead to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from glaive.errors import OptionError
from glaive.io.access import NOTHING, AccessPolicy
from glaive.io.storage_options import settle
from glaive.io.store import ObjectStore
from glaive.io.uri import open_sibling, open_store
from glaive.io.wrapped import WrappedStore
from glaive.table.manifest_store.choose import OPTION, choose, split_uri
from glaive.table.manifest_store.protocol import ManifestStore

__all__ = [
    "CommitLock",
    "RootStore",
    "access_of",
    "guarded",
    "lock_of",
    "open_beside",
    "open_root",
    "plain_store",
    "register_of",
]

CommitLock = Callable[[int], AbstractContextManager[Any]]
"""Called with the version about to be made; holds the right to make it while entered."""


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
        As :func:`glaive.io.uri.open_store` takes it, or ``s3+ddb://bucket/path?ddbTableName=T``.
    storage_options
        Options of the store; ``manifest_store`` among them names a register as text.
    commit_lock
        Held while a version is made.
    manifest_store
        Where manifests are registered; wins over the URI and the option.
    access
        What the dataset may lead to beside its own place; nothing by default.

    Raises
    ------
    OptionError
        As :func:`glaive.io.uri.open_store`; or a lock or register is none.
    """
    place: Any = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    asked: ManifestStore | str | None = None
    if isinstance(place, str):
        place, asked = split_uri(place)
    store = open_store(place, storage_options)
    options = settle(storage_options) if storage_options else {}
    named = next((options[key] for key in options if key.lower() == OPTION), None)
    register = manifest_store or asked or named
    return guarded(store, commit_lock=commit_lock, manifest_store=register, access=access)


def guarded(
    store: ObjectStore,
    *,
    commit_lock: CommitLock | None = None,
    manifest_store: ManifestStore | str | None = None,
    access: AccessPolicy | None = None,
) -> ObjectStore:
    """The same root with a lock, a register of manifests, or a policy in place of those it has.

    Raises
    ------
    OptionError
        The lock or the register is none.
    """
    if commit_lock is not None and not callable(commit_lock):
        raise OptionError(
            "commit_lock: expected a function of the version that returns a context manager, "
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
    """Another place that belongs to the same dataset, such as a branch.

    Opened with the same storage options, and committed to as the dataset is.
    """
    folder = uri.removeprefix(f"{store.uri}/")
    opened = None if folder == uri else store.below(folder)
    if opened is None:
        opened = open_sibling(store, uri)
    root = _root(store)
    if root is None:
        return opened
    return RootStore(opened, lock=root.lock, register=root.register, access=root.access)


def register_of(store: ObjectStore) -> ManifestStore | None:
    """The register of a root, or of the one it wraps."""
    root = _root(store)
    return None if root is None else root.register


def lock_of(store: ObjectStore) -> CommitLock | None:
    """The commit lock of a root, or of the one it wraps."""
    root = _root(store)
    return None if root is None else root.lock


def access_of(store: ObjectStore) -> AccessPolicy:
    """What the dataset may lead to beside its own place, as its caller allows."""
    root = _root(store)
    return NOTHING if root is None else root.access


def plain_store(store: ObjectStore) -> ObjectStore:
    """The store that holds the files, without what decides who makes the next version."""
    root = _root(store)
    return store if root is None else root.inner


def _root(store: ObjectStore) -> RootStore | None:
    while isinstance(store, WrappedStore):
        if isinstance(store, RootStore):
            return store
        store = store.inner
    return None


class RootStore(WrappedStore):
    """A store, and beside it a commit lock, a register of manifests, and what is allowed."""

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
