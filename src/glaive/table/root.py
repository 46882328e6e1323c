"""The root of a dataset as a store, with its commit lock, register of manifests and permissions.

Most datasets only need atomic put-if-absent. A commit lock or a register belongs to the root, so
it is available in threads, other processes and workers. So are the locations that the caller
allows the dataset to access.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from glaive.errors import CorruptFileError, GlaiveError, OptionError
from glaive.format.fragment import DataFile
from glaive.format.manifest import Manifest
from glaive.format.paths import DATA, data_file_path
from glaive.format.pb import table_pb2
from glaive.format.wire import check_ending, check_file_name
from glaive.io.access import DEFAULT_ACCESS, AccessPolicy, open_named, open_renewed, open_sibling
from glaive.io.local import LocalStore
from glaive.io.location import Location
from glaive.io.storage_options import normalise_options
from glaive.io.store import ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.manifest_store import ManifestStore

# --- Create the register of manifests that a URI or an option specifies -----------------

OPTION = "manifest_store"
"""The storage option for a register."""

SQLITE_NAME = "_manifests.sqlite"
"""File in the root of a local dataset for ``manifest_store="sqlite"``."""

_DDB = "s3+ddb://"
_TABLE = "ddbTableName"


def split_uri(uri: str) -> tuple[str, str | None]:
    """Split a URI into the location of a dataset and the register that it specifies.

    ``s3+ddb://bucket/path?ddbTableName=T`` is ``s3://bucket/path`` with the manifests
    registered in the DynamoDB table ``T``.
    """
    if not uri.lower().startswith(_DDB):
        return uri, None
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise OptionError(f"{uri}: {error}") from None
    tables = parse_qs(parts.query).get(_TABLE, [])
    if len(tables) != 1 or not tables[0]:
        raise OptionError(
            f"{uri}: expected the name of a DynamoDB table, as in s3+ddb://bucket/path?{_TABLE}=T"
        )
    return f"s3://{parts.netloc}{parts.path}", f"dynamodb://{tables[0]}"


def choose(given: ManifestStore | str, store: ObjectStore) -> ManifestStore | None:
    """Return the register of an option.

    ``"sqlite"`` is a file in the root of a local dataset, ``"sqlite:///path/file"`` any file, and
    ``"dynamodb://T"`` a table. A JSON object is a table of a catalogue, as
    :meth:`CatalogueManifestStore.option` returns it. Objects with the methods of a register are
    used as they are. Return ``None`` if the catalogue's table is another dataset.

    Raises
    ------
    OptionError
        The option has another form. Or it is ``"sqlite"``, and the dataset is not local or the file
        is a symlink.
    """
    from urllib.parse import unquote

    if not isinstance(given, str):
        if isinstance(given, ManifestStore):
            return given
        raise OptionError(f"manifest_store: expected a string or a ManifestStore, found {given!r}")
    if given.startswith("{"):
        from glaive.table.manifest_registers import CatalogueManifestStore

        return CatalogueManifestStore.from_option(given, store.uri)
    kind, _, rest = given.partition("://")
    if kind.lower() == "sqlite":
        from glaive.table.manifest_registers import SqliteManifestStore

        if rest:
            return SqliteManifestStore(unquote(rest))
        if store.is_local:
            if store.is_link(SQLITE_NAME):
                raise OptionError(
                    f"manifest_store: {store.full(SQLITE_NAME)} is a link, whose target is not "
                    "written to. Specify the target, as in sqlite:///path/manifests.sqlite"
                )
            return SqliteManifestStore(store.full(SQLITE_NAME))
        raise OptionError(
            f"manifest_store: {store.uri} is not a local directory; specify a file, as in "
            "sqlite:///path/manifests.sqlite"
        )
    if kind.lower() == "dynamodb" and rest:
        from glaive.table.manifest_registers import DynamoManifestStore

        return DynamoManifestStore(rest, store.options)
    raise OptionError(
        f"manifest_store: expected 'sqlite', 'sqlite:///path/file' or 'dynamodb://table', found "
        f"{given!r}"
    )


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
    """Open the root of a dataset, without reading anything.

    Parameters
    ----------
    uri
        As for :func:`glaive.io.access.open_store`, or ``s3+ddb://bucket/path?ddbTableName=T``.
    storage_options
        Options of the store. The option ``manifest_store`` specifies a register.
        ``allow_external_blobs`` and ``base_store_params`` specify what ``access`` leaves open.
    commit_lock
        Lock that commits hold.
    manifest_store
        Register of manifests; overrides the URI and the option.
    access
        Other locations that the dataset may access.

    Raises
    ------
    OptionError
        As for :func:`glaive.io.access.open_store`; or the lock or register is invalid.
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
    """Return the root with another lock, register or access policy; see :func:`open_root`."""
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


