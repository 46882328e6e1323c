"""Tables of a directory namespace changed: columns, metadata, indices, tags, branches, versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import lance_namespace as interface

from glaive.errors import CorruptFileError, GlaiveError, RefExistsError, RefNotFoundError
from glaive.format.json_schema import json_to_schema
from glaive.io.store import ObjectStore
from glaive.namespace import folders
from glaive.namespace.errors import (
    InvalidInputError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    UnsupportedOperationError,
    as_namespace_errors,
)
from glaive.namespace.identifiers import id_of, text_of, value
from glaive.table.root import confine

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.namespace.manifest_table import Place

__all__ = ["TableChanges"]

_VECTOR_OPTIONS = (
    "num_partitions",
    "num_sub_vectors",
    "num_bits",
    "sample_rate",
    "target_partition_size",
    "m",
    "ef_construction",
)
_TEXT_OPTIONS = (
    "with_position",
    "base_tokenizer",
    "language",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "ascii_folding",
)


class TableChanges(ABC):
    """Operations that change more than rows; a part of :class:`DirectoryNamespace`."""

    store: ObjectStore

    @abstractmethod
    def _find(self, path: tuple[str, ...]) -> Place:
        """Implemented by the namespace of which this is a part."""

    @abstractmethod
    def _open(self, request: object) -> LanceDataset:
        """Implemented by the namespace of which this is a part."""

    # ------------------------------------------------------------ columns

    def alter_table_add_columns(self, request: Any) -> interface.AlterTableAddColumnsResponse:
        """Add columns from SQL expressions."""
        columns: dict[str, str] = {}
        for entry in value(request, "new_columns", []):
            name, expression = value(entry, "name", ""), value(entry, "expression")
            if expression is None:
                raise UnsupportedOperationError(
                    f"new_columns: the column {name!r} has no expression; virtual and computed "
                    "columns are not supported. Give an SQL expression"
                )
            columns[name] = expression
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            if columns:
                opened.add_columns(columns)
        return interface.AlterTableAddColumnsResponse(version=opened.version)

    def alter_table_alter_columns(self, request: Any) -> interface.AlterTableAlterColumnsResponse:
        """Change names, types and nullability of columns."""
        changes = [_alteration(entry) for entry in value(request, "alterations", [])]
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            if changes:
                opened.alter_columns(*changes)
        return interface.AlterTableAlterColumnsResponse(version=opened.version)

    def alter_table_drop_columns(self, request: Any) -> interface.AlterTableDropColumnsResponse:
        """Drop columns."""
        columns = list(value(request, "columns", []))
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            if columns:
                opened.drop_columns(columns)
        return interface.AlterTableDropColumnsResponse(version=opened.version)

    # ------------------------------------------------------------ metadata, versions

    def update_table_schema_metadata(
        self, request: Any
    ) -> interface.UpdateTableSchemaMetadataResponse:
        """Replace the metadata of the schema."""
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            opened.update_schema_metadata(value(request, "metadata", {}), replace=True)
            now = opened.schema_metadata
        return interface.UpdateTableSchemaMetadataResponse(metadata=dict(now))

    def update_field_metadata(self, request: Any) -> interface.UpdateFieldMetadataResponse:
        """Set entries of the metadata of fields; an entry of ``None`` is removed. One commit."""
        changes: dict[str, dict[str, str | None]] = {}
        replaced: set[str] = set()
        for entry in value(request, "updates", []):
            path, given = value(entry, "path", ""), dict(value(entry, "metadata", {}))
            if value(entry, "replace", False):
                replaced.add(path)
                changes[path] = given
            else:
                changes[path] = changes.get(path, {}) | given
        with as_namespace_errors(_name(request)):
            opened = self._open(request)
            if changes:
                opened.update_field_metadata(changes, replace=replaced)
        return interface.UpdateFieldMetadataResponse(version=opened.version)

    def restore_table(self, request: Any) -> interface.RestoreTableResponse:
        """Make an older version the newest one."""
        with as_namespace_errors(_name(request)):
            self._open(request).restore()
        return interface.RestoreTableResponse()

    # ------------------------------------------------------------ indices

    def create_table_index(self, request: Any) -> interface.CreateTableIndexResponse:
        """Build an index of vectors, or any other that the type names."""
        kind = str(value(request, "index_type", "")).upper()
        if not (kind.startswith("IVF") or kind == "VECTOR"):
            self.create_table_scalar_index(request)
            return interface.CreateTableIndexResponse()
        options = _given(request, _VECTOR_OPTIONS)
        metric = value(request, "distance_type", "l2")
        with as_namespace_errors(_name(request)):
            self._open(request).create_index(
                value(request, "column", ""),
                "IVF_PQ" if kind == "VECTOR" else kind,
                name=value(request, "name"),
                metric=metric,
                replace=False,
                **options,
            )
        return interface.CreateTableIndexResponse()

    def create_table_scalar_index(self, request: Any) -> interface.CreateTableScalarIndexResponse:
        """Build an index of values or texts."""
        kind = str(value(request, "index_type", "")).upper()
        kind = "INVERTED" if kind == "FTS" else kind
        options = _given(request, _TEXT_OPTIONS) if kind == "INVERTED" else {}
        with as_namespace_errors(_name(request)):
            self._open(request).create_scalar_index(
                value(request, "column", ""),
                kind,
                name=value(request, "name"),
                replace=False,
                **options,
            )
        return interface.CreateTableScalarIndexResponse()

    def drop_table_index(self, request: Any) -> interface.DropTableIndexResponse:
        """Drop an index."""
        name = value(request, "index_name")
        if not name:
            raise InvalidInputError("index_name: drop_table_index needs the name of an index")
        with as_namespace_errors(_name(request)):
            self._open(request).drop_index(name)
        return interface.DropTableIndexResponse()

    # ------------------------------------------------------------ tags and branches

    def create_table_tag(self, request: Any) -> interface.CreateTableTagResponse:
        """Name a version."""
        with as_namespace_errors(_name(request)):
            self._tagged(request).tags.create(value(request, "tag", ""), _reference(request))
        return interface.CreateTableTagResponse()

    def update_table_tag(self, request: Any) -> interface.UpdateTableTagResponse:
        """Move a tag to another version."""
        with as_namespace_errors(_name(request)):
            self._tagged(request).tags.update(value(request, "tag", ""), _reference(request))
        return interface.UpdateTableTagResponse()

    def delete_table_tag(self, request: Any) -> interface.DeleteTableTagResponse:
        """Delete a tag."""
        with as_namespace_errors(_name(request)):
            self._confined(request).tags.delete(value(request, "tag", ""))
        return interface.DeleteTableTagResponse()

    def create_table_branch(self, request: Any) -> interface.CreateTableBranchResponse:
        """Create a branch from a version."""
        start = value(request, "from_branch"), value(request, "from_version")
        reference: Any = start[1] if start[0] in (None, "main") else start
        name = value(request, "name", "")
        try:
            with as_namespace_errors(_name(request)):
                self._tagged(request).create_branch(name, reference)
        except RefExistsError as error:
            raise TableBranchAlreadyExistsError(str(error)) from error
        return interface.CreateTableBranchResponse()

    def delete_table_branch(self, request: Any) -> interface.DeleteTableBranchResponse:
        """Delete a branch."""
        try:
            with as_namespace_errors(_name(request)):
                self._confined(request).branches.delete(value(request, "name", ""))
        except RefNotFoundError as error:
            raise TableBranchNotFoundError(str(error)) from error
        return interface.DeleteTableBranchResponse()

    def _tagged(self, request: object) -> LanceDataset:
        """The newest version of the table: the version of the request is that of a tag."""
        return self._open({"id": id_of(request, of_table=True)})

    def _confined(self, request: object) -> LanceDataset:
        """The same to delete files of, which no link may lead to."""
        folders.refuse_links(self.store, self._find(id_of(request, of_table=True)).folder)
        dataset = self._tagged(request)
        confine(dataset.opened.store, self.store)
        return dataset


def _name(request: object) -> str:
    return f"table {text_of(id_of(request, of_table=True))}"


def _given(request: object, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: value(request, name) for name in names}
    return {name: given for name, given in found.items() if given is not None}


def _reference(request: object) -> Any:
    branch, version = value(request, "branch"), value(request, "version")
    return version if branch in (None, "main") else (branch, version)


def _alteration(entry: object) -> dict[str, Any]:
    change: dict[str, Any] = {"path": value(entry, "path", "")}
    if value(entry, "virtual_column") is not None:
        raise UnsupportedOperationError("alterations: virtual columns are not supported")
    if value(entry, "rename") is not None:
        change["name"] = value(entry, "rename")
    if value(entry, "nullable") is not None:
        change["nullable"] = value(entry, "nullable")
    kind = value(entry, "data_type")
    if kind is not None:
        described = kind if isinstance(kind, dict) else {"type": kind}
        field = {"name": "x", "nullable": True, "type": described}
        try:
            change["data_type"] = json_to_schema({"fields": [field]}).field(0).type
        except CorruptFileError as error:  # of the request, not of a file
            raise InvalidInputError(
                f"alterations, data_type: expected {error.expected}, found {error.found}"
            ) from None
        except GlaiveError as error:
            raise InvalidInputError(f"alterations, data_type: {error}") from None
    return change
