"""Restore: make the contents of an old version the newest version.

Specification: "Restore" in ``docs/format``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import UnsupportedFeatureError, VersionNotFoundError
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.fragment_ids import copy_of
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    TableOperation,
    conflict_on,
    incompatible,
    needs_dataset,
    operation,
    sets_metadata,
)

_COMPATIBLE = INCREMENTAL - {"update_config"} | {"overwrite", "restore"}
_PERMANENT = Feature.STABLE_ROW_IDS | Feature.UNIQUE_FIELD_IDS


@operation
@dataclass(frozen=True, slots=True)
class Restore(TableOperation):
    """Go back to the contents of ``version``; later versions stay in the history."""

    wire_name: ClassVar[str] = "restore"

    version: int

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Restore) -> Self:
        """Read the wire message."""
        return cls(message.version)

    def to_wire(self) -> Any:
        """Make the wire message."""
        return table_pb2.Transaction.Restore(version=self.version)

    @property
    def restored(self) -> int | None:
        """The version to restore."""
        return self.version

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts only with metadata changes, which it would silently undo."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name == "update_config":
            if sets_metadata(theirs):
                return conflict_on(theirs, "changed metadata that this would undo")
            return None
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The old manifest; counters never decrease.

        Raises
        ------
        UnsupportedFeatureError
            A permanent feature was enabled since that version.
        CorruptFileError
            The schema of the old version cannot be read, nor could that of the new one.
        """
        base, older = needs_dataset(base, "restore a version"), context.older
        if older is None:
            raise VersionNotFoundError(f"version {self.version} to restore does not exist")
        _ = older.schema
        lost = [flag.name for flag in _PERMANENT if base.uses(flag) and not older.uses(flag)]
        if lost:
            raise UnsupportedFeatureError(
                f"version {self.version} of {older.where} cannot be restored: the dataset has "
                f"{', '.join(str(name).lower() for name in lost)} since then. Read the old "
                "version and overwrite the dataset with its rows instead."
            )
        wire, newest = copy_of(older), base.wire
        if base.max_fragment_id >= 0:
            wire.max_fragment_id = max(wire.max_fragment_id, base.max_fragment_id)
        wire.next_row_id = max(wire.next_row_id, newest.next_row_id)
        if newest.HasField("max_allocated_field_id"):
            highest = max(wire.max_allocated_field_id, newest.max_allocated_field_id)
            wire.max_allocated_field_id = highest
        mixed = newest.reader_feature_flags & int(Feature.MIXED_FILE_VERSIONS)
        wire.reader_feature_flags |= mixed
        wire.writer_feature_flags |= mixed
        return Draft(wire, older.index_section)


@dataclass(frozen=True, slots=True)
class RestoreOverLooked(Restore):
    """The same, if nobody has committed since the version that the caller looked at."""

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with everything, as it would be undone without having been looked at."""
        return Conflict("its changes would be undone, and were not looked at")
