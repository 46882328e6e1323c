"""Merge: a new schema, with new columns for all fragments.

Specification: "Merge" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList, encode_lists, messages_of
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.columns import set_columns
from glaive.table.concurrent_changes import conflict_on, incompatible, sets_metadata
from glaive.table.fragment_ids import (
    copy_of,
    mark_changed,
    mark_file_versions,
    new_fragments,
    put_fragments,
)
from glaive.table.index_coverage import encode_indices, keep_relevant
from glaive.table.protocol import BuildContext, Conflict, Draft, TableOperation, needs_dataset
from glaive.table.registry import operation

__all__ = ["Merge"]

_COMPATIBLE = frozenset({"create_index", "reserve_fragments", "update_bases"})
_RETRYABLE = frozenset({"append", "delete", "rewrite", "merge", "update", "data_replacement"})


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(TableOperation):
    """Replace the schema, and all fragments by ones with files for the new columns.

    Parameters
    ----------
    fragments
        All fragments of the new version.
    schema
        All columns of the new version.
    preserves_nullability
        Whether no nullable column becomes non-nullable.
    """

    wire_name: ClassVar[str] = "merge"

    fragments: Sequence[Fragment]
    schema: LanceSchema
    preserves_nullability: bool = False

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Merge) -> Self:
        """Read the wire message."""
        return cls(
            fragments=tuple(map(Fragment.from_wire, message.fragments)),
            schema=LanceSchema.from_wire(message.schema, message.schema_metadata),
            preserves_nullability=message.preserves_nullability,
        )

    def encode(self) -> list[bytes]:
        """Parts of the wire message."""
        rest = table_pb2.Transaction.Merge(
            schema=self.schema.to_wire(),
            schema_metadata=self.schema.metadata,
            preserves_nullability=self.preserves_nullability,
        )
        return [encode_lists(self.fragments), rest.SerializeToString()]

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with all changes of rows, fragments or the schema."""
        name = theirs.wire_name
        if name in _COMPATIBLE:
            return None
        if name in _RETRYABLE:
            return Conflict(f"{name} changed the fragments to which this adds columns")
        if name == "update_config":
            if sets_metadata(theirs):
                return Conflict("update_config changed metadata of the schema")
            return None
        if name in ("overwrite", "restore", "project"):
            return conflict_on(theirs, "replaced the schema that this changes")
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The schema and the fragments of the operation.

        Raises
        ------
        OptionError
            There are fewer fragments than before.
        """
        base = needs_dataset(base, "add columns")
        if len(self.fragments) < base.num_fragments:
            raise OptionError(
                f"Merge operation reduced fragment count from {base.num_fragments} to "
                f"{len(self.fragments)}: it lists all fragments of the new version, so that the "
                "rows of the others would be lost. Add these, changed or not."
            )
        wire = copy_of(base)
        set_columns(wire, self.schema, metadata=bool(self.schema.metadata))
        mark_file_versions(wire, self.fragments, base.data_format)
        made = FragmentList.of(self.fragments)
        if base.uses(Feature.STABLE_ROW_IDS) and base.num_fragments:
            made = FragmentList(self._with_lineage(base, wire, context.version))
        put_fragments(wire, made)
        entries = keep_relevant(base.indices, self.schema.field_ids())
        return Draft(wire, encode_indices(entries))

    def _with_lineage(
        self, base: Manifest, wire: table_pb2.ManifestOutline, version: int
    ) -> Iterator[bytes]:
        """The fragments, with the version in which their rows were last updated."""
        positions = {number: at for at, number in enumerate(base.fragment_ids.tolist())}
        for message in messages_of(self.fragments):
            position = positions.get(message.id)
            if position is None:
                yield from new_fragments(
                    wire, FragmentList([message.SerializeToString()]), version
                ).packed
                continue
            if Fragment.from_wire(message).files != base.fragment(position).files:
                mark_changed(message, version)
            yield message.SerializeToString()
