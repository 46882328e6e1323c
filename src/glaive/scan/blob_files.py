"""Values of a blob column by row: where they lie, as files, or as bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from glaive.compat.absent import REFUSED_MEMBERS, refuse_members
from glaive.errors import (
    CorruptFileError,
    DataFileMissingError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
)
from glaive.format.blobs import is_blob
from glaive.format.field import Field
from glaive.format.fragment import DataFile, Fragment
from glaive.io.store import ObjectStore, RangeReader
from glaive.scan.blob_values import BlobHome, BlobLocation, open_location, read_locations
from glaive.scan.bound import BoundFragment
from glaive.scan.take import RowLocations, find_rows
from glaive.scan.views import Views
from glaive.table.root import plain_store
from glaive.types import ByteRange


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


# --- One value of a blob column as a file: read at leisure, and only what is needed -----

DEFAULT_BLOB_BUFFER_SIZE = 512 << 10
"""The ``buffer_size`` of pylance; glaive chooses one by the place of the file if none is given."""


@refuse_members(REFUSED_MEMBERS)
class BlobFile(io.RawIOBase):
    """A value to read from, to seek in, and to hand to whatever takes a binary file.

    Made by ``dataset.take_blobs``. Reading asks for the bytes wanted and no others, with one
    request; in a local file it copies them from the map, :meth:`view` not even that. Can be
    pickled when its store can: it is then opened again, at the same position. Not to be shared
    between threads, as it has a position; :meth:`read_range` may be.

    Parameters
    ----------
    location
        Where the value lies.
    buffer_size
        Bytes to read ahead when reading on where the last read ended; 0 reads what is asked
        for. Without effect in local files.
    """

    def __init__(self, location: BlobLocation, buffer_size: int = 0) -> None:
        super().__init__()
        self._location = location
        self._reader: RangeReader | None = location.shared
        self._position = 0
        self._buffer_size = _check_buffer_size(buffer_size)
        self._ahead = (0, pa.py_buffer(b""))

    def __repr__(self) -> str:
        return f"<BlobFile size={self.size()}>"

    def __reduce__(self) -> tuple[object, ...]:
        location = self._location
        # The store alone: options for other locations of the dataset stay here.
        state = (
            plain_store(location.store),
            location.path,
            location.offset,
            location.size,
            location.own,
        )
        return (_reopen, (*state, self._buffer_size, self._position, self.closed))

    @property
    def uri(self) -> str:
        """The object that the value lies in."""
        return self._location.store.full(self._location.path)

    def size(self) -> int:
        """Size of the value in bytes; a request only for a whole object by URI.

        Raises
        ------
        CorruptFileError
            The object ends before the value begins.
        """
        if self._location.size is not None:
            return self._location.size
        try:
            end = self._open().size
        except ObjectNotFoundError as error:
            raise self._missing() from error
        if self._location.offset > end:
            raise CorruptFileError(
                "blob",
                expected=f"a value that begins within 0..{end}",
                found=f"one at {self._location.offset}",
                where=self.uri,
            )
        return end - self._location.offset

    # ------------------------------------------------------------------ position

    def readable(self) -> bool:
        """It is."""
        return True

    def write(self, data: object, /) -> int:
        """Refused: blobs are read only."""
        raise io.UnsupportedOperation("write")

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; behind the end is allowed, and reads nothing."""
        self._check_open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"Invalid whence: {whence!r}; expected 0, 1 or 2")
        base = 0
        if whence == io.SEEK_CUR:
            base = self._position
        elif whence == io.SEEK_END:
            base = self.size()
        if base + offset < 0:
            raise ValueError(f"negative seek value {base + offset}")
        self._position = base + offset
        return self._position

    # ------------------------------------------------------------------ reading

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes, fewer at the end only; all remaining ones by default."""
        self._check_open()
        remaining = max(0, self.size() - self._position)
        wanted = remaining if size is None or size < 0 else min(size, remaining)
        data = self._read_on(wanted).to_pybytes()
        self._position += wanted
        return data

    def readall(self) -> bytes:
        """All remaining bytes."""
        return self.read()

    def read1(self, size: int = -1) -> bytes:
        """As :meth:`read`."""
        return self.read(size)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; returns how many bytes, fewer than it has at the end only."""
        self._check_open()
        target = memoryview(buffer).cast("B")
        wanted = min(len(target), max(0, self.size() - self._position))
        if wanted:
            target[:wanted] = memoryview(self._read_on(wanted)).cast("B")
        self._position += wanted
        return wanted

    def readinto1(self, buffer: Any) -> int:
        """Fill a buffer; the same as :meth:`readinto`."""
        return self.readinto(buffer)

    def read_range(self, offset: int, length: int) -> bytes:
        """Bytes of a range; the position stays where it is.

        Raises
        ------
        OptionError
            The range goes beyond the value.
        """
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes of several ranges, near ones with one request; the position stays."""
        self._check_open()
        end = self.size()
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > end:
                raise OptionError(
                    f"range of {length} bytes at {offset}: expected bytes within 0..{end}, the "
                    "size of the blob"
                )
        return [
            data.to_pybytes() for data in self._fetch([ByteRange(*extent) for extent in ranges])
        ]

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """Bytes without a copy in a local file, where they stay valid after closing."""
        self._check_open()
        end = self.size()
        size = end - offset if length is None else length
        if not 0 <= offset <= offset + size <= end:
            raise OptionError(
                f"range of {size} bytes at {offset}: expected bytes within 0..{end}, the size of "
                "the blob"
            )
        return memoryview(self._fetch([ByteRange(offset, size)])[0]).cast("B")

    def close(self) -> None:
        """Let go of the object; closing twice is no error."""
        self._ahead = (0, pa.py_buffer(b""))
        self._reader = None
        super().close()

    # ------------------------------------------------------------------ bytes

    def _read_on(self, size: int) -> pa.Buffer:
        """``size`` bytes from the position on, which are there."""
        if not size:
            return pa.py_buffer(b"")
        start, (first, ahead) = self._position, self._ahead
        if first <= start and start + size <= first + ahead.size:
            return ahead.slice(start - first, size)
        if size >= self._buffer_size or self._open().mapped:
            return self._fetch([ByteRange(start, size)])[0]
        more = min(self._buffer_size, self.size() - start)
        (ahead,) = self._fetch([ByteRange(start, more)])
        self._ahead = (start, ahead)
        return ahead.slice(0, size)

    def _fetch(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        if not any(size for _, size in ranges):
            return [pa.py_buffer(b"")] * len(ranges)
        base = self._location.offset
        try:
            return self._open().read([ByteRange(base + at, size) for at, size in ranges])
        except ObjectNotFoundError as error:
            raise self._missing() from error

    def _open(self) -> RangeReader:
        if self._reader is None:
            self._reader = open_location(self._location)
        return self._reader

    def _missing(self) -> DataFileMissingError:
        return DataFileMissingError(
            f"{self.uri}, which holds a value of a blob column, does not exist. Restore it."
        )

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("read of closed file: take the blob again from the dataset")


def _check_buffer_size(size: object) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise OptionError(f"buffer_size: expected a number of bytes ≥ 0, found {size!r}")
    return size


def _reopen(
    store: ObjectStore,
    path: str,
    offset: int,
    size: int | None,
    own: bool,  # noqa: FBT001  # called by pickle, with positions only
    buffer_size: int,
    position: int,
    closed: bool,  # noqa: FBT001  # called by pickle, with positions only
) -> BlobFile:
    file = BlobFile(BlobLocation(store, path, offset, size, own), buffer_size)
    file.seek(position)
    if closed:
        file.close()
    return file
