"""Sequences of row ids and of row versions, one entry per physical row of a fragment.

A row id sequence is a list of segments, each in the shortest of five encodings:

==================== ============================================================
encoding             values
==================== ============================================================
range                ``start`` to ``end``, exclusive
range with holes     the same, except the values listed
range with bitmap    bit ``i``, least significant first, is set if ``start + i`` exists
sorted array         ascending values: a base and 16- or 32-bit offsets, or 64 bits each
array                the same in any order
==================== ============================================================

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.fragment import FragmentColumns
from glaive.format.pb import table_pb2
from glaive.format.wire import MAX_FRAGMENT_ROWS, DecodeError, parse
from glaive.types import Int64s

# --- Segments of row id sequences: their lengths, bounds and values ---------------------
#
# A few bytes can encode many values. So the values are counted, and the parts of a segment are
# checked against each other, before any are decoded. :meth:`SegmentValues.at` decodes only the
# requested values.
#
# Specification: "Row ids" in ``docs/format``.

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
        """Return the values of a segment that :func:`segment_length` has checked.

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
            kept = _bits(part.bitmap, int(part.end) - start).nonzero()[0]
            return cls(kept.astype(np.uint64) + np.uint64(start))
        return cls(None, start, _gaps(part, where) if form == "range_with_holes" else None)

    def at(self, positions: Int64s) -> UInt64s:
        """Return the values at these positions, 0 ≤ position < length."""
        if self._values is not None:
            return self._values[positions]
        if len(self._gaps):
            positions = positions + self._gaps.searchsorted(positions, side="right")
        return positions.astype(np.uint64) + np.uint64(self._start)

    def between(self, first: int, stop: int) -> UInt64s:
        """Return the values from ``first`` to before ``stop``: 0 ≤ first ≤ stop ≤ length."""
        if self._values is not None:
            return self._values[first:stop]
        values = np.arange(first, stop, dtype=np.uint64) + np.uint64(self._start)
        low, high = self._gaps.searchsorted((first, stop - 1), side="right").tolist()
        if high:
            edges = np.concatenate(([first], self._gaps[low:high], [stop]))
            values += np.arange(low, high + 1, dtype=np.uint64).repeat(np.diff(edges))
        return values

    def find(self, values: UInt64s) -> tuple[Int64s, NDArray[np.bool_]]:
        """Return the position of each value, which is within the bounds, and whether it exists."""
        if self._values is not None:
            order = np.argsort(self._values, kind="stable")
            at = self._values.searchsorted(values, sorter=order)
            positions: Int64s = order[np.minimum(at, len(order) - 1)]
            return positions, self._values[positions] == values
        offsets = (values - np.uint64(self._start)).astype(np.int64)
        if not len(self._gaps):
            return offsets, np.ones(len(values), np.bool_)
        missing = self._gaps + np.arange(len(self._gaps))
        before = missing.searchsorted(offsets)
        exists = missing[np.minimum(before, len(missing) - 1)] != offsets
        return offsets - before, exists


