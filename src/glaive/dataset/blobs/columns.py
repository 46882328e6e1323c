"""Rows on their way into blob columns: binary becomes blobs, short storage becomes whole.

From format 2.2 on a column of binary with ``lance-encoding:blob`` becomes one of type
``lance.blob.v2``, as the pages of the first kind of blobs are no part of later formats.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.format.blobs import BLOB_V2, LOGICAL
from glaive.format.field import BLOB
from glaive.format.logical_types import EXTENSION_NAME

__all__ = ["as_blobs", "can_become_blobs", "with_blob_type"]

_FIRST, _NAME = BLOB.encode(), EXTENSION_NAME.encode()
_SHORT = 2
"""Members of a blob that are always there: data and uri."""


def with_blob_type(schema: pa.Schema) -> pa.Schema:
    """The schema with blob columns of the first kind, at any depth, as the second kind."""
    fields = [_with_blob_type(field) for field in schema]
    if all(one is other for one, other in zip(fields, schema, strict=True)):
        return schema
    metadata: Any = schema.metadata
    return pa.schema(fields, metadata)


def _with_blob_type(field: pa.Field[Any]) -> pa.Field[Any]:
    metadata: dict[bytes, bytes] = dict(field.metadata or {})
    kind: Any = field.type
    if metadata.get(_FIRST) == b"true" and _is_bytes(kind):
        del metadata[_FIRST]
        metadata[_NAME] = BLOB_V2.encode()
        return pa.field(field.name, pa.struct(list(LOGICAL)[:_SHORT]), field.nullable, metadata)
    if pa.types.is_struct(kind) and not isinstance(kind, pa.BaseExtensionType):
        members = [_with_blob_type(member) for member in kind]
        if any(one is not other for one, other in zip(members, kind, strict=True)):
            return field.with_type(pa.struct(members))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _with_blob_type(kind.value_field)
        if not item.equals(kind.value_field, check_metadata=True):
            make: Any = pa.list_ if pa.types.is_list(kind) else pa.large_list
            return field.with_type(make(item))
    return field


def can_become_blobs(found: Any) -> bool:
    """Whether values of a type can go into a blob column of the second kind."""
    if isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    if _is_bytes(found) or pa.types.is_null(found):
        return True
    names = [field.name for field in LOGICAL]
    if not pa.types.is_struct(found):
        return False
    return [field.name for field in found] in (names, names[:_SHORT])


def as_blobs(array: Any, field: pa.Field[Any]) -> Any:
    """The array with the storage of blobs where ``field``, or something below it, has it.

    Binary becomes values that are given here; what is no blob stays as it is.

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
    kind: Any = field.type
    mask = array.is_null() if array.null_count else None
    if _is_blob_type(field):
        return _storage(array, field, mask)
    if pa.types.is_struct(array.type) and pa.types.is_struct(kind):
        fields = {one.name: one for one in kind}
        members = [
            as_blobs(member, fields[one.name]) if one.name in fields else member
            for member, one in zip(array.flatten(), array.type, strict=True)
        ]
        inner = [
            pa.field(one.name, member.type, one.nullable)
            for member, one in zip(members, array.type, strict=True)
        ]
        return pa.StructArray.from_arrays(members, fields=inner, mask=mask)
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        items = as_blobs(array.values, kind.value_field)
        make: Any = pa.list_ if isinstance(array, pa.ListArray) else pa.large_list
        made = make(pa.field(array.type.value_field.name, items.type))
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(
            made, len(array), buffers, array.null_count, array.offset, children=[items]
        )
    return array


def _storage(array: Any, field: pa.Field[Any], mask: Any) -> Any:
    kind: Any = field.type
    if _is_bytes(array.type):
        given = {"data": array.cast(pa.large_binary())}
    elif pa.types.is_struct(array.type):
        members = zip(array.type, array.flatten(), strict=True)
        given = {one.name: member for one, member in members}
    else:
        return array
    extra = [
        name for name, member in given.items()
        if kind.get_field_index(name) < 0 and member.null_count < len(member)
    ]  # fmt: skip
    if extra:
        raise SchemaError(
            f"column {field.name!r}: the dataset keeps no {' and '.join(extra)} of blobs, so that "
            "parts of objects cannot be written. Write whole objects."
        )
    columns = [
        given[one.name].cast(one.type) if one.name in given else pa.nulls(len(array), one.type)
        for one in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _is_blob_type(field: pa.Field[Any]) -> bool:
    return (field.metadata or {}).get(_NAME) == BLOB_V2.encode()


def _has_blob_type(field: pa.Field[Any]) -> bool:
    kind: Any = field.type
    if _is_blob_type(field):
        return True
    if pa.types.is_struct(kind):
        return any(map(_has_blob_type, kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_blob_type(kind.value_field)
    return False


def _is_bytes(kind: Any) -> bool:
    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