def open_other_root(store: ObjectStore, uri: str) -> ObjectStore:
    """Open another root of the same dataset, such as a branch.

    It has the same storage options, lock, register and permissions.
    """
    folder = uri.removeprefix(f"{store.uri}/")
    opened = None if folder == uri else store.below(folder)
    if opened is None:
        opened = store.sibling(uri)
    if opened is None:
        opened = open_sibling(store, uri)
    root = _root(store)
    if root is None:
        return opened
    return RootStore(opened, lock=root.lock, register=root.register, access=root.access)


def register_of(store: ObjectStore) -> ManifestStore | None:
    """Return the register of a root, which may be wrapped."""
    root = _root(store)
    return None if root is None else root.register


def lock_of(store: ObjectStore) -> CommitLock | None:
    """Return the commit lock of a root, which may be wrapped."""
    root = _root(store)
    return None if root is None else root.lock


def access_of(store: ObjectStore) -> AccessPolicy:
    """Return other locations that the caller allows the dataset to access."""
    root = _root(store)
    return DEFAULT_ACCESS if root is None else root.access


def confine(store: ObjectStore, above: ObjectStore) -> None:
    """Make deletions in a store begin at a folder above it, which the caller named.

    Deletions then refuse a symlink out of that folder, even if the symlink replaces the root
    between the check and the deletion.
    """
    inner = plain_store(store)
    if isinstance(inner, LocalStore) and isinstance(above, LocalStore):
        inner.anchor = above.anchor


def plain_store(store: ObjectStore) -> ObjectStore:
    """Return the underlying store of a root."""
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
        access: AccessPolicy = DEFAULT_ACCESS,
    ) -> None:
        super().__init__(inner)
        self.lock, self.register, self.access = lock, register, access

    def __repr__(self) -> str:
        return f"RootStore({self.inner!r}, lock={self.lock!r}, register={self.register!r})"


# --- Locate the files of a dataset: below its root, or below one of its base paths ------
# Specification: "Base paths" in ``docs/format``.

_NAMED = 20
"""Ids of base paths in a message, at most."""


def locate_data_file(
    store: ObjectStore, manifest: Manifest, file: DataFile
) -> tuple[ObjectStore, str]:
    """Return store and path of a data file inside the dataset; errors as for :func:`base_of`."""
    name = check_file_name(file.path, "path of a data file", manifest.where)
    # Base paths, and symlinks in the place of folders, may lead anywhere on this machine.
    check_ending(name, ".lance", "path of a data file", manifest.where)
    if file.base_id is None:
        return store, f"{DATA}/{name}"
    base, is_root = base_of(store, manifest, file.base_id)
    return base, f"{DATA}/{name}" if is_root else name


def locate_in_base(
    store: ObjectStore, manifest: Manifest, path: str, base_id: int | None
) -> tuple[ObjectStore, str]:
    """Return store and path of any other file, given by its path within a dataset."""
    if base_id is None:
        return store, path
    return base_of(store, manifest, base_id)[0], path


def full_path(
    store: ObjectStore, manifest: Manifest, path: str, base_id: int | None, *, data: bool = False
) -> str:
    """Return the path or URI of a file for display, from its path in a dataset.

    With ``data``, ``path`` is the name of a data file.
    """
    if base_id is None:
        return store.full(data_file_path(path, where=manifest.where) if data else path)
    base = find_base(manifest, base_id)
    if data and base.is_dataset_root:
        path = data_file_path(path, where=manifest.where)
    return GlaiveError.without_secrets(f"{base.path.rstrip('/')}/{path}")


