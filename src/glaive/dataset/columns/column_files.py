"""Rewrite some columns of a fragment, for all of its rows, into a file of their own.

A column file covers all physical rows; the values of deleted rows are arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import chain
from os import cpu_count
from threading import main_thread
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import integer_array
from glaive.arrow.capacity import in_parts, weight
from glaive.arrow.chunked import take_rows
from glaive.arrow.dictionaries import concat_arrays
from glaive.config import settings
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.dataset.writing.rolling import blob_files, discard_fragments
from glaive.dataset.writing.source import Rows
from glaive.errors import SchemaError, UnsupportedFeatureError
from glaive.forks import Origin
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, TOMBSTONE, DataFile, Fragment
from glaive.format.paths import data_file_path
from glaive.scan.deletions import LiveRows
from glaive.scan.passed_pages import PassedPages
from glaive.scan.plan import windows
from glaive.scan.projection import BlobHandling
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import BoundProjection, Views

__all__ = [
    "WINDOW",
    "discard_files",
    "for_each",
    "physical_rows",
    "replace_files",
    "replaced_values",
    "spread_rows",
    "view_of",
    "write_column_file",
]

WINDOW: Final = 128 * 1024
"""Rows read at a time."""

_MAX_THREADS: Final = 8

_MAX_REPEATED_BYTES: Final = 64 * 1024 * 1024
"""Limit on bytes of a value × deleted rows after it: below it, the value is repeated for them."""


def write_column_file(
    snapshot: Snapshot,
    fragment: Fragment,
    schema: LanceSchema,
    rows: Iterable[Rows],
) -> DataFile:
    """Write columns of a fragment into a file that no version refers to yet.

    Parameters
    ----------
    schema
        The columns, with the ids they have or will have.
    rows
        All physical rows of the fragment.

    Raises
    ------
    SchemaError
        The number of rows is wrong; the file is removed.
    """
    options = WriteOptions(mode="append", max_rows_per_file=max(1, fragment.physical_rows))
    plan = plan_write(snapshot.store, schema, options, snapshot.manifest)
    written = write_fragments(plan, rows)
    rows_written = sum(part.physical_rows for part in written)
    if rows_written != fragment.physical_rows or len(written) != 1:
        discard_fragments(plan, written)
        raise SchemaError(
            f"new columns of fragment {fragment.id}: expected {fragment.physical_rows} rows, as "
            f"many as the fragment has, found {rows_written}"
        )
    return written[0].files[0]


def discard_files(snapshot: Snapshot, files: Iterable[DataFile]) -> None:
    """Remove files that no version refers to, if that is possible."""
    paths = [data_file_path(file.path) for file in files]
    snapshot.store.discard(paths + blob_files(snapshot.store, paths))


def for_each(
    snapshot: Snapshot,
    write: Callable[[int], DataFile | None],
    *,
    positions: Sequence[int] | None = None,
    threads: int | None = None,
    keep: bool = False,
) -> dict[int, DataFile]:
    """Write a file for each fragment; files by position of the fragment in the list.

    Parameters
    ----------
    write
        Called with a position; returns ``None`` if the fragment needs no file.
    positions
        Positions to call it with; default: all.
    threads
        Number of threads; default: one per core.
    keep
        Keep the finished files when one fails; otherwise they are removed.
    """
    wanted = range(snapshot.manifest.num_fragments) if positions is None else positions
    done: dict[int, DataFile] = {}
    origin = Origin()

    def write_at(position: int) -> None:
        file = write(position)
        if file is not None:
            done[position] = file

    count = threads or min(settings.threads or cpu_count() or 1, _MAX_THREADS, len(wanted) or 1)
    if not main_thread().is_alive():  # Python starts no pools any more
        count = 1
    try:
        if count == 1:
            for position in wanted:
                write_at(position)
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(count, "glaive-columns") as pool:
                # In copies of the context, which has the line of the terminal.
                tasks = [pool.submit(copy_context().run, write_at, at) for at in wanted]
                try:
                    for task in tasks:
                        task.result()
                except BaseException:
                    for task in tasks:
                        task.cancel()
                    raise
    except BaseException:
        if not keep and origin.is_here:
            discard_files(snapshot, done.values())
        raise
    return done


def replace_files(fragment: Fragment, new: DataFile) -> Fragment:
    """The fragment with a new file for existing fields, which are marked obsolete in old files.

    Raises
    ------
    UnsupportedFeatureError
        A file of format 0.1 would lose its first field, from which its columns are counted.
    """
    replaced = frozenset(new.fields)
    files = []
    for file in fragment.files:
        if not replaced & set(file.fields):
            files.append(file)
            continue
        fields = tuple(TOMBSTONE if field in replaced else field for field in file.fields)
        if all(field == TOMBSTONE for field in fields):
            continue
        lowest = min(field for field in file.fields if field >= 0)
        if file.version == LEGACY and lowest in replaced:
            raise UnsupportedFeatureError(
                f"fragment {fragment.id}: the column with id {lowest} is the first of a "
                "file of format 0.1 and cannot be replaced alone. Update the rows instead, or "
                "rewrite the dataset in a later format."
            )
        files.append(replace(file, fields=fields))
    return replace(fragment, files=(*files, new))


def view_of(
    snapshot: Snapshot, names: Sequence[str], *, blobs: BlobHandling = "logical"
) -> BoundProjection:
    """The view from which :func:`physical_rows` reads columns."""
    return Views(snapshot).take(tuple(names), blobs=blobs)


def physical_rows(
    view: BoundProjection,
    position: int,
    start: int = 0,
    stop: int | None = None,
    *,
    window: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """All physical rows of the fragment at a list position, in windows: those of scans by default.

    The view has at least one column. Memory: a window; pages of mapped files are let go of.
    """
    bound = view.fragment(position)
    names = [field.name for field in view.schema]
    end = bound.rows if stop is None else stop

    def read(first: int, last: int) -> pa.RecordBatch:
        checked = bound.in_proportion(last - first, len(bound.stored))
        arrays = [checked(column.read(first, last)) for column in bound.stored]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    parts: Iterable[tuple[int, int]] = windows(bound, start, end)
    if window is not None:
        parts = ((first, min(first + window, end)) for first in range(start, end, window))
    passed = PassedPages()
    for first, last in parts:
        for batch in in_parts(read, first, last):
            yield batch
            passed.add(bound, batch.nbytes)
    passed.let_go()


def spread_rows(
    batches: Iterable[pa.RecordBatch], live: LiveRows | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Fill in deleted rows: each repeats the live row before it, or the first one.

    Parameters
    ----------
    batches
        The live rows, in order.
    live
        Which rows they are; ``None`` if no row is deleted.
    rows
        Physical rows.

    Raises
    ------
    SchemaError
        The number of rows differs from that of live rows.
    """
    if live is None:
        yield from batches
        return
    seen, reached = 0, 0
    held: pa.RecordBatch | None = None  # the last batch also fills the deleted rows after it
    for batch in chain((batch for batch in batches if batch.num_rows), [None]):
        if held is not None:
            last = seen + held.num_rows
            if last > live.count:
                break
            offsets = live.physical_run(seen, last)
            stop = rows if batch is None and last == live.count else int(offsets[-1]) + 1
            begin = 0
            for first in range(reached, stop, WINDOW):  # few rows may precede many deleted ones
                end = int(np.searchsorted(offsets, first + WINDOW))
                is_live = np.zeros(min(WINDOW, stop - first), np.bool_)
                is_live[offsets[begin:end] - first] = True
                positions = np.maximum(np.cumsum(is_live) + (begin - 1), 0)
                yield from _with_deleted(held, positions, is_live)
                begin = end
            seen, reached = last, stop
        held = batch
    if held is not None or seen != live.count:
        raise SchemaError(
            f"new columns: expected {live.count} rows, one for each live row, found "
            f"{'more' if held is not None else seen}"
        )


