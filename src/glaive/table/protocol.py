"""The interface of table operations: detect conflicts, and build the next version.

Operations do no input or output: they turn manifests into a draft of the next manifest.
:mod:`glaive.table.commit` reads, writes and retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, DatasetNotFoundError, UnsupportedFeatureError
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DeletionFile, Fragment, encode_lists
from glaive.format.manifest import Manifest
from glaive.format.paths import NamingScheme
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.format.wire import FieldDescriptor, parse
from glaive.table.configuration import CONSTRAINT
from glaive.types import FormatVersion

Offsets = NDArray[np.uint32]
"""Physical rows of a fragment, ascending and unique."""

HiddenLineage = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""Row id of each physical row, and the version that created the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """Options of a commit, and of a new dataset.

    Parameters
    ----------
    max_retries
        Attempts after the first one. An overwrite with 0 replaces only the version that it read.
    storage_version
        Format version of a new or overwritten dataset. The default is the version of the data
        files, or else of the previous version of the dataset.
    enable_stable_row_ids
        Whether a new dataset has stable row ids.
    enable_v2_manifest_paths
        Naming scheme of the manifests of a new dataset.
    detached
        Whether to create the version outside the history, with a random number.
    timeout
        Seconds until the last attempt may start; ``None`` for no limit.
    """

    max_retries: int = 20
    storage_version: FormatVersion | None = None
    enable_stable_row_ids: bool = False
    enable_v2_manifest_paths: bool = True
    detached: bool = False
    timeout: float | None = None

    @property
    def scheme(self) -> NamingScheme:
        """Naming scheme of a new dataset."""
        return "V2" if self.enable_v2_manifest_paths else "V1"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Reason why an operation cannot be committed after another operation.

    Parameters
    ----------
    reason
        What the other writer did.
    retryable
        Whether the change may succeed when it is repeated with the newest version.
    fragments
        Ids of the fragments that both writers change.
    """

    reason: str
    retryable: bool = True
    fragments: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Number of the version to build, and inputs that few operations need.

    ``older`` is the version that :attr:`TableOperation.restored` refers to.
    """

    version: int
    options: CommitOptions = CommitOptions()
    older: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The next version; the commit adds time, flags and names.

    Parameters
    ----------
    wire
        The manifest message.
    index_section
        The index section in wire format, if the version has indices.
    kept
        Number of leading fragments that are unchanged from the previous version.
    """

    wire: table_pb2.ManifestOutline
    index_section: bytes | None = None
    kept: int = 0


class TableOperation:
    """Base of table operations, which are immutable."""

    __slots__ = ()

    wire_name: ClassVar[str]
    """Name in the transaction message."""

    strict_without_retries: ClassVar[bool] = False
    """Whether the operation conflicts with every concurrent commit if retries are off."""

    compatible: ClassVar[frozenset[str]] = frozenset()
    """Operations that never conflict with this operation."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Fields that have another name in the message, or are not part of it."""

    @classmethod
    def from_wire(cls, message: Any) -> Self:
        """Read the operation's message."""
        return read_fields(cls, message)

    def to_wire(self) -> Any:
        """Make the operation's message."""
        message = _kind_of(self.wire_name)()
        return parse(message, b"".join(self.encode()), self.wire_name, "the transaction")

    def encode(self) -> list[bytes]:
        """Return the parts of the operation's message in wire format, in the order of its
        fields.
        """
        kind = _kind_of(self.wire_name)
        parts = []
        for name, at in _stored_fields(type(self)):
            value = getattr(self, name)
            match _type_of(at):
                case "DataFragment":
                    parts.append(encode_lists({at.number: value}))
                    continue
                case "Field":
                    given = {at.name: value.to_wire()}
                    if "schema_metadata" in kind.DESCRIPTOR.fields_by_name:
                        given["schema_metadata"] = value.metadata
                case _:
                    given = {at.name: int(value) if isinstance(value, bool) else value}
            parts.append(kind(**given).SerializeToString())
        return parts

    @property
    def restored(self) -> int | None:
        """Number of another version that :meth:`apply` needs, if any."""
        return None

    @property
    def deletions(self) -> Sequence[tuple[int, DeletionFile, bytes]]:
        """Fragments, deletion files and contents to write before the version."""
        return ()

    def hidden(self, base: Manifest) -> frozenset[int]:
        """Return the ids of the fragments of ``base`` whose row lineage :meth:`apply` reads."""
        return frozenset()

    def with_hidden(self, lineage: Mapping[int, HiddenLineage]) -> Self:
        """Return the operation with the lineage of the fragments in :meth:`hidden`."""
        return self

    def conflict(self, theirs: Operation) -> Conflict | None:
        """Return why the operation cannot be committed after ``theirs``, or ``None`` if it can.

        The ``wire_name`` of ``theirs`` is ``None`` if the operation is unknown, which is always a
        conflict.
        """
        name = theirs.wire_name
        for rule, rows in ((self, name), (theirs, self.wire_name)):
            if rows in _WRITES_ROWS and adds_constraint(rule):
                return Conflict(f"{name} changed the rules of the table, or rows that they concern")
        return None if name in self.compatible else self.conflict_with(theirs, name)

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return what :meth:`conflict` returns, for an operation that is not ``compatible``."""
        raise NotImplementedError

    def shared(self, theirs: Operation) -> frozenset[int]:
        """Return the fragments that both change and whose deleted rows :meth:`rebase` needs."""
        return frozenset()

    def rebase(
        self, theirs: Sequence[Operation], base: Manifest, deleted: Mapping[int, Offsets]
    ) -> Self | Conflict:
        """Adapt the operation so that it can be committed on top of ``base``.

        Parameters
        ----------
        theirs
            Compatible operations committed after this operation was made, oldest first.
        base
            The version that the last of them made.
        deleted
            Rows deleted in ``base``, by id of the fragments in :meth:`shared`.
        """
        return self

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Build the version after ``base``, or the first version if ``base`` is ``None``."""
        raise NotImplementedError


