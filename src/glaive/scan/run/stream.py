"""Stream the rows of a plan as record batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from glaive.arrow.chunked import join_batches
from glaive.errors import OptionError
from glaive.scan.options import ScanOptions
from glaive.scan.plan import FragmentRows, plan_scan
from glaive.scan.run.parts import MIN_RUN_FRAGMENTS, FragmentWindows, ScanPart
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.views import bare_batch

__all__ = ["plan_parts", "rebatch", "stream", "tables"]


def plan_parts(
    run: ScanRun, ranges: Sequence[FragmentRows], *, large: bool = False
) -> Sequence[ScanPart]:
    """The parts of the plan of a scan without filter; ``large`` as for :func:`cut_into_parts`."""
    if not run.source.projection.plain or len(ranges) < MIN_RUN_FRAGMENTS:
        return [FragmentWindows(ranges)]
    from glaive.scan.small.fragments import cut_into_parts

    return cut_into_parts(run, ranges, large=large)


def stream(run: ScanRun) -> Iterator[pa.RecordBatch]:
    """Batches of a scan, in order unless the options say otherwise.

    Memory: the windows being decoded or waiting (one more than there are cores, of about
    20 MB each), whatever the size of the dataset. Stopping early cancels what has not begun.
    """
    return rebatch(_batches(run), run.options)


def tables(run: ScanRun, *, keep_dictionaries: bool) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows of a scan as they are read, in order: for callers that do not mind sizes of batches.

    Runs of small fragments are tables. Memory: that of :func:`stream`, or about 50 MB for
    such a run. With ``keep_dictionaries``, strings may have a dictionary; see
    :mod:`glaive.file.v2.dictionary_passthrough`.
    """
    if not run.source.projection.outputs:
        yield from _batches(run)
        return
    for part in plan_parts(run, plan_scan(run.source.snapshot, run.options).ranges, large=True):
        yield from part.tables(run, keep_dictionaries=keep_dictionaries)


def rebatch(batches: Iterable[pa.RecordBatch], options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Cut batches to the size that the options ask for; empty ones are left out."""
    size = options.batch_size
    if options.strict_batch_size:
        yield from _strict(batches, size)
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
        for part in plan_parts(run, ranges):
            yield from part.batches(run)
        return
    snapshot = run.source.snapshot
    for position, start, stop in ranges:
        live = snapshot.live_rows(snapshot.manifest.fragment(position))
        yield bare_batch(stop - start if live is None else live.count_between(start, stop))


def _strict(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Cut and join batches so that all but the last have exactly ``size`` rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while batch.num_rows - start >= size - rows:
            waiting.append(batch.slice(start, size - rows))
            start += size - rows
            yield _joined(waiting)
            waiting, rows = [], 0
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            rows += batch.num_rows - start
    if waiting:
        yield _joined(waiting)


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
