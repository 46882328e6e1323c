"""Sequences of row ids and of row versions, one entry per physical row of a fragment.

A row id sequence is a list of segments, each in the shortest of five encodings:

==================== ============================================================
encoding             values
==================== ============================================================
range                ``start`` to ``end``, exclusive
range with holes     the same without the values listed
range with bitmap    bit ``i``, least significant first, is set if ``start + i`` exists
sorted array         ascending values: a base and 16- or 32-bit offsets, or 64 bits each
array                the same in any order
==================== ============================================================

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.limits import MAX_FRAGMENT_ROWS
from glaive.format.pb import table_pb2
from glaive.format.row_id_segments import SegmentValues, segment_length
from glaive.format.wire import parse
from glaive.types import Int64s

__all__ = [
    "MAX_ROWS_AT_ONCE",
    "Part",
    "RowValues",
    "check_at_once",
    "concatenate_row_ids",
    "count_row_ids",
    "decode_row_ids",
    "decode_versions",
    "encode_row_ids",
    "encode_version_array",
    "encode_versions",
    "select_row_ids",
    "version_runs",
]

UInt64s = NDArray[np.uint64]

_RANGE_BYTES: Final = 24
"""Estimated bytes of a range, to compare encodings."""

MAX_ROWS_AT_ONCE: Final = 1 << 27
"""Maximum rows whose numbers are decoded at once: they take a GiB."""

_FEW: Final = 64
"""Up to this many rows, numbers are looked up one by one, also those of neighbours."""

_DENSE: Final = 4
"""Rows from the first to the last for each one requested, up to which all between are decoded."""


class Part(Protocol):
    """Numbers of neighbouring rows that are no plain range."""

    def at(self, positions: Int64s) -> UInt64s:
        """Those at some positions within the part."""

    def between(self, first: int, stop: int) -> UInt64s:
        """Those from one position up to before another."""


class RowValues:
    """A number for each physical row of a fragment: its id, or a version.

    Only :meth:`all` decodes all numbers, as a few bytes can stand for any number of rows; none are
    kept decoded. Safe to share between threads.
    """

    __slots__ = ("_base", "_ends", "_other", "_step", "rows")

    def __init__(
        self, lengths: Sequence[int], base: UInt64s, step: int, other: Mapping[int, Part]
    ) -> None:
        self._ends = np.cumsum(np.array(lengths, np.int64))
        self.rows = int(self._ends[-1]) if len(lengths) else 0
        # Value of row r in part i: base[i] + step * r, unless the part is in `other`.
        self._base, self._step, self._other = base, step, other

    @classmethod
    def of_row_ids(cls, data: bytes, rows: int, *, where: object) -> Self:
        """The row ids of a sequence.

        Raises
        ------
        CorruptFileError
            The sequence cannot be parsed or does not have ``rows`` values.
        """
        segments = _parse(table_pb2.RowIdSequence, data, where).segments
        lengths = [segment_length(segment, where) for segment in segments]
        _check_rows(sum(lengths), rows, "row ids", where)
        other = {
            at: SegmentValues.of(segment, where=where)
            for at, segment in enumerate(segments)
            if segment.WhichOneof("segment") != "range"
        }
        starts = np.array([segment.range.start for segment in segments], np.uint64)
        before = np.cumsum([0, *lengths])[:-1].astype(np.uint64)
        return cls(lengths, starts - before, 1, other)

    @classmethod
    def of_versions(cls, data: bytes, rows: int, *, where: object) -> Self:
        """The versions of a sequence; errors as for :meth:`of_row_ids`."""
        runs = _parse(table_pb2.RowDatasetVersionSequence, data, where).runs
        lengths = [segment_length(run.span, where) for run in runs]
        _check_rows(sum(lengths), rows, "row versions", where)
        return cls(lengths, np.array([run.version for run in runs], np.uint64), 0, {})

    @classmethod
    def constant(cls, value: int, rows: int) -> Self:
        """One number for all rows."""
        return cls([rows], np.array([value], np.uint64), 0, {})

    @classmethod
    def of_part(cls, part: Part, rows: int) -> Self:
        """Numbers that are in one part, which decodes those that are asked for."""
        return cls([rows], np.zeros(1, np.uint64), 1, {0: part})

    @classmethod
    def listed(cls, values: UInt64s) -> Self:
        """Numbers that are decoded already."""
        return cls.of_part(SegmentValues(values), len(values))

    def at(self, rows: NDArray[np.integer]) -> UInt64s:
        """The numbers of these physical rows, each below :attr:`rows`."""
        offsets = rows.astype(np.int64, copy=False)
        if len(self._ends) == 1 and not self._other:
            first = self._base[0]
            if self._step:
                ascending: NDArray[np.uint64] = offsets.astype(np.uint64) + first
                return ascending
            return np.full(len(offsets), first, np.uint64)
        count = len(offsets)
        if count > _FEW:
            low, stop = int(offsets.min()), int(offsets.max()) + 1
            if stop - low <= _DENSE * count:  # as scans ask for them
                between = self.between(low, stop)
                if stop - low == count and (offsets[1:] > offsets[:-1]).all():
                    return between
                return between[offsets - low]
        return self._parts_at(offsets)

    def _parts_at(self, offsets: NDArray[np.int64]) -> UInt64s:
        if len(self._ends) == 1:
            return self._other[0].at(offsets)
        part = np.searchsorted(self._ends, offsets, side="right")
        values = self._base[part]
        if self._step:
            values = values + offsets.astype(np.uint64)
        if not self._other or not len(part):
            return values
        order = np.argsort(part, kind="stable")
        part = part[order]
        edges = np.flatnonzero(part[1:] != part[:-1]) + 1
        for group in np.split(order, edges):
            at = int(np.searchsorted(self._ends, offsets[group[0]], side="right"))
            segment = self._other.get(at)
            if segment is not None:
                first = int(self._ends[at - 1]) if at else 0
                values[group] = segment.at(offsets[group] - first)
        return values

    def all(self, where: object) -> UInt64s:
        """The numbers of all rows.

        Raises
        ------
        UnsupportedFeatureError
            They are more than :data:`MAX_ROWS_AT_ONCE`.
        """
        check_at_once(self.rows, where)
        return self.between(0, self.rows)

    def runs(self) -> tuple[Int64s, Int64s, UInt64s]:
        """Where runs of rows begin and end, whose numbers ascend or are equal; the first ones."""
        stops, firsts = self._ends, np.concatenate(([0], self._ends))[:-1]
        plain = firsts < stops
        plain[list(self._other)] = False
        numbers = self._base + np.uint64(self._step) * firsts.astype(np.uint64)
        found = [(firsts[plain], stops[plain], numbers[plain])]
        for at, part in self._other.items():
            if isinstance(part, SegmentValues) and part.is_range:
                low, high, start = part.runs(int(stops[at] - firsts[at]))
                found.append((low + firsts[at], high + firsts[at], start))
        joined = list(map(np.concatenate, zip(*found, strict=True)))
        order = np.argsort(joined[0])
        return joined[0][order], joined[1][order], joined[2][order]

    def listed_rows(self) -> Iterator[tuple[int, int]]:
        """Where rows begin and end whose numbers are in none of :meth:`runs`."""
        for at, part in self._other.items():
            if not (isinstance(part, SegmentValues) and part.is_range):
                yield int(self._ends[at - 1]) if at else 0, int(self._ends[at])

    def between(self, first: int, stop: int) -> UInt64s:
        """The numbers of the physical rows from ``first`` up to before ``stop``."""
        if len(self._ends) == 1 and self._other:
            return self._other[0].between(first, stop)
        begin, last = np.searchsorted(self._ends, (first, stop - 1), side="right").tolist()
        span = slice(begin, last + 1)
        ends = np.minimum(self._ends[span], stop)
        lengths = np.diff(ends, prepend=first)
        values: UInt64s = np.repeat(self._base[span], lengths)
        if self._step:
            values += np.arange(first, stop, dtype=np.uint64)
        for at in self._other if len(self._other) <= last - begin else range(begin, last + 1):
            part = self._other.get(at) if begin <= at <= last else None
            if part is not None:
                start = int(self._ends[at - 1]) if at else 0
                low, high = max(first, start), min(stop, int(self._ends[at]))
                values[low - first : high - first] = part.between(low - start, high - start)
        return values


def check_at_once(rows: int, where: object) -> None:
    """Check the number of rows to decode at once.

    Raises
    ------
    UnsupportedFeatureError
        They are more than :data:`MAX_ROWS_AT_ONCE`.
    """
    if rows > MAX_ROWS_AT_ONCE:
        raise UnsupportedFeatureError(
            f"row ids or versions of {rows} rows of one fragment (in {where}): at most "
            f"{MAX_ROWS_AT_ONCE} can be decoded at once. Write the dataset with smaller fragments."
        )


def decode_row_ids(data: bytes, rows: int, *, where: object) -> UInt64s:
    """Row id of each of ``rows`` physical rows; see :class:`RowValues` for errors."""
    return RowValues.of_row_ids(data, rows, where=where).all(where)


def count_row_ids(data: bytes, *, where: object) -> int:
    """Number of row ids in a sequence; 0 for none.

    Raises
    ------
    CorruptFileError
        The sequence cannot be parsed.
    """
    if not data:
        return 0
    segments = _parse(table_pb2.RowIdSequence, data, where).segments
    return sum(segment_length(segment, where) for segment in segments)


def select_row_ids(data: bytes, rows: int, kept: NDArray[np.uint32], *, where: object) -> bytes:
    """The sequence of the rows at these ascending offsets; each segment is filtered separately.

    Errors as for :func:`decode_row_ids`.
    """
    segments = _parse(table_pb2.RowIdSequence, data, where).segments
    lengths = [segment_length(segment, where) for segment in segments]
    _check_rows(sum(lengths), rows, "row ids", where)
    if len(kept) == rows:
        return data
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(kept, np.concatenate([[0], ends]))
    chosen = []
    for segment, first, last, end, length in zip(
        segments, cuts[:-1].tolist(), cuts[1:].tolist(), ends.tolist(), lengths, strict=True
    ):
        if last - first == length:
            chosen.append(segment)
        elif first < last:
            positions = kept[first:last].astype(np.int64) + length - end
            chosen.append(_encode(SegmentValues.of(segment, where=where).at(positions)))
    return table_pb2.RowIdSequence(segments=chosen).SerializeToString()


def concatenate_row_ids(sequences: Sequence[bytes], *, where: object) -> bytes:
    """Concatenate sequences; adjacent ranges are joined; errors as for :func:`count_row_ids`."""
    joined: list[Any] = []
    for data in sequences:
        for segment in _parse(table_pb2.RowIdSequence, data, where).segments:
            last = joined[-1] if joined else None
            if (
                last is not None
                and last.WhichOneof("segment") == "range" == segment.WhichOneof("segment")
                and last.range.end == segment.range.start
            ):
                joined[-1] = _range(last.range.start, segment.range.end)
            else:
                joined.append(segment)
    return table_pb2.RowIdSequence(segments=joined).SerializeToString()


def encode_row_ids(ids: NDArray[np.uint64] | range) -> bytes:
    """The sequence of these row ids, in the shortest encoding."""
    segment = _range(ids.start, ids.stop) if isinstance(ids, range) else _encode(ids)
    return table_pb2.RowIdSequence(segments=[segment]).SerializeToString()


def decode_versions(data: bytes, rows: int, *, where: object) -> UInt64s:
    """Dataset version of each of ``rows`` physical rows; see :class:`RowValues` for errors."""
    return RowValues.of_versions(data, rows, where=where).all(where)


def encode_versions(runs: Sequence[tuple[int, int]]) -> bytes:
    """The sequence of ``(rows, version)`` runs."""
    return table_pb2.RowDatasetVersionSequence(
        runs=[
            table_pb2.RowDatasetVersionRun(span=_range(0, rows), version=version)
            for rows, version in runs
        ]
    ).SerializeToString()


def encode_version_array(versions: NDArray[np.uint64]) -> bytes:
    """The sequence of one version per row, run-length encoded."""
    return encode_versions(version_runs(versions))


def version_runs(versions: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Rows and version of each run of one version per row."""
    if not len(versions):
        return []
    starts = np.concatenate([[0], np.flatnonzero(versions[1:] != versions[:-1]) + 1])
    rows = np.diff(starts, append=len(versions)).tolist()
    return list(zip(rows, versions[starts].tolist(), strict=True))


