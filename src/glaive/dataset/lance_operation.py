"""``LanceOperation``: the operations of commits, as values that users construct.

Each class has pylance's name and fields, which are the fields of its message. glaive reads the
message as the table operation that implements it, and converts operations that it read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import partial
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
)
from glaive.dataset.version import warn_deprecated
from glaive.dataset.writing.plan import DatasetBasePath, numbered
from glaive.errors import CorruptFileError, GlaiveError, OptionError, UnsupportedFeatureError
from glaive.format import fragment as stored
from glaive.format.bitmaps import bitmap_of
from glaive.format.fields import LanceSchema
from glaive.format.manifest import check_entry
from glaive.format.pb import table_pb2
from glaive.format.transaction import WireOperation
from glaive.format.wire import Descriptor, FieldDescriptor, Message, parse
from glaive.table.configuration import fill_map
from glaive.table.index_coverage import covered_fragments
from glaive.table.protocol import TableOperation, read_operation

# --- ``Index``: an entry of the index section -------------------------------------------


@dataclass
class IndexFile:
    """A file of an index segment: its name within the segment's folder, and its size in bytes."""

    path: str
    size_bytes: int


@dataclass
class Index:
    """One segment of an index.

    Parameters
    ----------
    uuid
        Name of the segment's folder below ``_indices``.
    name
        Name of the index; all segments of an index have the same name.
    fields
        Ids of the indexed fields.
    dataset_version
        The version that the segment was built for.
    fragment_ids
        Ids of covered fragments; ``None`` if unknown.
    index_version
        Version of the index's file format.
    created_at
        Time of the build.
    base_id
        Id of the base path with the files; ``None`` for this dataset.
    files
        Files of the segment, or ``None``.
    index_details
        Type and content of the message that describes the segment.
    covering_fields
        Ids of fields whose values the segment holds.
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
            Readers of the version would refuse the uuid, the version or a path.
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


# ruff: noqa: D102  # BaseOperation documents to_table


_MODES = ("", "rewrite_rows", "rewrite_columns")
_FRAGMENTS = ("fragments", "updated_fragments", "old_fragments", "new_fragments")
_RENAMED = {"new_schema": "schema", "updated_fragment_offsets": "updated_fragment_offset_bitmaps"}
"""Fields with other names in the messages."""

_WIRE_NAMES: dict[str, str] = {
    one.message_type.name: one.name  # type: ignore[union-attr]  # all are messages
    for one in table_pb2.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields
}


def _schema(given: LanceSchema | pa.Schema, what: str) -> LanceSchema:
    if isinstance(given, LanceSchema):
        return given
    if isinstance(given, pa.Schema):
        return LanceSchema.from_arrow(given)
    raise OptionError(f"{what}: expected a LanceSchema or pyarrow.Schema, found {given!r:.60}")


def _ids(given: Iterable[int], name: str) -> tuple[int, ...]:
    """Check the field ``name``, ids of fragments or columns, and return it."""
    numbers = tuple(map(index, given))
    for number in numbers:
        if not 0 <= number < 2**32:
            raise OptionError(f"{name}: expected numbers from 0 to {2**32 - 1}, found {number}")
    return numbers


def _keys(given: object) -> table_pb2.Transaction.Update.KeyExistenceFilter | None:
    """Return the filter of inserted keys, if any."""
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
    """The operations that ``LanceDataset.commit`` can commit.

    Their fields have the names of the fields of their messages.
    """

    class BaseOperation(_WithFragments):
        """Base class of all operations."""

        def to_table(self) -> TableOperation:
            """Return the table operation that implements this operation."""
            kinds = (one.__name__ for one in type(self).__mro__)
            known = next((one for one in kinds if one in _WIRE_NAMES), None)
            if known is None:
                raise UnsupportedFeatureError(f"{type(self).__name__} cannot be committed")
            kind: Any = getattr(table_pb2.Transaction, known)
            message = kind(**_stored_fields(self, kind.DESCRIPTOR))
            return read_operation(WireOperation(_WIRE_NAMES[known], message))

    @dataclass
    class Append(BaseOperation):
        """Add fragments, which must have the columns of the dataset."""

        fragments: Iterable[FragmentMetadata]

    @dataclass
    class Overwrite(BaseOperation):
        """Replace columns and rows, or create a dataset."""

        new_schema: LanceSchema | pa.Schema
        fragments: Iterable[FragmentMetadata]
        initial_bases: Sequence[DatasetBasePath] | None = None

    @dataclass
    class Delete(BaseOperation):
        """Delete rows: fragments with new deletion files, and ids of emptied fragments."""

        updated_fragments: Iterable[FragmentMetadata]
        deleted_fragment_ids: Iterable[int]
        predicate: str

    @dataclass
    class Merge(BaseOperation):
        """Replace the schema and all fragments; the new fragments have files for the schema."""

        fragments: Iterable[FragmentMetadata]
        schema: LanceSchema | pa.Schema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            if isinstance(self.schema, pa.Schema):
                # Stack: the __init__ of the dataclass, and its caller.
                warn_deprecated(
                    "Passing a pyarrow.Schema to Merge is deprecated. "
                    "Please use a LanceSchema instead.",
                    above=2,
                )

    @dataclass
    class Project(BaseOperation):
        """Replace the schema and keep the files."""

        schema: LanceSchema
        preserves_nullability: bool = False

    @dataclass
    class Restore(BaseOperation):
        """Make an old version the newest."""

        version: int

    @dataclass
    class RewriteGroup(_WithFragments):
        """Fragments and their replacements, which have the same rows in the same order."""

        old_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

    @dataclass
    class RewrittenIndex:
        """An index rebuilt for moved rows: old and new uuid, and its details."""

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

        @classmethod
        def from_wire(
            cls, message: table_pb2.Transaction.Rewrite.RewrittenIndex
        ) -> LanceOperation.RewrittenIndex:
            """Read the wire message."""
            old, new = (str(UUID(bytes=one.uuid)) for one in (message.old_id, message.new_id))
            details = message.new_index_details
            return cls(old, new, details.type_url, details.value, message.new_index_version)

        def to_wire(self) -> table_pb2.Transaction.Rewrite.RewrittenIndex:
            """Make the wire message."""
            message = table_pb2.Transaction.Rewrite.RewrittenIndex(
                new_index_version=self.new_index_version
            )
            message.old_id.uuid = UUID(self.old_id).bytes
            message.new_id.uuid = UUID(self.new_id).bytes
            message.new_index_details.type_url = self.new_details_type_url
            message.new_index_details.value = self.new_details_value
            return message

    @dataclass
    class Rewrite(BaseOperation):
        """Replace groups of fragments, as a compaction does."""

        groups: Iterable[LanceOperation.RewriteGroup]
        rewritten_indices: Iterable[LanceOperation.RewrittenIndex] = ()

    @dataclass
    class CreateIndex(BaseOperation):
        """Add and remove index segments."""

        new_indices: Sequence[Index]
        removed_indices: Sequence[Index] = ()

    @dataclass
    class DataReplacementGroup:
        """A fragment, and the file that replaces its files of the same fields."""

        fragment_id: int
        new_file: DataFile

    @dataclass
    class DataReplacement(BaseOperation):
        """Replace the files of some columns of fragments."""

        replacements: Sequence[LanceOperation.DataReplacementGroup]

    DataOverlayFile = DataOverlayFile

    @dataclass
    class DataOverlayGroup:
        """A fragment, and overlays for it, oldest first."""

        fragment_id: int
        overlays: list[DataOverlayFile]

    @dataclass
    class DataOverlay(BaseOperation):
        """Replace values of single rows with overlay files.

        Represents transactions of other writers. glaive refuses to commit overlays and to read
        datasets with overlays.
        """

        groups: list[LanceOperation.DataOverlayGroup]

        def to_table(self) -> TableOperation:
            raise UnsupportedFeatureError(
                "DataOverlay: this version of glaive does not support data overlays. "
                "Use update, merge_insert or DataReplacement."
            )

    @dataclass
    class Update(BaseOperation):
        """Change rows: removed and changed fragments, and new fragments with the changed rows.

        ``inserted_rows`` of a merge on the primary key is the message of the filter of its keys,
        or empty. Commits use it to find out whether others inserted the same keys.
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
            made: Any = super().to_table()
            made = replace(made, unfiltered_keys=self.inserted_rows == b"")
            operation: TableOperation = made
            return operation

    @dataclass
    class UpdateMap:
        """Values by key; ``None`` removes a key; ``replace`` removes all other keys."""

        updates: dict[str, str | None]
        replace: bool = False

        @classmethod
        def from_wire(cls, message: table_pb2.Transaction.UpdateMap) -> LanceOperation.UpdateMap:
            """Read the wire message."""
            entries = message.update_entries
            updates = {one.key: one.value if one.HasField("value") else None for one in entries}
            return cls(updates, message.replace)

        def to_wire(self) -> table_pb2.Transaction.UpdateMap:
            """Make the wire message."""
            message = table_pb2.Transaction.UpdateMap()
            fill_map(message, self.updates, replace=self.replace)
            return message

    @dataclass
    class UpdateConfig(BaseOperation):
        """Set configuration, and metadata of the table, the schema and fields by id."""

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: Mapping[int, LanceOperation.UpdateMap] | None = None

    @dataclass
    class Clone(BaseOperation):
        """The first version of a clone or branch; you can read but never commit it."""

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None = None

        def to_table(self) -> TableOperation:
            raise UnsupportedFeatureError(f"{type(self).__name__} cannot be committed")

    @dataclass
    class Other(BaseOperation):
        """An operation of a transaction that lacks a class here."""

        operation: TableOperation | Any = field(repr=False)
        name: str = ""

        def to_table(self) -> TableOperation:
            operation: TableOperation = self.operation
            return operation


