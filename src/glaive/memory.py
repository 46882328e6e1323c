"""Memory as Arrow buffers and as NumPy arrays, which share it; and memory from Arrow's pool."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["allocate", "as_array", "as_buffer", "items_of"]


def allocate(size: int) -> pa.Buffer:
    """``size`` bytes of uninitialised memory from Arrow's pool, which keeps pages warm."""
    return pa.allocate_buffer(size)


def as_array(buffer: pa.Buffer, dtype: Any = np.uint8) -> NDArray[Any]:
    """View a buffer as a one-dimensional array; a partial last item is ignored."""
    dtype = np.dtype(dtype)
    return items_of(buffer, dtype, buffer.size // dtype.itemsize)


def items_of(buffer: pa.Buffer, dtype: Any, count: int, start: int = 0) -> NDArray[Any]:
    """View items of a buffer as a one-dimensional array.

    Parameters
    ----------
    buffer
        Memory of all items.
    dtype
        Type of an item.
    count
        Number of items.
    start
        Bytes before the first item; they need no alignment.
    """
    if count == 0:
        return np.empty(0, dtype)
    view: NDArray[Any] = np.frombuffer(cast("Any", buffer), dtype, count, start)
    return view


def as_buffer(array: NDArray[Any]) -> pa.Buffer:
    """View the memory of a contiguous array as a buffer, which keeps it alive."""
    return pa.py_buffer(cast("Any", array))
