"""Delete: fragments with new deletion files, and removed fragments.

Specification: "Delete" in ``docs/format``.
"""

from __future__ import annotations

from typing import ClassVar, Self

from glaive.dataclass import dataclass
from glaive.format.fragment import Fragment, encode_lists
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.deletions import DeletingOperation
from glaive.table.fragment_ids import copy_of, edit_fragments, final_fragments
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    changes_columns,
    incompatible,
    needs_dataset,
    operation,
    overlap,
)

_COMPATIBLE = INCREMENTAL - {"data_replacement", "delete", "merge", "rewrite", "update"}


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(DeletingOperation):
    """Delete rows; ``predicate`` is the condition as the user wrote it."""

    wire_name: ClassVar[str] = "delete"

    predicate: str = ""

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Delete) -> Self:
        """Read the wire message."""
        return cls(
            updated=tuple(map(Fragment.from_wire, message.updated_fragments)),
            removed=tuple(message.deleted_fragment_ids),
            predicate=message.predicate,
        )

    def encode(self) -> list[bytes]:
        """Parts of the wire message."""
        rest = table_pb2.Transaction.Delete(
            deleted_fragment_ids=self.removed, predicate=self.predicate
        )
        return [encode_lists(self.updated), rest.SerializeToString()]

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts on the same fragments, except deletions of other rows."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in ("delete", "update") and not changes_columns(theirs):
            if self.shared(theirs):
                return None
            return overlap(self.changed_ids, theirs, f"{name} deleted rows of")
        if name in ("update", "rewrite", "data_replacement"):
            return overlap(self.changed_ids, theirs, f"{name} changed")
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        return incompatible(theirs, replaced="the rows that this deletes")

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The fragments of ``base`` with the new deletion files, without removed fragments."""
        base = needs_dataset(base, "delete rows")
        wire = copy_of(base)
        replaced = final_fragments(base, self.updated)
        kept = edit_fragments(base, wire, replaced=replaced, removed=self.removed)
        return Draft(wire, base.index_section, kept)
