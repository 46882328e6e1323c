"""Locate the files of a dataset: below its root, or below one of its base paths.

Specification: "Base paths" in ``docs/format``.
"""

from __future__ import annotations

from glaive.errors import CorruptFileError, GlaiveError
from glaive.format.fragment import DataFile
from glaive.format.limits import check_ending, check_file_name
from glaive.format.manifest import Manifest
from glaive.format.paths import DATA, data_file_path
from glaive.format.pb import table_pb2
from glaive.io.access import open_named
from glaive.io.location import Location
from glaive.io.store import ObjectStore
from glaive.table.root import access_of

__all__ = [
    "base_of",
    "find_base",
    "full_path",
    "locate_data_file",
    "locate_in_base",
    "open_base",
    "place_opened",
]

_NAMED = 20
"""Ids of base paths in a message, at most."""


def locate_data_file(
    store: ObjectStore, manifest: Manifest, file: DataFile
) -> tuple[ObjectStore, str]:
    """Store and path of a data file, which must not lead out; errors as for :func:`base_of`."""
    name = check_file_name(file.path, "path of a data file", manifest.where)
    # Base paths, and links in the place of folders, may lead anywhere on this machine.
    check_ending(name, ".lance", "path of a data file", manifest.where)
    if file.base_id is None:
        return store, f"{DATA}/{name}"
    base, is_root = base_of(store, manifest, file.base_id)
    return base, f"{DATA}/{name}" if is_root else name


def locate_in_base(
    store: ObjectStore, manifest: Manifest, path: str, base_id: int | None
) -> tuple[ObjectStore, str]:
    """Store and path of any other file, given by its path within a dataset."""
    if base_id is None:
        return store, path
    return base_of(store, manifest, base_id)[0], path


def full_path(
    store: ObjectStore, manifest: Manifest, path: str, base_id: int | None, *, data: bool = False
) -> str:
    """Path or URI of a file for display, from its path within a dataset; opens nothing.

    With ``data``, ``path`` is the name of a data file.
    """
    if base_id is None:
        return store.full(data_file_path(path, where=manifest.where) if data else path)
    base = find_base(manifest, base_id)
    if data and base.is_dataset_root:
        path = data_file_path(path, where=manifest.where)
    return GlaiveError.without_secrets(f"{base.path.rstrip('/')}/{path}")


def base_of(store: ObjectStore, manifest: Manifest, base_id: int) -> tuple[ObjectStore, bool]:
    """The store of a base path, and whether it is a dataset root.

    Raises
    ------
    AccessError
        The caller has not allowed it.
    CorruptFileError
        The manifest has no such base path.
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
    """Where a base path was opened: a relative one, perhaps, in another working directory."""
    moved = location.is_local and location.path != opened.uri
    return Location.parse(opened.uri) if moved else location


def find_base(manifest: Manifest, base_id: int) -> table_pb2.BasePath:
    """The base path with this id.

    Raises
    ------
    CorruptFileError
        There is none.
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
