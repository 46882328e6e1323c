"""Load the deleted rows of a fragment.

Specification: "Deletion files" in ``docs/format``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, DataFileMissingError, ObjectNotFoundError
from glaive.format.deletions import decode_deletions
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import deletion_file_path
from glaive.io.store import ObjectStore
from glaive.table.bases import locate_in_base

__all__ = ["load_deletions"]


def load_deletions(
    store: ObjectStore, manifest: Manifest, fragment: Fragment
) -> NDArray[np.uint32]:
    """Deleted offsets of a fragment, ascending; empty if there are none. One request at most.

    Raises
    ------
    DataFileMissingError
        The manifest names a deletion file that is not there.
    CorruptFileError
        The file cannot be read, or holds another number of rows than the manifest says.
    """
    file = fragment.deletion_file
    if file is None:
        return np.empty(0, np.uint32)
    path = deletion_file_path(fragment.id, file.read_version, file.number, bitmap=file.bitmap)
    place, path = locate_in_base(store, manifest, path, file.base_id)
    where = place.full(path)
    try:
        data = place.get(path)
    except ObjectNotFoundError:
        raise DataFileMissingError(
            f"the deletion file {where} is missing; version {manifest.version} needs it for "
            f"fragment {fragment.id}. Restore the file, or read another version."
        ) from None
    offsets = decode_deletions(data, bitmap=file.bitmap, rows=fragment.physical_rows, where=where)
    if file.rows is not None and len(offsets) != file.rows:
        raise CorruptFileError(
            "deleted rows", expected=f"{file.rows}", found=f"{len(offsets)}", where=where
        )
    return offsets
