"""Convert rows for blob columns: binary becomes blobs, missing storage members are added.

From format 2.2 on a column of binary with ``lance-encoding:blob`` becomes one of type
``lance.blob.v2``, because later formats have no pages for the first kind of blobs.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.expr.coerce import is_list
from glaive.format.blobs import BLOB_V2, LOGICAL
from glaive.format.field import BLOB
from glaive.format.logical_types import EXTENSION_NAME

__all__ = ["as_blobs", "can_become_blobs", "with_blob_type"]

_FIRST, _NAME = BLOB.encode(), EXTENSION_NAME.encode()
_SHORT = 2
"""Members that every blob storage has: data and uri."""


def with_blob_type(schema: pa.Schema) -> pa.Schema:
    """The schema with blob columns of the first kind, at any depth, as the second kind."""
    fields = [_with_blob_type(field) for field in schema]
    if all(storage is other for storage, other in zip(fields, schema, strict=True)):
        return schema
    metadata: Any = schema.metadata
    return pa.schema(fields, metadata)


def _with_blob_type(field: pa.Field[Any]) -> pa.Field[Any]:
    metadata: dict[bytes, bytes] = dict(field.metadata or {})
    data_type: Any = field.type
    if metadata.get(_FIRST) == b"true" and _is_bytes(data_type):
        del metadata[_FIRST]
        metadata[_NAME] = BLOB_V2.encode()
        return pa.field(field.name, pa.struct(list(LOGICAL)[:_SHORT]), field.nullable, metadata)
    if pa.types.is_struct(data_type) and not isinstance(data_type, pa.BaseExtensionType):
        members = [_with_blob_type(member) for member in data_type]
        if any(member is not other for member, other in zip(members, data_type, strict=True)):
            return field.with_type(pa.struct(members))
    elif is_list(data_type):
        item = _with_blob_type(data_type.value_field)
        if not item.equals(data_type.value_field, check_metadata=True):
            make: Any = pa.list_ if pa.types.is_list(data_type) else pa.large_list
            return field.with_type(make(item))
    return field


def can_become_blobs(data_type: Any) -> bool:
    """Whether values of a type can go into a blob column of the second kind."""
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if _is_bytes(data_type) or pa.types.is_null(data_type):
        return True
    names = [field.name for field in LOGICAL]
    if not pa.types.is_struct(data_type):
        return False
    return [field.name for field in data_type] in (names, names[:_SHORT])


def as_blobs(array: Any, field: pa.Field[Any]) -> Any:
    """The array with the storage of blobs where ``field``, or something below it, has it.

    Binary becomes inline blob values; other columns are unchanged.

    Raises
    ------
    SchemaError
        A part of an object is given, but the column has no members for that.
    """
    if not _has_blob_type(field):
        return array
    if isinstance(array, pa.ChunkedArray):
        chunks: list[Any] = [as_blobs(chunk, field) for chunk in array.chunks]
        return pa.chunked_array(chunks, chunks[0].type) if chunks else array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type: Any = field.type
    mask = array.is_null() if array.null_count else None
    if _is_blob_type(field):
        return _storage(array, field, mask)
    if pa.types.is_struct(array.type) and pa.types.is_struct(data_type):
        fields = {field.name: field for field in data_type}
        members = [
            as_blobs(member, fields[field.name]) if field.name in fields else member
            for member, field in zip(array.flatten(), array.type, strict=True)
        ]
        inner = [
            pa.field(field.name, member.type, field.nullable)
            for member, field in zip(members, array.type, strict=True)
        ]
        return pa.StructArray.from_arrays(members, fields=inner, mask=mask)
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        items = as_blobs(array.values, data_type.value_field)
        make: Any = pa.list_ if isinstance(array, pa.ListArray) else pa.large_list
        made = make(pa.field(array.type.value_field.name, items.type))
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(
            made, len(array), buffers, array.null_count, array.offset, children=[items]
        )
    return array


def _storage(array: Any, field: pa.Field[Any], mask: Any) -> Any:
    data_type: Any = field.type
    if _is_bytes(array.type):
        given = {"data": array.cast(pa.large_binary())}
    elif pa.types.is_struct(array.type):
        members = zip(array.type, array.flatten(), strict=True)
        given = {field.name: member for field, member in members}
    else:
        return array
    extra = [
        name for name, member in given.items()
        if data_type.get_field_index(name) < 0 and member.null_count < len(member)
    ]  # fmt: skip
    if extra:
        raise SchemaError(
            f"column {field.name!r}: the dataset stores no {' and '.join(extra)} of blobs, so "
            "parts of objects cannot be written. Write whole objects."
        )
    columns = [
        given[field.name].cast(field.type)
        if field.name in given
        else pa.nulls(len(array), field.type)
        for field in data_type
    ]
    return pa.StructArray.from_arrays(columns, fields=list(data_type), mask=mask)


def _is_blob_type(field: pa.Field[Any]) -> bool:
    """Whether values are written as blobs; a column of another type may bear the name, too."""
    return pa.types.is_struct(field.type) and (field.metadata or {}).get(_NAME) == BLOB_V2.encode()


def _has_blob_type(field: pa.Field[Any]) -> bool:
    data_type: Any = field.type
    if _is_blob_type(field):
        return True
    if pa.types.is_struct(data_type):
        return any(map(_has_blob_type, data_type))
    if is_list(data_type):
        return _has_blob_type(data_type.value_field)
    return False


def _is_bytes(data_type: Any) -> bool:
    types = pa.types
    return (
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_binary_view(data_type)
    )