def table_operation(operation: LanceOperation.BaseOperation) -> TableOperation:
    """Return the table operation that implements an operation of a user.

    Raises
    ------
    OptionError
        A field has a wrong type.
    """
    try:
        return operation.to_table()
    except GlaiveError:
        raise
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise OptionError(
            f"{type(operation).__name__}: a value of it cannot be stored: {error}"
        ) from error


# --- Fields of the classes of ``LanceOperation`` as fields of their messages ------------


def _stored_fields(value: Any, kind: Descriptor) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for entry in fields(value):
        name, given = entry.name, getattr(value, entry.name)
        at = kind.fields_by_name[_RENAMED.get(name, name)]
        if given is None and entry.default is not None:
            raise TypeError(f"{name} is None")
        if name in _FRAGMENTS:
            given = checked_fragments(given, name)
        elif at.name == "schema":
            given = _schema(given, name)
            if "schema_metadata" in kind.fields_by_name:
                made["schema_metadata"] = given.metadata
        elif name == "initial_bases":
            given = numbered(given or ())
        elif name == "inserted_rows":
            given = _keys(given)
        elif name == "update_mode":
            given = given.upper() or None
        elif name.endswith(("_ids", "_modified", "_bitmap")):
            given = _ids(given, name)
        made[at.name] = _stored(given, at)
    return made


