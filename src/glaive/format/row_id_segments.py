"""Segments of row id sequences: how many values, between which bounds, and the values.

A segment says with few bytes how many values it has. They are counted, and its parts are checked
against each other, before any are made; :meth:`SegmentValues.at` makes those asked for.

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2

__all__ = ["SegmentValues", "segment_bounds", "segment_length"]

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

_ARRAYS = ("sorted_array", "array")


class SegmentValues:
    """The values of one segment: listed, or a range with gaps.

    Parameters
    ----------
    values
        All of them; ``None`` for a range.
    start
        Where the range begins.
    gaps
        Values of the range before each one that is missing, ascending.
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
            Values that are to be missing in a range are not in it, or there twice.
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

    def at(self, places: Int64s) -> UInt64s:
        """The values at these places, 0 ≤ place < length."""
        if self._values is not None:
            return self._values[places]
        found = places
        if len(self._gaps):
            found = places + np.searchsorted(self._gaps, places, side="right")
        return found.astype(np.uint64) + np.uint64(self._start)

    def all(self, length: int) -> UInt64s:
        """All values, of which there are so many."""
        return self.at(np.arange(length)) if self._values is None else self._values

    def find(self, values: UInt64s) -> tuple[Int64s, NDArray[np.bool_]]:
        """The place of each value within the bounds, and whether it is there at all."""
        if self._values is not None:
            order = np.argsort(self._values, kind="stable")
            at = np.searchsorted(self._values, values, sorter=order)
            places: Int64s = order[np.minimum(at, len(order) - 1)]
            return places, self._values[places] == values
        offsets = (values - np.uint64(self._start)).astype(np.int64)
        if not len(self._gaps):
            return offsets, np.ones(len(values), np.bool_)
        missing = self._gaps + np.arange(len(self._gaps))
        before = np.searchsorted(missing, offsets)
        gone = missing[np.minimum(before, len(missing) - 1)] == offsets
        return offsets - before, ~gone


def _gaps(part: table_pb2.U64Segment.RangeWithHoles, where: object) -> Int64s:
    """Values before each one that is missing, ascending: as many as stand before its place."""
    holes = np.sort(_array(part.holes))
    inside = (holes >= part.start) & (holes < part.end)
    if not inside.all() or (holes[1:] == holes[:-1]).any():
        raise CorruptFileError(
            "holes of a row id range",
            expected=f"different values of {part.start}..{part.end}",
            found="others or repeated ones",
            where=where,
        )
    missing: Int64s = (holes - np.uint64(part.start)).astype(np.int64)
    return missing - np.arange(len(holes))


def segment_bounds(segment: table_pb2.U64Segment, *, where: object) -> tuple[int, int, int]:
    """Lowest value of a segment, the first one after the highest, and the number of values.

    Of a range with values missing the bounds are those of the range.

    Raises
    ------
    CorruptFileError
        Parts of the segment do not fit each other.
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
    """Values of a segment; its parts are checked against each other here.

    Raises
    ------
    CorruptFileError
        They do not fit.
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
