"""Values of blob columns for users: as files, as bytes, in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glaive.errors import OptionError
from glaive.scan.blobs.column import locate_blobs, read_blob_ranges, select_rows
from glaive.scan.blobs.file import BlobFile
from glaive.scan.blobs.location import read_locations
from glaive.scan.views import Views

__all__ = ["read_blobs", "read_ranges", "take_blobs"]

Rows = Mapping[str, object]
"""``ids``, ``addresses`` and ``indices``; exactly one is not None."""

_PARTS = 3


def take_blobs(views: Views, column: str, rows: Rows, *, buffer_size: int) -> list[BlobFile | None]:
    """Return values as files; None for nulls.

    Raises
    ------
    SchemaError, ColumnNotFoundError
        There is no such column, or it is not a blob column.
    OptionError
        Not exactly one selection is given, or its values cannot select rows.
    RowIndexError
        There is no such row.
    CorruptFileError, DataFileMissingError
        A blob descriptor points beyond the end of a file, or to a missing file.
    """
    selected = select_rows(views, **rows)
    return [
        None if location is None else BlobFile(location, buffer_size)
        for location in locate_blobs(views, column, selected)
    ]


def read_blobs(
    views: Views, column: str, rows: Rows, *, in_order: bool
) -> list[tuple[int, bytes | None]]:
    """Return row addresses and bytes of values; errors as for :func:`take_blobs`."""
    selected = select_rows(views, **rows)
    addresses = selected.addresses.tolist()
    located = dict(zip(addresses, locate_blobs(views, column, selected), strict=True))
    buffers = read_locations(list(located.values()))
    values = {
        address: None if buffer is None else buffer.to_pybytes()
        for address, buffer in zip(located, buffers, strict=True)
    }
    pairs = [(address, values[address]) for address in addresses]
    return pairs if in_order else sorted(pairs, key=lambda pair: pair[0])


def read_ranges(
    views: Views, column: str, requests: Sequence[tuple[int, int, int]], selector: str
) -> list[tuple[int, int, bytes | None]]:
    """Return parts of values; errors as for :func:`take_blobs` and for parts out of range."""
    if selector not in ("ids", "addresses", "indices"):
        raise OptionError(f"selector: expected ids, addresses or indices, found {selector!r}")
    wrong = next((request for request in requests if len(request) != _PARTS), None)
    if wrong is not None:
        raise OptionError(f"requests: expected (row, offset, length), found {wrong!r}")
    selected = select_rows(views, **{selector: [row for row, _, _ in requests]})
    locations = locate_blobs(views, column, selected)
    buffers = read_blob_ranges(locations, [(offset, length) for _, offset, length in requests])
    addresses = selected.addresses.tolist()
    return [
        (number, address, None if buffer is None else buffer.to_pybytes())
        for number, (address, buffer) in enumerate(zip(addresses, buffers, strict=True))
    ]
