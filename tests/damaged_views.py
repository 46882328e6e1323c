"""Texts as views, one of which is null and has any length: Arrow's messages have it as it is."""

from __future__ import annotations

import struct

import pyarrow as pa

__all__ = ["equal_views", "views"]


def views(kind: pa.DataType, length: int) -> pa.Array:
    """A null of a stated length between two texts."""
    parts = [(20, b"xxxx", 0), (length, b"", 0), (20, b"yyyy", 20)]
    words = b"".join(struct.pack("<i4sii", size, start, 0, at) for size, start, at in parts)
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(words), pa.py_buffer(b"x" * 20 + b"y" * 20)]
    return pa.Array.from_buffers(kind, 3, buffers, 1)


def equal_views(kind: pa.DataType, count: int, size: int) -> pa.Array:
    """So many texts of a size, which share their bytes."""
    words = count * struct.pack("<i4sii", size, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(words), pa.py_buffer(b"x" * size)]
    return pa.Array.from_buffers(kind, count, buffers)
