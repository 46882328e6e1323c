"""The files of a version of a dataset."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any, Final, Literal, Self, overload
from uuid import UUID

import pyarrow as pa

from glaive.arrow.conditions import constants
from glaive.dataclass import NamedTuple, dataclass
from glaive.format import paths as names
from glaive.format.manifest import Manifest
from glaive.format.paths import (
    DATA,
    DELETIONS,
    HINT,
    INDICES,
    REFS,
    TRANSACTIONS,
    VERSIONS,
    blob_folder,
    data_file_path,
    deletion_file_path,
    parse_manifest_name,
    transaction_path,
)
from glaive.io.local_sink import final_name, is_others_temporary
from glaive.io.store import ObjectMeta
from glaive.process import now

FileKind = Literal["manifest", "data", "deletion", "transaction", "index", "ref"]

FOLDERS: dict[str, FileKind] = {
    DATA: "data",
    DELETIONS: "deletion",
    INDICES: "index",
    TRANSACTIONS: "transaction",
    VERSIONS: "manifest",
    REFS: "ref",
}
"""Kind of files by folder of a dataset."""


class VersionFile(NamedTuple):
    """A file of a version, or a folder whose files all belong to the version.

    Parameters
    ----------
    path
        Path below the root of the dataset that wrote the file.
    base_id
        Id of the file's base path; ``None`` for the root of the version's own branch.
    """

    kind: FileKind
    path: str
    base_id: int | None
    is_folder: bool = False


def files_of(manifest: Manifest) -> Iterator[VersionFile]:
    """Yield the files of a version, except its manifest; blobs and indices are folders.

    A file that several fragments share is repeated.
    """
    wire = manifest.wire
    if wire.transaction_file:
        yield VersionFile("transaction", transaction_path(wire.transaction_file), None)
    yield from fragment_files(manifest, range(manifest.num_fragments))
    yield from index_folders(manifest)


def fragment_files(manifest: Manifest, positions: Iterable[int]) -> Iterator[VersionFile]:
    """Yield the files of the fragments at some positions. Folders of blobs are yielded as one."""
    for fragment in map(manifest.fragment_wire, positions):
        for file in fragment.files:
            base = file.base_id if file.HasField("base_id") else None
            yield VersionFile("data", data_file_path(file.path), base)
            yield VersionFile("data", data_file_path(blob_folder(file.path)), base, is_folder=True)
        if fragment.HasField("deletion_file"):
            deletions = fragment.deletion_file
            path = deletion_file_path(
                fragment.id, deletions.read_version, deletions.id, bitmap=bool(deletions.file_type)
            )
            base = deletions.base_id if deletions.HasField("base_id") else None
            yield VersionFile("deletion", path, base)


def index_folders(manifest: Manifest) -> Iterator[VersionFile]:
    """Yield the folders of index segments, in the order of the manifest."""
    for index in manifest.indices:
        base = index.base_id if index.HasField("base_id") else None
        folder = f"{INDICES}/{UUID(bytes=index.uuid.uuid)}"
        yield VersionFile("index", folder, base, is_folder=True)


@dataclass(slots=True)
class FileSet:
    """The files of some versions, by their names below the root of their branch.

    Files below base paths have only the names there as well, because a base path may be this root
    under any name. Memory: about 220 bytes for each file.

    Parameters
    ----------
    paths
        Data, deletion and transaction files, and folders of indices.
    """

    paths: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, manifests: Iterable[Manifest]) -> FileSet:
        """Collect the files of all these versions, also the files below base paths."""
        files = cls()
        for manifest in manifests:
            files.add(files_of(manifest))
        return files

    def add(self, files: Iterable[VersionFile], *, bases: bool = True) -> None:
        """Add files; ``bases`` includes files outside the root of their version's branch."""
        for reference in files:
            if reference.base_id is not None and not bases:
                continue
            if not reference.is_folder or reference.kind == "index":
                self.paths.add(reference.path)
            # Folders of blobs have the names of data files.

    def __contains__(self, path: str) -> bool:
        if path in self.paths:
            return True
        parts = path.split("/")
        return len(parts) > 2 and self.has_folder("/".join(parts[:2]))

    def has_folder(self, path: str) -> bool:
        """Return whether a folder belongs to these versions: blobs or an index, with all files."""
        if f"{path}.lance" in self.paths:  # see blob_folder
            return True
        return path in self.paths and not path.endswith(".lance")


def is_own_folder(path: str) -> bool:
    """Return whether a folder has a name that blobs or index segments may have."""
    folder, _, name = path.partition("/")
    if folder == DATA:
        return names.is_generated_data_file_name(f"{name}.lance")
    return folder == INDICES and names.is_index_folder_name(name)


