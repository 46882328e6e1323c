"""Extension types as files keep them: a storage type and two entries of metadata.

Arrow's JSON type has a name of its own in files, ``lance.json``, as its values have another
form there.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import pyarrow as pa

from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME

__all__ = ["JSON", "extended", "field_metadata", "storage_type"]

JSON = "lance.json"
_ARROW_JSON = "arrow.json"
_NAME = EXTENSION_NAME.encode()


def storage_type(kind: pa.DataType) -> Any:
    """The type itself, or what an extension type is stored as (JSON: large binary)."""
    found: Any = kind
    if getattr(kind, "extension_name", None) == _ARROW_JSON:
        return pa.large_binary()
    while isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    return found


def field_metadata(field: pa.Field[Any]) -> dict[str, bytes]:
    """Metadata of a field, with the entries that stand for an extension type."""
    metadata = {
        key.decode("utf-8", "replace"): value for key, value in (field.metadata or {}).items()
    }
    kind: Any = field.type
    if getattr(kind, "extension_name", None) == _ARROW_JSON:
        metadata |= {EXTENSION_NAME: JSON.encode(), EXTENSION_METADATA: b""}
    elif isinstance(kind, pa.BaseExtensionType):
        metadata[EXTENSION_NAME] = kind.extension_name.encode()
        metadata[EXTENSION_METADATA] = _exported(field).get(EXTENSION_METADATA.encode(), b"")
    return metadata


def extended(schema: pa.Schema, *, json: bool = True) -> pa.Schema:
    """The schema with extension types in place of the metadata that stands for them.

    Those that pyarrow does not know stay what they are stored as. ``json`` tells whether
    JSONB becomes Arrow's JSON type.
    """
    if not any(map(_is_extended, schema)):
        return schema
    import_module("glaive.format.blob_type")  # makes the type of blobs known
    fields = [_with_json(field) for field in schema] if json else list(schema)
    given = pa.schema(fields, schema.metadata)  # type: ignore[arg-type]  # bytes are fine
    try:
        # Arrow's C interface is where metadata becomes types.
        return pa.schema(_Exported(given))  # type: ignore[arg-type]  # anything with a capsule
    except pa.ArrowException:
        return schema  # a known name with metadata that does not fit it


def _is_extended(field: pa.Field[Any]) -> bool:
    if field.metadata and _NAME in field.metadata:
        return True
    return any(map(_is_extended, _below(field.type)))


def _below(kind: Any) -> list[pa.Field[Any]]:
    if isinstance(kind, pa.MapType):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)]


def _with_json(field: pa.Field[Any]) -> pa.Field[Any]:
    """The field with Arrow's JSON type at any depth."""
    metadata, kind = dict(field.metadata or {}), field.type
    if metadata.get(_NAME) == JSON.encode() and pa.types.is_large_binary(kind):
        for key in (EXTENSION_NAME, EXTENSION_METADATA):
            metadata.pop(key.encode(), None)
        return pa.field(field.name, pa.json_(), field.nullable, metadata or None)
    stored = _below(kind)
    below = [_with_json(one) for one in stored]
    if all(one is other for one, other in zip(below, stored, strict=True)):
        return field
    made: Any = kind
    if pa.types.is_struct(kind):
        made = pa.struct(below)
    elif isinstance(kind, pa.MapType):
        made = pa.map_(*below)
    elif pa.types.is_large_list(kind):
        made = pa.large_list(below[0])
    elif pa.types.is_list(kind):
        made = pa.list_(below[0])
    elif isinstance(kind, pa.FixedSizeListType):
        made = pa.list_(below[0], kind.list_size)
    return field.with_type(made)


class _Exported:
    """A schema behind the one method that Arrow's C interface asks for."""

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
    """Metadata as it crosses Arrow's C data interface.

    Types that are built into pyarrow tell the parameters of an extension nowhere else.
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
