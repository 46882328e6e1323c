"""Compare the files of a version with their checksums."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import numpy as np

from glaive.file.comparison import compare_file
from glaive.format.paths import INDICES, index_file_path
from glaive.io.checksums import checksum_function
from glaive.io.store import ObjectStore
from glaive.scan.snapshot import Snapshot
from glaive.table.bases import locate_data_file
from glaive.table.deletions import load_deletions
from glaive.table.load import load_numbered

__all__ = ["compare_checksums"]


def compare_checksums(snapshot: Snapshot, compared: set[str]) -> int:
    """Read all files of a version that have checksums, and compare them: its manifest, too.

    Parameters
    ----------
    compared
        Data and index files that were compared before and are left out; those that are compared
        now are added.

    Returns
    -------
    int
        Bytes of data and index files that were compared.

    Raises
    ------
    CorruptFileError
        A file differs; the message says which one, and which column and page of it.
    DataFileMissingError
        A file is missing.
    """
    if checksum_function() is None:  # files have checksums, and nobody can compare them
        return 0
    manifest = snapshot.manifest
    load_numbered(snapshot.store, manifest.version, manifest.scheme, verify=True)
    for position in np.flatnonzero(manifest.deleted_rows).tolist():
        load_deletions(snapshot.store, manifest, manifest.fragment(position), verify=True)
    total = 0
    for store, path, size in _files(snapshot):
        full = store.full(path)
        if full not in compared:
            total += compare_file(store, path, size=size) or 0
            compared.add(full)
    return total


def _files(snapshot: Snapshot) -> Iterator[tuple[ObjectStore, str, int | None]]:
    manifest = snapshot.manifest
    for position in range(len(manifest.fragment_ids)):
        for file in manifest.fragment(position).files:
            store, path = locate_data_file(snapshot.store, manifest, file)
            yield store, path, file.size
    for index in manifest.indices:
        if index.HasField("base_id"):
            continue
        folder = f"{INDICES}/{UUID(bytes=index.uuid.uuid)}"
        for part in index.files:
            if part.path.endswith((".lance", ".idx")):
                yield snapshot.store, index_file_path(folder, part.path, where=manifest.where), None
