"""``LanceOperation``: what a commit does, as values that users construct.

Each class has pylance's name and fields and converts to the table operation that implements it;
:mod:`glaive.dataset.lance_operation` converts operations that were read to these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from operator import index
from typing import Any
from uuid import UUID

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.fragment_metadata import (
    DataFile,
    DataOverlayFile,
    FragmentMetadata,
    checked_fragments,
    read_overlay,
    stored_fragments,
)
from glaive.dataset.version import warn_deprecated
from glaive.dataset.writing.plan import DatasetBasePath, numbered
from glaive.errors import CorruptFileError, GlaiveError, OptionError, UnsupportedFeatureError
from glaive.format import fragment as stored
from glaive.format.bitmaps import bitmap_of
from glaive.format.fields import LanceSchema
from glaive.format.index_section import check_entry
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.table.configuration import fill_map
from glaive.table.index_coverage import covered_fragments
from glaive.table.operations.append import Append
from glaive.table.operations.create_index import CreateIndex
from glaive.table.operations.data_replacement import DataReplacement
from glaive.table.operations.merge import Merge, Project
from glaive.table.operations.overwrite import Clone, Overwrite, Restore
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.operations.update import Delete, Update
from glaive.table.operations.update_config import UpdateConfig
from glaive.table.protocol import TableOperation

# --- ``Index``: an entry of the index section, as a value -------------------------------


@dataclass
class IndexFile:
    """A file of an index segment: its name within the segment's folder, and bytes."""

    path: str
    size_bytes: int


@dataclass
class Index:
    """One segment of an index.

    Parameters
    ----------
    uuid
        Name of its folder below ``_indices``.
    name
        Name of the index; segments of one index have the same.
    fields
        Ids of the fields it is over.
    dataset_version
        The version it was built for.
    fragment_ids
        Fragments it covers; ``None`` if unknown.
    index_version
        Version of the index's own format.
    created_at
        When it was built.
    base_id
        Base path that holds it; this dataset when absent.
    files
        Its files; ``None`` when not listed.
    index_details
        Type and content of the message that describes it.
    covering_fields
        Ids of fields whose values it holds.
    """

    uuid: str
    name: str
    fields: list[int]
    dataset_version: int
    fragment_ids: Iterable[int] | None
    index_version: int
    created_at: datetime | None = None
    base_id: int | None = None
    files: list[IndexFile] | None = None
    index_details: tuple[str, bytes] | None = None
    covering_fields: list[int] = field(default_factory=list)

    @classmethod
    def from_wire(cls, wire: table_pb2.IndexMetadata) -> Index:
        """Read the wire message."""
        made = None
        if wire.HasField("created_at"):
            made = datetime.fromtimestamp(wire.created_at / 1000, UTC)
        details = wire.index_details
        return cls(
            uuid=str(UUID(bytes=wire.uuid.uuid)),
            name=wire.name,
            fields=list(wire.fields),
            dataset_version=wire.dataset_version,
            fragment_ids=covered_fragments(wire),
            index_version=wire.index_version,
            created_at=made,
            base_id=wire.base_id if wire.HasField("base_id") else None,
            files=[IndexFile(file.path, file.size_bytes) for file in wire.files] or None,
            index_details=(details.type_url, details.value) if details.type_url else None,
            covering_fields=list(wire.covering_fields),
        )

    def to_wire(self) -> table_pb2.IndexMetadata:
        """Make the wire message.

        Raises
        ------
        OptionError
            The uuid, the version or a path is one that no reader of the version accepts.
        """
        try:
            identity = UUID(self.uuid).bytes
        except ValueError:
            raise OptionError(f"uuid of an index: expected a UUID, found {self.uuid!r}") from None
        wire = table_pb2.IndexMetadata(
            name=self.name,
            fields=self.fields,
            dataset_version=self.dataset_version,
            index_version=self.index_version,
            base_id=self.base_id,
            files=[
                table_pb2.IndexFile(path=file.path, size_bytes=file.size_bytes)
                for file in self.files or ()
            ],
            covering_fields=self.covering_fields,
        )
        wire.uuid.uuid = identity
        if self.fragment_ids is not None:
            wire.fragment_bitmap = bitmap_of(self.fragment_ids)
        if self.created_at is not None:
            wire.created_at = int(self.created_at.timestamp() * 1000)
        if self.index_details is not None:
            wire.index_details.type_url, wire.index_details.value = self.index_details
        try:
            check_entry(wire, "the index")
        except CorruptFileError as error:
            raise OptionError(
                f"{error.what}: expected {error.expected}, found {error.found}"
            ) from None
        return wire