OperationT = TypeVar("OperationT", bound=TableOperation)


def _kind_of(wire_name: str) -> Any:
    """Return the class of an operation's message."""
    return type(getattr(table_pb2.Transaction(), wire_name))


def _stored_fields(cls: Any) -> list[tuple[str, FieldDescriptor]]:
    """Return the fields of an operation that its message has, in the order of the message."""
    known = _kind_of(cls.wire_name).DESCRIPTOR.fields_by_name
    own = {entry.name: cls.renamed.get(entry.name, entry.name) for entry in fields(cls)}
    found = [(name, known[stored]) for name, stored in own.items() if stored in known]
    return sorted(found, key=lambda one: one[1].number)


def read_fields(cls: type[OperationT], message: Any) -> OperationT:
    """Make an operation from the fields of its message."""
    return cls(**{name: _read(message, at) for name, at in _stored_fields(cls)})


def _type_of(at: FieldDescriptor) -> str | None:
    return None if at.message_type is None else at.message_type.name


def _read(message: Any, at: FieldDescriptor) -> Any:
    value = getattr(message, at.name)
    match _type_of(at):
        case "DataFragment":
            return tuple(map(Fragment.from_wire, value))
        case "Field":
            return LanceSchema.from_wire(value, getattr(message, "schema_metadata", {}))
    if at.message_type is not None and at.message_type.GetOptions().map_entry:
        return dict(value)
    if at.has_presence:
        return value if message.HasField(at.name) else None
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def needs_dataset(base: Manifest | None, action: str) -> Manifest:
    """Return ``base``, the version to change.

    Raises
    ------
    DatasetNotFoundError
        ``base`` is ``None``: the dataset does not exist.
    """
    if base is None:
        raise DatasetNotFoundError(
            f"cannot {action}: there is no dataset. Create it first, or check the path."
        )
    return base


# --- Find what an operation of another writer changed, to detect conflicts --------------
# Specification: "Conflicts" in ``docs/format``.

INCREMENTAL: Final = frozenset(
    [
        "append",
        "create_index",
        "data_replacement",
        "delete",
        "merge",
        "project",
        "reserve_fragments",
        "rewrite",
        "update",
        "update_bases",
        "update_config",
    ]
)
"""Operations that change parts of a dataset; many pairs of them are compatible."""


def changed_fragments(theirs: Operation) -> frozenset[int]:
    """Return the ids of the fragments that an operation changed, replaced or removed."""
    message = theirs.to_wire()
    match theirs.wire_name:
        case "delete":
            return _ids(message.updated_fragments) | frozenset(message.deleted_fragment_ids)
        case "update":
            return _ids(message.updated_fragments) | frozenset(message.removed_fragment_ids)
        case "rewrite":
            return _old_fragments(message)
        case "data_replacement":
            return frozenset(replacement.fragment_id for replacement in message.replacements)
        case "data_overlay":
            return frozenset(group.fragment_id for group in message.groups)
        case _:
            return frozenset()


def removed_fragments(theirs: Operation) -> frozenset[int]:
    """Return the ids of the fragments that an operation removed or replaced."""
    message = theirs.to_wire()
    match theirs.wire_name:
        case "delete":
            return frozenset(message.deleted_fragment_ids)
        case "update":
            return frozenset(message.removed_fragment_ids)
        case "rewrite":
            return _old_fragments(message)
        case _:
            return frozenset()


def _old_fragments(message: table_pb2.Transaction.Rewrite) -> frozenset[int]:
    """Return the ids of the fragments that a rewrite replaced."""
    groups = (_ids(group.old_fragments) for group in message.groups)
    return _ids(message.old_fragments).union(*groups)


