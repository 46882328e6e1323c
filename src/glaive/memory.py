"""Memory as Arrow buffers and as NumPy arrays, which share it; and memory from Arrow's pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["allocate", "as_array", "as_buffer", "copy_of", "items_of"]

# Called some dozen times for each row that is taken: no step between them and Arrow or NumPy.
_from_buffer: Final[Callable[..., NDArray[Any]]] = cast("Any", np.frombuffer)

as_buffer: Final[Callable[[NDArray[Any] | bytes], pa.Buffer]] = cast("Any", pa.py_buffer)
"""View the memory of a contiguous array as a buffer, which keeps it alive."""

allocate: Final[Callable[[int], pa.Buffer]] = cast("Any", pa.allocate_buffer)
"""So many bytes of uninitialised memory from Arrow's pool, which keeps pages warm."""


def as_array(buffer: pa.Buffer, dtype: Any = np.uint8) -> NDArray[Any]:
    """View a buffer as a one-dimensional array; a partial last item is ignored."""
    dtype = np.dtype(dtype)
    count = buffer.size // dtype.itemsize
    return _from_buffer(buffer, dtype, count) if count else np.empty(0, dtype)


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
    return _from_buffer(buffer, dtype, count, start) if count else np.empty(0, dtype)


def copy_of(buffer: pa.Buffer) -> pa.Buffer:
    """The bytes of a buffer in memory of their own, from Arrow's pool."""
    copy = allocate(buffer.size)
    as_array(copy)[:] = as_array(buffer)
    return copy