def are_range(ids: UInt64s) -> bool:
    """Return whether some ids ascend by one, so that the first and the last id define all."""
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
    """Return the lowest value of a segment, the highest value + 1, and the number of values.

    For a range with missing values, the bounds are the bounds of the range.

    Raises
    ------
    CorruptFileError
        Parts of the segment contradict each other.
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
        They contradict each other.
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


_RANGE_BYTES: Final = 24
"""Estimated bytes of a range, to compare encodings."""

FIRST_VERSION: Final = 1
"""Version of rows in datasets, or of older writers, that lack row versions."""

MAX_ROWS_AT_ONCE: Final = 1 << 27
"""Maximum rows whose numbers are decoded at once: they take a GiB."""

_MAX_SINGLE_LOOKUPS: Final = 64
"""Up to this many rows, numbers are looked up one by one, also numbers of neighbours."""

_MAX_SPAN_RATIO: Final = 4
"""Rows from the first to the last for each one requested, up to which all between are decoded."""


class Part(Protocol):
    """Numbers of neighbouring rows in any encoding but a plain range."""

    def at(self, positions: Int64s) -> UInt64s:
        """Return the numbers at some positions within the part."""

    def between(self, first: int, stop: int) -> UInt64s:
        """Return the numbers from one position up to before another."""


class RowValues:
    """A number for each physical row of a fragment: its id, or a version.

    Only :meth:`all` decodes all numbers, as a few bytes can encode any number of rows. Each call
    decodes anew. Safe to share between threads.
    """

    __slots__ = ("_base", "_ends", "_other", "_step", "rows")

    def __init__(
        self, lengths: Sequence[int], base: UInt64s, step: int, other: Mapping[int, Part]
    ) -> None:
        self._ends = np.array(lengths, np.int64).cumsum()
        self.rows = int(self._ends[-1]) if len(lengths) else 0
        # Value of row r in part i: base[i] + step * r, unless the part is in `other`.
        self._base, self._step, self._other = base, step, other

    @classmethod
    def of_row_ids(cls, data: bytes, rows: int, *, where: object) -> Self:
        """Return the row ids of a sequence.

        Raises
        ------
        CorruptFileError
            The sequence is invalid, or its number of values differs from ``rows``.
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
        """Return the versions of a sequence; errors as for :meth:`of_row_ids`."""
        runs = _parse(table_pb2.RowDatasetVersionSequence, data, where).runs
        lengths = [segment_length(run.span, where) for run in runs]
        _check_rows(sum(lengths), rows, "row versions", where)
        return cls(lengths, np.array([run.version for run in runs], np.uint64), 0, {})

    @classmethod
    def constant(cls, value: int, rows: int) -> Self:
        """Return one number for all rows."""
        return cls([rows], np.array([value], np.uint64), 0, {})

    @classmethod
    def of_part(cls, part: Part, rows: int) -> Self:
        """Return numbers that are in one part, which decodes the requested ones."""
        return cls([rows], np.zeros(1, np.uint64), 1, {0: part})

    @classmethod
    def listed(cls, values: UInt64s) -> Self:
        """Return the numbers that are decoded already."""
        return cls.of_part(SegmentValues(values), len(values))

    def at(self, rows: NDArray[np.integer]) -> UInt64s:
        """Return the numbers of these physical rows, each below :attr:`rows`."""
        offsets = rows.astype(np.int64, copy=False)
        if len(self._ends) == 1 and not self._other:
            first = self._base[0]
            if self._step:
                ascending: NDArray[np.uint64] = offsets.astype(np.uint64) + first
                return ascending
            return np.full(len(offsets), first, np.uint64)
        count = len(offsets)
        if count > _MAX_SINGLE_LOOKUPS:
            low, stop = int(offsets.min()), int(offsets.max()) + 1
            if stop - low <= _MAX_SPAN_RATIO * count:  # as scans ask for them
                between = self.between(low, stop)
                if stop - low == count and (offsets[1:] > offsets[:-1]).all():
                    return between
                return between[offsets - low]
        return self._parts_at(offsets)

    def _parts_at(self, offsets: NDArray[np.int64]) -> UInt64s:
        if len(self._ends) == 1:
            return self._other[0].at(offsets)
        part = self._ends.searchsorted(offsets, side="right")
        values = self._base[part]
        if self._step:
            values = values + offsets.astype(np.uint64)
        if not self._other or not len(part):
            return values
        order = np.argsort(part, kind="stable")
        part = part[order]
        edges = (part[1:] != part[:-1]).nonzero()[0] + 1
        for group in np.split(order, edges):
            at = int(self._ends.searchsorted(offsets[group[0]], side="right"))
            segment = self._other.get(at)
            if segment is not None:
                first = int(self._ends[at - 1]) if at else 0
                values[group] = segment.at(offsets[group] - first)
        return values

    def all(self, where: object) -> UInt64s:
        """Return the numbers of all rows.

        Raises
        ------
        UnsupportedFeatureError
            They are more than :data:`MAX_ROWS_AT_ONCE`.
        """
        check_at_once(self.rows, where)
        return self.between(0, self.rows)

    def between(self, first: int, stop: int) -> UInt64s:
        """Return the numbers of the physical rows from ``first`` up to before ``stop``."""
        if len(self._ends) == 1 and self._other:
            return self._other[0].between(first, stop)
        begin, last = self._ends.searchsorted((first, stop - 1), side="right").tolist()
        span = slice(begin, last + 1)
        ends = np.minimum(self._ends[span], stop)
        lengths = np.diff(ends, prepend=first)
        values: UInt64s = self._base[span].repeat(lengths)
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
    """Return the row id of each of ``rows`` physical rows; see :class:`RowValues` for errors."""
    return RowValues.of_row_ids(data, rows, where=where).all(where)


