"""Update bases: further places where files of the dataset may lie.

Specification: "Base paths" in ``docs/format``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from glaive.errors import OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.concurrent_changes import unknown
from glaive.table.fragment_ids import copy_of
from glaive.table.protocol import CommitOptions, Conflict, Draft, TableOperation, needs_dataset
from glaive.table.registry import operation

__all__ = ["UpdateBases"]

_INCOMPATIBLE = frozenset({None, "clone", "data_overlay", "update_bases", "update_mem_wal_state"})


@operation
@dataclass(frozen=True, slots=True)
class UpdateBases(TableOperation):
    """Register base paths, as on the wire; those with id 0 are given one by the commit."""

    wire_name: ClassVar[str] = "update_bases"

    new: tuple[table_pb2.BasePath, ...]

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.UpdateBases) -> Self:
        """Read the wire message."""
        return cls(tuple(message.new_bases))

    def to_wire(self) -> Any:
        """Make the wire message."""
        return table_pb2.Transaction.UpdateBases(new_bases=self.new)

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts only on the same base."""
        name = theirs.wire_name
        if name not in _INCOMPATIBLE:
            return None
        if name != "update_bases":
            return unknown(theirs)
        for other in theirs.to_wire().new_bases:
            same = _same(self.new, other)
            if same is not None:
                return Conflict(f"both register a base with {same}", retryable=False)
        return None

    def apply(
        self,
        base: Manifest | None,
        version: int,
        options: CommitOptions,
        older: Manifest | None = None,
    ) -> Draft:
        """``base`` with further base paths.

        Raises
        ------
        OptionError
            A base of this id, name or path is there already.
        """
        base = needs_dataset(base, "base paths are to be registered")
        wire = copy_of(base)
        for one in self.new:
            same = _same(wire.base_paths, one)
            if same is not None:
                raise OptionError(f"{base.where} has a base with {same} already")
            added = wire.base_paths.add()
            added.CopyFrom(one)
            if not added.id:
                taken = {other.id for other in wire.base_paths}
                added.id = next(
                    number for number in range(1, len(taken) + 2) if number not in taken
                )
        return Draft(wire, base.index_section, base.num_fragments)


def _same(bases: Any, one: table_pb2.BasePath) -> str | None:
    for other in bases:
        if one.id and other.id == one.id:
            return f"id {one.id}"
        if one.name and other.name == one.name:
            return f"name {one.name!r}"
        if other.path == one.path:
            return f"path {one.path!r}"
    return None