def _stored(given: Any, at: FieldDescriptor) -> Any:
    kind = at.message_type
    if kind is None or given is None or isinstance(given, Message):
        return given
    if hasattr(given, "to_wire"):
        return given.to_wire()
    if isinstance(given, Mapping):
        return {
            key: one.to_wire() if hasattr(one, "to_wire") else one for key, one in given.items()
        }
    if is_dataclass(given):
        return _stored_fields(given, kind)
    if isinstance(given, str):
        raise TypeError(f"expected values of {kind.name}, found {given!r:.60}")
    return [_stored(one, at) for one in given]


def public_operation(operation: Any) -> LanceOperation.BaseOperation:
    """Return the class of an operation that was read, or ``Other``."""
    name = operation.wire_name or ""
    kind = next((kind for kind, wire_name in _WIRE_NAMES.items() if wire_name == name), "")
    cls = getattr(LanceOperation, kind, None)
    if cls is None:
        return LanceOperation.Other(operation, name)
    made: LanceOperation.BaseOperation = _public(cls, operation.to_wire())
    if isinstance(made, LanceOperation.Update) and operation.unfiltered_keys:
        made.inserted_rows = b""
    return made


def _public(cls: Any, message: Any) -> Any:
    known = message.DESCRIPTOR.fields_by_name
    read = {
        one.name: _value(message, known[_RENAMED.get(one.name, one.name)]) for one in fields(cls)
    }
    return cls(**read)


def _value(message: Any, at: FieldDescriptor) -> Any:
    found, kind = getattr(message, at.name), at.message_type
    if at.enum_type is not None:
        return at.enum_type.values_by_number[found].name.lower()
    if at.name == "schema":
        return LanceSchema.from_wire(found, getattr(message, "schema_metadata", {}))
    if kind is None:
        if at.has_presence and not message.HasField(at.name):
            return None
        one = isinstance(found, str | bytes) or not isinstance(found, Sequence)
        return found if one else list(found)
    if kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"].message_type
        read = {key: one if of is None else _READ[of.name](one) for key, one in found.items()}
        return read or None
    if at.has_presence:
        return _READ[kind.name](found) if message.HasField(at.name) else None
    values = [_READ[kind.name](one) for one in found]
    return values or None if at.name == "initial_bases" else values


_READ: Mapping[str, Callable[[Any], Any]] = {
    "BasePath": lambda one: DatasetBasePath(
        one.path, one.name or None, one.is_dataset_root, one.id
    ),
    "DataFile": lambda one: DataFile.of(stored.DataFile.from_wire(one)),
    "DataFragment": lambda one: FragmentMetadata.of(stored.Fragment.from_wire(one)),
    "DataOverlayFile": read_overlay,
    "Group": partial(_public, LanceOperation.DataOverlayGroup),
    "IndexMetadata": Index.from_wire,
    "KeyExistenceFilter": lambda one: one.SerializeToString(),
    "Replacement": partial(_public, LanceOperation.DataReplacementGroup),
    "RewriteGroup": partial(_public, LanceOperation.RewriteGroup),
    "RewrittenIndex": LanceOperation.RewrittenIndex.from_wire,
    "UpdateMap": LanceOperation.UpdateMap.from_wire,
}
"""Converters of messages to public values, by name of the message."""
