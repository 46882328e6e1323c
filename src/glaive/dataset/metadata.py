"""Set string maps of a table: its configuration, and metadata of table, schema and fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from glaive.dataset.tasks import commit_operation
from glaive.errors import OptionError, SchemaError
from glaive.format.field import PRIMARY_KEY, is_primary_key
from glaive.format.manifest import Manifest
from glaive.table.configuration import string_map
from glaive.table.operations.update_config import UpdateConfig

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion


# --- Rows that another library keeps in a log beside the table (MemWAL) until it merges them
# They have the columns that the table had when they were written, found by the ids of fields.

_LOG: Final = "__lance_mem_wal"
"""Name of the entry of the index section that says that there is a log."""


def refuse_for_logged_rows(manifest: Manifest, change: str) -> None:
    """Refuse a change of columns that rows in a log would not have.

    Raises
    ------
    SchemaError
        The table has a log.
    """
    if any(index.name == _LOG for index in manifest.indices):
        raise SchemaError(
            f"{change}: the table has a log of rows (MemWAL), which would lose these values or "
            "not be found any more. Merge its rows and drop it (drop_index) first, with pylance."
        )


StringUpdates = Mapping[str, str | None]
"""Values by key; ``None`` removes the key."""


def set_config(dataset: OpenedVersion, values: StringUpdates, *, replace: bool = False) -> Manifest:
    """Set entries of the configuration; ``replace`` removes all others."""
    change = UpdateConfig.of(config=string_map("config", values, removes=True), replace=replace)
    return commit_operation(dataset, change)


def set_metadata(
    dataset: OpenedVersion, values: StringUpdates, *, replace: bool = False
) -> Manifest:
    """Set entries of the table's metadata; ``replace`` removes all others."""
    change = UpdateConfig.of(
        table_metadata=string_map("metadata", values, removes=True), replace=replace
    )
    return commit_operation(dataset, change)


def set_schema_metadata(
    dataset: OpenedVersion, values: StringUpdates, *, replace: bool = False
) -> Manifest:
    """Set entries of the schema's metadata; ``replace`` removes all others."""
    change = UpdateConfig.of(
        schema_metadata=string_map("schema metadata", values, removes=True), replace=replace
    )
    return commit_operation(dataset, change)


def set_field_metadata(
    dataset: OpenedVersion,
    values: Mapping[str, StringUpdates],
    *,
    replace: bool | Collection[str] = False,
) -> Manifest:
    """Set entries of the metadata of fields, given by path.

    ``replace`` removes all others, or those of the fields that it names. One commit.

    Raises
    ------
    SchemaError
        They say which columns are the primary key, by which rows of a log are found.
    """
    schema = dataset.manifest.schema
    given: list[Any] = list(values)
    wrong = [path for path in given if not isinstance(path, str)]
    if wrong:
        raise OptionError(f"field_updates: expected paths of fields, found {wrong[0]!r}")
    by_id: dict[int, Mapping[str, str | None]] = {}
    for path, metadata in values.items():  # a field may have several, which differ in quotes
        at = schema.find(path)[-1].id
        entries = string_map(f"metadata of {path!r}", metadata, removes=True)
        by_id[at] = {**by_id.get(at, {}), **entries}
    all_of = by_id if replace is True else [schema.find(path)[-1].id for path in replace or ()]
    declares = any(key.startswith(PRIMARY_KEY) for entries in by_id.values() for key in entries)
    if declares or any(is_primary_key(schema.field_by_id(one)) for one in all_of):
        refuse_for_logged_rows(dataset.manifest, "the primary key cannot be changed")
    if isinstance(replace, bool):
        return commit_operation(dataset, UpdateConfig.of(field_metadata=by_id, replace=replace))
    change = UpdateConfig.of(field_metadata=by_id, replaced_fields=set(all_of))
    return commit_operation(dataset, change)
