"""Deleted rows of fragments: load them, and write new deletion files.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glaive.entropy import random_bytes
from glaive.errors import CorruptFileError, DataFileMissingError, ObjectNotFoundError
from glaive.format.deletions import BITMAP_FROM, decode_deletions, encode_deletions
from glaive.format.fragment import DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import deletion_file_path
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_in_base

__all__ = ["add_deletions", "load_deletions", "put_deletions"]


def load_deletions(
    store: ObjectStore, manifest: Manifest, fragment: Fragment
) -> NDArray[np.uint32]:
    """Deleted offsets of a fragment, ascending. At most one request.

    Raises
    ------
    DataFileMissingError
        The deletion file is missing.
    CorruptFileError, UnsupportedFeatureError
        As for :func:`glaive.format.deletions.decode_deletions`.
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, np.uint32)
    path = deletion_file_path(fragment.id, file.read_version, file.number, bitmap=file.bitmap)
    base_store, path = locate_in_base(store, manifest, path, file.base_id)
    where = base_store.full(path)
    try:
        data = base_store.get(path)
    except ObjectNotFoundError:
        raise DataFileMissingError(
            f"the deletion file {where} is missing; version {manifest.version} needs it for "
            f"fragment {fragment.id}. Restore the file, or read another version."
        ) from None
    rows = fragment.physical_rows
    return decode_deletions(data, bitmap=file.bitmap, rows=rows, count=file.rows, where=where)


def add_deletions(
    store: ObjectStore,
    manifest: Manifest,
    fragment: Fragment,
    offsets: NDArray[np.integer],
) -> tuple[Fragment | None, NDArray[np.uint32]]:
    """Delete rows of a fragment: write a file with all deleted rows.

    Parameters
    ----------
    manifest
        The version that was read; part of the file's name.
    offsets
        Physical rows, in any order; repeats and already deleted rows are allowed.

    Returns
    -------
    tuple
        The fragment with its new deletion file, ``None`` if no row remains, unchanged if nothing
        is deleted; and the newly deleted rows, ascending.

    Raises
    ------
    CorruptFileError
        An offset is out of range.
    """
    before = load_deletions(store, manifest, fragment)
    wanted = _ascending(offsets)
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < fragment.physical_rows:
        raise CorruptFileError(
            "rows to delete",
            expected=f"offsets below {fragment.physical_rows}",
            found=f"{wanted[0]} to {wanted[-1]}",
            where=f"fragment {fragment.id} of {manifest.where}",
        )
    added = wanted.astype(np.uint32)
    if len(before):
        added = np.setdiff1d(added, before, assume_unique=True)
    if not len(added):
        return fragment, added
    all_deleted = np.sort(np.concatenate([before, added])) if len(before) else added
    if len(all_deleted) == fragment.physical_rows:
        return None, added
    file = DeletionFile(
        bitmap=len(all_deleted) >= BITMAP_FROM,
        read_version=manifest.version,
        number=int.from_bytes(random_bytes(8), "little"),
        rows=len(all_deleted),
    )
    put_deletions(store, fragment.id, file, all_deleted)
    return replace(fragment, deletion_file=file), added


def _ascending(offsets: NDArray[np.integer]) -> NDArray[np.integer]:
    """Sorted unique offsets. Usually they are sorted, and checking is far cheaper than sorting."""
    return offsets if (offsets[1:] > offsets[:-1]).all() else np.unique(offsets)


def put_deletions(
    store: ObjectStore, fragment_id: int, file: DeletionFile, offsets: NDArray[np.uint32]
) -> None:
    """Write a deletion file; ``offsets`` are ascending. One request."""
    path = deletion_file_path(fragment_id, file.read_version, file.number, bitmap=file.bitmap)
    store.put(path, [encode_deletions(offsets, bitmap=file.bitmap)])
