"""Deleted rows of fragments: load them, and write new deletion files.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.buffers import ascending
from glaive.entropy import random_bytes
from glaive.errors import CorruptFileError, DataFileMissingError, ObjectNotFoundError
from glaive.events import FILES, emit
from glaive.format.deletions import (
    BITMAP_FROM,
    DeletedRuns,
    decode_deletions,
    decode_runs,
    encode_deletions,
)
from glaive.format.fragment import DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import deletion_file_path
from glaive.io.checksums import Expected, check, compares_metadata
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_in_base
from glaive.table.checksums import checksum_of_metadata
from glaive.types import Where

__all__ = ["add_deletions", "load_deleted_runs", "load_deletions", "put_deletions"]

T = TypeVar("T")


def load_deletions(
    store: ObjectStore, manifest: Manifest, fragment: Fragment
) -> NDArray[np.uint32]:
    """Deleted offsets of a fragment, ascending. At most one request.

    Raises
    ------
    DataFileMissingError
        The deletion file is missing.
    CorruptFileError, UnsupportedFeatureError
        As for :func:`glaive.format.deletions.decode_deletions`, or its checksum differs.
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, np.uint32)
    return _load(store, manifest, fragment, file, decode_deletions)


def load_deleted_runs(
    store: ObjectStore, manifest: Manifest, fragment: Fragment, *, verify: bool = False
) -> DeletedRuns:
    """Deleted offsets of a fragment as runs, however many there are. At most one request.

    With ``verify`` the file is compared with its checksum also where reads do not. Errors are
    those of :func:`load_deletions`, which lists them.
    """
    file = fragment.deletion_file
    if file is None:
        return DeletedRuns.of(np.empty(0, np.uint32))
    return _load(store, manifest, fragment, file, decode_runs, verify=verify)


def _load(
    store: ObjectStore,
    manifest: Manifest,
    fragment: Fragment,
    file: DeletionFile,
    decode: Callable[..., T],
    *,
    verify: bool = False,
) -> T:
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
    if file.checksum is not None and (verify or compares_metadata(base_store)):
        check(Expected(file.checksum, "checksum of a deletion file", Where(where)), data)
    rows = fragment.physical_rows
    return decode(data, bitmap=file.bitmap, rows=rows, count=file.rows, where=where)


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
    wanted = ascending(offsets)
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
    bitmap = len(all_deleted) >= BITMAP_FROM
    content = encode_deletions(all_deleted, bitmap=bitmap)
    function = checksum_of_metadata(store, manifest.wire)
    file = DeletionFile(
        bitmap=bitmap,
        read_version=manifest.version,
        number=int.from_bytes(random_bytes(8), "little"),
        rows=len(all_deleted),
        checksum=None if function is None else function(content),
    )
    put_deletions(store, fragment.id, file, content)
    return replace(fragment, deletion_file=file), added


def put_deletions(store: ObjectStore, fragment_id: int, file: DeletionFile, content: bytes) -> None:
    """Write a deletion file. One request."""
    path = deletion_file_path(fragment_id, file.read_version, file.number, bitmap=file.bitmap)
    store.put(path, [content])
    emit(FILES, mode="create", type="deletion", path=path)
