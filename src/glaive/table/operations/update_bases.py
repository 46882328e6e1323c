"""Update bases: add base paths, other locations of files of the dataset.

Specification: "Base paths" in ``docs/format``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.fragment_ids import copy_of
from glaive.table.protocol import (
    BuildContext,
    Conflict,
    Draft,
    TableOperation,
    incompatible,
    needs_dataset,
    operation,
)

_INCOMPATIBLE = frozenset({None, "clone", "data_overlay", "update_bases", "update_mem_wal_state"})


@operation
@dataclass(frozen=True, slots=True)
class UpdateBases(TableOperation):
    """Add base paths, in wire format; the commit assigns ids to those with id 0."""

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
        """Conflicts only on the same base path."""
        name = theirs.wire_name
        if name not in _INCOMPATIBLE:
            return None
        if name != "update_bases":
            return incompatible(theirs)
        for other in theirs.to_wire().new_bases:
            same = _same(self.new, other)
            if same is not None:
                return Conflict(f"both add a base path with {same}", retryable=False)
        return None

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """``base`` with additional base paths.

        Raises
        ------
        OptionError
            A base path with this id, name or path exists already.
        """
        base = needs_dataset(base, "add base paths")
        wire = copy_of(base)
        for new in self.new:
            same = _same(wire.base_paths, new)
            if same is not None:
                raise OptionError(f"{base.where} already has a base path with {same}")
            added = wire.base_paths.add()
            added.CopyFrom(new)
            if not added.id:
                taken = {other.id for other in wire.base_paths}
                added.id = next(
                    number for number in range(1, len(taken) + 2) if number not in taken
                )
        return Draft(wire, base.index_section, base.num_fragments)


def _same(bases: Any, new: table_pb2.BasePath) -> str | None:
    for other in bases:
        if new.id and other.id == new.id:
            return f"id {new.id}"
        if new.name and other.name == new.name:
            return f"name {new.name!r}"
        if other.path == new.path:
            return f"path {new.path!r}"
    return None