def base_of(store: ObjectStore, manifest: Manifest, base_id: int) -> tuple[ObjectStore, bool]:
    """Return the store of a base path, and whether it is a dataset root.

    Raises
    ------
    AccessError
        The caller has not allowed the base path.
    CorruptFileError
        The manifest lacks the base path.
    """
    known = manifest.opened_bases
    entry = known.get(base_id)
    if entry is None or entry[0] is not store:
        base = find_base(manifest, base_id)
        opened = open_base(store, base, manifest.where)
        entry = known[base_id] = (store, opened, base.is_dataset_root)
    return entry[1], entry[2]


def open_base(store: ObjectStore, base: table_pb2.BasePath, where: str) -> ObjectStore:
    """Open a base path of the dataset at ``store``; errors as for :func:`base_of`."""
    return open_named(store, base.path, access_of(store), subject=f"base path {base.id} of {where}")


def place_opened(location: Location, opened: ObjectStore) -> Location:
    """Return where a base path was opened: a relative path may depend on the working directory."""
    moved = location.is_local and location.path != opened.uri
    return Location.parse(opened.uri) if moved else location


def find_base(manifest: Manifest, base_id: int) -> table_pb2.BasePath:
    """Return the base path with this id.

    Raises
    ------
    CorruptFileError
        The id is unknown.
    """
    base = manifest.base_paths.get(base_id)
    if base is not None:
        return base
    some = [base.id for base in manifest.wire.base_paths[:_NAMED]]
    more = len(manifest.wire.base_paths) - len(some)
    raise CorruptFileError(
        "base path of a file",
        expected=f"one of {some}" + (f" and {more} others" if more else ""),
        found=f"{base_id}",
        where=manifest.where,
    )


# --- The locations of a dataset and its base paths: find the location of an object ------
# A manifest may have millions of base paths, and rows may refer to millions of objects below them.
# So each location is parsed once, and found by its path in a dictionary.


class BaseLocations:
    """The location of each base path by its id; ``None`` has the location of the root.

    Parameters
    ----------
    root
        URI of the root.
    manifest
        The version that has the base paths.

    Raises
    ------
    OptionError
        A base path is invalid.
    """

    def __init__(self, root: str, manifest: Manifest) -> None:
        self._by_id: dict[int | None, Location] = {None: Location.parse(root)}
        for base in manifest.wire.base_paths:
            subject = f"base path {base.id} of {manifest.where}: "
            self._by_id.setdefault(base.id, Location.parse(base.path, subject))
        self._by_place: dict[tuple[str, str], tuple[int, int | None]] = {}
        for rank, (base_id, location) in enumerate(self._by_id.items()):
            self._by_place.setdefault(
                (location.store_key, location.path.rstrip("/")), (rank, base_id)
            )
        self._longest = max(len(path) for _, path in self._by_place)

    def __getitem__(self, base_id: int | None) -> Location:
        return self._by_id[base_id]

    def above(self, location: Location) -> tuple[int | None, Location] | None:
        """Return id and location of the base path or root that contains a location, or ``None``.

        If several contain it, the root or else the first base path in the manifest is returned.
        """
        store = location.store_key
        found = [
            self._by_place[store, path]
            for path in _paths_above(location.path, self._longest)
            if (store, path) in self._by_place
        ]
        for _, base_id in sorted(found, key=lambda entry: entry[0]):
            if self._by_id[base_id].contains(location):
                return base_id, self._by_id[base_id]
        return None


def _paths_above(path: str, longest: int) -> Iterator[str]:
    """Yield the path, and each folder above it, of at most ``longest`` characters."""
    yield ""
    at = path.find("/", 1)
    while 0 <= at <= longest:
        yield path[:at]
        at = path.find("/", at + 1)
    if path and len(path) <= longest:
        yield path
