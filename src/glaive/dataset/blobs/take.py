"""Values of blob columns for users: as files, as bytes, in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from glaive.errors import OptionError
from glaive.scan.blobs.column import locate_blobs, read_blob_ranges, select_rows
from glaive.scan.blobs.file import BlobFile
from glaive.scan.blobs.location import read_locations
from glaive.scan.views import Views

__all__ = ["read_blobs", "read_ranges", "take_blobs"]

Rows = Mapping[str, object]
"""``ids``, ``addresses`` and ``indices``, of which one is not None."""

_PARTS = 3


def take_blobs(views: Views, column: str, rows: Rows, *, buffer_size: int) -> list[BlobFile | None]:
    """Values as files.

    Raises
    ------
    SchemaError, ColumnNotFoundError
        There is no such column, or it holds no blobs.
    OptionError
        Not exactly one selection is given, or something that selects no rows.
    RowIndexError
        There is no such row.
    CorruptFileError, DataFileMissingError
        A description leads out of a file, or to one that is not there.
    """
    found = select_rows(views, **rows)
    return [
        None if place is None else BlobFile(place, buffer_size)
        for place in locate_blobs(views, column, found)
    ]


def read_blobs(
    views: Views, column: str, rows: Rows, *, in_order: bool
) -> list[tuple[int, bytes | None]]:
    """Row address and bytes of values; errors as for :func:`take_blobs`."""
    found = select_rows(views, **rows)
    addresses = found.addresses
    distinct = len(np.unique(addresses)) == len(addresses)
    buffers = read_locations(locate_blobs(views, column, found), distinct=distinct)
    values = [None if buffer is None else buffer.to_pybytes() for buffer in buffers]
    pairs = list(zip(addresses.tolist(), values, strict=True))
    return pairs if in_order else sorted(pairs, key=lambda pair: pair[0])


def read_ranges(
    views: Views, column: str, requests: Sequence[tuple[int, int, int]], selector: str
) -> list[tuple[int, int, bytes | None]]:
    """Parts of values; errors as for :func:`take_blobs`, and for a part beyond its value."""
    if selector not in ("ids", "addresses", "indices"):
        raise OptionError(f"selector: expected ids, addresses or indices, found {selector!r}")
    wrong = next((request for request in requests if len(request) != _PARTS), None)
    if wrong is not None:
        raise OptionError(f"requests: expected (row, offset, length), found {wrong!r}")
    found = select_rows(views, **{selector: [row for row, _, _ in requests]})
    places = locate_blobs(views, column, found)
    buffers = read_blob_ranges(places, [(offset, length) for _, offset, length in requests])
    return [
        (number, address, None if buffer is None else buffer.to_pybytes())
        for number, (address, buffer) in enumerate(
            zip(found.addresses.tolist(), buffers, strict=True)
        )
    ]