# ruff: noqa: D102  # BaseOperation says what to_table does


_MODES = ("", "rewrite_rows", "rewrite_columns")
_FRAGMENTS = ("fragments", "updated_fragments", "old_fragments", "new_fragments")


def _schema(given: LanceSchema | pa.Schema, what: str) -> LanceSchema:
    if isinstance(given, LanceSchema):
        return given
    if isinstance(given, pa.Schema):
        return LanceSchema.from_arrow(given)
    raise OptionError(f"{what}: expected a LanceSchema or pyarrow.Schema, found {given!r:.60}")


def _ids(given: Iterable[int], name: str, end: int = 2**32) -> tuple[int, ...]:
    """The field ``name``: ids of fragments or columns, below ``end``."""
    numbers = tuple(map(index, given))
    for number in numbers:
        if not 0 <= number < end:
            raise OptionError(f"{name}: expected numbers from 0 to {end - 1}, found {number}")
    return numbers


def _keys(given: object) -> table_pb2.Transaction.Update.KeyExistenceFilter | None:
    """The filter of inserted keys, if there is one."""
    if not isinstance(given, bytes | None):
        raise OptionError(f"inserted_rows: expected bytes, found {given!r:.60}")
    message = table_pb2.Transaction.Update.KeyExistenceFilter()
    return parse(message, given, "filter of inserted keys", "inserted_rows") if given else None


class _WithFragments:
    """Checks the fields that are lists of fragments."""

    def __post_init__(self) -> None:
        for name in _FRAGMENTS:
            if name in vars(self):
                setattr(self, name, checked_fragments(getattr(self, name), name))


