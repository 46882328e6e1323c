"""Extension types in files: a storage type and two metadata entries.

Arrow's JSON type is called ``lance.json`` in files, because its values are encoded differently.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import pyarrow as pa

from glaive.errors import SchemaError
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME

__all__ = ["JSON", "extended", "field_metadata", "storage_type"]

JSON = "lance.json"
_ARROW_JSON = "arrow.json"
_NAME = EXTENSION_NAME.encode()


def storage_type(data_type: pa.DataType) -> Any:
    """The type itself, or the storage type of an extension type (JSON: large binary)."""
    stored: Any = data_type
    if getattr(data_type, "extension_name", None) == _ARROW_JSON:
        return pa.large_binary()
    while isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    return stored


def field_metadata(field: pa.Field[Any]) -> dict[str, bytes]:
    """Metadata of a field, with the entries for its extension type."""
    metadata = {
        key.decode("utf-8", "replace"): value for key, value in (field.metadata or {}).items()
    }
    data_type: Any = field.type
    if getattr(data_type, "extension_name", None) == _ARROW_JSON:
        metadata |= {EXTENSION_NAME: JSON.encode(), EXTENSION_METADATA: b""}
    elif isinstance(data_type, pa.BaseExtensionType):
        metadata[EXTENSION_NAME] = data_type.extension_name.encode()
        metadata[EXTENSION_METADATA] = _exported(field).get(EXTENSION_METADATA.encode(), b"")
    return metadata


def extended(schema: pa.Schema, *, json: bool = True) -> pa.Schema:
    """The schema with extension types instead of their metadata entries.

    Types that pyarrow does not know remain storage types. ``json`` specifies whether JSONB becomes
    Arrow's JSON type.
    """
    if not any(map(_is_extended, schema)):
        return schema
    import_module("glaive.format.blob_type")  # registers the blob type
    fields = [_with_json(field) for field in schema] if json else list(schema)
    given = pa.schema(fields, schema.metadata)  # type: ignore[arg-type]  # bytes are fine
    try:
        # Importing by Arrow's C interface converts metadata to types.
        return pa.schema(_Exported(given))  # type: ignore[arg-type]  # anything with a capsule
    except (pa.ArrowException, SchemaError):
        return schema  # a known name with metadata that does not fit it


def _is_extended(field: pa.Field[Any]) -> bool:
    if field.metadata and _NAME in field.metadata:
        return True
    return any(map(_is_extended, _below(field.type)))


def _below(data_type: Any) -> list[pa.Field[Any]]:
    if isinstance(data_type, pa.MapType):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(at) for at in range(data_type.num_fields)]


def _with_json(field: pa.Field[Any]) -> pa.Field[Any]:
    """The field with Arrow's JSON type at any depth."""
    metadata, data_type = dict(field.metadata or {}), field.type
    if metadata.get(_NAME) == JSON.encode() and pa.types.is_large_binary(data_type):
        for key in (EXTENSION_NAME, EXTENSION_METADATA):
            metadata.pop(key.encode(), None)
        return pa.field(field.name, pa.json_(), field.nullable, metadata or None)
    stored = _below(data_type)
    below = [_with_json(field) for field in stored]
    if all(field is other for field, other in zip(below, stored, strict=True)):
        return field
    made: Any = data_type
    if pa.types.is_struct(data_type):
        made = pa.struct(below)
    elif isinstance(data_type, pa.MapType):
        made = pa.map_(*below)
    elif pa.types.is_large_list(data_type):
        made = pa.large_list(below[0])
    elif pa.types.is_list(data_type):
        made = pa.list_(below[0])
    elif isinstance(data_type, pa.FixedSizeListType):
        made = pa.list_(below[0], data_type.list_size)
    return field.with_type(made)


class _Exported:
    """A schema with the method of Arrow's C interface."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        """The capsule."""
        return self._schema.__arrow_c_schema__()


class _ArrowSchema(ctypes.Structure):
    """Head of ``ArrowSchema`` of Arrow's C data interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _exported(field: pa.Field[Any]) -> dict[bytes, bytes]:
    """Metadata exported by Arrow's C data interface.

    The parameters of pyarrow's built-in extension types are not available in any other way.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = field.__arrow_c_schema__()
    at = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal at
        value = ctypes.c_int32.from_address(at).value
        at += 4
        return value

    def text() -> bytes:
        nonlocal at
        size = number()
        value = ctypes.string_at(at, size)
        at += size
        return value

    return {text(): text() for _ in range(number())} if at else {}
