"""Locate blob values outside the files of the dataset, if the caller allows it.

A row names such a value by a URI, or by a path below a base path. URI, path and base path may be
untrusted. So glaive fetches values only from the directory of the dataset, and from locations that
the caller named.

Decision: ``docs/adr/0014-places-that-a-dataset-names.md``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace

from glaive.errors import AccessError
from glaive.format.manifest import Manifest
from glaive.format.paths import is_blob_file_name
from glaive.format.wire import check_file_name
from glaive.io.access import AS_OPTION, open_external, open_named
from glaive.io.confined import is_downloaded, is_link, real_path
from glaive.io.failures import as_store_errors
from glaive.io.location import Location
from glaive.io.storage_options import read_switch
from glaive.io.store import ObjectStore
from glaive.table.refs import root_store
from glaive.table.root import BaseLocations, access_of, base_of, place_opened


class ExternalValues:
    """The external blob values of one version.

    Parameters
    ----------
    store, manifest
        The root, and the version.
    places
        Locations of the dataset and of the base paths.
    """

    def __init__(self, store: ObjectStore, manifest: Manifest, places: BaseLocations) -> None:
        self._store = store
        self._manifest = manifest
        self._access = access_of(store)
        self._home: Location | None = None
        self._folders: dict[str, str] = {}
        self._kept: set[tuple[str, ...]] = set()
        self._own = places

    def locate(self, uri: str, source: str) -> tuple[ObjectStore, str]:
        """Return store and path of the object at a URI; make no request.

        Parameters
        ----------
        source
            Origin of the URI, for messages.

        Raises
        ------
        AccessError
            The object is outside the dataset and the locations that the caller named.
        CorruptFileError
            The path leads out of its base.
        OptionError
            The URI is invalid.
        """
        location = Location.parse(uri, f"{source}: ")
        if not location.user:
            above = self._own.above(location)
            if above is not None:
                base_id, base = above
                return self.below_base(base_id, base.below(location), source)
        opened = open_external(self._store, uri, self._access, subject=source)
        place = self._access.listed_place_of(location)
        if place is None:
            return opened
        if location.is_local:
            self._refuse_links(location, [place], source)
        elif location.is_fsspec and place.path and place != location:  # not a whole file system
            self._refuse_any_link(self._opened(place, source), place.below(location), source)
        return opened

    def below_base(self, base_id: int | None, path: str, source: str) -> tuple[ObjectStore, str]:
        """Locate a path below a base path, or below the root (``None``); see :meth:`locate`."""
        path = check_file_name(path, source, self._manifest.where)
        if base_id is None:
            store, base = self._store, self._own[None]
        else:
            store, _ = base_of(self._store, self._manifest, base_id)
            base = place_opened(self._own[base_id], store)
        folder = f"{base.path.rstrip('/')}/" if base.path else ""
        location = replace(base, path=f"{folder}{path}")
        listed = self._access.listed_place_of(location)
        allowed = self._access.allows_external(location)
        if allowed and (listed is None or not (location.is_local or location.is_fsspec)):
            return store, path
        home = self._own[None]
        if not home.contains(location):
            home = self._dataset()
        named = listed, home if home.contains(location) else None, self._access.place_of(location)
        places = [place for place in named if place is not None]
        if not places:
            raise AccessError(
                f"{source} is {location.uri!r}, below base path {base_id} of "
                f"{self._manifest.where}, which is outside of the dataset. It was not fetched. "
                "If it is to be trusted, open the dataset with "
                f"allow_external_blobs=[{base.uri!r}], or base_store_params={{{base.uri!r}: "
                "{...}} with its storage options; allow_external_blobs=True allows all. "
                f"{AS_OPTION}"
            )
        if location.is_local:
            self._refuse_links(location, places, source)
            return store, path
        place = max(places, key=lambda place: len(place.path))  # the base path may be a symlink
        if location.is_fsspec and place.path and place not in (base, location):
            self._refuse_any_link(self._opened(place, source), place.below(location), source)
        else:
            self._refuse_any_link(store, path, source)
        return store, path

    def _opened(self, place: Location, source: str) -> ObjectStore:
        """Return the store of the dataset, or of a location that the caller named."""
        if place == self._own[None]:
            return self._store
        if place == self._home:
            return root_store(self._store, self._manifest.wire.branch or None)
        if self._access.options_for(place) is not None:
            return open_named(self._store, place.uri, self._access, subject=source)
        return open_external(self._store, f"{place.uri}/_", self._access, subject=source)[0]

    def _dataset(self) -> Location:
        """Return the location of the dataset; for a branch its root, which takes a listing."""
        if self._home is None:
            root = root_store(self._store, self._manifest.wire.branch or None)
            self._home = Location.parse(root.uri)
        return self._home

    def _refuse_links(self, location: Location, places: Sequence[Location], source: str) -> None:
        """Refuse a value whose real path is outside the locations that contain its name.

        Checks each folder once for all values.
        """
        path = location.path
        known = (path.rpartition("/")[0], *(place.path for place in places))
        is_plain = not is_link(path)
        if is_plain and known in self._kept:
            return
        real = Location.parse(self._real_path(path))
        within = [Location.parse(self._real_path(place.path)) for place in places]
        kept = any(place.contains(real) or _is_downloaded(place, real) for place in within)
        if kept and is_plain:
            self._kept.add(known)
        if not kept and not self._access.allows_external(real):
            raise AccessError(
                f"{source} is {location.uri!r}, which leads to {real.uri!r} by a link. It was not "
                "fetched. If it is to be trusted, open the dataset with "
                f"allow_external_blobs=[{real.uri!r}], or a location above it. {AS_OPTION}"
            )

    def _refuse_any_link(self, store: ObjectStore, path: str, source: str) -> None:
        """Refuse a symlink below a location that fsspec opens: its target is unknown.

        Checks each folder once for all values, on file systems only.
        """
        known = (store.uri, path.rpartition("/")[0])
        reason = None if known in self._kept else store.link_out(known[1])
        if reason is None:
            self._kept.add(known)
            reason = store.file_link_out(path)
        if reason is not None:
            raise AccessError(f"{source} is {store.full(path)!r}. It was not fetched: {reason}")

    def _real_path(self, path: str) -> str:
        """Resolve the symlinks of a path; follow each folder once for all values."""
        folder, _, name = path.rpartition("/")
        if is_link(path):
            return _real_path(path)
        if folder not in self._folders:
            self._folders[folder] = _real_path(folder or "/")
        return f"{self._folders[folder]}/{name}"


def refuse_link_out(
    home: ObjectStore, branch: str | None, store: ObjectStore, path: str, subject: str
) -> str | None:
    """Refuse a blob file that is a symlink out of the dataset's directory.

    Untrusted directories, such as archives, may contain symlinks to any file of this machine.
    glaive follows only:

    - symlinks into locations that ``allow_external_blobs`` allows;
    - symlinks of a download folder of ``huggingface_hub``;
    - symlinked folders, as only writers use the names of their files;
    - symlinks below a base path, which may be any directory. They must lead to a file with such a
      name, into the dataset, or into a location of the caller.

    It refuses all symlinks that fsspec opens, as fsspec hides their targets, at one request.
    Otherwise it makes one system call; in buckets it does nothing.

    Parameters
    ----------
    home, branch
        The root of the branch to read, and its name.
    store
        The root or the base path with the file.

    Returns
    -------
    str or None
        Why copies omit the file, for allowed symlinks out of the directory.

    Raises
    ------
    AccessError
        The file is another symlink out of the directory.
    """
    reason = link_to_others(home, branch, store, path)
    if reason is None:
        return None
    if not store.is_local:
        raise AccessError(f"{subject}: {store.full(path)} was not read: {reason}")
    access = access_of(home)
    real = Location.parse(_real_path(store.full(path)))
    if access.allows_external(real) or _is_downloaded(Location.parse(store.uri), real):
        return reason
    raise AccessError(
        f"{subject}: {store.full(path)} was not read: {reason}. To read what is there, open the "
        f"dataset with allow_external_blobs=[{real.uri!r}], or a location above it. {AS_OPTION}"
    )


def link_to_others(
    home: ObjectStore, branch: str | None, store: ObjectStore, path: str
) -> str | None:
    """Return why a file may be foreign: it is a symlink out of the root, or below a base path.

    Returns ``None`` for other files. :func:`refuse_link_out` explains the arguments.
    """
    reason = store.file_link_out(path)
    if reason is None and store.is_local and store.uri != home.uri and store.is_link(path):
        reason = _foreign_target(home, branch, store.full(path))
    return reason


def _foreign_target(home: ObjectStore, branch: str | None, full: str) -> str | None:
    """Return why a symlink within a base path may lead to a foreign file."""
    real = Location.parse(_real_path(full))
    name = real.path.rpartition("/")[2]
    if is_blob_file_name(name) or read_switch(home.options, "delete_through_links"):
        return None
    own = Location.parse(_real_path(root_store(home, branch).uri))
    if own.contains(real) or access_of(home).place_of(real) is not None:
        return None
    return f"it is a link to {real.uri}, which is no file of blobs, and not in the dataset"


def _is_downloaded(home: Location, real: Location) -> bool:
    return is_downloaded(_real_path(home.path), real.path)


def _real_path(path: str) -> str:
    """Resolve symlinks in a path; a missing path as far as possible.

    Raises
    ------
    StoreError
        The system cannot follow it.
    """
    with as_store_errors(path, "follow"):
        try:
            return real_path(path)
        except FileNotFoundError:
            pass
        try:
            return os.path.realpath(path)
        except RecursionError:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
