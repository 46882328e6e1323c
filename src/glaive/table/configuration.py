"""Changes of text entries: configuration, table metadata, metadata of schema and fields.

A map of updates lists keys with values, and keys without one, which are removed; it may also
remove all keys that it does not list. Older transactions have plain maps instead.

Specification: "Update config" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from glaive.format.pb import table_pb2

__all__ = ["changed_config", "same_keys", "set_entries"]

UpdateMap = table_pb2.Transaction.UpdateMap
UpdateConfig = table_pb2.Transaction.UpdateConfig

EVERYTHING: Final = frozenset({"\0"})
"""Stands for all keys, listed or not."""


def set_entries(entries: MutableMapping[str, Any], updates: UpdateMap, *, raw: bool) -> None:
    """Carry out updates on ``entries``; values are bytes if ``raw``."""
    if updates.replace:
        listed = {entry.key for entry in updates.update_entries}
        for key in [key for key in entries if key not in listed]:
            del entries[key]
    for entry in updates.update_entries:
        if entry.HasField("value"):
            entries[entry.key] = entry.value.encode() if raw else entry.value
        elif entry.key in entries:
            del entries[entry.key]


def changed_config(message: UpdateConfig) -> frozenset[str]:
    """Keys of the table's configuration that are set or removed."""
    old = set(message.upsert_values) | set(message.delete_keys)
    return _changed_keys(message.config_updates) | old


def _changed_keys(updates: UpdateMap) -> frozenset[str]:
    """Keys that are set or removed; :data:`EVERYTHING` as well if the rest is removed."""
    listed = frozenset(entry.key for entry in updates.update_entries)
    return listed | EVERYTHING if updates.replace else listed


def same_keys(mine: UpdateConfig, theirs: UpdateConfig) -> str | None:
    """What two changes both set, in words; ``None`` if they go together."""
    for what, one, other in (
        ("configuration", changed_config(mine), changed_config(theirs)),
        (
            "table metadata",
            _changed_keys(mine.table_metadata_updates),
            _changed_keys(theirs.table_metadata_updates),
        ),
    ):
        both = sorted(one & other) or (one and other and one | other >= EVERYTHING)
        if both:
            named = ", ".join(both) if isinstance(both, list) else "all keys"
            return f"{what} of {named}".replace("\0", "all keys")
    both_fields = _fields(mine) & _fields(theirs)
    if both_fields:
        return f"metadata of field {', '.join(map(str, sorted(both_fields)))}"
    return "metadata of the schema" if _schema(mine) and _schema(theirs) else None


def _fields(message: UpdateConfig) -> frozenset[int]:
    fields: Mapping[int, Any] = message.field_metadata_updates
    return frozenset(fields) | frozenset(message.field_metadata)


def _schema(message: UpdateConfig) -> bool:
    return message.HasField("schema_metadata_updates") or bool(message.schema_metadata)
