"""Arrays of extension types to arrays of their storage types, and back, at any depth.

Conversions share memory, except for Arrow's JSON type: text in memory, JSONB in files.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def is_json(kind: pa.DataType) -> bool:
    """Whether this is Arrow's JSON type."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def to_type(array: Any, kind: Any, where: object) -> Any:
    """The array as ``kind``, which differs in extension types, or is one Arrow can cast to.

    Copies only JSON and what is cast.

    Parameters
    ----------
    array
        An array or a chunked array.
    where
        Named in errors about JSONB.

    Raises
    ------
    SchemaError
        A string is not JSON.
    CorruptFileError
        Bytes are not JSONB.
    pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError
        There is no cast, or it would lose something.
    """
    from glaive.arrow.jsonb import decode_jsonb, encode_jsonb

    if isinstance(array, pa.ChunkedArray):
        chunks: list[Any] = [to_type(chunk, kind, where) for chunk in array.chunks]
        return pa.chunked_array(chunks, kind)
    stored = array.type
    if stored.equals(kind):
        return array
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if is_json(kind) and types.is_large_binary(stored):
            array = decode_jsonb(array, where)
        return pa.ExtensionArray.from_storage(kind, to_type(array, kind.storage_type, where))
    if isinstance(stored, pa.BaseExtensionType):
        if is_json(stored) and types.is_large_binary(kind):
            return encode_jsonb(array.storage)
        return to_type(array.storage, kind, where)
    if types.is_struct(stored) and types.is_struct(kind) and _same_names(stored, kind):
        members = [
            to_type(array.field(at), kind.field(at).type, where) for at in range(kind.num_fields)
        ]
        return _rebuilt(array, kind, members, buffers=1)
    if types.is_map(stored) and types.is_map(kind):
        pair = [kind.key_field, kind.item_field]
        both = [
            to_type(child, field.type, where)
            for child, field in zip((array.keys, array.items), pair, strict=True)
        ]
        entries = pa.StructArray.from_arrays(both, fields=pair)
        return _rebuilt(array, kind, [entries], buffers=2)
    if types.is_fixed_size_list(stored) and types.is_fixed_size_list(kind):
        if stored.list_size == kind.list_size:
            return _rebuilt(array, kind, [to_type(array.values, kind.value_type, where)], buffers=1)
    elif (types.is_list(stored) and types.is_list(kind)) or (
        types.is_large_list(stored) and types.is_large_list(kind)
    ):
        return _rebuilt(array, kind, [to_type(array.values, kind.value_type, where)], buffers=2)
    return array.cast(kind)


def _same_names(first: Any, second: Any) -> bool:
    return [field.name for field in first] == [field.name for field in second]


def _rebuilt(array: Any, kind: Any, children: list[Any], *, buffers: int) -> Any:
    """The same nesting over other children."""
    if pa.types.is_struct(kind):
        # The members of a slice are slices, its bitmap is not.
        mask = array.is_null() if array.null_count else None
        if not children:
            return array.cast(kind)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    own = array.buffers()[:buffers]
    return pa.Array.from_buffers(
        kind, len(array), own, array.null_count, array.offset, children=children
    )
