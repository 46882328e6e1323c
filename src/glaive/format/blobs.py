"""Blob columns: large values that are stored outside of the pages of their column.

In a blob column of the first kind, ``large_binary`` with ``lance-encoding:blob``, values are in
the data file. From format 2.2 on there are columns of the second kind, the extension type
``lance.blob.v2``. Their values may also be in files of their own, in the folder of the data file
or in any other location. The pages of both have descriptors with the location of each value.

Specification: ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, Self

import pyarrow as pa

from glaive.arrow.validation import refuse_half_characters
from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError, SchemaError
from glaive.format.field import BLOB, BLOB_V2, PACKED, Field
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME
from glaive.types import allocate

DESCRIPTION: Final = pa.struct([("position", pa.uint64()), ("size", pa.uint64())])
"""Descriptor of a value of the first kind, in the data file."""

NULL_POSITION: Final = 1
"""Position that a null of format 2.0 has, with 0 bytes."""

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
    """Return whether a field is a blob column of the first kind."""
    return field.logical_type == "large_binary" and field.option(BLOB) == "true"


def is_described(field: Field) -> bool:
    """Return whether a field is a blob column converted by :func:`described`, as in files."""
    return field.logical_type == "struct" and BLOB in field.metadata


def has_blobs(field: Field) -> bool:
    """Return whether a blob column is at or below a field."""
    return any(is_blob(part) or part.is_blob_v2 for part in field.walk())


def has_blobs_v2(field: Field) -> bool:
    """Return whether a blob column of the second kind is at or below a field."""
    return any(part.is_blob_v2 for part in field.walk())


def unfit_members(field: Field) -> str | None:
    """Return the members of a blob column of the second kind, if they are invalid."""
    members = [(child.name, child.logical_type) for child in field.children]
    if not field.is_blob_v2 or members in (_MEMBERS, _MEMBERS[:_SHORT]):
        return None
    return ", ".join(f"{name}: {logical_type}" for name, logical_type in members) or "none"


def described(field: Field) -> Field:
    """Return the field with the blob columns at or below it as descriptors, with the same ids."""
    if is_blob(field):
        # An extension type, whichever it is, is one of the values.
        return replace(_plain(field), logical_type="struct", children=_members(DESCRIPTION))
    if field.is_blob_v2:
        metadata = {BLOB: b"true", PACKED: b"true"}
        return replace(field, children=_members(DESCRIPTOR), metadata=metadata)
    return _with_children(field, described)


def stored(field: Field) -> Field:
    """Return the field as in the schema of a data file: the second kind as descriptors."""
    if field.is_blob_v2:
        return described(field)
    return _with_children(field, stored)


def as_binary(field: Field) -> Field:
    """Return the field with the blob columns at or below it as large binary."""
    if field.is_blob_v2:
        return replace(_plain(field), logical_type="large_binary", children=())
    return _with_children(field, as_binary)


def logical(field: Field) -> Field:
    """Return the field with the blob columns at or below it as structs to be written."""
    if field.is_blob_v2:
        return _plain(field)
    return _with_children(field, logical)


def _with_children(field: Field, change: Callable[[Field], Field]) -> Field:
    """Return the field with changed children, if it has blobs below."""
    if not has_blobs(field):
        return field
    return replace(field, children=tuple(map(change, field.children)))


def _plain(field: Field) -> Field:
    """Return the field without its extension type."""
    left_out = (EXTENSION_NAME, EXTENSION_METADATA)
    metadata = {key: value for key, value in field.metadata.items() if key not in left_out}
    return replace(field, metadata=metadata)


def _members(data_type: pa.StructType) -> tuple[Field, ...]:
    """Return the members of a descriptor; their field ids are -1."""
    return tuple(
        Field(id=-1, name=field.name, logical_type=_TYPES[field.type], nullable=field.nullable)
        for field in data_type
    )


# --- The extension type of blob columns, ``lance.blob.v2``, and single values of it -----
#
# Importing this module registers the type with Arrow.

_REQUIRED_MEMBERS = 2
"""Number of required members: ``data`` and ``uri``."""


@dataclass(frozen=True, slots=True)
class Blob:
    """One value: bytes, or the URI of an object, or of a part of it.

    ``None`` is a null; :meth:`empty` creates a value of 0 bytes.

    Parameters
    ----------
    data
        The bytes.
    uri
        The URI of the object with the bytes.
    position, size
        The part of the object, in bytes; default: all of it.

    Raises
    ------
    OptionError
        The value needs exactly one of ``data`` and ``uri``. A part needs both ``position`` and
        ``size``.
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __repr__(self) -> str:
        uri = None if self.uri is None else GlaiveError.without_secrets(self.uri)
        part = f"position={self.position!r}, size={self.size!r}"
        return f"Blob(data={self.data!r}, uri={uri!r}, {part})"

    def __post_init__(self) -> None:
        if (self.data is None) == (self.uri is None):
            raise OptionError("Blob must set `data` or `uri`, and not both; None is a null")
        if self.uri == "":
            raise OptionError("Blob uri cannot be empty; give the URI of an object")
        if (self.position is None) != (self.size is None):
            raise OptionError("Blob: give position and size of a part together")
        if self.position is None or self.size is None:
            return
        if self.uri is None:
            raise OptionError("Blob: position and size are for a uri, not for data")
        if self.position < 0 or self.size < 1:
            raise OptionError(
                f"Blob: expected position ≥ 0 and size ≥ 1, found {self.position} and {self.size}"
            )

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Self:
        """Return a value of the given bytes."""
        return cls(data=bytes(data))

    @classmethod
    def from_uri(cls, uri: str, position: int | None = None, size: int | None = None) -> Self:
        """Return an external value."""
        return cls(uri=uri, position=position, size=size)

    @classmethod
    def empty(cls) -> Self:
        """Return a value of 0 bytes."""
        return cls(data=b"")


