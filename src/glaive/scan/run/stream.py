"""Stream the rows of a plan as record batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import join_batches, slices_of_rows
from glaive.errors import CapacityError, OptionError
from glaive.file.versions import profile_of
from glaive.scan.bound import BoundFragment
from glaive.scan.options import ScanOptions
from glaive.scan.plan import FragmentRows, ScanPlan, plan_scan, row_bytes, window_rows, windows
from glaive.scan.run.parts import FragmentWindows, ScanPart
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.views import MIN_SMALL_FILES, BoundProjection, bare_batch


def plan_parts(run: ScanRun, ranges: Sequence[FragmentRows]) -> Sequence[ScanPart]:
    """Cut the plan of an unfiltered scan into parts."""
    if not run.source.projection.plain or len(ranges) < MIN_SMALL_FILES:
        return [FragmentWindows(ranges)]
    from glaive.scan.small import cut_into_parts

    return cut_into_parts(run, ranges)


def stream(run: ScanRun) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan, in order unless the options disable it.

    Memory holds the windows being decoded or waiting: the number of cores plus 1, of about 20 MB
    each. Stopping early cancels waiting jobs.
    """
    return rebatch(_batches(run), run.options)


def tables(run: ScanRun) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield the rows of a scan in order, in batches of any size.

    Runs of small fragments are tables. Memory is bounded as in :func:`stream`; a run of small
    fragments takes about 50 MB.
    """
    if not run.source.projection.outputs:
        yield from _batches(run)
        return
    for part in plan_parts(run, plan_scan(run.source.snapshot, run.options).ranges):
        yield from part.tables(run)


def rebatch(batches: Iterable[pa.RecordBatch], options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Cut batches to the size in the options; skip empty batches."""
    size = options.batch_size
    if options.strict_batch_size:
        yield from map(_joined, slices_of_rows(batches, size))
        return
    for batch in batches:
        rows = batch.num_rows
        step = size
        if options.batch_size_bytes is not None:
            step = min(size, max(1, options.batch_size_bytes * rows // max(1, batch.nbytes)))
        if rows <= step:
            if rows:
                yield batch
            continue
        for start in range(0, rows, step):
            yield batch.slice(start, step)


def _batches(run: ScanRun) -> Iterator[pa.RecordBatch]:
    ranges = plan_scan(run.source.snapshot, run.options).ranges
    if run.source.projection.outputs:
        for part in _with_early_parts(run, plan_parts(run, ranges)):
            yield from part.batches(run)
        return
    snapshot = run.source.snapshot
    for position, start, stop in ranges:
        live = snapshot.live_rows(snapshot.manifest.fragment(position))
        yield bare_batch(stop - start if live is None else live.count_between(start, stop))


_SOON_BYTES = 8 * 1024 * 1024
"""Approximate bytes of mapped files that are read in one part: the first batch comes soon."""

_EARLY_ROWS = 1024
"""Minimum rows of the first part of a stream: one batch, or several small batches."""

_EARLY_BYTES_FETCHED = 1024 * 1024
"""Minimum bytes of a first part of fetched files: they arrive in the latency of one request."""

_EARLY_PARTS = 2
"""Early parts if batches are as large as windows."""

_GROWTH = 4
"""Growth factor of the early parts."""


def _with_early_parts(run: ScanRun, parts: Sequence[ScanPart]) -> Iterator[ScanPart]:
    """Yield the parts, with the first rows in small, growing parts: many consumers stop early.

    glaive starts reading ahead after these early parts.

    - Fetched files have one early part, as each takes several round trips. They skip it if all rows
      take the time of two.
    - A scan with a limit skips early parts, as its consumer reads to the end.
    - A scan of few bytes of mapped files skips early parts, which take twice the time of one part.
    """
    part = parts[0] if parts and run.options.limit is None else None
    if not isinstance(part, FragmentWindows) or _are_soon_read(run, part):
        yield from parts
        return
    ranges = part.ranges
    mapped, batch = run.is_mapped(ranges), run.options.batch_size
    size, number, at, done = _EARLY_ROWS, 0, 0, 0
    while at < len(ranges) and (mapped or not number):
        position, start, stop = ranges[at]
        start = max(start, done)
        bound = run.source.fragment(position)
        if not mapped:
            size = max(size, _EARLY_BYTES_FETCHED // max(1, row_bytes(bound)))
        limit, rows = window_rows(bound), -(-size // batch) * batch  # only full batches
        if (rows >= limit and number >= _EARLY_PARTS) or (not mapped and part.rows < 2 * rows):
            break
        if rows >= limit:
            end = next(windows(bound, start, stop)).stop
        else:
            end = _end_of(bound, start, stop, rows)
        yield FragmentWindows([FragmentRows(position, start, end)])
        at, done = (at, end) if end < stop else (at + 1, 0)
        size, number = rows * _GROWTH, number + 1
    if at < len(ranges):
        position, start, stop = ranges[at]
        remaining = FragmentRows(position, max(start, done), stop)
        yield FragmentWindows([remaining, *ranges[at + 1 :]])
    yield from parts[1:]


def _are_soon_read(run: ScanRun, part: FragmentWindows) -> bool:
    """Return whether a part has no rows, or few bytes of mapped files."""
    if not part.rows:
        return True
    size = part.rows * row_bytes(run.source.fragment(part.ranges[0].position))
    return run.is_mapped(part.ranges) and size <= _SOON_BYTES


def _end_of(bound: BoundFragment, start: int, stop: int, size: int) -> int:
    """Return where a part of ``size`` live rows ends: at ``stop`` if fewer would remain."""
    live = bound.live
    if live is None:
        return start + size if stop - start >= 2 * size else stop
    if live.count_between(start, stop) < 2 * size:
        return stop
    before = live.count_between(0, start)
    return live.physical_range(before, before + size)[1]


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches)
    joined = join_batches(table)
    if len(joined) != 1:
        raise OptionError(
            f"strict_batch_size: {table.num_rows} rows do not fit one batch: a column of "
            "strings or lists is limited to 2^31 bytes or items. Choose a smaller batch_size."
        )
    return joined[0]


# --- Read a plan into a table, column by column and page by page ------------------------
# The pages become the chunks of the columns. Pages that need no decoding stay views of the file.


def read_table(run: ScanRun) -> pa.Table:
    """Read the whole result as a table; its chunks are pages, or windows of fetched files."""
    plan = plan_scan(run.source.snapshot, run.options)
    if not run.source.projection.outputs:
        return run.source.rows_alone(plan.rows)
    if _is_taken(run, plan):
        from glaive.scan.take import take

        offset = run.options.offset
        with suppress(CapacityError):  # several arrays may have the values
            return take(run.source, np.arange(offset, offset + plan.rows), meter=run.meter)
    chunks: list[list[pa.Array]] = [[] for _ in run.source.schema]
    for part in plan_parts(run, plan.ranges):
        for at, arrays in part.columns(run):
            chunks[at] += [array for array in arrays if len(array)]
    return as_table(run.source, chunks)


_TAKEN_ROWS, _TAKEN_FRAGMENTS, _TAKEN_BYTES = 1024, 8, 4 * 1024 * 1024
"""Rows of a fragment within limit and offset, fragments, and bytes in all that a take reads
quicker than a scan. Larger rows are views of pages in a scan.
"""

_SCANS_BEFORE_TAKES = 3
"""Scans with a limit before the first take: it maps whole pages, and scans read chunks."""


def _is_taken(run: ScanRun, plan: ScanPlan) -> bool:
    """Return whether a plan has few rows of mapped fragments: a take is quicker.

    In format 2.0, a take is quicker for many small fragments only.
    """
    options, source = run.options, run.source
    is_whole = options.fragments is None and options.range_before is None
    is_part = is_whole and (options.limit is not None or options.offset > 0)
    max_rows = _TAKEN_ROWS * min(len(plan.ranges), _TAKEN_FRAGMENTS)
    if not (is_part and plan.rows <= max_rows and source.projection.plain and plan.ranges):
        return False
    if not profile_of(source.snapshot.manifest.data_format).leaf_columns and (
        len(plan.ranges) < MIN_SMALL_FILES or plan.rows > _TAKEN_ROWS
    ):
        return False
    if len(plan.ranges) < MIN_SMALL_FILES:
        source.limited_scans += 1
        if source.limited_scans <= _SCANS_BEFORE_TAKES:
            return False
    first = source.fragment(plan.ranges[0].position)
    return first.mapped and plan.rows * row_bytes(first) <= _TAKEN_BYTES


def as_table(source: BoundProjection, chunks: Sequence[Sequence[pa.Array]]) -> pa.Table:
    """Make a table of the chunks of each column; it may be empty."""
    if not chunks:
        return source.empty()
    columns = [
        pa.chunked_array(list(arrays), field.type)
        for arrays, field in zip(chunks, source.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=source.schema)
