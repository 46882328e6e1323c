"""Rows out of many small fragments at once.

Opening a file, even a small one, costs far more than finding a row in it. The small files
that a take meets for the first time are read whole, in bulk; see
:mod:`glaive.file.v2.small_takes`. Those it meets again are opened, and stay so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import distinct
from glaive.file.v2.bulk_reads import MAX_BYTES, BulkReadError, suits_bulk_reads
from glaive.format.fragment import SingleFile
from glaive.scan.metrics import Meter
from glaive.scan.small.files import column_of, has_columns, in_bulk, read_batch, small_file
from glaive.scan.views import BoundProjection
from glaive.types import Int64s

__all__ = ["take_small"]

_MIN_FILES: Final = 4
"""Small files that are worth reading in bulk."""

_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes read at a time."""


def take_small(
    source: BoundProjection, fragment: Int64s, row: Int64s, meter: Meter
) -> list[tuple[Int64s, list[pa.Array]]]:
    """Those of some rows, none of them deleted, that are in small files not met before.

    Parameters
    ----------
    fragment, row
        Position of the fragment in the list, and physical row in it, of each row.

    Returns
    -------
    list of pairs
        Numbers of rows, ascending, and for these rows the values of each column. Empty where
        no rows are taken this way.
    """
    projection, snapshot = source.projection, source.snapshot
    special = not projection.plain or projection.has_extension_types or projection.blob_contents
    # In other stores requests wait for each other unless they are made side by side.
    if special or not snapshot.store.is_local:
        return []
    positions = distinct(fragment)
    if len(positions) < _MIN_FILES or not suits_bulk_reads(projection.fields):
        return []
    numbers: list[int] = []
    files: list[SingleFile] = []
    for at, position in enumerate(positions.tolist()):
        file = small_file(source, position) if source.meets(position) else None
        if file is None or file.has_deletions or file.size > MAX_BYTES:
            continue
        if file.layout == files[0].layout if files else has_columns(source, file):
            numbers.append(at)
            files.append(file)
    if len(files) < _MIN_FILES:
        return []
    taken, number = [], np.searchsorted(positions, fragment)
    batch_of: Any = np.cumsum([file.size for file in files]) // _MAX_BATCH_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(batch_of)) + 1).tolist(), len(files)]
    for first, last in pairwise(cuts):
        file_number = np.full(len(positions), -1, np.int64)
        file_number[numbers[first:last]] = np.arange(last - first)
        file_of = file_number[number]
        chosen = np.flatnonzero(file_of >= 0)
        arrays = _take(source, files[first:last], file_of[chosen], row[chosen], meter)
        if arrays is not None:
            taken.append((chosen, arrays))
    return taken


def _take(
    source: BoundProjection, files: list[SingleFile], file: Int64s, row: Int64s, meter: Meter
) -> list[pa.Array] | None:
    """Row ``row[i]`` of file ``file[i]``; None where they have to be read file by file."""
    # Here and not above: takes from few fragments do not load it.
    from glaive.file.v2.small_takes import take_small_files

    def take() -> list[pa.Array]:
        rows = np.array([each.rows for each in files])
        if bool((row >= rows[file]).any()) or int(row.min()) < 0:
            raise BulkReadError("a row is beyond its file")
        batch = read_batch(source.snapshot, files)
        fields = source.projection.fields
        return take_small_files(batch, fields, column_of(files[0]), file, row)

    return in_bulk(meter, "take from small fragments", len(files), take)