class BlobType(pa.ExtensionType):
    """Type of blob columns in memory: ``struct<data, uri, position, size>``.

    Every value has ``data`` or ``uri``; the last two members specify a part of the object.
    """

    def __init__(self) -> None:
        super().__init__(LOGICAL, BLOB_V2)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> BlobType:
        fields = list(LOGICAL)
        shapes = [
            [(field.name, field.type) for field in part]
            for part in (fields, fields[:_REQUIRED_MEMBERS])
        ]
        members: list[Any] = list(storage_type) if pa.types.is_struct(storage_type) else []
        if [(member.name, member.type) for member in members] not in shapes:
            raise SchemaError(f"blobs are stored as {LOGICAL}, found {storage_type}")
        made = cls.__new__(cls)
        pa.ExtensionType.__init__(made, storage_type, BLOB_V2)
        return made

    def __arrow_ext_class__(self) -> type[BlobArray]:
        return BlobArray


class BlobArray(pa.ExtensionArray):
    """Array of blobs; see :func:`blob_array`."""

    @classmethod
    def from_pylist(cls, values: Iterable[object]) -> BlobArray:
        """Create an array; see :func:`blob_array`."""
        rows = [_as_row(value, at) for at, value in enumerate(values)]
        filled = [row or {} for row in rows]
        members: list[Any] = [_joined([row.get("data") for row in filled])]
        with refuse_half_characters("addresses of blobs"):
            members += [
                pa.array([row.get(field.name) for row in filled], field.type)
                for field in list(LOGICAL)[1:]
            ]
        nulls = pa.array([row is None for row in rows], pa.bool_())
        storage: Any = pa.StructArray.from_arrays(members, fields=list(LOGICAL), mask=nulls)
        made: Any = pa.ExtensionArray.from_storage(BlobType(), storage)
        return made  # type: ignore[no-any-return]  # the type says which class


with suppress(pa.ArrowKeyError):  # another library may have registered the name
    _made: Any = BlobType()
    pa.register_extension_type(_made)


def _joined(values: Sequence[Any]) -> pa.LargeBinaryArray:
    """Return bytes or ``None``, copied once: Arrow's builders move all bytes when they grow."""
    ends = [0, *accumulate(0 if value is None else len(value) for value in values)]
    data = allocate(ends[-1])
    memory = memoryview(data).cast("B")
    for value, start, stop in zip(values, ends, ends[1:], strict=False):
        if stop > start:
            memory[start:stop] = value
    valid = pa.array([value is not None for value in values], pa.bool_())
    offsets = pa.array(ends, pa.int64()).buffers()[1]
    made: Any = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [valid.buffers()[1], offsets, data]
    )
    return made  # type: ignore[no-any-return]  # the type says which class


def _as_row(value: object, at: int) -> dict[str, object] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _as_row(Blob(uri=value), at)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"data": bytes(value) if isinstance(value, memoryview) else value}
    names = ("data", "uri", "position", "size")
    if all(hasattr(value, name) for name in names):  # a Blob, of lance perhaps
        row: dict[str, object] = {name: getattr(value, name) for name in names}
        if row["data"] is None or isinstance(row["data"], bytes | bytearray):
            return row
        value = row["data"]
    raise OptionError(
        f"value {at} of a blob array: BlobArray values must be bytes-like, str (URI), Blob, or "
        f"None; got {type(value)}"
    )
