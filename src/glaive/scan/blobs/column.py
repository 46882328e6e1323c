"""Values of a blob column by row: where they lie, as files, or as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from glaive.errors import OptionError, SchemaError
from glaive.format.blobs import is_blob
from glaive.format.field import Field
from glaive.format.fragment import DataFile, Fragment
from glaive.scan.addresses import RowLocations, find_rows
from glaive.scan.blobs.location import BlobHome, BlobLocation, read_locations
from glaive.scan.bound import BoundFragment
from glaive.scan.views import Views

__all__ = ["find_blob_file", "locate_blobs", "read_blob_ranges", "select_rows"]


def select_rows(views: Views, **given: object) -> RowLocations:
    """Find the rows of the one selection that is given.

    Raises
    ------
    OptionError
        None or several of ``ids``, ``addresses`` and ``indices`` are given.
    RowIndexError
        There is no such row.
    """
    given_rows = [(name, value) for name, value in given.items() if value is not None]
    if len(given_rows) != 1:
        raise OptionError(
            "Exactly one of ids, indices, or addresses must be specified, found "
            f"{len(given_rows)} of them"
        )
    return find_rows(views.snapshot, *given_rows[0])


def locate_blobs(views: Views, column: str, rows: RowLocations) -> list[BlobLocation | None]:
    """Where the value of each row lies; None for nulls.

    Reads descriptions, not values. One step per fragment.

    Raises
    ------
    SchemaError
        The column holds no blobs.
    ColumnNotFoundError
        There is no such column.
    AccessError
        A value lies outside of the dataset, and the caller has to allow reading it.
    """
    chain = views.snapshot.manifest.schema.find(column)
    if not (is_blob(chain[-1]) or chain[-1].is_blob_v2):
        raise SchemaError(
            f"column {column!r} is not a blob column: its type is {chain[-1].arrow_type}. Read it "
            "with to_table or take."
        )
    view = views.scan((column,))
    locations: list[BlobLocation | None] = [None] * len(rows)
    for position, at in rows.by_fragment():
        bound = view.fragment(position)
        file = find_blob_file(bound.fragment, chain[-1])
        if file is None:  # the column was added later: all null
            continue
        descriptions = _take(bound, rows.row[at])
        home = BlobHome(views.snapshot, file, column)
        for row, location in zip(at.tolist(), home.locations(descriptions), strict=True):
            locations[row] = location
    return locations


def _take(bound: BoundFragment, rows: Any) -> Any:
    bound.expect("random")
    return bound.take(rows)[0]


def find_blob_file(fragment: Fragment, column: Field) -> DataFile | None:
    """The data file of a fragment that has a column."""
    return next((file for file in fragment.files if column.id in file.columns()), None)


def read_blob_ranges(
    locations: Sequence[BlobLocation | None], ranges: Sequence[tuple[int, int]]
) -> list[pa.Buffer | None]:
    """A range of each value; None for nulls.

    Raises
    ------
    OptionError
        A range goes beyond its value.
    """
    wanted: list[BlobLocation | None] = []
    for location, (offset, length) in zip(locations, ranges, strict=True):
        if location is None:
            wanted.append(None)
            continue
        size = location.size
        if offset < 0 or length < 0 or (size is not None and offset + length > size):
            raise OptionError(
                f"range of {length} bytes at {offset}: expected bytes within 0..{size}, the size "
                "of the blob"
            )
        # Parts of one value may overlap: the caller asks for them.
        wanted.append(
            BlobLocation(location.store, location.path, location.offset + offset, length, own=False,
                      shared=location.shared)
        )  # fmt: skip
    return read_locations(wanted)
