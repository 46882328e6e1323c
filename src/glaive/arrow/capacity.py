"""The capacity of Arrow arrays, and splitting rows so that each part fits one array.

32-bit offsets count at most 2^31 - 1 bytes of strings, or items of lists. Code that makes
arrays checks this first and raises :class:`CapacityError`; its callers then split the rows
with :func:`in_parts`. Arrow itself raises in most cases, but silently overflows in some: when
it repeats a value, replaces within strings, or takes lists more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import pack_flags
from glaive.errors import CapacityError
from glaive.memory import as_buffer
from glaive.types import MAX_OFFSET, Int64s

__all__ = [
    "MAX_OFFSET",
    "array_part",
    "batch_parts",
    "in_parts",
    "row_weights",
    "too_large",
    "weight",
]

T = TypeVar("T")

_OVERFLOWS: Final = ("overflow", "too large")
"""Parts of Arrow's messages about arrays that are full."""


def too_large(error: Exception) -> bool:
    """Whether an error means that an array would hold more than its offsets can count."""
    if isinstance(error, CapacityError | pa.ArrowCapacityError):
        return True
    text = str(error)
    return (
        isinstance(error, pa.ArrowInvalid)
        and "array" in text
        and any(word in text for word in _OVERFLOWS)
    )


def in_parts(work: Callable[[int, int], T], start: int, stop: int) -> Iterable[T]:
    """Results of ``work`` on rows ``start`` to ``stop``: of all of them, or of parts.

    First ``work`` is called for all rows. If that raises ``CapacityError``, it is called for
    parts of them, lazily, so that only one result is in memory at a time.

    Raises
    ------
    CapacityError
        A single row is too large.
    """
    try:
        return [work(start, stop)]
    except CapacityError as error:
        if stop - start < 2:
            raise
        count = min(max(2, error.parts), stop - start)
    return _parts(work, np.linspace(start, stop, count + 1).astype(np.int64).tolist())


def batch_parts(work: Callable[[Any], T], batch: Any) -> Iterable[T]:
    """Results of ``work`` on a record batch, or on parts of it; see :func:`in_parts`."""

    def part(start: int, stop: int) -> T:
        if stop - start == batch.num_rows:
            return work(batch)
        columns = [array_part(column, start, stop) for column in batch.columns]
        return work(pa.RecordBatch.from_arrays(columns, schema=batch.schema))

    return in_parts(part, 0, batch.num_rows)


def array_part(array: Any, start: int, stop: int) -> Any:
    """Rows ``start`` to ``stop`` of an array, without a copy of its values.

    Offsets of large strings are shifted to begin at 0, so that Arrow can cast them to 32 bits.
    """
    part = array[start:stop]
    if not (pa.types.is_large_string(part.type) or pa.types.is_large_binary(part.type)):
        return part
    _, offsets, data = part.buffers()
    if not len(part) or data is None or data.size <= MAX_OFFSET:
        return part
    ends = np.frombuffer(offsets, "<i8", len(part) + 1, part.offset * 8)
    first, last = int(ends[0]), int(ends[-1])
    validity = None
    if part.null_count:
        validity = pack_flags(part.is_valid().to_numpy(zero_copy_only=False))
    buffers = [validity, as_buffer(ends - first), data.slice(first, last - first)]
    return pa.Array.from_buffers(part.type, len(part), buffers, part.null_count)


def _parts(work: Callable[[int, int], T], cuts: Sequence[int]) -> Iterator[T]:
    for start, stop in pairwise(cuts):
        yield from in_parts(work, start, stop)


def weight(array: Any) -> int:
    """Total of bytes and items that all 32-bit offsets of an array count."""
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return weight(array.storage)
    if types.is_struct(kind):
        return sum(weight(array.field(at)) for at in range(kind.num_fields))
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        return weight(array.values.slice(array.offset * size, len(array) * size))
    ends = _offsets(array)
    if ends is None:
        return 0
    first, last = int(ends[0]), int(ends[-1])
    own = 0 if types.is_large_list(kind) else last - first
    return own + sum(weight(part.slice(first, last - first)) for part in _items(array))


def row_weights(array: Any) -> Int64s | int:
    """The weight of each row; one integer if all rows have the same.

    Rows whose weights add up to at most ``MAX_OFFSET`` fit one array.
    """
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return row_weights(array.storage)
    if types.is_struct(kind):
        total: Int64s | int = 0
        for at in range(kind.num_fields):
            total = total + row_weights(array.field(at))
        return total
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = row_weights(array.values.slice(array.offset * size, len(array) * size))
        if isinstance(inner, int):
            return int(size) * inner
        summed: Int64s = inner.reshape(len(array), size).sum(axis=1)
        return summed
    ends = _offsets(array)
    if ends is None:
        return 0
    first, own = int(ends[0]), np.diff(ends).astype(np.int64)
    weights: Int64s | int = 0 if types.is_large_list(kind) else own
    for part in _items(array):
        inner = row_weights(part.slice(first, int(ends[-1]) - first))
        if isinstance(inner, int):
            weights = weights + own * inner
        else:
            sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
            weights = weights + np.diff(sums[ends - first])
    return weights


def _offsets(array: Any) -> NDArray[np.signedinteger] | None:
    """32-bit offsets, and those of large lists (for the weight of their items); else None."""
    kind, types = array.type, pa.types
    small = types.is_string(kind) or types.is_binary(kind)
    if not (small or _is_list(kind)) or not len(array):
        return None
    buffer = array.buffers()[1]
    if buffer is None:
        return None
    dtype = np.dtype("<i8" if types.is_large_list(kind) else "<i4")
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)


def _items(array: Any) -> list[Any]:
    """The children of lists, with items of rows outside of a slice; none for strings."""
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    return [array.values] if _is_list(array.type) else []


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))
