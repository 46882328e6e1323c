"""What an operation of another writer changed, to detect conflicts.

Specification: "Conflicts" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from glaive.format.pb import table_pb2
from glaive.format.transaction import Operation
from glaive.table.protocol import Conflict

__all__ = [
    "INCREMENTAL",
    "changed_fragments",
    "changes_columns",
    "conflict_on",
    "incompatible",
    "makes_non_nullable",
    "overlap",
    "removed_fragments",
    "replaced_fields",
    "sets_metadata",
]


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
"""Operations that change parts of a dataset, of which many pairs are compatible."""


def changed_fragments(theirs: Operation) -> frozenset[int]:
    """Ids of the fragments that were changed, replaced or removed; not of new ones."""
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
    """Ids of the fragments that were removed or replaced."""
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
    """Ids of the fragments that a rewrite replaced."""
    groups = (_ids(group.old_fragments) for group in message.groups)
    return _ids(message.old_fragments).union(*groups)


def changes_columns(theirs: Operation) -> bool:
    """Whether the operation is an update that replaced columns in place."""
    message = theirs.to_wire()
    update = table_pb2.Transaction.Update
    return theirs.wire_name == "update" and (
        message.update_mode == update.REWRITE_COLUMNS or bool(message.fields_modified)
    )


def replaced_fields(theirs: Operation) -> frozenset[int]:
    """Ids of the fields whose values were replaced in place.

    Of an update that does not say which, all that the changed fragments have.
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
    """Whether metadata of the schema or of a field was set."""
    if theirs.wire_name != "update_config":
        return False
    message = theirs.to_wire()
    return bool(
        message.HasField("schema_metadata_updates")
        or message.field_metadata_updates
        or message.schema_metadata
        or message.field_metadata
    )


def makes_non_nullable(theirs: Operation) -> bool:
    """Whether the operation may have made a column non-nullable."""
    if theirs.wire_name not in ("merge", "project"):
        return False
    return not theirs.to_wire().preserves_nullability


def overlap(mine: Iterable[int], theirs: Operation, change: str) -> Conflict | None:
    """A retryable conflict if ``theirs`` changed one of these fragments."""
    both = frozenset(mine) & changed_fragments(theirs)
    if not both:
        return None
    named = ", ".join(map(str, sorted(both)[:10])) + (", …" if len(both) > 10 else "")
    several = "s" if len(both) > 1 else ""
    return Conflict(f"{change} fragment{several} {named} as well", fragments=both)


def conflict_on(theirs: Operation, reason: str) -> Conflict:
    """A conflict that a retry cannot resolve."""
    return Conflict(f"{theirs.wire_name} {reason}", retryable=False)


def incompatible(theirs: Operation, replaced: str = "") -> Conflict:
    """The conflict with an operation that fits no other case.

    ``replaced`` says what no longer exists after an overwrite or a restore.
    """
    name = theirs.wire_name
    if replaced and name in ("overwrite", "restore"):
        return conflict_on(theirs, f"replaced {replaced}")
    if name is None:
        return Conflict("its operation is unknown to this version of glaive", retryable=False)
    return Conflict(f"{name} is not compatible with it", retryable=False)


def _ids(fragments: Iterable[Any]) -> frozenset[int]:
    return frozenset(fragment.id for fragment in fragments)
