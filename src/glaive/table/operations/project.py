"""Project: a new schema for the same files; drops or renames columns, or changes nullability.

Specification: "Project" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.configuration import set_columns, with_field_metadata
from glaive.table.fragment_ids import copy_of, drop_dead_files
from glaive.table.index_coverage import encode_indices, keep_relevant
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    Offsets,
    TableOperation,
    incompatible,
    needs_dataset,
    operation,
)

_WITH_VALUES = frozenset({"append", "data_replacement", "update"})
_COMPATIBLE = INCREMENTAL - _WITH_VALUES - {"merge", "project"}


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Project(TableOperation):
    """Replace the schema.

    Parameters
    ----------
    schema
        The remaining columns, with their ids.
    preserves_nullability
        Whether no nullable column becomes non-nullable.
    """

    wire_name: ClassVar[str] = "project"

    schema: LanceSchema
    preserves_nullability: bool = False

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Project) -> Self:
        """Read the wire message."""
        return cls(
            schema=LanceSchema.from_wire(message.schema, {}),
            preserves_nullability=message.preserves_nullability,
        )

    def to_wire(self) -> Any:
        """Make the wire message."""
        return table_pb2.Transaction.Project(
            schema=self.schema.to_wire(), preserves_nullability=self.preserves_nullability
        )

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with other changes of the schema, and with new values that may be null."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in _WITH_VALUES:
            if self.preserves_nullability:
                return None
            return Conflict(f"{name} may have added nulls to a column that becomes non-nullable")
        if name in ("merge", "project"):
            return Conflict(f"{name} changed the schema as well")
        return incompatible(theirs, replaced="the schema that this changes")

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """The schema has fields with the metadata that they had: what others set since is set."""
        schema = self.schema
        for their in theirs:
            if their.wire_name == "update_config":
                schema = with_field_metadata(schema, their.to_wire())
        return self if schema == self.schema else replace(self, schema=schema)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The fragments of ``base`` without files that have no remaining column.

        Raises
        ------
        SchemaError
            A column has the id of one of another type, whose values it would show.
        """
        base = needs_dataset(base, "change columns")
        self._check_types(base)
        wire = copy_of(base)
        set_columns(wire, self.schema, metadata=False)
        live = frozenset(self.schema.field_ids())
        entries = keep_relevant(base.indices, base.schema, live)
        kept = base.num_fragments
        if not frozenset(base.schema.field_ids()) <= live:
            kept = 0
            for at in range(base.num_fragments):
                fragment = base.fragment_wire(at)
                before = len(fragment.files)
                drop_dead_files(fragment, live)
                if len(fragment.files) < before:
                    wire.fragments[at] = fragment.SerializeToString()
        return Draft(wire, encode_indices(entries), kept)

    def _check_types(self, base: Manifest) -> None:
        before = {field.id: field for field in base.schema.walk() if field.id >= 0}
        for field in self.schema.walk():
            known = before.get(field.id, field)
            if known.logical_type != field.logical_type:
                raise SchemaError(
                    f"Project: {field.name!r} of type {field.logical_type} has the id {field.id}, "
                    f"which is {known.name!r} of type {known.logical_type}: values are found by "
                    "ids, which a pyarrow.Schema has from 0 on. Give columns of the dataset, as in "
                    "dataset.lance_schema.project(names)"
                )
