"""Append: new fragments beside those there are.

Specification: "Append" in ``docs/format``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from glaive.errors import DatasetNotFoundError
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.assign import add_fragments, mark_file_versions
from glaive.table.protocol import CommitOptions, Draft
from glaive.table.registry import operation

__all__ = ["Append"]

_COMPATIBLE = frozenset(
    {
        "append",
        "delete",
        "create_index",
        "rewrite",
        "reserve_fragments",
        "update",
        "update_config",
        "data_replacement",
        "update_bases",
        "data_overlay",
    }
)
_SCHEMA_CHANGES = frozenset({"merge", "project"})
"""Compatible unless they may have made a column refuse nulls."""


@operation
@dataclass(frozen=True, slots=True)
class Append:
    """Add fragments; those with id 0 are given one by the commit."""

    wire_name: ClassVar[str] = "append"

    fragments: tuple[Fragment, ...]

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Append) -> Self:
        """Read the wire message."""
        return cls(tuple(map(Fragment.from_wire, message.fragments)))

    def to_wire(self) -> Any:
        """Make the wire message."""
        return table_pb2.Transaction.Append(fragments=[one.to_wire() for one in self.fragments])

    def conflict(self, theirs: Operation) -> str | None:
        """Replacing everything and unknown changes conflict; the rest goes together."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in _SCHEMA_CHANGES:
            if theirs.to_wire().preserves_nullability:
                return None
            return f"{name} may have made a column refuse nulls"
        return f"{name or 'an unknown operation'} changed what the new rows were written for"

    def rebase(self, theirs: Operation, base: Manifest) -> Self:
        """Nothing to do: ids are given when the operation is applied."""
        return self

    def apply(self, base: Manifest | None, version: int, options: CommitOptions) -> Draft:
        """The fragments of ``base``, then the new ones."""
        if base is None:
            raise DatasetNotFoundError(
                "rows are to be appended, but there is no dataset to append to. Create it first."
            )
        wire = table_pb2.Manifest()
        wire.CopyFrom(base.wire)
        mark_file_versions(wire, self.fragments, base.data_format)
        add_fragments(wire, self.fragments, version, keep_ids=True)
        return Draft(wire, base.index_section, kept=base.num_fragments)