def count_row_ids(data: bytes, *, where: object) -> int:
    """Number of row ids in a sequence.

    Raises
    ------
    CorruptFileError
        The sequence is invalid.
    """
    if not data:
        return 0
    segments = _parse(table_pb2.RowIdSequence, data, where).segments
    return sum(segment_length(segment, where) for segment in segments)


def select_row_ids(data: bytes, rows: int, kept: NDArray[np.uint32], *, where: object) -> bytes:
    """Return the sequence of the rows at these ascending offsets.

    Each segment is filtered separately. Errors as for :func:`decode_row_ids`.
    """
    segments = _parse(table_pb2.RowIdSequence, data, where).segments
    lengths = [segment_length(segment, where) for segment in segments]
    _check_rows(sum(lengths), rows, "row ids", where)
    if len(kept) == rows:
        return data
    ends = np.cumsum(lengths)
    cuts = kept.searchsorted(np.concatenate([[0], ends]))
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
    """Return the sequence of these row ids, in the shortest encoding."""
    segment = _range(ids.start, ids.stop) if isinstance(ids, range) else _encode(ids)
    return table_pb2.RowIdSequence(segments=[segment]).SerializeToString()


def decode_versions(data: bytes, rows: int, *, where: object) -> UInt64s:
    """Return the version of each of ``rows`` physical rows; see :class:`RowValues` for errors."""
    return RowValues.of_versions(data, rows, where=where).all(where)


def encode_versions(runs: Sequence[tuple[int, int]]) -> bytes:
    """Return the sequence of ``(rows, version)`` runs."""
    return table_pb2.RowDatasetVersionSequence(
        runs=[
            table_pb2.RowDatasetVersionRun(span=_range(0, rows), version=version)
            for rows, version in runs
        ]
    ).SerializeToString()


def encode_version_array(versions: NDArray[np.uint64]) -> bytes:
    """Return the sequence of one version per row, run-length encoded."""
    return encode_versions(version_runs(versions))


