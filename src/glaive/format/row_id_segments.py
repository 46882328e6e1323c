"""Segments of row id sequences: their lengths, bounds and values.

A few bytes can stand for many values. So the values are counted, and the parts of a segment are
checked against each other, before any are decoded; :meth:`SegmentValues.at` decodes only the
requested ones.

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2
from glaive.types import Int64s

__all__ = ["SegmentValues", "are_range", "segment_bounds", "segment_length"]

UInt64s = NDArray[np.uint64]

_ARRAYS = ("sorted_array", "array")


class SegmentValues:
    """The values of one segment: listed, or a range with gaps.

    Parameters
    ----------
    values
        All values; ``None`` for a range.
    start
        Start of the range.
    gaps
        Number of values before each missing value of the range, ascending.
    """

    __slots__ = ("_gaps", "_start", "_values")

    def __init__(
        self, values: UInt64s | None = None, start: int = 0, gaps: Int64s | None = None
    ) -> None:
        self._values, self._start = values, start
        self._gaps: Int64s = np.empty(0, np.int64) if gaps is None else gaps

    @classmethod
    def of(cls, segment: table_pb2.U64Segment, *, where: object) -> SegmentValues:
        """The values of a segment that :func:`segment_length` has checked.

        Raises
        ------
        CorruptFileError
            Missing values of a range are outside of it or repeated.
        """
        form = str(segment.WhichOneof("segment"))
        part: Any = getattr(segment, form)
        if form in _ARRAYS:
            return cls(_array(part))
        start = int(part.start)
        if form == "range_with_bitmap":
            kept = np.flatnonzero(_bits(part.bitmap, int(part.end) - start))
            return cls(kept.astype(np.uint64) + np.uint64(start))
        return cls(None, start, _gaps(part, where) if form == "range_with_holes" else None)

    def at(self, positions: Int64s) -> UInt64s:
        """The values at these positions, 0 ≤ position < length."""
        if self._values is not None:
            return self._values[positions]
        if len(self._gaps):
            positions = positions + np.searchsorted(self._gaps, positions, side="right")
        return positions.astype(np.uint64) + np.uint64(self._start)

    def between(self, first: int, stop: int) -> UInt64s:
        """The values from position ``first`` up to before ``stop``, 0 ≤ first ≤ stop ≤ length."""
        if self._values is not None:
            return self._values[first:stop]
        values = np.arange(first, stop, dtype=np.uint64) + np.uint64(self._start)
        low, high = np.searchsorted(self._gaps, (first, stop - 1), side="right").tolist()
        if high:
            edges = np.concatenate(([first], self._gaps[low:high], [stop]))
            values += np.repeat(np.arange(low, high + 1, dtype=np.uint64), np.diff(edges))
        return values

    @property
    def is_range(self) -> bool:
        """Whether they are a range with gaps, none of which is listed."""
        return self._values is None

    def runs(self, length: int) -> tuple[Int64s, Int64s, UInt64s]:
        """Where each run between gaps of a range begins and ends, and its first value."""
        edges = np.concatenate(([0], self._gaps, [length]))
        gaps = np.flatnonzero(edges[:-1] < edges[1:])
        first, stop = edges[gaps], edges[gaps + 1]
        return first, stop, (first + gaps).astype(np.uint64) + np.uint64(self._start)

    def find(self, values: UInt64s) -> tuple[Int64s, NDArray[np.bool_]]:
        """The position of each value, which is within the bounds, and whether it exists."""
        if self._values is not None:
            order = np.argsort(self._values, kind="stable")
            at = np.searchsorted(self._values, values, sorter=order)
            positions: Int64s = order[np.minimum(at, len(order) - 1)]
            return positions, self._values[positions] == values
        offsets = (values - np.uint64(self._start)).astype(np.int64)
        if not len(self._gaps):
            return offsets, np.ones(len(values), np.bool_)
        missing = self._gaps + np.arange(len(self._gaps))
        before = np.searchsorted(missing, offsets)
        exists = missing[np.minimum(before, len(missing) - 1)] != offsets
        return offsets - before, exists


def are_range(ids: UInt64s) -> bool:
    """Whether some ids ascend by one, so that the first and the last one say them all."""
    if not len(ids) or int(ids[-1]) - int(ids[0]) != len(ids) - 1:
        return False
    return bool((ids[1:] - ids[:-1] == 1).all())


def _gaps(part: table_pb2.U64Segment.RangeWithHoles, where: object) -> Int64s:
    """Number of values before each missing value, ascending."""
    holes = np.sort(_array(part.holes))
    inside = (holes >= part.start) & (holes < part.end)
    if not inside.all() or (holes[1:] == holes[:-1]).any():
        raise CorruptFileError(
            "holes of a row id range",
            expected=f"distinct values of {part.start}..{part.end}",
            found="other or repeated values",
            where=where,
        )
    missing: Int64s = (holes - np.uint64(part.start)).astype(np.int64)
    return missing - np.arange(len(holes))


def segment_bounds(segment: table_pb2.U64Segment, *, where: object) -> tuple[int, int, int]:
    """Lowest value of a segment, highest value + 1, and the number of values.

    For a range with missing values, the bounds are those of the range.

    Raises
    ------
    CorruptFileError
        Parts of the segment do not match.
    """
    length = segment_length(segment, where)
    form = str(segment.WhichOneof("segment"))
    if form not in _ARRAYS:
        part = getattr(segment, form)
        return part.start, part.end, length
    values = _array(getattr(segment, form))
    if not len(values):
        return 0, 0, 0
    return int(values.min()), min(int(values.max()) + 1, 2**64 - 1), length


def segment_length(segment: table_pb2.U64Segment, where: object) -> int:
    """Number of values of a segment; checks its parts against each other.

    Raises
    ------
    CorruptFileError
        They do not match.
    """
    form = segment.WhichOneof("segment")
    if form is None:
        raise CorruptFileError(
            "row id segment", expected="one of the five forms", found="none", where=where
        )
    part: Any = getattr(segment, form)
    if form in _ARRAYS:
        return _array_length(part, where)
    size = int(part.end) - int(part.start)
    if size < 0:
        raise CorruptFileError(
            "row id range", expected="start ≤ end", found=f"{part.start}..{part.end}", where=where
        )
    if form == "range_with_holes":
        holes = _array_length(part.holes, where)
        if holes > size:
            raise CorruptFileError(
                "holes of a row id range", expected=f"≤ {size}", found=f"{holes}", where=where
            )
        return size - holes
    if form == "range_with_bitmap":
        if len(part.bitmap) != (size + 7) // 8:
            raise CorruptFileError(
                "bitmap of a row id range",
                expected=f"{(size + 7) // 8} bytes",
                found=f"{len(part.bitmap)}",
                where=where,
            )
        return int(_bits(part.bitmap, size).sum())
    return size


def _array_length(array: Any, where: object) -> int:
    form = array.WhichOneof("array")
    if form is None:
        return 0
    width, data = {
        "u16_array": (2, array.u16_array.offsets),
        "u32_array": (4, array.u32_array.offsets),
        "u64_array": (8, array.u64_array.values),
    }[form]
    if len(data) % width:
        raise CorruptFileError(
            "array of row ids",
            expected=f"a multiple of {width} bytes",
            found=f"{len(data)}",
            where=where,
        )
    return len(data) // width


def _bits(bitmap: bytes, size: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little", count=size)


def _array(array: Any) -> UInt64s:
    form = array.WhichOneof("array")
    if form is None:
        return np.empty(0, np.uint64)
    part = getattr(array, form)
    if form == "u64_array":
        return np.frombuffer(part.values, "<u8").astype(np.uint64)
    offsets = np.frombuffer(part.offsets, "<u2" if form == "u16_array" else "<u4")
    return offsets.astype(np.uint64) + np.uint64(part.base)
