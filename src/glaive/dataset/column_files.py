"""Columns of one fragment in a file of their own: written anew for all of its rows.

A column file covers all physical rows, deleted ones included: their places hold whatever was
there before, or anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataset.options import WriteOptions
from glaive.dataset.source import Rows
from glaive.dataset.write import write_fragments
from glaive.errors import SchemaError
from glaive.file.versions import resolve_version
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, TOMBSTONE, DataFile, Fragment
from glaive.scan.view import View, Views
from glaive.table.dictionaries import load_dictionaries

if TYPE_CHECKING:
    from glaive.dataset.opened import OpenedVersion

__all__ = [
    "physical_rows",
    "replace_files",
    "replaced_values",
    "view_of",
    "write_column_file",
]

_WINDOW: Final = 128 * 1024
"""Rows read at a time."""


def write_column_file(
    dataset: OpenedVersion,
    fragment: Fragment,
    schema: LanceSchema,
    rows: Iterable[Rows],
    *,
    version: str | None = None,
) -> DataFile:
    """Write columns of a fragment into a file that no version refers to yet.

    Parameters
    ----------
    schema
        The columns, with the ids they have or will have.
    rows
        As many as the fragment has physically.
    version
        Format of the file; that of the dataset when omitted.

    Raises
    ------
    SchemaError
        There are more or fewer rows; the file is removed.
    """
    manifest = dataset.manifest
    name = resolve_version(version or str(manifest.data_format))
    options = WriteOptions(mode="append", max_rows_per_file=max(1, fragment.physical_rows))
    shared = load_dictionaries(dataset.store, manifest)
    written = write_fragments(dataset.store, rows, schema, options, name, shared)
    found = sum(one.physical_rows for one in written)
    if found != fragment.physical_rows or len(written) != 1:
        from glaive.format.paths import data_file_path

        dataset.store.delete([data_file_path(file.path) for one in written for file in one.files])
        raise SchemaError(
            f"new columns of fragment {fragment.id}: expected {fragment.physical_rows} rows, one "
            f"for each of the fragment's, found {found}"
        )
    return written[0].files[0]


def replace_files(fragment: Fragment, new: DataFile) -> Fragment:
    """The fragment with a file for fields it had before: these are crossed out in old files."""
    replaced = frozenset(new.fields)
    files = []
    for file in fragment.files:
        if file.version == LEGACY or not replaced & set(file.fields):
            files.append(file)
            continue
        fields = tuple(TOMBSTONE if one in replaced else one for one in file.fields)
        if any(one != TOMBSTONE for one in fields):
            files.append(replace(file, fields=fields))
    return replace(fragment, files=(*files, new))


def view_of(dataset: OpenedVersion, names: Sequence[str]) -> View:
    """The view that :func:`physical_rows` reads columns through; blobs are their values."""
    return Views(dataset.snapshot).take(tuple(names), blobs="values")


def physical_rows(
    view: View, position: int, start: int = 0, stop: int | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of the fragment at a position of the list, deleted ones too, in windows."""
    bound = view.fragment(position)
    names = [field.name for field in view.schema]
    for first in range(start, bound.rows if stop is None else stop, _WINDOW):
        last = min(first + _WINDOW, bound.rows if stop is None else stop)
        arrays = [column.read(first, last) for column in bound.stored]
        if not names:
            continue
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def replaced_values(
    batches: Iterable[pa.RecordBatch], offsets: NDArray[np.int64], new: pa.Table
) -> Iterator[pa.RecordBatch]:
    """Rows in order, those at ``offsets`` (ascending) with the values of ``new``'s rows."""
    start = 0
    for batch in batches:
        stop = start + batch.num_rows
        first, last = np.searchsorted(offsets, (start, stop)).tolist()
        if first == last:
            yield batch
            start = stop
            continue
        order = np.arange(batch.num_rows)
        order[offsets[first:last] - start] = batch.num_rows + np.arange(last - first)
        picked = pa.array(order)
        some: Any = new.slice(first, last - first).combine_chunks()
        arrays: list[Any] = []
        for name in batch.schema.names:
            old: Any = batch.column(name)
            put = some.column(name)
            put = put.chunk(0) if put.num_chunks else pa.array([], old.type)
            put = put if put.type == old.type else put.cast(old.type)
            arrays.append(pa.concat_arrays([old, put]).take(picked))
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
        start = stop