class LanceOperation:
    """The operations that can be committed, as in ``LanceDataset.commit``."""

    class BaseOperation(_WithFragments):
        """What all operations have in common."""

        def to_table(self) -> TableOperation:
            """The table operation that implements it."""
            raise UnsupportedFeatureError(f"{type(self).__name__} cannot be committed")

    @dataclass
    class Append(BaseOperation):
        """Add fragments, which must have the columns of the dataset."""

        fragments: Iterable[FragmentMetadata]

        def to_table(self) -> TableOperation:
            return Append(stored_fragments(self.fragments, "fragments"))

    @dataclass
    class Overwrite(BaseOperation):
        """Replace columns and rows, or create a dataset."""

        new_schema: LanceSchema | pa.Schema
        fragments: Iterable[FragmentMetadata]
        initial_bases: Sequence[DatasetBasePath] | None = None

        def to_table(self) -> TableOperation:
            return Overwrite(
                fragments=stored_fragments(self.fragments, "fragments"),
                schema=_schema(self.new_schema, "new_schema"),
                base_paths=numbered(self.initial_bases or ()),
            )

    @dataclass
    class Delete(BaseOperation):
        """Delete rows: fragments with new deletion files, and ids of emptied fragments."""

        updated_fragments: Iterable[FragmentMetadata]
        deleted_fragment_ids: Iterable[int]
        predicate: str

        def to_table(self) -> TableOperation:
            return Delete(
                updated=stored_fragments(self.updated_fragments, "updated_fragments"),
                removed=_ids(self.deleted_fragment_ids, "deleted_fragment_ids"),
                predicate=self.predicate,
            )

    @dataclass
    class Merge(BaseOperation):
        """Replace the schema, and all fragments with fragments that have files for it."""

        fragments: Iterable[FragmentMetadata]
        schema: LanceSchema | pa.Schema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            if isinstance(self.schema, pa.Schema):
                # Above: the __init__ of the dataclass, and its caller.
                warn_deprecated(
                    "Passing a pyarrow.Schema to Merge is deprecated. "
                    "Please use a LanceSchema instead.",
                    above=2,
                )

        def to_table(self) -> TableOperation:
            return Merge(
                fragments=stored_fragments(self.fragments, "fragments"),
                schema=_schema(self.schema, "schema"),
                preserves_nullability=self.preserves_nullability,
            )

    @dataclass
    class Project(BaseOperation):
        """Replace the schema; files do not change."""

        schema: LanceSchema
        preserves_nullability: bool = False

        def to_table(self) -> TableOperation:
            return Project(
                schema=_schema(self.schema, "schema"),
                preserves_nullability=self.preserves_nullability,
            )

    @dataclass
    class Restore(BaseOperation):
        """Make an old version the newest one."""

        version: int

        def to_table(self) -> TableOperation:
            return Restore(*_ids([self.version], "version", 2**64))

    @dataclass
    class RewriteGroup(_WithFragments):
        """Fragments and their replacements, which have the same rows in the same order."""

        old_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

    @dataclass
    class RewrittenIndex:
        """An index rebuilt for relocated rows: old and new uuid, and its details."""

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

    @dataclass
    class Rewrite(BaseOperation):
        """Replace groups of fragments, as a compaction does."""

        groups: Iterable[LanceOperation.RewriteGroup]
        rewritten_indices: Iterable[LanceOperation.RewrittenIndex] = ()

        def to_table(self) -> TableOperation:
            groups = tuple(
                RewriteGroup(
                    stored_fragments(group.old_fragments, "old_fragments"),
                    stored_fragments(group.new_fragments, "new_fragments"),
                )
                for group in self.groups
            )
            kind = table_pb2.Transaction.Rewrite.RewrittenIndex
            indices = []
            for rewritten_index in self.rewritten_indices:
                message = kind(new_index_version=rewritten_index.new_index_version)
                message.old_id.uuid = UUID(rewritten_index.old_id).bytes
                message.new_id.uuid = UUID(rewritten_index.new_id).bytes
                message.new_index_details.type_url = rewritten_index.new_details_type_url
                message.new_index_details.value = rewritten_index.new_details_value
                indices.append(message)
            return Rewrite(groups=groups, rewritten_indices=tuple(indices))

    @dataclass
    class CreateIndex(BaseOperation):
        """Add and remove index segments."""

        new_indices: Sequence[Index]
        removed_indices: Sequence[Index] = ()

        def to_table(self) -> TableOperation:
            return CreateIndex(
                new=tuple(index.to_wire() for index in self.new_indices),
                removed=tuple(removed_index.to_wire() for removed_index in self.removed_indices),
            )

    @dataclass
    class DataReplacementGroup:
        """A fragment, and the file that replaces those with the same fields."""

        fragment_id: int
        new_file: DataFile

    @dataclass
    class DataReplacement(BaseOperation):
        """Replace the files of some columns of fragments."""

        replacements: Sequence[LanceOperation.DataReplacementGroup]

        def to_table(self) -> TableOperation:
            return DataReplacement(
                tuple(
                    (replacement.fragment_id, DataFile.of(replacement.new_file).to_stored())
                    for replacement in self.replacements
                )
            )

    DataOverlayFile = DataOverlayFile

    @dataclass
    class DataOverlayGroup:
        """A fragment, and overlays for it, the oldest first."""

        fragment_id: int
        overlays: list[DataOverlayFile]

    @dataclass
    class DataOverlay(BaseOperation):
        """Replace values of single rows with files that overlay those of the fragments.

        Represents transactions of other writers; this version of glaive commits none and does
        not read datasets with overlays.
        """

        groups: list[LanceOperation.DataOverlayGroup]

        def to_table(self) -> TableOperation:
            raise UnsupportedFeatureError(
                "DataOverlay: this version of glaive can neither read nor commit data overlays. "
                "Use update, merge_insert or DataReplacement."
            )

    @dataclass
    class Update(BaseOperation):
        """Change rows: removed and changed fragments, and new fragments with the changed rows.

        A merge on the primary key gives ``inserted_rows``, by which commits tell whether others
        have inserted the same keys: the message of their filter, empty where there is none.
        """

        removed_fragment_ids: Sequence[int] = field(default_factory=list)
        updated_fragments: Sequence[FragmentMetadata] = field(default_factory=list)
        new_fragments: Sequence[FragmentMetadata] = field(default_factory=list)
        fields_modified: Sequence[int] = field(default_factory=list)
        fields_for_preserving_frag_bitmap: Sequence[int] = field(default_factory=list)
        update_mode: str = ""
        updated_fragment_offsets: Mapping[int, bytes] | None = None
        inserted_rows: bytes | None = field(default=None, repr=False)

        def to_table(self) -> TableOperation:
            if self.update_mode not in _MODES:
                raise OptionError(
                    f"update_mode: expected one of {_MODES}, found {self.update_mode!r}"
                )
            return Update(
                removed=_ids(self.removed_fragment_ids, "removed_fragment_ids"),
                updated=stored_fragments(self.updated_fragments, "updated_fragments"),
                new=stored_fragments(self.new_fragments, "new_fragments"),
                fields_modified=_ids(self.fields_modified, "fields_modified"),
                fields_touched=_ids(
                    self.fields_for_preserving_frag_bitmap, "fields_for_preserving_frag_bitmap"
                ),
                columns=self.update_mode == "rewrite_columns",
                changed_offsets=dict(self.updated_fragment_offsets or {}),
                inserted_rows=_keys(self.inserted_rows),
                unfiltered_keys=self.inserted_rows == b"",
            )

    @dataclass
    class UpdateMap:
        """Values by key, ``None`` removes one; ``replace`` removes keys that are not given."""

        updates: dict[str, str | None]
        replace: bool = False

    @dataclass
    class UpdateConfig(BaseOperation):
        """Set configuration, and metadata of the table, the schema and fields by id."""

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: Mapping[int, LanceOperation.UpdateMap] | None = None

        def to_table(self) -> TableOperation:
            message = table_pb2.Transaction.UpdateConfig()
            for name in ("config_updates", "table_metadata_updates", "schema_metadata_updates"):
                updates = getattr(self, name)
                if updates is not None:
                    fill_map(getattr(message, name), updates.updates, replace=updates.replace)
            for field_id, updates in (self.field_metadata_updates or {}).items():
                fields = message.field_metadata_updates[field_id]
                fill_map(fields, updates.updates, replace=updates.replace)
            return UpdateConfig(message)

    @dataclass
    class Clone(BaseOperation):
        """The first version of a clone or branch; can be read, but not committed."""

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None = None

    @dataclass
    class Other(BaseOperation):
        """An operation that has no class here, as it was read."""

        operation: TableOperation | Any = field(repr=False)
        name: str = ""

        def to_table(self) -> TableOperation:
            operation: TableOperation = self.operation
            return operation


