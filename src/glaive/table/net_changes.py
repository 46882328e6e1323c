"""What changed between two versions, where the transactions between were cleaned up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation, WireOperation
from glaive.table.fragment_ids import moved_fields
from glaive.table.named_jobs import is_mark
from glaive.table.operations.update_config import UpdateConfig

__all__ = ["net_changes"]

_WIRE = table_pb2.Transaction
_LOG = "__lance_mem_wal"
"""Entry of the index section that says that rows are in a log beside the table."""


def net_changes(before: Manifest, after: Manifest, mine: Operation) -> list[Operation] | None:
    """Operations that made a version of an earlier one; ``None`` if the manifests do not say which.

    A difference of the two that can have several causes is in an operation of each cause. So a
    change conflicts with these operations if it can conflict with the committed operations.
    Exceptions are appends and changes of the schema after an overwrite: a compaction looks alike.

    Parameters
    ----------
    mine
        The operation to be committed. Only an overwrite loses another overwrite.
    """
    stable = int(Feature.STABLE_ROW_IDS)
    if (before.wire.writer_feature_flags ^ after.wire.writer_feature_flags) & stable:
        return None
    schema, fragments = _schema_change(before, after), _fragment_changes(before, after, mine)
    entries = _entry_change(before, after)
    if schema is None or fragments is None or entries is None:
        return None
    bases = [base for number, base in after.base_paths.items() if number not in before.base_paths]
    return [
        WireOperation("reserve_fragments", _WIRE.ReserveFragments()),  # even if nothing is left
        *schema,
        *fragments,
        *entries,
        *([WireOperation("update_bases", _WIRE.UpdateBases(new_bases=bases))] if bases else ()),
    ]


def _fragment_changes(before: Manifest, after: Manifest, mine: Operation) -> list[Operation] | None:
    """Rows and values; ``None`` if fragments of another history are there."""
    old = dict(zip(before.fragment_ids.tolist(), before.wire.fragments, strict=True))
    new = dict(zip(after.fragment_ids.tolist(), after.wire.fragments, strict=True))
    positions = {number: at for at, number in enumerate(new)}
    if len(old) < before.num_fragments or len(new) < after.num_fragments:
        return None  # two fragments have one id
    removed = old.keys() - new.keys()
    added = [after.fragment_wire(at) for number, at in positions.items() if number not in old]
    reused = any(fragment.id <= before.max_fragment_id for fragment in added)
    if reused or (old and len(removed) == len(old) and mine.wire_name == "overwrite"):
        return None
    known = frozenset(before.schema.field_ids()) & frozenset(after.schema.field_ids())
    deleted, columns, fields = [], [], set[int]()
    for at, (number, packed) in enumerate(old.items()):
        if number in removed or packed == new[number]:
            continue
        was, now = before.fragment_wire(at), after.fragment_wire(positions[number])
        if was.physical_rows != now.physical_rows:
            return None
        moved = known & moved_fields(was, now)
        if list(was.overlays) != list(now.overlays):
            moved |= known
        if moved:
            columns.append(now)
            fields |= moved
        if was.deletion_file != now.deletion_file:
            deleted.append(now)
    renamed = {
        number
        for number in known
        if before.schema.field_by_id(number).name != after.schema.field_by_id(number).name
    }
    if renamed & fields or (renamed and removed):
        return None  # maybe a new column has the id of a dropped one
    found: list[Operation] = []
    if columns:
        message = _WIRE.Update(updated_fragments=columns, fields_modified=sorted(fields))
        message.update_mode = _WIRE.Update.REWRITE_COLUMNS
        found.append(WireOperation("update", message))
    if removed and added:
        group = _WIRE.Rewrite.RewriteGroup(new_fragments=added)
        group.old_fragments.extend(
            before.fragment_wire(at) for at, n in enumerate(old) if n in removed
        )
        found.append(WireOperation("rewrite", _WIRE.Rewrite(groups=[group])))
    if removed or deleted:
        rows = _WIRE.Update(removed_fragment_ids=sorted(removed), updated_fragments=deleted)
        rows.new_fragments.extend(added)
        found.append(WireOperation("update", rows))
    if added:
        found.append(WireOperation("append", _WIRE.Append(fragments=added)))
    return found


def _schema_change(before: Manifest, after: Manifest) -> list[Operation] | None:
    """Columns and settings; ``None`` if a column has the id of another one."""
    old, new = ({field.id: field for field in one.schema.walk()} for one in (before, after))
    both = old.keys() & new.keys()
    if any(old[number].logical_type != new[number].logical_type for number in both):
        return None
    wires = [[_bare(field) for field in one.schema.to_wire()] for one in (before, after)]
    found: list[Operation] = []
    if wires[0] != wires[1]:
        stays = all(
            field.nullable or (n in old and not old[n].nullable) for n, field in new.items()
        )
        message: Any = _WIRE.Project(schema=after.schema.to_wire(), preserves_nullability=stays)
        if new.keys() - old.keys():
            message = _WIRE.Merge(schema=after.schema.to_wire(), preserves_nullability=stays)
            message.fragments.extend(map(after.fragment_wire, range(after.num_fragments)))
        found.append(WireOperation(str(message.DESCRIPTOR.name).lower(), message))
    settings: dict[str, Any] = {
        "config": _map_change(before.config, after.config),
        "table_metadata": _map_change(before.table_metadata, after.table_metadata),
        "schema_metadata": _map_change(before.schema.metadata, after.schema.metadata),
        "field_metadata": {
            number: changed
            for number in both
            if (changed := _map_change(old[number].metadata, new[number].metadata))
        },
    }
    given = {name: changed for name, changed in settings.items() if changed}
    return [*found, UpdateConfig.of(**given)] if given else found


def _map_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str | None]:
    """New values by key, ``None`` for removed ones; entries of commits are not settings."""
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return {key: str(new[key]) if key in new else None for key in changed if not is_mark(key)}


def _bare(field: Any) -> bytes:
    field.metadata.clear()
    return bytes(field.SerializeToString(deterministic=True))


def _entry_change(before: Manifest, after: Manifest) -> list[Operation] | None:
    """Indices; ``None`` if rows were logged beside the table."""
    old, new = ({entry.uuid.uuid: entry for entry in one.indices} for one in (before, after))
    added, removed = _missing(new, old), _missing(old, new)
    if any(entry.name == _LOG for entry in (*added, *removed)):
        return None
    message = _WIRE.CreateIndex(new_indices=added, removed_indices=removed)
    return [WireOperation("create_index", message)] if added or removed else []


def _missing(some: Mapping[bytes, Any], others: Iterable[bytes]) -> list[Any]:
    return [entry for key, entry in some.items() if key not in others]
