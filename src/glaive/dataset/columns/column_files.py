"""Rewrite some columns of a fragment, for all of its rows, into a separate file.

A column file covers all physical rows; the values of deleted rows are arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import main_thread
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import number_array
from glaive.arrow.chunked import concat_arrays, has_known_width, in_parts, take_rows
from glaive.arrow.validation import check_schema
from glaive.dataclass import dataclass
from glaive.dataset.blobs import with_blob_type
from glaive.dataset.writing.conform import check_names
from glaive.dataset.writing.fragments import blob_files, discard_fragments, write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rules import check_values
from glaive.dataset.writing.source import Rows, batches_of
from glaive.errors import SchemaError, UnsupportedFeatureError
from glaive.file.versions import PROFILES, Profile, profile_of
from glaive.format.field import Field, check_primary_key
from glaive.format.fields import LanceSchema, new_field_ids
from glaive.format.fragment import LEGACY, TOMBSTONE, DataFile, Fragment
from glaive.format.manifest import Manifest
from glaive.format.paths import data_file_path
from glaive.io.pool import worker_count
from glaive.process import Origin
from glaive.scan.bound import BoundFragment, PassedPages
from glaive.scan.plan import WINDOW_BYTES, windows
from glaive.scan.projection import BlobHandling, SystemColumns
from glaive.scan.snapshot import LiveRows, Snapshot
from glaive.scan.views import BoundProjection, Views
from glaive.table.configuration import IDENTITY, has_value

# --- The columns that a schema change adds: names, ids and types ------------------------
# Specification: "Building the manifest" in ``docs/format``.


@dataclass(frozen=True, slots=True)
class Grown:
    """The columns after a change, and the new columns with their enclosing structs."""

    schema: LanceSchema
    added: LanceSchema

    @property
    def preserves_nullability(self) -> bool:
        """Whether existing rows may lack values of the new columns."""
        return all(field.nullable for field in self.added.fields)


def first_new_id(manifest: Manifest) -> int:
    """Return the lowest id above the ids of the schema and of fields in data files.

    If each id must be new, it is above all ids ever assigned.
    """
    highest = max(manifest.schema.max_field_id, manifest.first_field_id - 1)
    for at in range(manifest.num_fragments):
        for file in manifest.fragment_wire(at).files:
            highest = max(highest, max(file.fields, default=-1))
    return highest + 1


def grow(manifest: Manifest, new: pa.Schema) -> Grown:
    """Add columns to a version's schema, or members to an existing struct.

    Raises
    ------
    SchemaError
        A name is taken or invalid, or Lance lacks the type. A type is nested too deeply, the ids
        are exhausted, or a column of the primary key may be null.
    UnsupportedFeatureError
        Files of this format cannot add members to a struct.
    """
    old = manifest.schema
    check_schema(new)
    profile = profile_of(manifest.data_format)
    if profile.blob_type:
        new = with_blob_type(new)
    check_names([name for name in new.names if name not in old.by_name])
    ids = new_field_ids(first_new_id(manifest))
    wanted = {field.name: field for field in LanceSchema.from_arrow(new).fields}
    fields, added = [], []
    for field in old.fields:
        more = wanted.pop(field.name, None)
        if more is None:
            fields.append(field)
            continue
        whole, part = _merged(field, more, field.name, profile, ids)
        fields.append(whole)
        added.append(part)
    for more in wanted.values():
        fresh = renumbered(more, ids)
        fields.append(fresh)
        added.append(fresh)
    order = {name: at for at, name in enumerate(new.names)}
    added.sort(key=lambda field: order[field.name])
    check_primary_key(fields)  # before values are computed
    schema = replace(old, fields=tuple(fields))
    if any(map(has_value, added)):
        check_values(schema)
        for field in added:
            if IDENTITY in field.metadata:
                raise SchemaError(
                    f"column {field.name!r}: an identity column numbers the rows of a new table. "
                    "Create a table with it, and insert the rows."
                )
    return Grown(schema, LanceSchema(tuple(added)))


def renumbered(field: Field, ids: Iterator[int]) -> Field:
    """Return the field with new ids, depth first."""
    number = next(ids)
    children = tuple(renumbered(child, ids) for child in field.children)
    return replace(field, id=number, children=children)


def _merged(
    old: Field, new: Field, path: str, profile: Profile, ids: Iterator[int]
) -> tuple[Field, Field]:
    """Return a struct with the members of both, and a struct with the new members."""
    if old.logical_type != "struct" or new.logical_type != "struct" or old.is_packed:
        raise SchemaError(
            f"Column {path} already exists in the dataset. Choose another name, or drop it first; "
            "to change its type, use alter_columns."
        )
    if not profile.grows_structs:
        first = next(name for name, profile in PROFILES.items() if profile.grows_structs)
        raise UnsupportedFeatureError(
            f"column {path!r}: files of format {profile.version} cannot add members to a struct; "
            f"files of format {first} and later can"
        )
    known = {child.name: child for child in old.children}
    children: list[Field] = list(old.children)
    added = []
    for member in new.children:
        before = known.get(member.name)
        if before is None:
            fresh = renumbered(member, ids)
            children.append(fresh)
            added.append(fresh)
            continue
        whole, part = _merged(before, member, f"{path}.{member.name}", profile, ids)
        children[children.index(before)] = whole
        added.append(part)
    return replace(old, children=tuple(children)), replace(old, children=tuple(added))


WINDOW_ROWS: Final = 128 * 1024
"""Number of rows to read at a time."""

_MAX_THREADS: Final = 8

_MAX_REPEATED_BYTES: Final = 64 * 1024 * 1024
"""Maximum of (bytes of a value × deleted rows after it) up to which the value fills these rows."""


def write_column_file(
    snapshot: Snapshot, fragment: Fragment, schema: LanceSchema, rows: Iterable[Rows]
) -> DataFile:
    """Write columns of a fragment into a file for a later version.

    Parameters
    ----------
    schema
        The columns, with existing or future field ids.
    rows
        All physical rows of the fragment.

    Raises
    ------
    SchemaError
        The number of rows is wrong. The file is removed.
    """
    options = WriteOptions(mode="append", max_rows_per_file=max(1, fragment.physical_rows))
    plan = plan_write(snapshot.store, schema, options, snapshot.manifest, enforce=False)
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
    """Remove uncommitted files, if possible."""
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
    """Write a file for each fragment; return files by position of the fragment in the list.

    Parameters
    ----------
    write
        Called with a position; returns a file, or ``None``.
    positions
        Positions to pass to ``write``; default: all.
    threads
        Number of threads; default: one per core.
    keep
        Keep the finished files when a call fails; otherwise remove them.
    """
    wanted = range(snapshot.manifest.num_fragments) if positions is None else positions
    done: dict[int, DataFile] = {}
    origin = Origin()

    def write_at(position: int) -> None:
        file = write(position)
        if file is not None:
            done[position] = file

    count = threads or min(worker_count(), _MAX_THREADS, len(wanted) or 1)
    if not main_thread().is_alive():  # Python has stopped starting pools
        count = 1
    try:
        if count == 1:
            for position in wanted:
                write_at(position)
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(count, "glaive-columns") as pool:
                # Each task gets a copy of the context, which has the line of the terminal.
                tasks = [pool.submit(copy_context().run, write_at, at) for at in wanted]
                try:
                    for task in tasks:
                        task.result()
                except BaseException:
                    for task in tasks:
                        task.cancel()
                    raise
    except BaseException:
        if not keep and origin.is_this_process:
            discard_files(snapshot, done.values())
        raise
    return done


def replace_files(fragment: Fragment, new: DataFile) -> Fragment:
    """Return the fragment with a new file for fields, which are marked obsolete in old files.

    Raises
    ------
    UnsupportedFeatureError
        A file of format 0.1 would lose its first field, which its columns are counted from.
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
    """Return the view that :func:`physical_rows` reads columns from."""
    return Views(snapshot).take(tuple(names), blobs=blobs)


