"""Run a plan: stream record batches in bounded memory, or build a table.

Streaming decodes windows of all columns and cuts them into batches. A table is read column
by column and page by page, each page once; the pages become the chunks of its columns, so
that those which need no decoding are views of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from glaive.arrow.capacity import in_parts
from glaive.arrow.chunked import join_batches
from glaive.config import settings
from glaive.errors import OptionError
from glaive.io.pool import gather, ordered_map, worker_count
from glaive.scan.bound import BoundFragment
from glaive.scan.options import ScanOptions
from glaive.scan.plan import (
    WINDOW_BYTES,
    FragmentRows,
    ScanPlan,
    has_known_width,
    plan_scan,
    value_bytes,
    windows,
)
from glaive.scan.small.fragments import SmallFragments, find_small
from glaive.scan.views import View, bare_batch
from glaive.types import ByteRange, RowRange

__all__ = ["as_table", "pieces", "read_table", "rebatch", "stream"]

T = TypeVar("T")
R = TypeVar("R")

_INLINE_VALUES = 64 * 1024
"""Rows times columns below which threads cost more than they bring."""

_FETCHES_AHEAD = 24
"""Windows under way when they must be fetched: bounds memory, not requests."""

_JOB_BYTES = 4 * 1024 * 1024
"""Bytes of a piece of a page, about: several threads share a large page."""

_ALIGNED = 4096
"""Rows: pieces of a page begin on multiples, where the chunks of most pages begin."""

_RELEASE_BYTES = 64 * 1024 * 1024
"""Decoded bytes after which streamed pages are taken out of this process's memory.

The next scan must map them again, so this is a matter of memory against time.
"""


# ---------------------------------------------------------------------- streams


def stream(view: View, options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Batches of a scan, in order unless the options say otherwise.

    Memory: the windows being decoded or waiting (one more than there are cores, of about
    20 MB each), whatever the size of the dataset. Stopping early cancels what has not begun.
    """
    plan = plan_scan(view.snapshot, options)
    return rebatch(_windows_as_batches(view, plan, options), options)


