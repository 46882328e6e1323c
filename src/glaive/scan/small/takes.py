"""Rows out of many small fragments at once.

Opening a file, even a small one, costs far more than finding a row in it. The small files
that a take meets for the first time are read whole and together; see
:mod:`glaive.file.v2.small_takes`. Those it meets again are opened, and stay so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CapacityError, StoreError
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.io.read_many import read_many
from glaive.scan.views import View

__all__ = ["take_small"]

Int64s = NDArray[np.int64]

_FEWEST = 4
"""Small files that are worth reading together."""

_SMALL = 64 * 1024
"""Bytes of a file that is rather read whole than opened."""

_MOST_BYTES = 8 * 1024 * 1024
"""Bytes read at a time."""


def take_small(view: View, fragment: Int64s, row: Int64s) -> list[tuple[Int64s, list[pa.Array]]]:
    """Physical rows, none of them deleted, as far as they are in small files not met before.

    Parameters
    ----------
    fragment, row
        Position of the fragment in the list, and row in it, of each row asked for.

    Returns
    -------
    list of pairs
        Places, ascending, among the rows asked for, and for these places the values of each
        column. Empty where no rows are taken this way.
    """
    projection, snapshot = view.projection, view.snapshot
    if not projection.plain or projection.presented or projection.payloads:
        return []
    # Elsewhere requests wait for each other unless they are made side by side.
    if not snapshot.store.is_local:
        return []
    found, back = np.unique(fragment, return_inverse=True)
    if len(found) < _FEWEST:
        return []
    wires: list[tuple[int, table_pb2.DataFragment]] = []
    head: table_pb2.DataFile | None = None
    for at, position in enumerate(found.tolist()):
        if not view.meets(position):
            continue
        wire = snapshot.manifest.fragment_wire(position)
        file = _small_file(wire)
        if file is None:
            continue
        if head is None:
            if not _has_all(file, projection.leaves):
                continue
            head = file
        elif file.fields != head.fields or file.column_indices != head.column_indices:
            continue
        wires.append((at, wire))
    if head is None or len(wires) < _FEWEST:
        return []
    column_of = dict(zip(head.fields, head.column_indices, strict=True))
    parts = []
    for batch in _batches(wires):
        number = np.full(len(found), -1, np.int64)
        number[[at for at, _ in batch]] = np.arange(len(batch))
        file_of = number[back]
        places = np.flatnonzero(file_of >= 0)
        arrays = _read(view, batch, column_of, file_of[places], row[places])
        if arrays is not None:
            parts.append((places, arrays))
    return parts


def _read(
    view: View,
    batch: list[tuple[int, table_pb2.DataFragment]],
    column_of: dict[int, int],
    file: Int64s,
    row: Int64s,
) -> list[pa.Array] | None:
    """The columns of the rows; None where they have to be read file by file."""
    rows = [wire.physical_rows for _, wire in batch]
    if bool((row >= np.array(rows)[file]).any()) or int(row.min()) < 0:
        return None
    # Here and not above: takes from few fragments do not load it.
    from glaive.file.v2.small_takes import take_small_files

    entries = [wire.files[0] for _, wire in batch]
    paths = [data_file_path(one.path) for one in entries]
    try:
        files = read_many(view.snapshot.store, paths, [one.file_size_bytes for one in entries])
    except StoreError:
        files = None
    if files is None:
        return None  # the reader of single files tells what is wrong
    try:
        return take_small_files(files, rows, view.projection.fields, column_of, file, row)
    except CapacityError:
        return None


def _batches(
    wires: list[tuple[int, table_pb2.DataFragment]],
) -> list[list[tuple[int, table_pb2.DataFragment]]]:
    sizes = [wire.files[0].file_size_bytes for _, wire in wires]
    before: Any = np.cumsum(sizes) // _MOST_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(before)) + 1).tolist(), len(wires)]
    return [wires[first:last] for first, last in pairwise(cuts)]


def _small_file(wire: table_pb2.DataFragment) -> table_pb2.DataFile | None:
    """The one small file of a fragment without deleted rows."""
    files = wire.files
    if len(files) != 1 or wire.HasField("deletion_file"):
        return None
    file = files[0]
    size = file.file_size_bytes
    return None if not 0 < size <= _SMALL or file.HasField("base_id") else file


def _has_all(file: table_pb2.DataFile, leaves: frozenset[int]) -> bool:
    fields, columns = file.fields, file.column_indices
    if not len(fields) == len(columns) == len(set(fields)):
        return False
    return leaves <= {one for one, column in zip(fields, columns, strict=True) if column >= 0}
