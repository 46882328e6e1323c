"""Blob columns: large values that are stored outside of the pages of their column.

In a blob column of the first kind, ``large_binary`` with ``lance-encoding:blob``, values are in
the data file; from format 2.2 on there are columns of the second kind, the extension type
``lance.blob.v2``, whose values may also be in files beside the data file or in any other location.
The pages of both have descriptors with the location of each value.

Specification: ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from glaive.format.field import BLOB, BLOB_V2, PACKED, Field
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME

__all__ = [
    "BLOB_V2",
    "DESCRIPTION",
    "DESCRIPTOR",
    "EXTERNAL",
    "INLINE",
    "LOGICAL",
    "MEMBERS",
    "NULL_POSITION",
    "OWN_FILE",
    "PACKED_FILE",
    "as_binary",
    "described",
    "has_blobs",
    "has_blobs_v2",
    "is_blob",
    "is_described",
    "logical",
    "stored",
    "unfit_members",
]

DESCRIPTION: Final = pa.struct([("position", pa.uint64()), ("size", pa.uint64())])
"""Descriptor of a value of the first kind, in the data file."""

NULL_POSITION: Final = 1
"""Where a null of format 2.0 is said to lie, with 0 bytes."""

DESCRIPTOR: Final = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.string(), nullable=False),
    ]
)
"""Descriptor of a value of the second kind."""

LOGICAL: Final = pa.struct(
    [
        ("data", pa.large_binary()),
        ("uri", pa.string()),
        ("position", pa.uint64()),
        ("size", pa.uint64()),
    ]
)
"""Storage of a value that is to be written; the last two members are optional."""

INLINE, PACKED_FILE, OWN_FILE, EXTERNAL = range(4)
"""Kinds of descriptors: in the data file, in a shared file, in a file of its own, external."""

_TYPES: Final = {
    pa.large_binary(): "large_binary",
    pa.uint8(): "uint8",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.string(): "string",
}


_MEMBERS: Final = [(field.name, _TYPES[field.type]) for field in LOGICAL]
_SHORT: Final = 2
"""Number of required members."""

MEMBERS: Final = "data: large_binary, uri: string, and perhaps position and size: uint64"
"""The same as text."""


def is_blob(field: Field) -> bool:
    """Whether a field is a blob column of the first kind."""
    return field.logical_type == "large_binary" and field.option(BLOB) == "true"


def is_described(field: Field) -> bool:
    """Whether a field is a blob column converted by :func:`described`, as in files."""
    return field.logical_type == "struct" and BLOB in field.metadata


def has_blobs(field: Field) -> bool:
    """Whether there is a blob column at or below a field."""
    return any(is_blob(part) or part.is_blob_v2 for part in field.walk())


def has_blobs_v2(field: Field) -> bool:
    """Whether there is a blob column of the second kind at or below a field."""
    return any(part.is_blob_v2 for part in field.walk())


def unfit_members(field: Field) -> str | None:
    """The members of a blob column of the second kind, if they are invalid."""
    members = [(child.name, child.logical_type) for child in field.children]
    if not field.is_blob_v2 or members in (_MEMBERS, _MEMBERS[:_SHORT]):
        return None
    return ", ".join(f"{name}: {logical_type}" for name, logical_type in members) or "none"


def described(field: Field) -> Field:
    """The field with the blob columns at or below it as descriptors, with the same ids."""
    if is_blob(field):
        # An extension type, whichever it is, is one of the values.
        return replace(_plain(field), logical_type="struct", children=_members(DESCRIPTION))
    if field.is_blob_v2:
        metadata = {BLOB: b"true", PACKED: b"true"}
        return replace(field, children=_members(DESCRIPTOR), metadata=metadata)
    return _with_children(field, described)


def stored(field: Field) -> Field:
    """The field as in the schema of a data file: the second kind as descriptors."""
    if field.is_blob_v2:
        return described(field)
    return _with_children(field, stored)


def as_binary(field: Field) -> Field:
    """The field with the blob columns at or below it as large binary."""
    if field.is_blob_v2:
        return replace(_plain(field), logical_type="large_binary", children=())
    return _with_children(field, as_binary)


def logical(field: Field) -> Field:
    """The field with the blob columns at or below it as structs to be written."""
    if field.is_blob_v2:
        return _plain(field)
    return _with_children(field, logical)


def _with_children(field: Field, change: Callable[[Field], Field]) -> Field:
    """The field with changed children, if there are blobs below it."""
    if not has_blobs(field):
        return field
    return replace(field, children=tuple(map(change, field.children)))


def _plain(field: Field) -> Field:
    """The field without its extension type."""
    left_out = (EXTENSION_NAME, EXTENSION_METADATA)
    metadata = {key: value for key, value in field.metadata.items() if key not in left_out}
    return replace(field, metadata=metadata)


def _members(data_type: pa.StructType) -> tuple[Field, ...]:
    """Members of a descriptor; they have no field ids."""
    return tuple(
        Field(id=-1, name=field.name, logical_type=_TYPES[field.type], nullable=field.nullable)
        for field in data_type
    )