def kind_of(path: str, *, named: bool = False) -> FileKind | None:
    """Return the kind of a file by its name; ``None`` for foreign files.

    Temporary files of interrupted writers have the kind of their final name. Temporary files of
    pylance have names of their own, so they have the kind of their folder. A file that a version
    uses (``named``) may have any valid name. Otherwise only names that writers generate count.
    """
    folder, _, rest = path.partition("/")
    kind = FOLDERS.get(folder)
    *above, name = rest.split("/")
    final = final_name(name)
    if final is not None:
        name, named = final, True
    within = above[0] if len(above) == 1 else None
    others = is_others_temporary(name)
    match kind:
        case "data":
            is_data = names.is_data_file_name if named else names.is_generated_data_file_name
            blob = within is not None and is_data(f"{within}.lance")
            known = (blob and names.is_blob_file_name(name)) or (
                not above and (is_data(name) or others)
            )
        case "deletion":
            known = not above and (names.is_deletion_file_name(name) or others)
        case "transaction":
            known = not above and (names.is_transaction_file_name(name) or others)
        case "index":
            segment = within is not None and names.is_index_folder_name(within)
            known = segment and (names.is_index_file_name(name) or others)
        case "manifest":
            # Manifests with their final name are versions, which are not judged by name alone.
            # Other files are the hint under its temporary names, and staged manifests.
            temporary = final is not None and (
                parse_manifest_name(name) is not None or f"{folder}/{name}" == HINT
            )
            known = not above and (temporary or others or names.is_staged_manifest_name(name))
        case "ref":
            # Tags and branches stay; only files that their interrupted writers left are cleaned up.
            temporary = final is not None and names.is_ref_name(name)
            unfinished = names.is_unfinished_ref_name(name)
            known = above in (["tags"], ["branches"]) and (temporary or others or unfinished)
        case None:
            known = False
    return kind if known else None


# --- The files that a clean-up found, as an Arrow table and as values -------------------

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "path": pa.string(),
    "kind": pa.string(),
    "size_in_bytes": pa.int64(),
    "unverified": pa.bool_(),
    "unfinished": pa.bool_(),
    "drawn": pa.bool_(),
}
_FILES: Final = pa.schema(_COLUMNS)


class CleanupFile(NamedTuple):
    """A file to delete; ``unverified`` if no known version has used it.

    ``unfinished`` is an empty manifest, which is deleted only if it is still empty at that time.
    The name of a ``drawn`` file is random, so no other file will have this name.
    """

    path: str
    kind: FileKind
    size: int
    unverified: bool
    unfinished: bool = False
    drawn: bool = False


class FoundFiles(Sequence[CleanupFile]):
    """A sequence of files, stored as a table; each value is made on access.

    Parameters
    ----------
    table
        A row for each file, with the columns of :class:`CleanupFile`.
    """

    __slots__ = ("table",)

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @classmethod
    def of(cls, files: Iterable[CleanupFile]) -> Self:
        """Collect these files."""
        columns = list(zip(*files, strict=True)) or [()] * len(_FILES)
        arrays = list(map(constants, columns, _FILES.types))
        return cls(pa.Table.from_arrays(arrays, schema=_FILES))

    @classmethod
    def joined(cls, parts: Iterable[FoundFiles]) -> Self:
        """Concatenate the files of several parts."""
        return cls(pa.concat_tables([cls.of(()).table, *(part.table for part in parts)]))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        sizes: Any = self.table["size_in_bytes"].to_pylist()
        return sum(sizes)

    def count_of(self, kind: FileKind) -> int:
        """Count the files of a kind."""
        return self.table["kind"].to_pylist().count(kind)

    def without(self, paths: FileSet | Container[str]) -> FoundFiles:
        """Return the files that are not among these paths."""
        kept = constants([file.path not in paths for file in self], pa.bool_())
        return FoundFiles(self.table.filter(kept))

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[CleanupFile]:
        for batch in self.table.to_batches(1000):
            columns: Any = [column.to_pylist() for column in batch.columns]
            yield from map(CleanupFile, *columns)

    @overload
    def __getitem__(self, at: int) -> CleanupFile: ...
    @overload
    def __getitem__(self, at: slice) -> FoundFiles: ...
    def __getitem__(self, at: int | slice) -> CleanupFile | FoundFiles:
        chosen = range(len(self))[at]
        if isinstance(chosen, int):
            return next(iter(FoundFiles(self.table.slice(chosen, 1))))
        return FoundFiles(self.table.slice(chosen.start, len(chosen)))

    def __repr__(self) -> str:
        return f"FoundFiles(<{len(self)} files>)"


# --- Unused files: how long clean-ups keep them, and others may use them ----------------
# They may belong to a writer that is about to commit. When a job runs again, it uses the files that
# an earlier run finished.

UNVERIFIED_AGE: Final = timedelta(days=7)
"""Age until which an unused file may belong to an active writer."""


def can_be_committed(meta: ObjectMeta) -> bool:
    """Return whether a file can still be committed before a clean-up may delete it.

    This is the case for half of :data:`UNVERIFIED_AGE`.
    """
    return meta.modified is None or now() - meta.modified < UNVERIFIED_AGE / 2
