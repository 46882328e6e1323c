"""Which rows of which fragments a scan reads, and in which portions.

A plan is a list of physical row ranges, one per fragment at most; windows are the portions
in which they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from glaive.dataclass import NamedTuple, dataclass
from glaive.scan.bound import BoundFragment
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot
from glaive.types import RowRange

WINDOW_ROWS = 128 * 1024
"""Rows decoded at a time when streaming: enough to make the calls per window cheap."""

_NARROW_ROWS = 512 * 1024
_NARROW_BYTES = 4 * 1024 * 1024
"""Rows, and their bytes, of windows of narrow columns, whose calls cost as much as decoding."""

UNSEEN_ROWS = 8 * 1024
"""Rows of a window of mapped files until the first has shown how large texts and lists are."""

WINDOW_BYTES = 20 * 1024 * 1024
"""Bytes of a window, about; wide rows make shorter windows."""

_FETCH_ROWS = 1024 * 1024
"""Rows of a window that must be fetched: fewer, larger requests."""


class FragmentRows(NamedTuple):
    """Physical rows ``start`` to ``stop`` of the fragment at ``position`` of the list."""

    position: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan reads: ranges in order, and how many live rows they have."""

    ranges: tuple[FragmentRows, ...]
    rows: int


def plan_scan(snapshot: Snapshot, options: ScanOptions) -> ScanPlan:
    """Turn ``fragments``, ``range_before``, ``limit`` and ``offset`` into row ranges.

    Reads no data file.
    """
    positions = snapshot.positions_of(options.fragments)
    if options.limit is None and options.offset == 0 and options.range_before is None:
        live = int(snapshot.live_counts[list(positions)].sum())
        return ScanPlan(plan_all(snapshot, options.fragments), live)
    first, last = options.range_before or (0, None)
    first += options.offset
    if options.limit is not None:
        last = first + options.limit if last is None else min(last, first + options.limit)
    return _between(snapshot, positions, first, last)


def plan_searched(snapshot: Snapshot, options: ScanOptions) -> Sequence[FragmentRows]:
    """The rows that a filter or an order looks at: limit and offset count what comes out."""
    if options.range_before is None:
        return plan_all(snapshot, options.fragments)
    positions = snapshot.positions_of(options.fragments)
    return _between(snapshot, positions, *options.range_before).ranges


def plan_all(snapshot: Snapshot, fragments: Sequence[int] | None) -> tuple[FragmentRows, ...]:
    """All rows of all fragments, or of those with these ids."""
    known: tuple[FragmentRows, ...] | None = snapshot.memo.get(plan_all)
    if fragments is None and known is not None:
        return known
    positions = snapshot.positions_of(fragments)
    physical = snapshot.manifest.physical_rows
    ranges = tuple(
        FragmentRows(at, 0, rows)
        for at, rows in zip(positions, physical[list(positions)].tolist(), strict=True)
        if rows
    )
    if fragments is None:
        snapshot.memo[plan_all] = ranges
    return ranges


def _between(
    snapshot: Snapshot, positions: Sequence[int], first: int, last: int | None
) -> ScanPlan:
    """Live rows ``first`` to ``last`` of some fragments, as far as there are."""
    counts = snapshot.live_counts
    total = int(counts[list(positions)].sum())
    last = total if last is None else min(last, total)
    first = min(first, last)
    ranges: list[FragmentRows] = []
    before = 0
    for position in positions:
        live = int(counts[position])
        start, stop = max(0, first - before), min(live, last - before)
        before += live
        if start >= stop:
            if before >= last:
                break
            continue
        rows = snapshot.live_rows(snapshot.manifest.fragment(position))
        if rows is not None:
            start, stop = rows.physical_range(start, stop)
        ranges.append(FragmentRows(position, start, stop))
    return ScanPlan(tuple(ranges), last - first)


def windows(bound: BoundFragment, start: int, stop: int) -> Iterator[RowRange]:
    """Cut a range into windows, at page boundaries where that makes no short ones."""
    most = window_rows(bound)
    if stop - start <= most and page_end(bound, start, stop) == stop:
        yield RowRange(start, stop)
        return
    cuts = bound.cuts
    inside = cuts[np.searchsorted(cuts, start, "right") : np.searchsorted(cuts, stop)].tolist()
    for cut in [*inside, stop]:
        if cut != stop and cut - start < most // 4:
            continue
        while start < cut:
            pieces = -(-(cut - start) // most)
            step = -(-(cut - start) // pieces)
            step = step if step < _CHUNK else -(-step // _CHUNK) * _CHUNK
            end = page_end(bound, start, min(cut, start + step))
            yield RowRange(start, end)
            start, most = end, window_rows(bound)  # by what those before turned out to take


def window_rows(bound: BoundFragment) -> int:
    """Rows of a window, at most."""
    size = max(1, row_bytes(bound))
    most = _FETCH_ROWS
    if bound.mapped:
        most = max(WINDOW_ROWS, min(_NARROW_ROWS, _NARROW_BYTES // size))
        if not bound.projection.row_sizes.are_known:
            most = UNSEEN_ROWS
    return max(1, min(most, WINDOW_BYTES // size))


def page_end(bound: BoundFragment, start: int, stop: int) -> int:
    """Where a window from ``start`` ends that should end at ``stop``: it has few pages.

    Of texts and lists: rows that were seen say nothing of those behind them, which may be far
    larger, but a page has some megabytes at most, as writers make them.
    """
    cuts = bound.unsized_cuts
    few = int(np.searchsorted(cuts, start, "right")) + _WINDOW_PAGES - 1
    if few >= len(cuts) or stop <= cuts[few]:
        return stop
    many = int(np.searchsorted(cuts, start + _ROWS_OF_SMALL_PAGES, "right")) - 1
    return min(stop, int(cuts[max(few, many)]))


_WINDOW_PAGES = 8
_ROWS_OF_SMALL_PAGES = 32 * 1024
"""Pages of a window, at most; and rows, as far as pages have fewer."""

_CHUNK = 1024
"""Values per packed chunk: windows that begin on a multiple decode no chunk twice."""


def row_bytes(bound: BoundFragment) -> int:
    """Bytes of a decoded row, about: exact for fixed widths, else from the file's size.

    Where values are compressed well, what was decoded last says more.
    """
    sizes = bound.projection.row_sizes
    width = sizes.width
    row = max(int(width.total), sizes.seen)
    if width.variable and bound.rows:
        # Strings on disk are often half their size in memory; whole files are taken to be strings.
        # What a manifest claims may be any number: rows would be read one at a time.
        stored = sum(file.size or 0 for file in bound.fragment.files)
        stored = min(stored, sum(reader.size for reader in bound.readers))
        row = max(row, 2 * stored // bound.rows)
    # Values of blobs are in files of their own: their column knows how large they are.
    blobs = bound.projection.blob_contents
    row = max(row, sum(bound.columns[at].value_bytes for at in blobs)) if blobs else row
    return row + bound.projection.constant_bytes