def version_runs(versions: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return the rows and version of each run of one version per row."""
    if not len(versions):
        return []
    starts = np.concatenate([[0], (versions[1:] != versions[:-1]).nonzero()[0] + 1])
    rows = np.diff(starts, append=len(versions)).tolist()
    return list(zip(rows, versions[starts].tolist(), strict=True))


def _parse(kind: Any, data: bytes, where: object) -> Any:
    return parse(kind(), data, kind.DESCRIPTOR.name, where)


def _check_rows(count: int, rows: int, subject: str, where: object) -> None:
    if rows > MAX_FRAGMENT_ROWS:
        raise CorruptFileError(
            subject, expected="numbers of at most 2^32 rows", found=f"{rows}", where=where
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
    if np.any(ids[1:] <= ids[:-1]) or int(ids[-1]) == 2**64 - 1:  # a range ends one later
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
        missing = (~present).nonzero()[0].astype(np.uint64) + np.uint64(start)
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


# --- Bounds of the segments of the row id sequences of all fragments --------------------
#
# The bounds of sequences with a single range, as new fragments have, come from a single parse for
# all: see :mod:`glaive.format.fragment`. Other sequences are decoded segment by segment. That costs
# work per segment, not per row.
#
# Specification: "Row ids" in ``docs/format``.

Ranges = tuple[UInt64s, UInt64s, Int64s, Int64s]
Found = tuple[Int64s, Int64s, Int64s]
"""Position among the ids that were looked for, position of the fragment, and physical row."""

_MAX_CANDIDATES: Final = 1 << 26
_MAX_COPIES: Final = 16
"""Limit of candidate rows: in total, or per id if that is more.

An id has one candidate for each update of its row since the last compaction.
"""

_ROWS_PER_STEP: Final = 1 << 21
"""Candidate rows, or rows of one segment, that are looked up at a time: each takes 40 bytes."""

_NO_IDS: Final = np.empty(0, np.uint64)
_NO_ROWS: Final = np.empty(0, np.int64)
_NONE: Final[Ranges] = (_NO_IDS, _NO_IDS, _NO_ROWS, _NO_ROWS)


@dataclass(frozen=True, slots=True)
class RowSegments:
    """Segments of all fragments, in order. Shape ``(segments,)`` each.

    Parameters
    ----------
    start, end
        Lowest id, and the first one after the highest.
    fragment
        Position of the fragment in the list.
    first
        Physical row of the first id.
    other
        Other segments than ranges, by position: their message or their values.
    """

    start: UInt64s
    end: UInt64s
    fragment: Int64s
    first: Int64s
    other: dict[int, Any]
    where: str

    @property
    def bounds(self) -> tuple[UInt64s, UInt64s]:
        """Lowest id of each, and the first one after its highest."""
        return self.start, self.end

    def find(self, ids: UInt64s) -> Found:
        """Return rows with these ascending, unique ids; see ``RowIdIndex.candidates``."""
        parts = list(self.find_parts(ids))
        if len(parts) == 1:
            return parts[0]
        which, fragment, row = map(np.concatenate, zip((_NO_ROWS,) * 3, *parts, strict=True))
        return which, fragment, row

    def find_parts(self, ids: UInt64s) -> Iterator[Found]:
        """Find ids as :meth:`find` does, some segments at a time.

        A few bytes can encode a thousand segments that all have a million of the ids.
        """
        low = ids.searchsorted(self.start)
        counts = np.maximum(ids.searchsorted(self.end) - low, 0)
        total = int(counts.sum())
        if total > max(_MAX_CANDIDATES, _MAX_COPIES * len(ids)):
            raise CorruptFileError(
                "row ids",
                expected=f"each in about {_MAX_COPIES} fragments at most",
                found=f"{total} candidate rows for {len(ids)} ids",
                where=self.where,
            )
        matched = counts.nonzero()[0]
        ends = counts[matched].cumsum()
        at = done = 0
        while at < len(matched):
            stop = max(at + 1, int(ends.searchsorted(done + _ROWS_PER_STEP, side="right")))
            yield self._found(ids, matched[at:stop], low, counts)
            at, done = stop, int(ends[stop - 1])

    def _found(self, ids: UInt64s, matched: Int64s, low: Int64s, counts: Int64s) -> Found:
        """Return the rows with these ids in some segments."""
        counts = counts[matched]
        segment = matched.repeat(counts)
        starts = counts.cumsum() - counts
        which = np.arange(len(segment)) - (starts - low[matched]).repeat(counts)
        row = (ids[which] - self.start[segment]).astype(np.int64)
        keep: NDArray[np.bool_] | None = None
        spans = zip(matched.tolist(), counts.tolist(), starts.tolist(), strict=True)
        for at, count, first in spans:
            if at not in self.other:
                continue
            span = slice(first, first + count)
            keep = np.ones(len(row), np.bool_) if keep is None else keep
            row[span], keep[span] = self._values(at).find(ids[which[span]])
        row += self.first[segment]
        fragment = self.fragment[segment]
        if keep is None:
            return which, fragment, row
        return which[keep], fragment[keep], row[keep]

    def _values(self, at: int) -> SegmentValues:
        values = self.other[at]
        if not isinstance(values, SegmentValues):
            # Concurrent threads compute the same values.
            values = self.other[at] = SegmentValues.of(values, where=self.where)
        return values


def read_segments(
    columns: FragmentColumns, where: str, column: Callable[[int], UInt64s] | None = None
) -> RowSegments:
    """Return the bounds of all segments of a manifest.

    Parameters
    ----------
    column
        Reads the row ids of the fragment at a position from a hidden column of its files.

    Raises
    ------
    CorruptFileError
        A fragment lacks row ids, or their number is wrong.
    """
    rows = columns.physical_rows
    sequences = columns.row_ids
    ranges = _as_ranges(sequences, rows) if sequences is not None else _NONE
    rest = np.ones(len(columns), np.bool_)
    rest[ranges[2]] = False
    start: list[int] = []
    end: list[int] = []
    fragment: list[int] = []
    first: list[int] = []
    other: dict[int, Any] = {}
    offset = len(ranges[0])
    for position in rest.nonzero()[0].tolist():
        at = f"{where}, list position {position}"
        for low, high, row, segment in _segments(
            columns, position, int(rows[position]), at, column
        ):
            if segment is not None:
                other[offset + len(start)] = segment
            start.append(low)
            end.append(high)
            fragment.append(position)
            first.append(row)
    return RowSegments(
        np.concatenate([ranges[0], np.array(start, np.uint64)]),
        np.concatenate([ranges[1], np.array(end, np.uint64)]),
        np.concatenate([ranges[2], np.array(fragment, np.int64)]),
        np.concatenate([ranges[3], np.array(first, np.int64)]),
        other,
        where,
    )


def _segments(
    columns: FragmentColumns,
    position: int,
    rows: int,
    where: str,
    column: Callable[[int], UInt64s] | None,
) -> Iterator[tuple[int, int, int, Any]]:
    """Yield bounds, first row and, unless it is a range, the segment of each non-empty one."""
    sequence = columns.row_ids_at(position)
    if sequence is None and column is not None:
        ids = column(position)
        if len(ids):
            end = min(int(ids.max()) + 1, 2**64 - 1)
            yield int(ids.min()), end, 0, None if are_range(ids) else SegmentValues(ids)
        return
    row = 0
    for segment in parse(table_pb2.RowIdSequence(), sequence or b"", "row ids", where).segments:
        low, high, length = segment_bounds(segment, where=where)
        if length:
            is_range = segment.WhichOneof("segment") == "range"
            yield low, high, row, None if is_range else segment
        row += length
    if row != rows:
        raise CorruptFileError("row ids", expected=f"{rows} values", found=f"{row}", where=where)


def _as_ranges(sequences: list[bytes], rows: Int64s) -> Ranges:
    """Return bounds of the sequences that are a single short range; an empty list if ambiguous."""
    sizes = np.fromiter(map(len, sequences), np.int64, len(sequences))
    # Tag and size of the segment, tag and size of the range.
    joined = b"".join(sequences) + b"\0\0\0\0"
    flat = np.frombuffer(joined, np.uint8)
    at = sizes.cumsum() - sizes
    plain = (sizes >= 4) & (sizes < 128) & (flat[at] == 10) & (flat[at + 2] == 10)
    plain &= (flat[at + 1] == sizes - 2) & (flat[at + 3] == sizes - 4)
    chosen = plain.nonzero()[0]
    if len(chosen) < len(sequences):
        joined = b"".join(compress(sequences, plain.tolist()))
    try:
        merged = table_pb2.RowIdColumns.FromString(joined.removesuffix(b"\0\0\0\0")).segments
    except DecodeError:
        return _NONE  # the damaged one is found when they are read individually
    starts, ends = merged.range.start, merged.range.end
    missing = len(chosen) - len(starts)
    if len(ends) != len(chosen) or missing not in (0, 1):
        return _NONE
    end = np.fromiter(ends, np.uint64, len(ends))
    start = np.zeros(len(ends), np.uint64)
    start[missing:] = np.fromiter(starts, np.uint64, len(starts))
    # A start of 0 is omitted; the row counts confirm that it belongs to the first range.
    if np.any(end < start) or np.any((end - start) != rows[chosen].astype(np.uint64)):
        return _NONE
    return start, end, chosen, np.zeros(len(chosen), np.int64)
