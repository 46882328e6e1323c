"""Set string maps of a table: its configuration, and metadata of table, schema and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glaive.dataset.commits.commit import commit_operation
from glaive.errors import OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.table.operations.update_config import UpdateConfig

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = [
    "StringUpdates",
    "set_config",
    "set_field_metadata",
    "set_metadata",
    "set_schema_metadata",
]

StringUpdates = Mapping[str, str | None]
"""Values by key; ``None`` removes the key."""

_MESSAGE = table_pb2.Transaction.UpdateConfig


def set_config(dataset: OpenedVersion, values: StringUpdates, *, replace: bool = False) -> Manifest:
    """Set entries of the configuration; ``replace`` removes all others."""
    updates = _updates("config", values, replace=replace)
    return _commit(dataset, _MESSAGE(config_updates=updates))


def set_metadata(
    dataset: OpenedVersion, values: StringUpdates, *, replace: bool = False
) -> Manifest:
    """Set entries of the table's metadata; ``replace`` removes all others."""
    updates = _updates("metadata", values, replace=replace)
    return _commit(dataset, _MESSAGE(table_metadata_updates=updates))


def set_schema_metadata(
    dataset: OpenedVersion, values: StringUpdates, *, replace: bool = False
) -> Manifest:
    """Set entries of the schema's metadata; ``replace`` removes all others."""
    updates = _updates("schema metadata", values, replace=replace)
    return _commit(dataset, _MESSAGE(schema_metadata_updates=updates))


def set_field_metadata(
    dataset: OpenedVersion, values: Mapping[str, StringUpdates], *, replace: bool = False
) -> Manifest:
    """Set entries of the metadata of fields, given by path; ``replace`` removes all others.

    Raises
    ------
    ColumnNotFoundError
        A field does not exist; the message names the closest ones.
    """
    message = _MESSAGE()
    for path, metadata in values.items():
        field = dataset.manifest.schema.find(path)[-1]
        updates = _updates(f"metadata of {path!r}", metadata, replace=replace)
        message.field_metadata_updates[field.id].CopyFrom(updates)
    return _commit(dataset, message)


def _commit(dataset: OpenedVersion, message: table_pb2.Transaction.UpdateConfig) -> Manifest:
    return commit_operation(dataset, UpdateConfig(message))


def _updates(
    target: str, values: StringUpdates, *, replace: bool
) -> table_pb2.Transaction.UpdateMap:
    given: dict[Any, Any] = dict(values)
    wrong = {
        key: value
        for key, value in given.items()
        if not isinstance(key, str) or not isinstance(value, str | None)
    }
    if wrong:
        raise OptionError(f"{target}: expected string keys and values, found {wrong!r:.80}")
    entries = [
        table_pb2.Transaction.UpdateMapEntry(key=key, value=value) for key, value in given.items()
    ]
    return table_pb2.Transaction.UpdateMap(update_entries=entries, replace=replace)