def changes_columns(theirs: Operation) -> bool:
    """Return whether the operation is an update that replaced columns in place."""
    message = theirs.to_wire()
    update = table_pb2.Transaction.Update
    return theirs.wire_name == "update" and (
        message.update_mode == update.REWRITE_COLUMNS or bool(message.fields_modified)
    )


def replaced_fields(theirs: Operation) -> frozenset[int]:
    """Return the ids of the fields whose values an operation replaced in place.

    If an update omits its fields, these are all fields of the changed fragments.
    """
    message = theirs.to_wire()
    if theirs.wire_name == "update":
        named = frozenset(message.fields_modified)
        if named or not changes_columns(theirs):
            return named
        files = (file for fragment in message.updated_fragments for file in fragment.files)
        return frozenset(number for file in files for number in file.fields if number >= 0)
    if theirs.wire_name == "data_replacement":
        return frozenset(
            field for replacement in message.replacements for field in replacement.new_file.fields
        )
    return frozenset()


def sets_metadata(theirs: Operation) -> bool:
    """Return whether the operation set metadata of the schema or of a field."""
    if theirs.wire_name != "update_config":
        return False
    message = theirs.to_wire()
    return bool(
        message.HasField("schema_metadata_updates")
        or message.field_metadata_updates
        or message.schema_metadata
        or message.field_metadata
    )


_WRITES_ROWS: Final = frozenset({"append", "data_replacement", "overwrite", "restore", "update"})


def adds_constraint(operation: Operation) -> bool:
    """Return whether the operation added a constraint, which rows of others may break."""
    if operation.wire_name != "update_config":
        return False
    entries = operation.to_wire().config_updates.update_entries
    return any(one.HasField("value") and one.key.startswith(CONSTRAINT) for one in entries)


def makes_non_nullable(theirs: Operation) -> bool:
    """Return whether the operation may have made a column non-nullable."""
    if theirs.wire_name not in ("merge", "project"):
        return False
    return not theirs.to_wire().preserves_nullability


def overlap(mine: Iterable[int], theirs: Operation, change: str) -> Conflict | None:
    """Return a retryable conflict if ``theirs`` changed one of these fragments."""
    both = frozenset(mine) & changed_fragments(theirs)
    if not both:
        return None
    named = ", ".join(map(str, sorted(both)[:10])) + (", …" if len(both) > 10 else "")
    several = "s" if len(both) > 1 else ""
    return Conflict(f"{change} fragment{several} {named} as well", fragments=both)


def conflict_on(theirs: Operation, reason: str) -> Conflict:
    """Make a conflict that a retry cannot resolve."""
    return Conflict(f"{theirs.wire_name} {reason}", retryable=False)


def incompatible(theirs: Operation, replaced: str = "") -> Conflict:
    """Make the conflict with an operation in all other cases.

    ``replaced`` says what an overwrite or a restore removed.
    """
    name = theirs.wire_name
    if replaced and name in ("overwrite", "restore"):
        return conflict_on(theirs, f"replaced {replaced}")
    if name is None:
        return Conflict("its operation is unknown to this version of glaive", retryable=False)
    return Conflict(f"{name} is not compatible with it", retryable=False)


def _ids(fragments: Iterable[Any]) -> frozenset[int]:
    return frozenset(fragment.id for fragment in fragments)


# --- The registry of operations by their wire name --------------------------------------
# Each module in ``glaive.table.operations`` defines a class decorated with ``@operation``.
# Importing the modules of the folder registers the classes.

_FOUND: dict[str, type[TableOperation]] = {}

T = TypeVar("T", bound=type[TableOperation])


def operation(cls: T) -> T:
    """Register an operation by its ``wire_name``; a class decorator."""
    if _FOUND.setdefault(cls.wire_name, cls) is not cls:
        raise TypeError(f"two operations have the wire name {cls.wire_name!r}")
    return cls


@cache
def operations() -> dict[str, type[TableOperation]]:
    """Return all operations by wire name."""
    from glaive.table import operations as package

    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(_FOUND.items()))


def read_operation(read: Operation) -> TableOperation:
    """Convert an operation that was read to a table operation. Return table operations as is.

    Raises
    ------
    CorruptFileError
        The operation's message is invalid.
    UnsupportedFeatureError
        The operation is unknown.
    """
    name = read.wire_name
    known = operations()
    if name is None or name not in known:
        raise UnsupportedFeatureError(
            f"this version of glaive does not support the operation {name!r}; it supports "
            f"{', '.join(known)}. Use the library that created the transaction, or upgrade glaive."
        )
    cls = known[name]
    if isinstance(read, cls):
        return read
    try:
        return cls.from_wire(read.to_wire())
    except CorruptFileError as error:
        place = getattr(read, "where", None)
        if place is None:
            raise
        where = f"{place}, {error.where}"
        what, expected, found = error.what, error.expected, error.found
        raise CorruptFileError(what, expected=expected, found=found, where=where) from error
