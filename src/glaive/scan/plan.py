"""Plan a scan: the rows of each fragment to read, and the windows to decode.

A plan is a list of physical row ranges, at most one per fragment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glaive.dataclass import NamedTuple, dataclass
from glaive.scan.bound import BoundFragment
from glaive.scan.options import ScanOptions
from glaive.scan.snapshot import Snapshot
from glaive.types import RowRange

WINDOW_ROWS = 256 * 1024
"""Rows decoded at a time when streaming: enough that the calls per window cost little."""

_NARROW_BYTES = 4 * 1024 * 1024
"""Bytes of windows of narrow columns, where calls cost as much as decoding.

Rows of fewer than eight bytes count as eight bytes.
"""

FIRST_ROWS = 8 * 1024
"""Rows of the first window of mapped files: it shows how large strings and lists are."""

WINDOW_BYTES = 20 * 1024 * 1024
"""Approximate bytes of a window: wide rows make shorter windows."""

_FETCH_ROWS = 1024 * 1024
"""Rows of a window of fetched files: fewer, larger requests."""

MAX_FOUND_ROWS = 256
"""Maximum rows found by indices that are always taken at once, faster than a scan."""


class FragmentRows(NamedTuple):
    """Physical rows ``start`` to ``stop`` of the fragment at ``position`` of the list."""

    position: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The ranges that a scan reads, in order, and their number of live rows."""

    ranges: tuple[FragmentRows, ...]
    rows: int


def plan_scan(snapshot: Snapshot, options: ScanOptions) -> ScanPlan:
    """Turn ``fragments``, ``range_before``, ``limit`` and ``offset`` into row ranges.

    Reads only the manifest.
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
    """Return the rows that a filter or an order reads: limit and offset apply to their result."""
    if options.range_before is None:
        return plan_all(snapshot, options.fragments)
    positions = snapshot.positions_of(options.fragments)
    return _between(snapshot, positions, *options.range_before).ranges


def plan_all(snapshot: Snapshot, fragments: Sequence[int] | None) -> tuple[FragmentRows, ...]:
    """Return all rows of all fragments, or of the fragments with these ids."""
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
    """Plan live rows ``first`` to ``last`` of some fragments, cut at the last row."""
    counts = snapshot.live_counts
    if not isinstance(positions, range):
        counts = counts[list(positions)]
    ends = counts.cumsum()
    total = ends.item(-1) if len(ends) else 0
    last = total if last is None else min(last, total)
    first = min(first, last)
    ranges: list[FragmentRows] = []
    low, high = ends.searchsorted((first, last), "right").tolist()
    some = slice(low, high + 1)
    for position, live, end in zip(
        positions[some], counts[some].tolist(), ends[some].tolist(), strict=True
    ):
        start, stop = max(0, first - end + live), min(live, last - end + live)
        if start >= stop:
            continue
        rows = snapshot.live_rows(snapshot.manifest.fragment(position))
        if rows is not None:
            start, stop = rows.physical_range(start, stop)
        ranges.append(FragmentRows(position, start, stop))
    return ScanPlan(tuple(ranges), last - first)


def windows(
    bound: BoundFragment, start: int, stop: int, *, narrow: int = _NARROW_BYTES
) -> Iterator[RowRange]:
    """Cut a range into windows, at page boundaries unless a window would be short.

    Windows of narrow columns have about ``narrow`` bytes.
    """
    max_rows = window_rows(bound, narrow)
    if stop - start <= max_rows and page_end(bound, start, stop) == stop:
        yield RowRange(start, stop)
        return
    cuts = bound.cuts
    inside = cuts[cuts.searchsorted(start, "right") : cuts.searchsorted(stop)].tolist()
    for cut in [*inside, stop]:
        if cut != stop and cut - start < max_rows // 4:
            continue
        while start < cut:
            pieces = -(-(cut - start) // max_rows)
            step = -(-(cut - start) // pieces)
            step = step if step < _CHUNK else -(-step // _CHUNK) * _CHUNK
            end = page_end(bound, start, min(cut, start + step))
            yield RowRange(start, end)
            start, max_rows = end, window_rows(bound, narrow)  # by the sizes decoded before


def window_rows(bound: BoundFragment, narrow: int = _NARROW_BYTES) -> int:
    """Return the maximum number of rows of a window; see :func:`windows`."""
    size = max(1, row_bytes(bound))
    max_rows = _FETCH_ROWS
    if bound.mapped:
        max_rows = max(WINDOW_ROWS, narrow // max(size, 8))
        if not bound.projection.row_sizes.are_known:
            max_rows = FIRST_ROWS
    return max(1, min(max_rows, WINDOW_BYTES // size))


def page_end(bound: BoundFragment, start: int, stop: int) -> int:
    """Return where a window from ``start`` ends: at ``stop``, or earlier to have few pages.

    This bounds strings and lists. Later rows may be far larger than rows decoded before, but
    writers limit a page to some megabytes.
    """
    cuts = bound.unsized_cuts
    few = int(cuts.searchsorted(start, "right")) + _WINDOW_PAGES - 1
    if few >= len(cuts) or stop <= cuts[few]:
        return stop
    many = int(cuts.searchsorted(start + _SMALL_PAGE_ROWS, "right")) - 1
    return min(stop, int(cuts[max(few, many)]))


_WINDOW_PAGES = 8
_SMALL_PAGE_ROWS = 32 * 1024
"""Maximum pages of a window. A window of small pages may have more, up to this many rows."""

_CHUNK = 1024
"""Values per packed chunk: windows that begin on a multiple decode each chunk once."""


def row_bytes(bound: BoundFragment) -> int:
    """Estimate the bytes of a decoded row: exact for fixed widths, else from the file's size.

    The size of rows decoded before raises the estimate for well-compressed values.
    """
    sizes = bound.projection.row_sizes
    width = sizes.width
    row = max(int(width.total), sizes.seen)
    if width.variable and bound.rows:
        # Strings on disk often have half their size in memory. The estimate takes the whole file
        # as strings. A false size in the manifest would make windows of one row: cap it.
        stored = sum(file.size or 0 for file in bound.fragment.files)
        stored = min(stored, sum(reader.size for reader in bound.readers))
        row = max(row, 2 * stored // bound.rows)
    # Blob values are in separate files: their column knows their size.
    blobs = bound.projection.blob_contents
    row = max(row, sum(bound.columns[at].value_bytes for at in blobs)) if blobs else row
    return row + bound.projection.constant_bytes
