"""The wire's flat list of fields and the tree it stands for.

Each field of the list names its parent by id, -1 at the top level; a parent stands before
its children. A parent that is left out on the wire is field 0, not the top level.

Specification: "Fields" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.arrow.nesting import MAX_NESTING
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.blobs import MEMBERS, unfit_members
from glaive.format.field import PACKED, Field
from glaive.format.logical_types import EXTENSION_NAME, encoding_hint
from glaive.format.pb import file_pb2

__all__ = ["fields_from_wire", "fields_to_wire"]

_PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_PRIMARY_KEY_POSITION = "lance-schema:unenforced-primary-key:position"
_TRUE = frozenset({"true", "1", "yes"})


def fields_from_wire(wire: Sequence[file_pb2.Field], where: str) -> tuple[Field, ...]:
    """Put the list together: find each field's place, then build from the last one back.

    Raises
    ------
    CorruptFileError
        Two fields have one id, a parent does not stand before its children, or a blob column
        lacks members.
    UnsupportedFeatureError
        Fields are nested deeper than :data:`MAX_NESTING`, or lie below one that is not nested.
    """
    at: dict[int, int] = {}
    below: list[list[int]] = []
    depth: list[int] = []
    top: list[int] = []
    blob = -1
    for position, one in enumerate(wire):
        field_id, parent = one.id, one.parent_id
        below.append([])
        is_part = field_id == -1 and blob >= 0
        if is_part:
            # The parts of a blob descriptor have neither an id nor a parent's.
            owner = blob
        elif parent == -1:
            owner = -1
        elif parent in at:
            owner = at[parent]
        else:
            raise CorruptFileError(
                f"parent of field {field_id} {one.name!r}",
                expected="the id of a field before it, or -1",
                found=f"{parent}",
                where=where,
            )
        if field_id in at or (field_id < 0 and not is_part):
            raise CorruptFileError(
                f"id of field {one.name!r}", expected="a new id", found=f"{field_id}", where=where
            )
        if field_id >= 0:
            at[field_id] = position
            blob = position if one.logical_type == "struct" and PACKED in one.metadata else -1
        if owner < 0:
            top.append(position)
            depth.append(1)
        else:
            below[owner].append(position)
            depth.append(depth[owner] + 1)
    if depth and max(depth) > MAX_NESTING:
        raise UnsupportedFeatureError(
            f"fields are nested {max(depth)} levels deep (in {where}); this reader takes "
            f"{MAX_NESTING} levels at most."
        )
    built: dict[int, Field] = {}
    for position in range(len(wire) - 1, -1, -1):
        one = wire[position]
        built[position] = field = Field(
            id=one.id,
            name=one.name,
            logical_type=one.logical_type,
            nullable=one.nullable,
            children=tuple(built.pop(child) for child in below[position]),
            metadata=_wire_metadata(one),
            dictionary=(
                (one.dictionary.offset, one.dictionary.length) if one.dictionary.length else None
            ),
        )
        if field.children and not field.is_nested:
            raise UnsupportedFeatureError(
                f"field {field.name!r} of type {field.logical_type!r} has fields below it (in "
                f"{where}), of which this reader does not know the meaning. The schema is damaged, "
                "or was written by a newer Lance: upgrade glaive."
            )
        unfit = unfit_members(field)
        if unfit is not None:
            raise CorruptFileError(
                f"members of blob column {field.name!r}", expected=MEMBERS, found=unfit, where=where
            )
    return tuple(built[position] for position in top)


def _wire_metadata(one: file_pb2.Field) -> dict[str, bytes]:
    metadata = dict(one.metadata)
    if one.unenforced_primary_key:
        metadata.setdefault(_PRIMARY_KEY, b"true")
        if one.unenforced_primary_key_position:
            position = str(one.unenforced_primary_key_position).encode()
            metadata.setdefault(_PRIMARY_KEY_POSITION, position)
    if one.extension_name:
        metadata.setdefault(EXTENSION_NAME, one.extension_name.encode())
    return metadata


def fields_to_wire(fields: Sequence[Field]) -> list[file_pb2.Field]:
    """The flat list, depth first."""
    out: list[file_pb2.Field] = []
    for field in fields:
        _to_wire(field, -1, out)
    return out


def _to_wire(one: Field, parent: int, out: list[file_pb2.Field]) -> None:
    wire = file_pb2.Field(
        name=one.name,
        id=one.id,
        parent_id=parent,
        logical_type=one.logical_type,
        nullable=one.nullable,
        encoding=encoding_hint(one.logical_type),  # type: ignore[arg-type]  # its number
        extension_name=one.option(EXTENSION_NAME) or "",
        metadata=one.metadata,
    )
    if one.dictionary is not None or one.logical_type.startswith("dict:"):
        offset, length = one.dictionary or (0, 0)
        wire.dictionary.offset, wire.dictionary.length = offset, length
        wire.dictionary.SetInParent()
    if (one.option(_PRIMARY_KEY) or "").lower() in _TRUE:
        wire.unenforced_primary_key = True
        position = one.option(_PRIMARY_KEY_POSITION) or "0"
        wire.unenforced_primary_key_position = int(position) if position.isdecimal() else 0
    out.append(wire)
    for child in one.children:
        _to_wire(child, one.id if one.id >= 0 else -1, out)
