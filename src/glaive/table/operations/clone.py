"""Clone: the first version of a clone or branch.

It has the number of the source version.

Specification: "Clone" in ``docs/format``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import DatasetExistsError, DatasetNotFoundError
from glaive.format.blobs import has_blobs_v2
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.fragment_ids import copy_of
from glaive.table.index_coverage import encode_indices
from glaive.table.protocol import (
    BuildContext,
    Conflict,
    Draft,
    TableOperation,
    incompatible,
    operation,
)


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Clone(TableOperation):
    """Create a dataset with the contents of another one.

    Parameters
    ----------
    shallow
        Whether to refer to the files of the source; otherwise they have been copied.
    ref_name
        Branch of the source; ``None`` for the main one.
    ref_version
        Version of the source.
    ref_path
        Root of the source.
    branch_name
        Name of the new branch, if it is one.
    """

    wire_name: ClassVar[str] = "clone"

    shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Clone) -> Self:
        """Read the wire message."""
        return cls(
            shallow=message.is_shallow,
            ref_version=message.ref_version,
            ref_path=message.ref_path,
            ref_name=message.ref_name if message.HasField("ref_name") else None,
            branch_name=message.branch_name if message.HasField("branch_name") else None,
        )

    def to_wire(self) -> Any:
        """Make the wire message."""
        return table_pb2.Transaction.Clone(
            is_shallow=self.shallow,
            ref_name=self.ref_name,
            ref_version=self.ref_version,
            ref_path=self.ref_path,
            branch_name=self.branch_name,
        )

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with everything, as it must be the first commit."""
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The source manifest, with a base path for its files.

        Raises
        ------
        DatasetExistsError
            There is a dataset already.
        DatasetNotFoundError
            The source is missing.
        """
        older = context.older
        if base is not None:
            raise DatasetExistsError(f"cannot clone into an existing dataset: {base.where}")
        if older is None:
            raise DatasetNotFoundError(f"the source {self.ref_path} of the clone was not read")
        wire = copy_of(older)
        wire.ClearField("branch")
        if self.branch_name is not None:
            wire.branch = self.branch_name
        if not self.shallow:
            _keep_external(older, wire)
            return _moved(older, wire, None)
        taken = {base_path.id for base_path in wire.base_paths}
        number = next(free for free in range(len(taken) + 1) if free not in taken)
        source = wire.base_paths.add(id=number, is_dataset_root=True, path=self.ref_path)
        if self.ref_name is not None:
            source.name = self.ref_name
        return _moved(older, wire, number)


def _keep_external(older: Manifest, wire: table_pb2.ManifestOutline) -> None:
    """Remove all base paths but those of external blob values, which a copy still refers to."""
    has_blobs = any(map(has_blobs_v2, older.schema.fields))
    kept = [
        base_path
        for base_path in older.wire.base_paths
        if has_blobs and not base_path.is_dataset_root
    ]
    del wire.base_paths[:]
    wire.base_paths.extend(kept)


def _moved(older: Manifest, wire: table_pb2.ManifestOutline, base_id: int | None) -> Draft:
    """The version with its own files at a base path, or with all files in the new dataset."""

    def move(file: Any) -> None:
        if base_id is None:
            file.ClearField("base_id")
        elif not file.HasField("base_id"):
            file.base_id = base_id

    for at in range(older.num_fragments):
        fragment = older.fragment_wire(at)
        for file in fragment.files:
            move(file)
        if fragment.HasField("deletion_file"):
            move(fragment.deletion_file)
        wire.fragments[at] = fragment.SerializeToString()
    entries = []
    for entry in older.indices:
        changed = table_pb2.IndexMetadata()
        changed.CopyFrom(entry)
        move(changed)
        entries.append(changed)
    return Draft(wire, encode_indices(entries))
