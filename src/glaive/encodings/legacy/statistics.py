"""Statistics of pages: the number of nulls, and bounds of the values.

Bounds need not be attained. Where a page has only nulls, integers, booleans and decimals get
the smallest and the greatest value of their type, floats the infinities, and byte strings
null, which means unknown. Bounds of floats ignore NaN; zero is bounded by -0.0 and +0.0.

Specification: "Statistics" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.blocks import FixedWidth
from glaive.arrow.buffers import flags_of, pack_flags
from glaive.arrow.build import block_from_array, offset_bits, validity_flags
from glaive.dataclass import dataclass
from glaive.memory import items_of
from glaive.types import Flags, Int64s

__all__ = ["STATISTICS", "PageBounds", "has_statistics", "measure_pages"]

STATISTICS: Final = ("null_count", "min_value", "max_value")
"""Names of the statistics of a page, in the order they are stored in."""

_MAX_BOUND_BYTES: Final = 64
"""Longer bounds of byte strings are shortened."""


@dataclass(frozen=True, slots=True)
class PageBounds:
    """One entry per page: null counts (``int64``), and arrays of the column's type."""

    null_count: Int64s
    min_value: pa.Array
    max_value: pa.Array


def has_statistics(kind: pa.DataType) -> bool:
    """Whether there are statistics for columns of this type."""
    types = pa.types
    return (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_temporal(kind)
        or types.is_decimal128(kind)
        or offset_bits(kind) is not None
    )


def measure_pages(array: pa.Array, bounds: Int64s) -> PageBounds:
    """Statistics of the pages that ``bounds`` cut an array into; no page is empty."""
    kind = array.type
    starts, counts = bounds[:-1], np.diff(bounds)
    flags = validity_flags(array)
    nulls = np.zeros(len(starts), np.int64)
    if flags is not None:
        nulls = np.add.reduceat(~flags, starts, dtype=np.int64)
    if offset_bits(kind) or pa.types.is_decimal(kind):
        lows, highs = _ordered_bounds(array, bounds)
        if offset_bits(kind):
            lows, highs = _cut(lows, upper=False), _cut(highs, upper=True)
        return PageBounds(nulls, lows, highs)
    known = nulls < counts
    block = block_from_array(array)
    if not isinstance(block, FixedWidth):
        raise TypeError(f"no statistics for values of type {kind}")
    if pa.types.is_boolean(kind):
        some = _flag_bounds(flags_of(block.values, block.count), flags, starts)
        return PageBounds(nulls, _as_bits(some[0] & known), _as_bits(some[1] | ~known))
    values = items_of(block.values, _dtype(kind), block.count)
    if pa.types.is_floating(kind):
        low, high = _float_bounds(values, flags, starts)
    else:
        low, high = _integer_bounds(values, flags, starts, known)
    return PageBounds(nulls, _as_type(low, kind), _as_type(high, kind))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    size = int(kind.bit_width) // 8
    if pa.types.is_floating(kind):
        return np.dtype(f"<f{size}")
    return np.dtype(f"<{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{size}")


def _as_type(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    data: Any = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)], 0)


def _as_bits(flags: Flags) -> pa.Array:
    buffers = [None, pack_flags(flags)]
    return pa.Array.from_buffers(pa.bool_(), len(flags), buffers, 0)


def _integer_bounds(
    values: NDArray[Any], flags: Flags | None, starts: Int64s, known: Flags
) -> tuple[NDArray[Any], NDArray[Any]]:
    if flags is None:
        return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    least, greatest = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
    low = np.minimum.reduceat(np.where(flags, values, greatest), starts)
    high = np.maximum.reduceat(np.where(flags, values, least), starts)
    return np.where(known, low, least), np.where(known, high, greatest)


def _float_bounds(
    values: NDArray[Any], flags: Flags | None, starts: Int64s
) -> tuple[NDArray[Any], NDArray[Any]]:
    used = ~np.isnan(values)
    if flags is not None:
        used &= flags
    infinity = values.dtype.type(np.inf)
    low = np.minimum.reduceat(np.where(used, values, infinity), starts)
    high = np.maximum.reduceat(np.where(used, values, -infinity), starts)
    known = np.logical_or.reduceat(used, starts)
    low, high = np.where(known, low, -infinity), np.where(known, high, infinity)
    low[low == 0], high[high == 0] = -0.0, 0.0
    return low, high


def _flag_bounds(values: Flags, flags: Flags | None, starts: Int64s) -> tuple[Flags, Flags]:
    lows = values if flags is None else values | ~flags
    highs = values if flags is None else values & flags
    return np.logical_and.reduceat(lows, starts), np.logical_or.reduceat(highs, starts)


def _ordered_bounds(array: pa.Array, bounds: Int64s) -> tuple[pa.Array, pa.Array]:
    """Smallest and greatest value per page, null where there is none.

    Arrow compares the values of a page in one call; grouping all pages in one costs four
    times as much.
    """
    pairs: list[Any] = [
        pc.min_max(array.slice(start, stop - start)).as_py()
        for start, stop in pairwise(bounds.tolist())
    ]
    lows: Any = pa.array([pair["min"] for pair in pairs], array.type)
    highs: Any = pa.array([pair["max"] for pair in pairs], array.type)
    if pa.types.is_decimal(array.type) and lows.null_count:
        unknown = np.asarray(lows.is_null())
        return _filled(lows, unknown, b"\x00", b"\x80"), _filled(highs, unknown, b"\xff", b"\x7f")
    return lows, highs


def _filled(array: Any, unknown: Flags, low: bytes, high: bytes) -> pa.Array:
    """Fill unknown decimals with the byte ``low``, and ``high`` as the last one."""
    width = array.type.byte_width
    raw = items_of(array.buffers()[1], np.uint8, len(array) * width).reshape(-1, width).copy()
    raw[unknown] = np.frombuffer(low * (width - 1) + high, np.uint8)
    return _as_type(raw, array.type)


def _cut(bounds: Any, *, upper: bool) -> pa.Array:
    """Shorten long bounds; an upper one that cannot be rounded up is null."""
    lengths = np.asarray(pc.binary_length(bounds).fill_null(0))
    if not len(lengths) or int(lengths.max()) <= _MAX_BOUND_BYTES:
        return bounds  # type: ignore[no-any-return]  # an array
    text = pa.types.is_string(bounds.type) or pa.types.is_large_string(bounds.type)
    shortened = [
        value
        if value is None or size <= _MAX_BOUND_BYTES
        else _shorten(value, text=text, upper=upper)
        for value, size in zip(bounds.to_pylist(), lengths.tolist(), strict=True)
    ]
    cut: pa.Array = pa.array(shortened, bounds.type)
    return cut


def _shorten(value: Any, *, text: bool, upper: bool) -> Any:
    if not text:
        head = value[:_MAX_BOUND_BYTES]
        if not upper:
            return head
        head = head.rstrip(b"\xff")
        return head[:-1] + bytes([head[-1] + 1]) if head else None
    head = value.encode()[:_MAX_BOUND_BYTES].decode(errors="ignore")
    if not upper:
        return head
    while head:
        last = ord(head[-1])
        following = 0xE000 if last == 0xD7FF else last + 1
        head = head[:-1]
        if following <= 0x10FFFF and len(chr(following).encode()) == len(chr(last).encode()):
            return head + chr(following)
    return None