def physical_rows(
    view: BoundProjection, position: int, *, window: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all physical rows of the fragment at a list position, in windows like a scan's.

    Windows of narrow columns are longer: a page is then written from one array, without a copy.

    With ``window``, cut each window that is read into batches of this number of rows.

    The view has at least one column. Memory: one window; pages of mapped files are released.
    """
    bound = view.fragment(position)
    parts: Iterable[tuple[int, int]] = windows(bound, 0, bound.rows, narrow=WINDOW_BYTES)
    if window is not None:
        parts = _multiples(bound, window)
    names = [field.name for field in view.schema]

    def read(first: int, last: int) -> pa.RecordBatch:
        checked = bound.in_proportion(last - first, len(bound.stored))
        arrays = [checked(column.read(first, last)) for column in bound.stored]
        bound.projection.row_sizes.measure_all(arrays)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    passed = PassedPages()
    for first, last in parts:
        for batch in in_parts(read, first, last):
            if window is None:
                yield batch
            else:
                yield from (batch.slice(at, window) for at in range(0, batch.num_rows, window))
            passed.add(bound, batch.nbytes)
    passed.release()


def _multiples(bound: BoundFragment, window: int) -> Iterator[tuple[int, int]]:
    """Yield windows of a multiple of so many rows; the first is short, for callers that stop."""
    start, stop = 0, window
    while start < bound.rows:
        yield start, min(stop, bound.rows)
        start = stop
        stop = next(windows(bound, start, bound.rows)).stop
        if stop < bound.rows:
            stop = start + max(window, (stop - start) // window * window)


def spread_rows(
    batches: Iterable[pa.RecordBatch], live: LiveRows | None, rows: int
) -> Iterator[pa.RecordBatch]:
    """Fill in deleted rows: each repeats the live row before it, or the first live row.

    Parameters
    ----------
    batches
        The live rows, in order.
    live
        Positions of the live rows; ``None`` if all rows are live.
    rows
        Number of physical rows.

    Raises
    ------
    SchemaError
        The number of rows differs from the number of live rows.
    """
    if live is None:
        yield from batches
        return
    seen, reached = 0, 0
    held: pa.RecordBatch | None = None  # the last batch also fills deleted rows after it
    for batch in chain((batch for batch in batches if batch.num_rows), [None]):
        if held is not None:
            last = seen + held.num_rows
            if last > live.count:
                break
            offsets = live.physical(np.arange(seen, last))
            stop = rows if batch is None and last == live.count else int(offsets[-1]) + 1
            begin = 0
            # Few rows may precede many deleted rows.
            for first in range(reached, stop, WINDOW_ROWS):
                end = int(np.searchsorted(offsets, first + WINDOW_ROWS))
                is_live = np.zeros(min(WINDOW_ROWS, stop - first), np.bool_)
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
    """Yield rows of a batch at ``positions``; deleted rows get arbitrary values."""
    repeated = len(positions) - int(np.count_nonzero(live))
    if not repeated and len(positions) == batch.num_rows:
        yield batch
        return
    columns = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        field = batch.schema.field(name)
        # Repeating a large value for many deleted rows would take much memory.
        varies = not has_known_width(field.type)
        large = varies and array.nbytes * repeated > _MAX_REPEATED_BYTES
        at = np.where(live, positions, -1) if large and field.nullable else positions
        columns.append(take_rows(pa.Table.from_arrays([array], schema=pa.schema([field])), at)[0])
    yield from pa.Table.from_arrays(columns, schema=batch.schema).to_batches()


def replaced_values(
    batches: Iterable[pa.RecordBatch], offsets: NDArray[np.int64], new: pa.Table
) -> Iterator[pa.RecordBatch]:
    """Yield all rows; rows at ``offsets`` (ascending) get the values of ``new``'s rows."""
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
    """Return rows ``start`` to ``stop`` of a batch, with ``new``'s first rows at ``offsets``."""
    first, last = np.searchsorted(offsets, (start, stop)).tolist()
    order = np.arange(stop - start)
    order[offsets[first:last] - start] = stop - start + np.arange(last - first)
    arrays: list[Any] = []
    for name in batch.schema.names:
        old: Any = batch.column(name).slice(start, stop - start)
        values: Any = new.column(name).slice(first, last - first)
        values = values if values.type == old.type else values.cast(old.type)
        arrays.append(concat_arrays([old, *values.chunks]).take(number_array(order)))
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


# --- Compute new columns of a fragment from its live rows, and write them ---------------
# glaive computes values for live rows only, because expressions may fail at deleted rows.
# The file has values for all rows.

Batches = Iterator[tuple[int, pa.RecordBatch]]
"""First physical row of a window, and its live rows."""


class Shares:
    """A stream of rows, split by the number of rows of each fragment."""

    __slots__ = ("_rest", "_rows", "_seen", "_wanted")

    def __init__(self, rows: Iterator[Rows], wanted: int) -> None:
        self._rows = batches_of(rows)
        self._wanted = wanted
        self._seen = 0
        self._rest: pa.RecordBatch | None = None

    def _next(self) -> pa.RecordBatch | None:
        batch, self._rest = self._rest, None
        return next(self._rows, None) if batch is None else batch

    def take(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the next ``count`` rows."""
        while count:
            batch = self._next()
            if batch is None:
                raise SchemaError(
                    "new columns: Stream ended before producing values for all rows in dataset: "
                    f"expected {self._wanted} rows, one for each live row, found {self._seen}"
                )
            part = batch.slice(0, count)
            if part.num_rows < batch.num_rows:
                self._rest = batch.slice(count)
            count -= part.num_rows
            self._seen += part.num_rows
            yield part

    def end(self) -> None:
        """Raise if rows are left."""
        while (batch := self._next()) is not None:
            if batch.num_rows:
                raise SchemaError(
                    "new columns: Stream produced more values than expected for dataset: "
                    f"expected {self._wanted} rows, one for each live row, found more"
                )


def write_live(
    snapshot: Snapshot, position: int, columns: LanceSchema, rows: Iterator[pa.RecordBatch]
) -> DataFile | None:
    """Write the new columns of a fragment from the values of its live rows.

    Returns ``None`` if all rows are deleted.
    """
    fragment = snapshot.manifest.fragment(position)
    live = snapshot.live_rows(fragment)
    if not fragment.physical_rows or (live is not None and not live.count):
        for _ in rows:
            pass
        return None
    spread = spread_rows(rows, live, fragment.physical_rows)
    return write_column_file(snapshot, fragment, columns, spread)


def write_changed(
    snapshot: Snapshot,
    position: int,
    columns: LanceSchema,
    view: BoundProjection,
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> DataFile | None:
    """Write columns of a fragment that a function computes from the live rows of a view."""
    batches = live_batches(snapshot, view, position, ())
    return write_live(snapshot, position, columns, (change(batch) for _, batch in batches))


def _windows(
    view: BoundProjection, position: int, rows: int, window: int | None
) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield ranges of physical rows, and their columns; ranges are shorter if values are large."""
    if not view.schema.names:
        step = window or WINDOW_ROWS
        for start in range(0, rows, step):
            yield start, min(start + step, rows), []
        return
    stop = 0
    for batch in physical_rows(view, position, window=window):
        start, stop = stop, stop + batch.num_rows
        yield start, stop, batch.columns


def live_batches(
    snapshot: Snapshot,
    view: BoundProjection,
    position: int,
    system: Sequence[str],
    window: int | None = None,
) -> Batches:
    """Yield windows of live rows of a fragment: first physical row, and the rows.

    By default wide rows make shorter windows. An empty projection gives batches with the right
    number of rows.
    """
    fragment = snapshot.manifest.fragment(position)
    if not view.schema.names:
        snapshot.check_rows(fragment)
    live = snapshot.live_rows(fragment)
    extra = SystemColumns(snapshot, position) if system else None
    for start, stop, columns in _windows(view, position, fragment.physical_rows, window):
        arrays = list(columns)
        names = list(view.schema.names)
        if extra is not None:
            rows = np.arange(start, stop, dtype=np.int64)
            arrays += [pa.array(extra.of(name, rows)) for name in system]
            names += system
        if not arrays:
            arrays, names = [pa.nulls(stop - start)], [""]
        if live is not None:
            arrays = live.keep(start, stop, arrays)
        if len(arrays[0]):
            yield start, pa.RecordBatch.from_arrays(arrays, names=names)
