"""The bytes that the value of each row takes, whatever its type."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.types import Int64s

__all__ = ["row_bytes"]

_OFFSET_BYTES: Final = {
    pa.string().id: 4, pa.binary().id: 4, pa.large_string().id: 8, pa.large_binary().id: 8,
    pa.list_(pa.null()).id: 4, pa.large_list(pa.null()).id: 8, pa.map_(pa.int8(), pa.int8()).id: 4,
}  # fmt: skip
_VIEW_BYTES: Final = 16


def row_bytes(array: Any, null: int = 0) -> Int64s | int:
    """Bytes of each row's value; one integer if all take the same.

    Those of values below nulls count, validity and the row's own offset do not. Values of
    dictionaries count as the largest one.

    Parameters
    ----------
    null
        What a value of the type null counts as, and a struct besides its members.
    """
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return row_bytes(array.storage, null)
    if types.is_dictionary(kind):
        return int(np.max(row_bytes(array.dictionary, null), initial=0))
    if types.is_struct(kind):
        total: Int64s | int = null
        for at in range(kind.num_fields):
            total = total + row_bytes(array.field(at), null)
        return total
    if types.is_fixed_size_list(kind):
        size = int(kind.list_size)
        inner = _item_bytes(array.values.slice(array.offset * size, len(array) * size), null)
        if isinstance(inner, int):
            return size * inner
        summed: Int64s = inner.reshape(len(array), size).sum(axis=1)
        return summed
    if kind.id in _OFFSET_BYTES:
        return _bytes_between(array, null)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _lengths_of_views(array)
    return null if types.is_null(kind) else (int(kind.bit_width) + 7) // 8


def _bytes_between(array: Any, null: int) -> Int64s | int:
    """Bytes of texts, lists and maps by their offsets."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return 0
    width = _OFFSET_BYTES[array.type.id]
    dtype = np.dtype(f"<i{width}")
    ends: NDArray[Any] = np.frombuffer(buffer, dtype, len(array) + 1, array.offset * width)
    sizes: Int64s = np.diff(ends).astype(np.int64)
    if not pa.types.is_nested(array.type):
        return sizes
    parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    first, total = int(ends[0]), np.zeros(len(array), np.int64)
    for part in parts:
        inner = _item_bytes(part.slice(first, int(ends[-1]) - first), null)
        if isinstance(inner, int):
            total += sizes * inner
        else:
            sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
            total += np.diff(sums[ends - first])
    return total


def _item_bytes(items: Any, null: int) -> Int64s | int:
    """Bytes of each item, its offset included."""
    return row_bytes(items, null) + _OFFSET_BYTES.get(items.type.id, 0)


def _lengths_of_views(array: Any) -> Int64s:
    count = len(array)
    views = np.frombuffer(array.buffers()[1] or b"", np.dtype("<i4")).reshape(-1, _VIEW_BYTES // 4)
    lengths: Int64s = views[array.offset : array.offset + count, 0].astype(np.int64)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths + _VIEW_BYTES
