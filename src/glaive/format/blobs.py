"""Blob columns: large values that lie apart from the pages of their column.

In a blob column of the first kind, ``large_binary`` with ``lance-encoding:blob``, values lie in
the data file; from 2.2 on there are columns of the second kind, the extension type
``lance.blob.v2``, whose values may also lie in files beside the data file or anywhere else.
Pages of both hold descriptions of where a value is.

Specification: ``docs/format/blobs.md``.
"""

from __future__ import annotations

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
"""Where a value of the first kind lies: in the data file."""

DESCRIPTOR: Final = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.string(), nullable=False),
    ]
)
"""Where a value of the second kind lies."""

LOGICAL: Final = pa.struct(
    [
        ("data", pa.large_binary()),
        ("uri", pa.string()),
        ("position", pa.uint64()),
        ("size", pa.uint64()),
    ]
)
"""What the author of a column of the second kind hands over; the last two may be left out."""

INLINE, PACKED_FILE, OWN_FILE, EXTERNAL = range(4)
"""Kinds of descriptors: in the data file, in a file with others, in one of its own, elsewhere."""

_TYPES: Final = {
    pa.large_binary(): "large_binary",
    pa.uint8(): "uint8",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.string(): "string",
}


_MEMBERS: Final = [(one.name, _TYPES[one.type]) for one in LOGICAL]
_SHORT: Final = 2
"""Members that are always there."""

MEMBERS: Final = "data: large_binary, uri: string, and perhaps position and size: uint64"
"""The same in words."""


def is_blob(field: Field) -> bool:
    """Whether a field is a blob column of the first kind."""
    return field.logical_type == "large_binary" and field.option(BLOB) == "true"


def is_described(field: Field) -> bool:
    """Whether a field is one that :func:`described` made, or a file holds, of a blob column."""
    return field.logical_type == "struct" and BLOB in field.metadata


def has_blobs(field: Field) -> bool:
    """Whether there is a blob column at or below a field."""
    return any(is_blob(one) or one.is_blob_v2 for one in field.walk())


def has_blobs_v2(field: Field) -> bool:
    """Whether there is a blob column of the second kind at or below a field."""
    return any(one.is_blob_v2 for one in field.walk())


def unfit_members(field: Field) -> str | None:
    """The members of a blob column of the second kind, if they are not those its values have."""
    found = [(child.name, child.logical_type) for child in field.children]
    if not field.is_blob_v2 or found in (_MEMBERS, _MEMBERS[:_SHORT]):
        return None
    return ", ".join(f"{name}: {kind}" for name, kind in found) or "none"


def described(field: Field) -> Field:
    """The field with the blob columns at or below it as descriptions, under their ids."""
    if is_blob(field):
        return replace(field, logical_type="struct", children=_members(DESCRIPTION))
    if field.is_blob_v2:
        metadata = {BLOB: b"true", PACKED: b"true"}
        return replace(field, children=_members(DESCRIPTOR), metadata=metadata)
    if not has_blobs(field):
        return field
    return replace(field, children=tuple(map(described, field.children)))


def stored(field: Field) -> Field:
    """The field as the schema of a data file has it: the second kind as descriptions."""
    if field.is_blob_v2:
        return described(field)
    if not has_blobs_v2(field):
        return field
    return replace(field, children=tuple(map(stored, field.children)))


def as_binary(field: Field) -> Field:
    """The field with the blob columns at or below it as large binary."""
    if field.is_blob_v2:
        return replace(_plain(field), logical_type="large_binary", children=())
    if not has_blobs_v2(field):
        return field
    return replace(field, children=tuple(map(as_binary, field.children)))


def logical(field: Field) -> Field:
    """The field with the blob columns at or below it as the structs that authors hand over."""
    if field.is_blob_v2:
        return _plain(field)
    if not has_blobs_v2(field):
        return field
    return replace(field, children=tuple(map(logical, field.children)))


def _plain(field: Field) -> Field:
    """The field without its extension type."""
    left_out = (EXTENSION_NAME, EXTENSION_METADATA)
    metadata = {key: value for key, value in field.metadata.items() if key not in left_out}
    return replace(field, metadata=metadata)


def _members(kind: pa.StructType) -> tuple[Field, ...]:
    """Members of a description; they have no identity of their own."""
    return tuple(
        Field(id=-1, name=one.name, logical_type=_TYPES[one.type], nullable=one.nullable)
        for one in kind
    )