def pieces(
    view: View, options: ScanOptions, *, coded: bool = False
) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows of a scan as they come, in order: for those who need no batches of a size.

    Runs of small fragments are tables. Memory: that of :func:`stream`, or about 50 MB for
    such a run. With ``coded``, text may have a dictionary; see
    :mod:`glaive.file.v2.dictionary_passthrough`.
    """
    plan = plan_scan(view.snapshot, options)
    if not view.projection.outputs:
        yield from _windows_as_batches(view, plan, options)
        return
    for found, _ in _portions(view, plan, options, large=True, coded=coded):
        yield found


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


def _windows_as_batches(
    view: View, plan: ScanPlan, options: ScanOptions
) -> Iterator[pa.RecordBatch]:
    if not view.projection.outputs:
        for rows in plan.ranges:
            yield bare_batch(_count_live(view, rows))
        return
    for found, counts in _portions(view, plan, options):
        if isinstance(found, pa.RecordBatch):
            yield found
            continue
        whole = join_batches(found)
        first = 0
        for count in counts:
            if count and len(whole) == 1:
                yield whole[0].slice(first, count)
            elif count:
                yield from join_batches(found.slice(first, count))
            first += count


def _portions(
    view: View,
    plan: ScanPlan,
    options: ScanOptions,
    *,
    large: bool = False,
    coded: bool = False,
) -> Iterator[tuple[pa.RecordBatch | pa.Table, Sequence[int]]]:
    """Windows; and runs of small fragments as tables, with the rows of each fragment.

    For ``large`` and ``coded`` see :func:`find_small` and :meth:`SmallFragments.read`.
    """
    if not (_is_mapped(view, plan.ranges) and view.projection.plain):
        for batch in _stream_windows(view, plan.ranges, plan.rows, options):
            yield batch, ()
        return
    for part in find_small(view, plan.ranges, large=large):
        found = part.read(view, coded=coded) if isinstance(part, SmallFragments) else None
        if found is not None:
            arrays, counts = found
            yield as_table(view, arrays, coded=coded), counts
            continue
        ranges = part.ranges if isinstance(part, SmallFragments) else part
        total = sum(one.stop - one.start for one in ranges)
        for batch in _stream_windows(view, ranges, total, options):
            yield batch, ()


def _stream_windows(
    view: View, ranges: Sequence[FragmentRows], rows: int, options: ScanOptions
) -> Iterator[pa.RecordBatch]:
    """Batches of window after window; ``rows`` is how many there are, about."""
    schema = view.schema
    consumed = 0
    streaming: dict[int, BoundFragment] = {}
    for bound, parts in _run(
        _read_window,
        _windows(view, ranges),
        small=rows * len(schema) <= _INLINE_VALUES,
        mapped=_is_mapped(view, ranges),
        ahead=options.windows_ahead(WINDOW_BYTES, mapped=_is_mapped(view, ranges)),
        in_order=options.scan_in_order,
    ):
        for arrays in parts:
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield batch
            consumed += batch.nbytes
        streaming[bound.fragment.id] = bound
        if consumed >= _RELEASE_BYTES:
            for done in streaming.values():
                _release(done)
            streaming.clear()
            consumed = 0


def _windows(
    view: View, ranges: Sequence[FragmentRows]
) -> Iterator[tuple[BoundFragment, RowRange]]:
    for bound, rows in _opened(view, ranges):
        for window in windows(bound, rows.start, rows.stop):
            yield bound, window


def _opened(
    view: View, ranges: Sequence[FragmentRows]
) -> Iterator[tuple[BoundFragment, FragmentRows]]:
    """The fragments of ranges; those that must be fetched are opened side by side, ahead."""

    def bind(rows: FragmentRows) -> tuple[BoundFragment, FragmentRows]:
        return _bind(view, rows), rows

    if _is_mapped(view, ranges):
        return map(bind, ranges)
    return ordered_map(bind, ranges, ahead=_FETCHES_AHEAD, workers=settings.io_concurrency)


def _bind(view: View, rows: FragmentRows) -> BoundFragment:
    bound = view.fragment(rows.position)
    bound.expect("sequential")
    return bound


def _read_window(
    job: tuple[BoundFragment, RowRange],
) -> tuple[BoundFragment, Iterable[list[pa.Array]]]:
    bound, (start, stop) = job
    bound.expect("sequential")  # and that the files are whole: a window takes a while
    return bound, in_parts(bound.read, start, stop)


def _release(bound: BoundFragment) -> None:
    for reader in bound.readers:
        if reader.mapped:
            reader.advise([ByteRange(0, reader.size)], "dontneed")


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


# ---------------------------------------------------------------------- tables


def read_table(view: View, options: ScanOptions) -> pa.Table:
    """The whole result as a table; its chunks are pages, or windows of fetched files."""
    plan = plan_scan(view.snapshot, options)
    schema = view.schema
    if not view.projection.outputs:
        return view.rows_alone(plan.rows)
    mapped = _is_mapped(view, plan.ranges)
    chunks: list[list[pa.Array]] = [[] for _ in schema]
    if mapped and view.projection.plain:
        for part in find_small(view, plan.ranges):
            _read_part(view, part, chunks)
    else:
        windows_read = _run(_read_window, _windows(view, plan.ranges), small=False, mapped=mapped)
        for window in (window for _, parts in windows_read for window in parts):
            if len(window[0]):
                for waiting, array in zip(chunks, window, strict=True):
                    waiting.append(array)
    return as_table(view, chunks)


def as_table(view: View, chunks: Sequence[Sequence[pa.Array]], *, coded: bool = False) -> pa.Table:
    """A table of the chunks of each column; without any, one without rows.

    With ``coded``, the arrays say what types the columns have.
    """
    schema = view.schema
    if not chunks:
        return view.empty()
    if coded:
        fields = zip(schema, chunks, strict=True)
        kept = [one.with_type(arrays[0].type) if arrays else one for one, arrays in fields]
        schema = pa.schema(kept)
    columns = [
        pa.chunked_array(list(arrays), field.type)
        for arrays, field in zip(chunks, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _read_part(
    view: View, part: SmallFragments | Sequence[FragmentRows], chunks: list[list[pa.Array]]
) -> None:
    """Read a part of a plan and append its chunks to those of the columns."""
    if isinstance(part, SmallFragments):
        found = part.read(view)
        if found is not None:
            for column, arrays in zip(chunks, found[0], strict=True):
                column.extend(arrays)
            return
        part = part.ranges
    for at, pages in gather(_read_pages, _page_jobs(view, part)):
        chunks[at] += [array for array in pages if len(array)]


def _page_jobs(
    view: View, ranges: Sequence[FragmentRows]
) -> Iterator[tuple[BoundFragment, int, int, int]]:
    for rows in ranges:
        bound = _bind(view, rows)
        for at, column in enumerate(bound.columns):
            cuts = column.cuts()
            if len(cuts) == 2:  # one page: the usual case
                cuts = np.array([rows.start, rows.stop])
            else:
                cuts = np.unique(np.clip(cuts, rows.start, rows.stop))
            kind = column.field.type
            # Where the width is a guess, pieces cost more than threads bring: half as many.
            size = _JOB_BYTES if has_known_width(kind) else 2 * _JOB_BYTES + 1
            most = max(_ALIGNED, size // value_bytes(kind) // _ALIGNED * _ALIGNED)
            for start, stop in pairwise(cuts.tolist()):
                step = most if stop - start >= 2 * most else stop - start
                for first in range(start, stop, step):
                    yield bound, at, first, min(first + step, stop)


def _read_pages(job: tuple[BoundFragment, int, int, int]) -> tuple[int, Iterable[pa.Array]]:
    bound, at, start, stop = job
    column, live = bound.columns[at], bound.live
    read = column.read if live is None else partial(live.read, column)
    return at, in_parts(read, start, stop)


def _count_live(view: View, rows: FragmentRows) -> int:
    live = view.snapshot.live_rows(view.snapshot.manifest.fragment(rows.position))
    if live is None:
        return rows.stop - rows.start
    return live.count_between(rows.start, rows.stop)


# ---------------------------------------------------------------------- threads


def _is_mapped(view: View, ranges: Sequence[FragmentRows]) -> bool:
    return not ranges or view.fragment(ranges[0].position).mapped


def _run(
    work: Callable[[T], R],
    jobs: Iterable[T],
    *,
    small: bool,
    mapped: bool,
    ahead: int | None = None,
    in_order: bool = True,
) -> Iterator[R]:
    """Apply ``work``: inline when small, on the cores when mapped, else on the I/O threads."""
    if small and mapped:
        return map(work, jobs)
    run = partial(ordered_map, work, jobs, in_order=in_order)
    if mapped:
        return run(ahead=ahead or worker_count() + 1)
    return run(ahead=ahead or _FETCHES_AHEAD, workers=settings.io_concurrency)
