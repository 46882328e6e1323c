"""Reserve fragments: ids for a future rewrite.

Specification: "Reserve fragments" in ``docs/format``.
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
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    TableOperation,
    incompatible,
    needs_dataset,
    operation,
)


@operation
@dataclass(frozen=True, slots=True)
class ReserveFragments(TableOperation):
    """Raise the highest fragment id by ``count``; the caller may use the ids in between."""

    wire_name: ClassVar[str] = "reserve_fragments"

    count: int

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.ReserveFragments) -> Self:
        """Read the wire message."""
        return cls(message.num_fragments)

    def to_wire(self) -> Any:
        """Make the wire message."""
        return table_pb2.Transaction.ReserveFragments(num_fragments=self.count)

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts only with replacing the whole dataset."""
        if theirs.wire_name in INCREMENTAL:
            return None
        return incompatible(theirs, replaced="the dataset the ids are for")

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The same version with a higher counter."""
        base = needs_dataset(base, "reserve fragment ids")
        wire = copy_of(base)
        highest = base.max_fragment_id + self.count
        if highest > 2**32 - 1:
            raise OptionError(
                f"{self.count} fragment ids after {base.max_fragment_id}: ids must be below 2^32"
            )
        if highest >= 0:
            wire.max_fragment_id = highest
        return Draft(wire, base.index_section, base.num_fragments)
