"""Convert table operations to the classes of ``LanceOperation``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from glaive.dataset.commits.index_metadata import Index
from glaive.dataset.commits.lance_operation import LanceOperation
from glaive.dataset.fragments.data_files import DataFile
from glaive.dataset.fragments.metadata import FragmentMetadata
from glaive.dataset.fragments.overlays import read_overlay
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.format import fragment as stored
from glaive.table.operations.append import Append
from glaive.table.operations.clone import Clone
from glaive.table.operations.create_index import CreateIndex
from glaive.table.operations.data_replacement import DataReplacement
from glaive.table.operations.delete import Delete
from glaive.table.operations.merge import Merge
from glaive.table.operations.overwrite import Overwrite
from glaive.table.operations.project import Project
from glaive.table.operations.restore import Restore
from glaive.table.operations.rewrite import Rewrite
from glaive.table.operations.update import Update
from glaive.table.operations.update_config import UpdateConfig
from glaive.table.protocol import TableOperation

__all__ = ["public_operation"]


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