def table_operation(operation: LanceOperation.BaseOperation) -> TableOperation:
    """The table operation that implements one which a user constructed.

    Raises
    ------
    OptionError
        A field of it has a wrong type.
    """
    try:
        return operation.to_table()
    except GlaiveError:
        raise
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise OptionError(
            f"{type(operation).__name__}: a field has no value of its type: {error}"
        ) from error


# --- Convert table operations to the classes of ``LanceOperation`` ----------------------


def public_operation(operation: TableOperation | Any) -> LanceOperation.BaseOperation:
    """The class of an operation that was read; ``Other`` if there is none."""
    if operation.wire_name == "data_overlay":
        return _overlay(operation.to_wire())
    turn = _TURNED.get(type(operation))
    if turn is None:
        return LanceOperation.Other(operation, operation.wire_name or "")
    return turn(operation)


def _public(fragments: Iterable[stored.Fragment]) -> list[FragmentMetadata]:
    return [FragmentMetadata.of(fragment) for fragment in fragments]


def _updates(message: Any, name: str) -> LanceOperation.UpdateMap | None:
    return _map_of(getattr(message, name)) if message.HasField(name) else None


def _map_of(message: Any) -> LanceOperation.UpdateMap:
    entries = {
        entry.key: entry.value if entry.HasField("value") else None
        for entry in message.update_entries
    }
    return LanceOperation.UpdateMap(entries, message.replace)


