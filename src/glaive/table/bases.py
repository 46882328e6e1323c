"""Where the files of a dataset lie: below its own root, or below a base path it names.

Specification: "Base paths" in ``docs/format``.
"""

from __future__ import annotations

from glaive.errors import CorruptFileError
from glaive.format.fragment import DataFile
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store

__all__ = ["base_of", "locate_data_file", "locate_in_base"]


def locate_data_file(
    store: ObjectStore, manifest: Manifest, file: DataFile
) -> tuple[ObjectStore, str]:
    """Store and path of a data file."""
    if file.base_id is None:
        return store, data_file_path(file.path)
    base, is_root = base_of(store, manifest, file.base_id)
    return base, data_file_path(file.path) if is_root else file.path


def locate_in_base(
    store: ObjectStore, manifest: Manifest, path: str, base_id: int | None
) -> tuple[ObjectStore, str]:
    """Store and path of any other file, given by its path within a dataset."""
    if base_id is None:
        return store, path
    return base_of(store, manifest, base_id)[0], path


def base_of(store: ObjectStore, manifest: Manifest, base_id: int) -> tuple[ObjectStore, bool]:
    """The place a base path names, and whether it is the root of a dataset."""
    for base in manifest.wire.base_paths:
        if base.id == base_id:
            # Places of a dataset are opened with the options that its root was opened with.
            options = getattr(store, "options", None)
            return open_store(base.path, options), base.is_dataset_root
    raise CorruptFileError(
        "base path of a file",
        expected=f"one of {[base.id for base in manifest.wire.base_paths]}",
        found=f"{base_id}",
        where=manifest.where,
    )
