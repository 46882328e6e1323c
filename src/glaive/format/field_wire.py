"""Convert between the flat list of fields in wire format and the tree.

Each field of the list has the id of its parent, -1 at the top level; parents precede their
children. A parent that is omitted on the wire is field 0, not the top level.

Specification: "Fields" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.arrow.nesting import MAX_NESTING
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.blobs import MEMBERS, unfit_members
from glaive.format.declared_keys import (
    CLUSTERING_KEY_POSITION,
    PRIMARY_KEY,
    PRIMARY_KEY_POSITION,
    is_clustering_key,
    is_primary_key,
    key_position,
)
from glaive.format.field import PACKED, Field
from glaive.format.logical_types import EXTENSION_NAME, encoding_hint
from glaive.format.pb import file_pb2

__all__ = ["fields_from_wire", "fields_to_wire"]


def fields_from_wire(wire: Sequence[file_pb2.Field], where: str) -> tuple[Field, ...]:
    """Build the tree: find the parent of each field, then build from the last field backwards.

    Raises
    ------
    CorruptFileError
        An id is repeated, a parent does not precede its children, or a blob column lacks members.
    UnsupportedFeatureError
        Fields are nested deeper than :data:`MAX_NESTING`, or a field of a leaf type has children.
    """
    top, below = _find_parents(wire, where)
    built: dict[int, Field] = {}
    for position in range(len(wire) - 1, -1, -1):
        message = wire[position]
        built[position] = field = Field(
            id=message.id,
            name=message.name,
            logical_type=message.logical_type,
            nullable=message.nullable,
            children=tuple(built.pop(child) for child in below[position]),
            metadata=_wire_metadata(message),
            dictionary=(
                (message.dictionary.offset, message.dictionary.length)
                if message.dictionary.length
                else None
            ),
        )
        if field.children and not field.is_nested:
            raise UnsupportedFeatureError(
                f"field {field.name!r} of type {field.logical_type!r} has children (in {where}), "
                "which this reader does not support. The schema is damaged, or was written by a "
                "newer Lance: upgrade glaive."
            )
        unfit = unfit_members(field)
        if unfit is not None:
            raise CorruptFileError(
                f"members of blob column {field.name!r}", expected=MEMBERS, found=unfit, where=where
            )
    return tuple(built[position] for position in top)


def _find_parents(wire: Sequence[file_pb2.Field], where: str) -> tuple[list[int], list[list[int]]]:
    """Find the positions of fields at the top, and for each field those of its children."""
    at: dict[int, int] = {}
    below: list[list[int]] = []
    depth: list[int] = []
    top: list[int] = []
    blob = -1
    for position, message in enumerate(wire):
        field_id, parent = message.id, message.parent_id
        below.append([])
        is_part = field_id == -1 and blob >= 0
        if is_part:
            # Members of a blob descriptor have neither an id nor a parent id.
            owner = blob
        elif parent == -1:
            owner = -1
        elif parent in at:
            owner = at[parent]
        else:
            raise CorruptFileError(
                f"parent of field {field_id} {message.name!r}",
                expected="the id of a preceding field, or -1",
                found=f"{parent}",
                where=where,
            )
        if field_id in at or (field_id < 0 and not is_part):
            raise CorruptFileError(
                f"id of field {message.name!r}",
                expected="a new id",
                found=f"{field_id}",
                where=where,
            )
        if field_id >= 0:
            at[field_id] = position
            blob = (
                position if message.logical_type == "struct" and PACKED in message.metadata else -1
            )
        if owner < 0:
            top.append(position)
            depth.append(1)
        else:
            below[owner].append(position)
            depth.append(depth[owner] + 1)
    if depth and max(depth) > MAX_NESTING:
        raise UnsupportedFeatureError(
            f"fields are nested {max(depth)} levels deep (in {where}); this reader supports at "
            f"most {MAX_NESTING} levels."
        )
    return top, below


def _wire_metadata(field: file_pb2.Field) -> dict[str, bytes]:
    metadata = dict(field.metadata)
    if field.unenforced_primary_key and PRIMARY_KEY_POSITION not in metadata:
        metadata.setdefault(PRIMARY_KEY, b"true")
        if field.unenforced_primary_key_position:
            position = str(field.unenforced_primary_key_position).encode()
            metadata.setdefault(PRIMARY_KEY_POSITION, position)
    if field.unenforced_clustering_key:
        position = str(field.unenforced_clustering_key_position).encode()
        metadata.setdefault(CLUSTERING_KEY_POSITION, position)
    if field.extension_name:
        metadata.setdefault(EXTENSION_NAME, field.extension_name.encode())
    return metadata


def fields_to_wire(fields: Sequence[Field]) -> list[file_pb2.Field]:
    """The flat list, depth first."""
    out: list[file_pb2.Field] = []
    for field in fields:
        _to_wire(field, -1, out)
    return out


def _to_wire(field: Field, parent: int, out: list[file_pb2.Field]) -> None:
    wire = file_pb2.Field(
        name=field.name,
        id=field.id,
        parent_id=parent,
        logical_type=field.logical_type,
        nullable=field.nullable,
        encoding=encoding_hint(field.logical_type),  # type: ignore[arg-type]  # its number
        extension_name=field.option(EXTENSION_NAME) or "",
        metadata=field.metadata,
    )
    if field.dictionary is not None or field.logical_type.startswith("dict:"):
        offset, length = field.dictionary or (0, 0)
        wire.dictionary.offset, wire.dictionary.length = offset, length
        wire.dictionary.SetInParent()
    if is_primary_key(field):
        wire.unenforced_primary_key = True
        wire.unenforced_primary_key_position = key_position(field, PRIMARY_KEY_POSITION) or 0
    if is_clustering_key(field):
        wire.unenforced_clustering_key = True
        wire.unenforced_clustering_key_position = key_position(field, CLUSTERING_KEY_POSITION) or 0
    out.append(wire)
    for child in field.children:
        _to_wire(child, field.id if field.id >= 0 else -1, out)