def _overlay(message: Any) -> LanceOperation.BaseOperation:
    groups = []
    for group in message.groups:
        files = [
            (overlay, DataFile.of(stored.DataFile.from_wire(overlay.data_file)))
            for overlay in group.overlays
        ]
        overlays = [read_overlay(overlay, file) for overlay, file in files]
        groups.append(LanceOperation.DataOverlayGroup(group.fragment_id, overlays))
    return LanceOperation.DataOverlay(groups)


def _overwrite(operation: Overwrite) -> LanceOperation.BaseOperation:
    bases = [
        DatasetBasePath(base.path, base.name or None, base.is_dataset_root, base.id)
        for base in operation.base_paths
    ]
    return LanceOperation.Overwrite(operation.schema, _public(operation.fragments), bases or None)


def _rewrite(operation: Rewrite) -> LanceOperation.BaseOperation:
    groups = [
        LanceOperation.RewriteGroup(_public(group.old), _public(group.new))
        for group in operation.groups
    ]
    indices = [
        LanceOperation.RewrittenIndex(
            str(UUID(bytes=index.old_id.uuid)),
            str(UUID(bytes=index.new_id.uuid)),
            index.new_index_details.type_url,
            index.new_index_details.value,
            index.new_index_version,
        )
        for index in operation.rewritten_indices
    ]
    return LanceOperation.Rewrite(groups, indices)


def _update(operation: Update) -> LanceOperation.BaseOperation:
    keys = operation.inserted_rows
    filter_of_keys = keys.SerializeToString() if keys is not None else None
    return LanceOperation.Update(
        removed_fragment_ids=list(operation.removed),
        updated_fragments=_public(operation.updated),
        new_fragments=_public(operation.new),
        fields_modified=list(operation.fields_modified),
        fields_for_preserving_frag_bitmap=list(operation.fields_touched),
        update_mode="rewrite_columns" if operation.columns else "rewrite_rows",
        updated_fragment_offsets=dict(operation.changed_offsets) or None,
        inserted_rows=b"" if operation.unfiltered_keys else filter_of_keys,
    )


def _update_config(operation: UpdateConfig) -> LanceOperation.BaseOperation:
    message = operation.message
    fields = message.field_metadata_updates
    return LanceOperation.UpdateConfig(
        _updates(message, "config_updates"),
        _updates(message, "table_metadata_updates"),
        _updates(message, "schema_metadata_updates"),
        {field_id: _map_of(update) for field_id, update in fields.items()} or None,
    )


_TURNED: Mapping[type, Callable[[Any], LanceOperation.BaseOperation]] = {
    Append: lambda operation: LanceOperation.Append(_public(operation.fragments)),
    Overwrite: _overwrite,
    Delete: lambda operation: LanceOperation.Delete(
        _public(operation.updated), list(operation.removed), operation.predicate
    ),
    Merge: lambda operation: LanceOperation.Merge(
        _public(operation.fragments), operation.schema, operation.preserves_nullability
    ),
    Project: lambda operation: LanceOperation.Project(
        operation.schema, operation.preserves_nullability
    ),
    Restore: lambda operation: LanceOperation.Restore(operation.version),
    Rewrite: _rewrite,
    CreateIndex: lambda operation: LanceOperation.CreateIndex(
        [Index.from_wire(index) for index in operation.new],
        [Index.from_wire(index) for index in operation.removed],
    ),
    DataReplacement: lambda operation: LanceOperation.DataReplacement(
        [
            LanceOperation.DataReplacementGroup(fragment_id, DataFile.of(file))
            for fragment_id, file in operation.replacements
        ]
    ),
    Update: _update,
    UpdateConfig: _update_config,
    Clone: lambda operation: LanceOperation.Clone(
        operation.shallow,
        operation.ref_name,
        operation.ref_version,
        operation.ref_path,
        operation.branch_name,
    ),
}
