"""Delete: fragments with new deletion files, and fragments that are gone.

Specification: "Delete" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from glaive.format.fragment import DeletionFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.concurrent_changes import changes_columns, conflict_on, overlap, unknown
from glaive.table.fragment_ids import copy_of, edit_fragments, final_fragments
from glaive.table.merge_deletions import rebase_deletions, shared_deletions
from glaive.table.protocol import (
    CommitOptions,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    needs_dataset,
)
from glaive.table.registry import operation

__all__ = ["Delete"]

_COMPATIBLE = frozenset(
    {
        "append",
        "create_index",
        "project",
        "reserve_fragments",
        "update_config",
        "update_bases",
    }
)


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(TableOperation):
    """Delete rows.

    Parameters
    ----------
    updated
        Fragments some rows of which are deleted, with their new deletion files.
    removed
        Ids of the fragments of which no row is left.
    predicate
        What was deleted, as the user wrote it.
    affected
        Rows this operation deletes by fragment, those deleted before it left out. With them
        it goes together with other deletions of the same fragments; not part of the message.
    united
        Deleted rows of fragments whose files must be written before the commit.
    """

    wire_name: ClassVar[str] = "delete"

    updated: tuple[Fragment, ...] = ()
    removed: tuple[int, ...] = ()
    predicate: str = ""
    affected: Mapping[int, Offsets] = field(default_factory=dict, hash=False, compare=False)
    united: Mapping[int, Offsets] = field(default_factory=dict, hash=False, compare=False)

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Delete) -> Self:
        """Read the wire message."""
        return cls(
            updated=tuple(map(Fragment.from_wire, message.updated_fragments)),
            removed=tuple(message.deleted_fragment_ids),
            predicate=message.predicate,
        )

    def to_wire(self) -> Any:
        """Make the wire message."""
        return table_pb2.Transaction.Delete(
            updated_fragments=[one.to_wire() for one in self.updated],
            deleted_fragment_ids=self.removed,
            predicate=self.predicate,
        )

    @property
    def deletions(self) -> Sequence[tuple[int, DeletionFile, Offsets]]:
        """Fragments whose deletion files are to be written before the version, and the rows."""
        return [
            (one.id, one.deletion_file, self.united[one.id])
            for one in self.updated
            if one.deletion_file is not None and one.id in self.united
        ]

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts on the same fragments, but for deletions of other rows of them."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in ("delete", "update") and not changes_columns(theirs):
            mine = [*(one.id for one in self.updated), *self.removed]
            if self.shared(theirs):
                return None
            return overlap(mine, theirs, f"{name} deleted rows of")
        if name in ("update", "rewrite", "data_replacement"):
            mine = [*(one.id for one in self.updated), *self.removed]
            return overlap(mine, theirs, f"{name} changed")
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        if name in ("overwrite", "restore"):
            return conflict_on(theirs, "replaced the rows that were to be deleted")
        return unknown(theirs)

    def shared(self, theirs: Operation) -> frozenset[int]:
        """Fragments of which both delete rows, if this can be told apart."""
        mine = frozenset([*(one.id for one in self.updated), *self.removed])
        return shared_deletions(mine, frozenset(self.removed), self.affected, theirs)

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Delete the rows of both from the fragments both deleted rows of."""
        return rebase_deletions(self, base, deleted)

    def apply(
        self,
        base: Manifest | None,
        version: int,
        options: CommitOptions,
        older: Manifest | None = None,
    ) -> Draft:
        """The fragments of ``base`` with the new deletion files, without those that are gone."""
        base = needs_dataset(base, "rows are to be deleted")
        wire = copy_of(base)
        replaced = final_fragments(base, self.updated)
        kept = edit_fragments(base, wire, replaced=replaced, removed=self.removed)
        return Draft(wire, base.index_section, kept)