def _with_deleted(
    batch: pa.RecordBatch, positions: NDArray[np.int64], live: NDArray[np.bool_]
) -> Iterator[pa.RecordBatch]:
    """Rows of a batch at ``positions``; rows that are not ``live`` get arbitrary values."""
    repeated = len(positions) - int(np.count_nonzero(live))
    if not repeated and len(positions) == batch.num_rows:
        yield batch
        return
    columns = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        field = batch.schema.field(name)
        # A large value is not repeated for many deleted rows.
        large = weight(array) * repeated > _MAX_REPEATED_BYTES
        at = np.where(live, positions, -1) if large and field.nullable else positions
        columns.append(take_rows(pa.Table.from_arrays([array], schema=pa.schema([field])), at)[0])
    yield from pa.Table.from_arrays(columns, schema=batch.schema).to_batches()


def replaced_values(
    batches: Iterable[pa.RecordBatch], offsets: NDArray[np.int64], new: pa.Table
) -> Iterator[pa.RecordBatch]:
    """All rows; those at ``offsets`` (ascending) get the values of ``new``'s rows."""
    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        first, last = np.searchsorted(offsets, (start, stop)).tolist()
        if first == last:
            yield batch
            start = stop
            continue
        replaced = partial(_replaced, batch, offsets[first:last] - start, new.slice(first))
        yield from in_parts(replaced, 0, batch.num_rows)
        start = stop


def _replaced(
    batch: pa.RecordBatch, offsets: NDArray[np.int64], new: pa.Table, start: int, stop: int
) -> pa.RecordBatch:
    """Rows ``start`` to ``stop`` of a batch; those at ``offsets`` get the first rows of ``new``."""
    first, last = np.searchsorted(offsets, (start, stop)).tolist()
    order = np.arange(stop - start)
    order[offsets[first:last] - start] = stop - start + np.arange(last - first)
    arrays: list[Any] = []
    for name in batch.schema.names:
        old: Any = batch.column(name).slice(start, stop - start)
        values: Any = new.column(name).slice(first, last - first)
        values = values if values.type == old.type else values.cast(old.type)
        arrays.append(concat_arrays([old, *values.chunks]).take(integer_array(order)))
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
