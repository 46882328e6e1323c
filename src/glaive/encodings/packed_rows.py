"""Rows of packed structs: the members of a row next to each other, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.memory import allocate, as_array

__all__ = ["pack_rows", "split_rows"]


def pack_rows(members: Sequence[pa.Buffer], widths: Sequence[int], rows: int) -> pa.Buffer:
    """Join members of fixed width; member ``i`` has ``widths[i]`` bytes per row."""
    stride = sum(widths)
    packed = allocate(rows * stride)
    at = 0
    for values, width in zip(members, widths, strict=True):
        _strided(packed, rows, stride, at, width)[:] = _strided(values, rows, width, 0, width)
        at += width
    return packed


def split_rows(packed: pa.Buffer, widths: Sequence[int], rows: int) -> list[pa.Buffer]:
    """The values of each member; the reverse of :func:`pack_rows`."""
    stride = sum(widths)
    members = []
    at = 0
    for width in widths:
        own = allocate(rows * width)
        _strided(own, rows, width, 0, width)[:] = _strided(packed, rows, stride, at, width)
        members.append(own)
        at += width
    return members


def _strided(buffer: pa.Buffer, rows: int, stride: int, at: int, width: int) -> NDArray[Any]:
    """View ``width`` bytes from byte ``at`` of every row."""
    if not rows or not width:
        return np.empty((rows, 0), np.uint8)
    item = np.dtype(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")
    return np.ndarray((rows,), item, as_array(buffer).data, at, (stride,))
