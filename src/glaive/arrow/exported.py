"""Metadata as Arrow's C data interface has it, which pyarrow does not show otherwise.

That is the parameters of built-in extension types, and keys that are there more than once.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa

__all__ = ["exported_metadata"]


class _ArrowSchema(ctypes.Structure):
    """Head of ``ArrowSchema``."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


@cache
def _pointer() -> Any:
    """``PyCapsule_GetPointer``, with types that nobody else's use of it sees."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return kind(("PyCapsule_GetPointer", ctypes.pythonapi))


def exported_metadata(exporter: pa.Field[Any] | pa.Schema) -> list[tuple[bytes, bytes]]:
    """The metadata of a field or a schema, in order, with keys that repeat."""
    capsule = exporter.__arrow_c_schema__()  # which releases what it holds
    at = _ArrowSchema.from_address(_pointer()(capsule, b"arrow_schema")).metadata

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

    return [(text(), text()) for _ in range(number())] if at else []
