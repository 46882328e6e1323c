"""Update config: configuration, and metadata of the table, its schema and its fields.

Specification: "Update config" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from glaive.dataclass import dataclass
from glaive.errors import NotFoundError, OptionError
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.configuration import (
    changed_config,
    fill_map,
    same_keys,
    set_columns,
    set_entries,
    with_field_metadata,
)
from glaive.table.fragment_ids import copy_of
from glaive.table.named_jobs import is_mark
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


@operation
@dataclass(frozen=True, slots=True)
class UpdateConfig(TableOperation):
    """Set and remove entries, as listed in its message."""

    wire_name: ClassVar[str] = "update_config"
    compatible = INCREMENTAL - {"merge", "update_config"}

    message: table_pb2.Transaction.UpdateConfig

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.UpdateConfig) -> Self:
        """Read the wire message."""
        return cls(message)

    @classmethod
    def of(
        cls,
        *,
        config: Mapping[str, str | None] | None = None,
        table_metadata: Mapping[str, str | None] | None = None,
        schema_metadata: Mapping[str, str | None] | None = None,
        field_metadata: Mapping[int, Mapping[str, str | None]] | None = None,
        replace: bool = False,
        replaced_fields: Container[int] = (),
    ) -> Self:
        """Build the operation; ``None`` removes a key, ``replace`` removes unlisted keys.

        Unlisted keys of ``replaced_fields`` are removed as well.
        """
        message = table_pb2.Transaction.UpdateConfig()
        for given, updates in (
            (config, message.config_updates),
            (table_metadata, message.table_metadata_updates),
            (schema_metadata, message.schema_metadata_updates),
        ):
            if given is not None:
                fill_map(updates, given, replace=replace)
        for field_id, entries in (field_metadata or {}).items():
            updates = message.field_metadata_updates[field_id]
            fill_map(updates, entries, replace=replace or field_id in replaced_fields)
        return cls(message)

    def to_wire(self) -> Any:
        """Make the wire message."""
        return self.message

    def encode(self) -> list[bytes]:
        """Return the wire message."""
        return [self.message.SerializeToString()]

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return the conflict: both change the same entries, or metadata of a replaced schema."""
        if name == "update_config":
            both = same_keys(self.message, theirs.to_wire())
            return Conflict(f"both change the {both}", retryable=False) if both else None
        if name == "merge":
            return Conflict("merge changed the schema") if sets_metadata(self) else None
        if name == "overwrite":
            keys = changed_config(self.message) & set(theirs.to_wire().config_upsert_values)
            if keys:
                return conflict_on(theirs, f"set the configuration of {', '.join(sorted(keys))}")
        if name in ("overwrite", "restore"):
            return conflict_on(theirs, "replaced the schema") if sets_metadata(self) else None
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Set and remove the entries in ``base``.

        Raises
        ------
        NotFoundError
            A field is missing in the schema.
        """
        base = needs_dataset(base, "change settings")
        message, wire = self.message, copy_of(base)
        for key in message.delete_keys:
            if key in wire.config:
                del wire.config[key]
        for key, text in message.upsert_values.items():
            wire.config[key] = text
        set_entries(wire.config, message.config_updates, raw=False)
        # "All entries" means entries of users: the marks prevent that a commit is made twice.
        set_entries(wire.table_metadata, message.table_metadata_updates, raw=False, spared=is_mark)
        if message.schema_metadata:
            wire.schema_metadata.clear()
            for key, text in message.schema_metadata.items():
                wire.schema_metadata[key] = text.encode()
        set_entries(wire.schema_metadata, message.schema_metadata_updates, raw=True)
        if message.field_metadata or message.field_metadata_updates:
            set_columns(wire, _changed_schema(base, message), metadata=False)
        return Draft(wire, base.index_section, base.num_fragments)


def _changed_schema(base: Manifest, message: table_pb2.Transaction.UpdateConfig) -> LanceSchema:
    schema = base.schema
    given = {*message.field_metadata, *message.field_metadata_updates}
    missing = given - set(schema.field_ids())
    if missing:
        raise NotFoundError(
            f"cannot set metadata of field {min(missing)}: version {base.version} of "
            f"{base.where} has fields {sorted(schema.field_ids())}"
        )
    return with_field_metadata(schema, message)


# --- Update bases: add base paths, other locations of files of the dataset --------------
# Specification: "Base paths" in ``docs/format``.

_INCOMPATIBLE = frozenset({None, "clone", "data_overlay", "update_bases", "update_mem_wal_state"})


@operation
@dataclass(frozen=True, slots=True)
class UpdateBases(TableOperation):
    """Add base paths, in wire format; the commit assigns ids to base paths with id 0."""

    wire_name: ClassVar[str] = "update_bases"
    renamed = MappingProxyType({"new": "new_bases"})

    new: tuple[table_pb2.BasePath, ...]

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Return the conflict: both add the same base path."""
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
        """Add the base paths to ``base``.

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


# --- Reserve fragments: ids for a future rewrite ----------------------------------------
# Specification: "Reserve fragments" in ``docs/format``.


@operation
@dataclass(frozen=True, slots=True)
class ReserveFragments(TableOperation):
    """Raise the highest fragment id by ``count``; the caller may use the skipped ids."""

    wire_name: ClassVar[str] = "reserve_fragments"
    compatible = INCREMENTAL
    renamed = MappingProxyType({"count": "num_fragments"})

    count: int

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return the conflict: another operation replaced the whole dataset."""
        return incompatible(theirs, replaced="the dataset the ids are for")

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the same version with a higher counter."""
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
