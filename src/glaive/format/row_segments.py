"""Bounds of the segments of the row id sequences of all fragments.

The bounds of sequences with a single range, as new fragments have, come from a single parse for
all: see :mod:`glaive.format.fragment_columns`. Other sequences are decoded segment by segment,
which costs work per segment, not per row.

Specification: "Row ids" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.format.fragment_columns import FragmentColumns
from glaive.format.pb import table_pb2
from glaive.format.row_id_segments import SegmentValues, are_range, segment_bounds
from glaive.format.wire import DecodeError, parse
from glaive.types import Int64s

__all__ = ["RowSegments", "read_segments"]

UInt64s = NDArray[np.uint64]
Ranges = tuple[UInt64s, UInt64s, Int64s, Int64s]
Found = tuple[Int64s, Int64s, Int64s]
"""Position among the ids that were looked for, position of the fragment, and physical row."""

_MAX_CANDIDATES: Final = 1 << 26
_MAX_COPIES: Final = 16
"""Limit of candidate rows: in total, or per id if that is more.

An id has one candidate for each update of its row since the last compaction.
"""

_AT_ONCE: Final = 1 << 21
"""Candidate rows that are looked up at a time, or those of one segment: each takes 40 bytes."""

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
        Segments that are no ranges, by position: their message or their values.
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
        """Rows with these ids, which are ascending and unique; see ``RowIdIndex.candidates``."""
        parts = list(self.find_parts(ids))
        if len(parts) == 1:
            return parts[0]
        which, fragment, row = map(np.concatenate, zip((_NO_ROWS,) * 3, *parts, strict=True))
        return which, fragment, row

    def find_parts(self, ids: UInt64s) -> Iterator[Found]:
        """The same, those of some segments at a time.

        A few bytes can stand for a thousand segments that all have a million of the ids.
        """
        low = np.searchsorted(ids, self.start)
        counts = np.maximum(np.searchsorted(ids, self.end) - low, 0)
        total = int(counts.sum())
        if total > max(_MAX_CANDIDATES, _MAX_COPIES * len(ids)):
            raise CorruptFileError(
                "row ids",
                expected=f"each in about {_MAX_COPIES} fragments at most",
                found=f"{total} candidate rows for {len(ids)} ids",
                where=self.where,
            )
        matched = np.flatnonzero(counts)
        ends = np.cumsum(counts[matched])
        at = done = 0
        while at < len(matched):
            stop = max(at + 1, int(np.searchsorted(ends, done + _AT_ONCE, side="right")))
            yield self._found(ids, matched[at:stop], low, counts)
            at, done = stop, int(ends[stop - 1])

    def _found(self, ids: UInt64s, matched: Int64s, low: Int64s, counts: Int64s) -> Found:
        """Rows with these ids in some segments."""
        counts = counts[matched]
        segment = np.repeat(matched, counts)
        starts = np.cumsum(counts) - counts
        which = np.arange(len(segment)) - np.repeat(starts - low[matched], counts)
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
    columns: FragmentColumns,
    where: str,
    column: Callable[[int], UInt64s] | None = None,
) -> RowSegments:
    """Bounds of all segments of a manifest.

    Parameters
    ----------
    column
        Reads the row ids of the fragment at a position from a hidden column of its files.

    Raises
    ------
    CorruptFileError
        A fragment has no row ids, or their number is wrong.
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
    for position in np.flatnonzero(rest).tolist():
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
    """Bounds, first row and, if it is no range, the segment, of each non-empty segment."""
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
    """Bounds of the sequences that are a single short range; none if they are ambiguous."""
    sizes = np.fromiter(map(len, sequences), np.int64, len(sequences))
    # Tag and size of the segment, tag and size of the range.
    joined = b"".join(sequences) + b"\0\0\0\0"
    flat = np.frombuffer(joined, np.uint8)
    at = np.cumsum(sizes) - sizes
    plain = (sizes >= 4) & (sizes < 128) & (flat[at] == 10) & (flat[at + 2] == 10)
    plain &= (flat[at + 1] == sizes - 2) & (flat[at + 3] == sizes - 4)
    chosen = np.flatnonzero(plain)
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
    # A start of 0 is omitted; the row counts confirm that it is that of the first range.
    if np.any(end < start) or np.any((end - start) != rows[chosen].astype(np.uint64)):
        return _NONE
    return start, end, chosen, np.zeros(len(chosen), np.int64)
