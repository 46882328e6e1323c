"""Stream the rows of a plan as record batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from glaive.arrow.chunked import join_batches, slices_of_rows
from glaive.errors import OptionError
from glaive.scan.bound import BoundFragment
from glaive.scan.options import ScanOptions
from glaive.scan.plan import FragmentRows, plan_scan, row_bytes, window_rows, windows
from glaive.scan.run.parts import MIN_RUN_FRAGMENTS, FragmentWindows, ScanPart
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.views import BoundProjection, bare_batch


def plan_parts(run: ScanRun, ranges: Sequence[FragmentRows]) -> Sequence[ScanPart]:
    """The parts of the plan of a scan without filter."""
    if not run.source.projection.plain or len(ranges) < MIN_RUN_FRAGMENTS:
        return [FragmentWindows(ranges)]
    from glaive.scan.small import cut_into_parts

    return cut_into_parts(run, ranges)


def stream(run: ScanRun) -> Iterator[pa.RecordBatch]:
    """Batches of a scan, in order unless the options say otherwise.

    Memory: the windows being decoded or waiting (one more than there are cores, of about
    20 MB each), whatever the size of the dataset. Stopping early cancels what has not begun.
    """
    return rebatch(_batches(run), run.options)


def tables(run: ScanRun) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows of a scan as they are read, in order: for callers that do not mind sizes of batches.

    Runs of small fragments are tables. Memory: that of :func:`stream`, or about 50 MB for
    such a run.
    """
    if not run.source.projection.outputs:
        yield from _batches(run)
        return
    for part in plan_parts(run, plan_scan(run.source.snapshot, run.options).ranges):
        yield from part.tables(run)


def rebatch(batches: Iterable[pa.RecordBatch], options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Cut batches to the size that the options ask for; empty ones are left out."""
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
        for part in _from_small(run, plan_parts(run, ranges)):
            yield from part.batches(run)
        return
    snapshot = run.source.snapshot
    for position, start, stop in ranges:
        live = snapshot.live_rows(snapshot.manifest.fragment(position))
        yield bare_batch(stop - start if live is None else live.count_between(start, stop))


_EARLY_ROWS = 1024
"""Rows that a stream reads first, at least: one batch, or several small ones."""

_EARLY_BYTES_FETCHED = 1024 * 1024
"""Bytes of a first part, at least, where it takes requests: as many as come while one waits."""

_ALONE = 2
"""Parts that are read alone though batches are as large as windows."""

_GROWTH = 2
"""How much larger the next of these parts is."""


def _from_small(run: ScanRun, parts: Sequence[ScanPart]) -> Iterator[ScanPart]:
    """The parts; the first rows in small ones that grow, as many streams are soon left.

    Nothing is read ahead of these. Where they must be fetched, there is one, as each takes several
    round trips; none if all there is comes in the time of two. A scan with a limit is read to its
    end, so it has none.
    """
    if not parts or run.options.limit is not None or not isinstance(parts[0], FragmentWindows):
        yield from parts
        return
    ranges = parts[0].ranges
    mapped, batch = run.is_mapped(ranges), run.options.batch_size
    size, number, at, done = _EARLY_ROWS, 0, 0, 0
    while at < len(ranges) and (mapped or not number):
        position, start, stop = ranges[at]
        start = max(start, done)
        bound = run.source.fragment(position)
        if not mapped:
            size = max(size, _EARLY_BYTES_FETCHED // max(1, row_bytes(bound)))
        most, rows = window_rows(bound), -(-size // batch) * batch  # no batch is cut short
        if (rows >= most and number >= _ALONE) or (not mapped and parts[0].rows < 2 * rows):
            break
        if rows >= most:
            end = next(windows(bound, start, stop)).stop
        else:
            end = _end_of(bound, start, stop, rows)
        yield FragmentWindows([FragmentRows(position, start, end)])
        at, done = (at, end) if end < stop else (at + 1, 0)
        size, number = size * _GROWTH, number + 1
    if at < len(ranges):
        position, start, stop = ranges[at]
        remaining = FragmentRows(position, max(start, done), stop)
        yield FragmentWindows([remaining, *ranges[at + 1 :]])
    yield from parts[1:]


def _end_of(bound: BoundFragment, start: int, stop: int, size: int) -> int:
    """Where a part of ``size`` live rows ends: at ``stop`` if fewer would remain behind it."""
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
            f"strict_batch_size: {table.num_rows} rows do not fit one batch, where a column of "
            "text or lists counts its bytes or items in 31 bits. Choose a smaller batch_size."
        )
    return joined[0]


# --- Read a plan into a table: column by column and page by page, each page once --------
# The pages become the chunks of its columns, so that those which need no decoding are views of the
# file.


def read_table(run: ScanRun) -> pa.Table:
    """The whole result as a table; its chunks are pages, or windows of fetched files."""
    plan = plan_scan(run.source.snapshot, run.options)
    if not run.source.projection.outputs:
        return run.source.rows_alone(plan.rows)
    chunks: list[list[pa.Array]] = [[] for _ in run.source.schema]
    for part in plan_parts(run, plan.ranges):
        for at, arrays in part.columns(run):
            chunks[at] += [array for array in arrays if len(array)]
    return as_table(run.source, chunks)


def as_table(source: BoundProjection, chunks: Sequence[Sequence[pa.Array]]) -> pa.Table:
    """A table of the chunks of each column; without any, one without rows."""
    if not chunks:
        return source.empty()
    columns = [
        pa.chunked_array(list(arrays), field.type)
        for arrays, field in zip(chunks, source.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=source.schema)
