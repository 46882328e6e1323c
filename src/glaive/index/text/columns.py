"""Columns of byte strings, and of lists of them, to offsets and bytes, and back.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.capacity import MAX_OFFSET
from glaive.arrow.chunked import as_numpy, one_array
from glaive.errors import CapacityError
from glaive.index.segment import IndexFile
from glaive.index.text.postings import Elements
from glaive.memory import as_array, as_buffer
from glaive.types import Int64s

__all__ = ["bytes_array", "elements_of", "lists_array", "lists_of", "numbers_of"]


def numbers_of(file: IndexFile, rows: pa.Table, name: str, kind: pa.DataType) -> Int64s:
    """A column of integers without nulls."""
    file.check(**{name: kind})
    if rows[name].null_count:
        raise file.corrupt_column(name, "values", "nulls")
    return as_numpy(rows[name]).astype(np.int64)


def elements_of(array: Any, name: str, file: IndexFile) -> Elements:
    """Byte strings of an array."""
    if array.type != pa.large_binary():
        raise file.corrupt_column(name, "bytes", f"{array.type}")
    if array.null_count:
        raise file.corrupt_column(name, "values", "nulls")
    if not len(array):
        return Elements(np.zeros(1, np.int64), np.zeros(0, np.uint8))
    _, offsets, data = array.buffers()
    ends = as_array(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    content = as_array(data) if data is not None else np.zeros(0, np.uint8)
    return Elements(ends - ends[0], content[int(ends[0]) : int(ends[-1])])


def lists_of(rows: pa.Table, name: str, file: IndexFile) -> tuple[Int64s, Any]:
    """Where each list of a column begins among all elements; and the elements."""
    array: Any = one_array(rows[name])
    if not pa.types.is_list(array.type):
        raise file.corrupt_column(name, "lists", f"{array.type}")
    if array.null_count:
        raise file.corrupt_column(name, "values", "nulls")
    if not len(array):
        return np.zeros(1, np.int64), array.flatten()
    offsets = as_numpy(array.offsets).astype(np.int64)
    return offsets - offsets[0], array.flatten()


def bytes_array(elements: Elements) -> Any:
    """An array of byte strings."""
    count = len(elements.offsets) - 1
    buffers = [None, as_buffer(elements.offsets), as_buffer(elements.data)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def lists_array(starts: Int64s, values: Any, kind: pa.DataType) -> pa.Array:
    """An array of lists that begin at ``starts``."""
    if len(starts) and int(starts[-1]) > MAX_OFFSET:
        raise CapacityError.of(int(starts[-1]), f"items of {kind}", where="an index")
    list_type: Any = pa.ListArray
    array: pa.Array = list_type.from_arrays(pa.array(starts, pa.int32()), values, type=kind)
    return array
