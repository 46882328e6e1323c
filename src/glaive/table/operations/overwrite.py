"""Overwrite: create a dataset, or replace its schema and all its rows.

Configuration, table metadata, base paths and id counters are kept; indices are not.

Specification: "Overwrite" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Self

from glaive.dataclass import dataclass
from glaive.format.field import check_primary_key
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment, encode_lists, file_versions, known_version
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.configuration import changed_config
from glaive.table.fragment_ids import copy_of, mark_file_versions, new_fragments, put_fragments
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    CommitOptions,
    Conflict,
    Draft,
    TableOperation,
    conflict_on,
    incompatible,
    operation,
)
from glaive.types import FormatVersion

DEFAULT_STORAGE_VERSION = FormatVersion(2, 2)

_COMPATIBLE = INCREMENTAL - {"update_config"} | {"restore"}


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite(TableOperation):
    """Replace everything.

    Parameters
    ----------
    fragments
        The new fragments; the commit assigns all ids.
    schema
        The new schema with field ids.
    config
        Entries to set in the table's configuration.
    base_paths
        Base paths of a new dataset, in wire format.
    """

    wire_name: ClassVar[str] = "overwrite"
    strict_without_retries: ClassVar[bool] = True

    fragments: Sequence[Fragment]
    schema: LanceSchema
    config: Mapping[str, str] = field(default_factory=dict, hash=False)
    base_paths: tuple[table_pb2.BasePath, ...] = ()

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Overwrite) -> Self:
        """Read the wire message."""
        return cls(
            fragments=tuple(map(Fragment.from_wire, message.fragments)),
            schema=LanceSchema.from_wire(message.schema, message.schema_metadata),
            config=dict(message.config_upsert_values),
            base_paths=tuple(message.initial_bases),
        )

    def encode(self) -> list[bytes]:
        """Parts of the wire message."""
        rest = table_pb2.Transaction.Overwrite(
            schema=self.schema.to_wire(),
            schema_metadata=self.schema.metadata,
            config_upsert_values=self.config,
            initial_bases=self.base_paths,
        )
        return [encode_lists(self.fragments), rest.SerializeToString()]

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Conflicts with another overwrite, and changes of the same configuration entries.

        With a restore, too, if files lie below base paths: the restored version may have others.
        """
        name = theirs.wire_name
        if name == "restore" and any(
            file.base_id is not None for fragment in self.fragments for file in fragment.files
        ):
            return conflict_on(theirs, "may have removed base paths below which the new files lie")
        if name in _COMPATIBLE:
            return None
        if name == "overwrite":
            return Conflict("another overwrite replaced the dataset")
        if name == "update_config":
            both = sorted(self.config.keys() & changed_config(theirs.to_wire()))
            if not both:
                return None
            reason = f"both change the configuration of {', '.join(both)}"
            return Conflict(reason, retryable=False)
        return incompatible(theirs)

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """The new schema and fragments, with the configuration of ``base``."""
        wire = table_pb2.ManifestOutline()
        if base is None:
            if context.options.enable_stable_row_ids:
                wire.reader_feature_flags = wire.writer_feature_flags = int(Feature.STABLE_ROW_IDS)
            wire.base_paths.extend(self.base_paths)
        else:
            wire = copy_of(base)
            del wire.fragments[:]
            del wire.fields[:]
            wire.schema_metadata.clear()
        check_primary_key(self.schema.fields)
        wire.fields.extend(self.schema.to_wire())
        for key, value in self.schema.metadata.items():
            wire.schema_metadata[key] = value
        for key, text in self.config.items():
            wire.config[key] = text
        stored = self._storage_version(base, context.options)
        wire.data_format.file_format = "lance"
        wire.data_format.version = str(stored)
        if wire.HasField("max_allocated_field_id"):
            wire.max_allocated_field_id = max(wire.max_allocated_field_id, self.schema.max_field_id)
        mark_file_versions(wire, file_versions(self.fragments), stored)
        put_fragments(wire, new_fragments(wire, self.fragments, context.version, keep_ids=False))
        return Draft(wire)

    def _storage_version(self, base: Manifest | None, options: CommitOptions) -> FormatVersion:
        if options.storage_version is not None:
            return options.storage_version
        for fragment in self.fragments:
            for file in fragment.files:
                return known_version(str(file.version), "the new version")
        return DEFAULT_STORAGE_VERSION if base is None else base.data_format
