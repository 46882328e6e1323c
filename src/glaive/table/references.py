"""Which files a version of a dataset consists of.

Paths are relative to the root of the branch the version is of. Files below a base path belong
to another root and are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from glaive.format.manifest import Manifest
from glaive.format.paths import (
    DATA,
    DELETIONS,
    INDICES,
    TRANSACTIONS,
    VERSIONS,
    blob_folder,
    data_file_path,
    deletion_file_path,
    transaction_path,
)

__all__ = ["FOLDERS", "FileKind", "FileSet", "kind_of"]

FileKind = Literal["manifest", "data", "deletion", "transaction", "index"]

FOLDERS: dict[str, FileKind] = {
    DATA: "data",
    DELETIONS: "deletion",
    INDICES: "index",
    TRANSACTIONS: "transaction",
    VERSIONS: "manifest",
}
"""What the folders of a dataset hold."""


@dataclass(slots=True)
class FileSet:
    """Files that some versions consist of.

    Parameters
    ----------
    paths
        Data, deletion and transaction files.
    folders
        Folders all files of which belong to them: those of blobs and of indices.
    """

    paths: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, manifests: Iterable[Manifest]) -> FileSet:
        """The files of all of these versions."""
        found = cls()
        for manifest in manifests:
            found.add(manifest)
        return found

    def add(self, manifest: Manifest) -> None:
        """Add the files of a version."""
        wire = manifest.wire
        if wire.transaction_file:
            self.paths.add(transaction_path(wire.transaction_file))
        for fragment in map(manifest.fragment_wire, range(manifest.num_fragments)):
            for file in fragment.files:
                if not file.HasField("base_id"):
                    self.paths.add(data_file_path(file.path))
                    self.folders.add(data_file_path(blob_folder(file.path)))
            if fragment.HasField("deletion_file"):
                gone = fragment.deletion_file
                if not gone.HasField("base_id"):
                    bitmap = bool(gone.file_type)
                    self.paths.add(
                        deletion_file_path(fragment.id, gone.read_version, gone.id, bitmap=bitmap)
                    )
        for index in manifest.indices:
            if not index.HasField("base_id"):
                self.folders.add(f"{INDICES}/{UUID(bytes=index.uuid.uuid)}")

    def __contains__(self, path: str) -> bool:
        if path in self.paths:
            return True
        parts = path.split("/")
        return len(parts) > 2 and "/".join(parts[:2]) in self.folders


def kind_of(path: str) -> FileKind | None:
    """What a file is, by its name; ``None`` if it is none of a dataset's.

    Unfinished files, which a writer left behind, are of the kind they would have become.
    """
    folder, _, name = path.partition("/")
    kind = FOLDERS.get(folder)
    if kind is None or not name:
        return None
    last = name.rpartition("/")[2]
    if last.endswith(".tmp") and last.startswith("."):
        return kind
    nested = "/" in name
    match kind:
        case "data":
            known = name.endswith(".blob") if nested else name.endswith(".lance")
        case "deletion":
            known = not nested and name.endswith((".arrow", ".bin"))
        case "transaction":
            known = not nested and name.endswith(".txn")
        case "index":
            known = nested
        case "manifest":
            known = not nested and (".manifest-" in name or ".manifest#" in name)
    return kind if known else None
