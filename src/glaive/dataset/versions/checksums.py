"""Compare the files of a version with their checksums."""

from __future__ import annotations

from uuid import UUID

from glaive.file.comparison import compare_file
from glaive.format.paths import INDICES, index_file_path
from glaive.format.pb import table_pb2
from glaive.io.checksums import checksum_function
from glaive.io.store import ObjectStore
from glaive.scan.snapshot import Snapshot
from glaive.table.bases import locate_data_file
from glaive.table.deletions import load_deleted_runs
from glaive.table.load import load_again

__all__ = ["compare_fragment", "compare_manifest", "compare_segment"]


def compare_manifest(snapshot: Snapshot) -> None:
    """Read the manifest of a version again, and compare it with its checksum, if it has one.

    Raises
    ------
    CorruptFileError
        It differs.
    """
    if checksum_function() is not None:  # otherwise nobody can compare it
        manifest = snapshot.manifest
        load_again(snapshot.store, manifest.version, manifest.scheme, verify=True)


def compare_fragment(snapshot: Snapshot, position: int, compared: set[str]) -> int:
    """Read the files of a fragment that have checksums, and compare them.

    Parameters
    ----------
    compared
        Files that were compared before and are left out; those that are compared now are added.

    Returns
    -------
    int
        Bytes of data files that were compared.

    Raises
    ------
    CorruptFileError
        A file differs; the message says which one, and which column and page of it.
    DataFileMissingError
        A file is missing.
    """
    if checksum_function() is None:
        return 0
    manifest = snapshot.manifest
    fragment = manifest.fragment(position)
    if manifest.deleted_rows[position]:
        load_deleted_runs(snapshot.store, manifest, fragment, verify=True)
    files = [(*locate_data_file(snapshot.store, manifest, one), one.size) for one in fragment.files]
    return sum(_compare_once(store, path, size, compared) for store, path, size in files)


def compare_segment(snapshot: Snapshot, index: table_pb2.IndexMetadata, compared: set[str]) -> int:
    """The same for the files of a segment of an index; of those in other base paths, none."""
    if checksum_function() is None or index.HasField("base_id"):
        return 0
    folder, where = f"{INDICES}/{UUID(bytes=index.uuid.uuid)}", snapshot.manifest.where
    if {part.path for part in index.files} == {"index.idx"}:
        return 0  # a vector index of old releases, in a layout of its own
    parts = [part for part in index.files if part.path.endswith((".lance", ".idx"))]
    files = [(index_file_path(folder, one.path, where=where), one.size_bytes) for one in parts]
    return sum(_compare_once(snapshot.store, *one, compared) for one in files)


def _compare_once(store: ObjectStore, path: str, size: int | None, compared: set[str]) -> int:
    full = store.full(path)
    if full in compared:
        return 0
    count = compare_file(store, path, size=size or None) or 0
    compared.add(full)
    return count
