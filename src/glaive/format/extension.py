"""Extension types as files keep them: a storage type and two entries of metadata."""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa

from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME

__all__ = ["field_metadata", "storage_type"]


def storage_type(kind: pa.DataType) -> Any:
    """The type itself, or what an extension type is stored as."""
    found: Any = kind
    while isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    return found


def field_metadata(field: pa.Field[Any]) -> dict[str, bytes]:
    """Metadata of a field, with the entries that stand for an extension type."""
    metadata = {
        key.decode("utf-8", "replace"): value for key, value in (field.metadata or {}).items()
    }
    kind: Any = field.type
    if isinstance(kind, pa.BaseExtensionType):
        metadata[EXTENSION_NAME] = kind.extension_name.encode()
        metadata[EXTENSION_METADATA] = _exported(field).get(EXTENSION_METADATA.encode(), b"")
    return metadata


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
