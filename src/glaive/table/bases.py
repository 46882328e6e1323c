"""Where the files of a dataset lie: below its own root, or below a base path it names.

Specification: "Base paths" in ``docs/format``.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from glaive.errors import CorruptFileError, GlaiveError
from glaive.format.fragment import DataFile
from glaive.format.limits import check_file_name
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.io.access import open_named
from glaive.io.store import ObjectStore
from glaive.table.root import access_of

__all__ = [
    "base_of",
    "find_base",
    "full_path",
    "locate_data_file",
    "locate_in_base",
    "open_base",
]

_opened: WeakKeyDictionary[Manifest, dict[int, tuple[ObjectStore, ObjectStore, bool]]]
_opened = WeakKeyDictionary()
"""Base paths that were opened, by manifest and id: for which root, the place, whether a root."""


def locate_data_file(
    store: ObjectStore, manifest: Manifest, file: DataFile
) -> tuple[ObjectStore, str]:
    """Store and path of a data file.

    Raises
    ------
    AccessError
        Its base path is a place that the caller has to allow.
    CorruptFileError
        There is no such base path, or the path leads out of it.
    """
    if file.base_id is None:
        return store, data_file_path(file.path, where=manifest.where)
    base, is_root = base_of(store, manifest, file.base_id)
    if is_root:
        return base, data_file_path(file.path, where=manifest.where)
    return base, check_file_name(file.path, "path of a data file", manifest.where)


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
    """Path or URI of a file for people, given by its path within a dataset; opens nothing.

    ``data`` says that it is a data file, given by its name.
    """
    if base_id is None:
        return store.full(data_file_path(path, where=manifest.where) if data else path)
    base = find_base(manifest, base_id)
    if data and base.is_dataset_root:
        path = data_file_path(path, where=manifest.where)
    return GlaiveError.without_secrets(f"{base.path.rstrip('/')}/{path}")


def base_of(store: ObjectStore, manifest: Manifest, base_id: int) -> tuple[ObjectStore, bool]:
    """The place a base path names, and whether it is the root of a dataset.

    Raises
    ------
    AccessError
        The caller has to allow it.
    CorruptFileError
        The manifest has no such base path.
    """
    known = _opened.get(manifest)
    if known is None:
        known = _opened[manifest] = {}
    found = known.get(base_id)
    if found is None or found[0] is not store:
        base = find_base(manifest, base_id)
        place = open_base(store, base, manifest.where)
        found = known[base_id] = (store, place, base.is_dataset_root)
    return found[1], found[2]


def open_base(store: ObjectStore, base: table_pb2.BasePath, where: str) -> ObjectStore:
    """Open a base path of the dataset at ``store``; errors as those of :func:`base_of`."""
    what = f"base path {base.id} of {where}"
    return open_named(store, base.path, access_of(store), what=what)


def find_base(manifest: Manifest, base_id: int) -> table_pb2.BasePath:
    """The base path of this id.

    Raises
    ------
    CorruptFileError
        The manifest has none.
    """
    for base in manifest.wire.base_paths:
        if base.id == base_id:
            return base
    raise CorruptFileError(
        "base path of a file",
        expected=f"one of {[base.id for base in manifest.wire.base_paths]}",
        found=f"{base_id}",
        where=manifest.where,
    )