def _parse(kind: Any, data: bytes, where: object) -> Any:
    return parse(kind(), data, kind.DESCRIPTOR.name, where)


def _check_rows(count: int, rows: int, subject: str, where: object) -> None:
    if rows > MAX_FRAGMENT_ROWS:
        raise CorruptFileError(
            subject, expected="those of at most 2^32 rows", found=f"{rows}", where=where
        )
    if count != rows:
        raise CorruptFileError(subject, expected=f"{rows} values", found=f"{count}", where=where)


# ------------------------------------------------------------------- encoding


def _range(start: int, stop: int) -> table_pb2.U64Segment:
    segment = table_pb2.U64Segment()
    segment.range.start, segment.range.end = start, stop
    segment.range.SetInParent()
    return segment


def _encode(ids: NDArray[np.uint64]) -> table_pb2.U64Segment:
    if not len(ids):
        return _range(0, 0)
    if np.any(ids[1:] <= ids[:-1]) or int(ids[-1]) == 2**64 - 1:  # no range ends behind that
        return table_pb2.U64Segment(array=_encode_array(ids))
    start, end = int(ids[0]), int(ids[-1]) + 1
    size, count = end - start, len(ids)
    if size == count:
        return _range(start, end)
    holes = _RANGE_BYTES + 4 * (size - count)
    bitmap = _RANGE_BYTES + (size + 7) // 8
    array = _RANGE_BYTES + 2 * count
    segment = table_pb2.U64Segment()
    if array < min(holes, bitmap):
        segment.sorted_array.CopyFrom(_encode_array(ids))
        return segment
    present = np.zeros(size, bool)
    present[(ids - np.uint64(start)).astype(np.int64)] = True
    if holes <= bitmap:
        missing = np.flatnonzero(~present).astype(np.uint64) + np.uint64(start)
        segment.range_with_holes.start, segment.range_with_holes.end = start, end
        segment.range_with_holes.holes.CopyFrom(_encode_array(missing))
    else:
        segment.range_with_bitmap.start, segment.range_with_bitmap.end = start, end
        bits = np.packbits(present, bitorder="little")
        segment.range_with_bitmap.bitmap = bits.tobytes()
    return segment


def _encode_array(values: NDArray[np.uint64]) -> table_pb2.EncodedU64Array:
    array = table_pb2.EncodedU64Array()
    base = int(values.min())
    spread = int(values.max()) - base
    if spread > 0xFFFF_FFFF:
        array.u64_array.values = values.astype("<u8").tobytes()
        return array
    offsets = values - np.uint64(base)
    if spread > 0xFFFF:
        array.u32_array.base, array.u32_array.offsets = base, offsets.astype("<u4").tobytes()
    else:
        array.u16_array.base, array.u16_array.offsets = base, offsets.astype("<u2").tobytes()
    return array
