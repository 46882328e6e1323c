"""Append: add fragments.

Specification: "Append" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from glaive.dataclass import dataclass
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import encode_lists
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.concurrent_changes import INCREMENTAL, incompatible, makes_non_nullable
from glaive.table.fragment_ids import copy_of, edit_fragments, mark_file_versions, new_fragments
from glaive.table.protocol import (
    BuildContext,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    needs_dataset,
)
from glaive.table.registry import operation

__all__ = ["Append"]

_COMPATIBLE = INCREMENTAL - {"merge", "project"}


@operation
@dataclass(frozen=True, slots=True)
class Append(TableOperation):
    """Add fragments; the commit assigns ids to those with id 0."""

    wire_name: ClassVar[str] = "append"

    fragments: Sequence[Fragment]

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Append) -> Self:
        """Read the wire message."""
        return cls(tuple(map(Fragment.from_wire, message.fragments)))

    def encode(self) -> list[bytes]:
        """Parts of the wire message."""
        return [encode_lists(self.fragments)]

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with new non-nullable columns, and with replacing the whole dataset."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in ("merge", "project"):
            if makes_non_nullable(theirs):
                return Conflict(f"{name} may have made a column non-nullable")
            return None
        return incompatible(theirs, replaced="the dataset the new rows were written for")

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Conflicts with casts of columns of which the new rows have values: they would be null."""
        schemas = [one for one in theirs if one.wire_name in ("merge", "project")]
        files = (file for fragment in self.fragments if schemas for file in fragment.files)
        written = {number for file in files for number in file.fields if number >= 0}
        for their in schemas:
            remaining = written & {field.id for field in their.to_wire().schema}
            if their.wire_name == "merge" and remaining != written:
                lost = min(written - remaining)
                return Conflict(f"merge replaced field {lost}, of which the new rows have values")
            written = remaining
        return self

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The fragments of ``base``, then the new ones."""
        base = needs_dataset(base, "append rows")
        wire = copy_of(base)
        mark_file_versions(wire, self.fragments, base.data_format)
        added = new_fragments(wire, self.fragments, context.version)
        kept = edit_fragments(base, wire, added=added)
        return Draft(wire, base.index_section, kept)
