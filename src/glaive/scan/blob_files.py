"""Read values of a blob column by row: as locations, files or bytes."""

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
from glaive.io.store import ObjectStore, RangeReader
from glaive.scan.blob_values import (
    BlobHome,
    BlobLocation,
    find_blob_file,
    open_location,
    read_locations,
)
from glaive.scan.take import RowLocations, find_rows
from glaive.scan.views import Views
from glaive.table.root import plain_store
from glaive.types import ByteRange


def select_rows(views: Views, **given: object) -> RowLocations:
    """Find the rows of a selection.

    Parameters
    ----------
    given
        Exactly one of ``ids``, ``addresses`` and ``indices``; the others may be ``None``.

    Raises
    ------
    OptionError
        Several selections are given, or all are missing.
    RowIndexError
        A row does not exist.
    """
    given_rows = [(name, value) for name, value in given.items() if value is not None]
    if len(given_rows) != 1:
        raise OptionError(
            "Exactly one of ids, indices, or addresses must be specified, found "
            f"{len(given_rows)} of them. Give one and leave out the others."
        )
    return find_rows(views.snapshot, *given_rows[0])


def locate_blobs(views: Views, column: str, rows: RowLocations) -> list[BlobLocation | None]:
    """Return the location of the value of each row; ``None`` for nulls.

    This reads only descriptions, fragment by fragment.

    Raises
    ------
    SchemaError
        The column is of another type than a blob column.
    ColumnNotFoundError
        The column does not exist.
    AccessError
        A value lies outside of the dataset and the locations that the caller allowed.
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
        bound.expect("random")
        (descriptions,) = bound.take(rows.row[at])
        home = BlobHome(views.snapshot, file, column)
        for row, location in zip(at.tolist(), home.locations(descriptions), strict=True):
            locations[row] = location
    return locations


def read_blob_ranges(
    locations: Sequence[BlobLocation | None], ranges: Sequence[tuple[int, int]]
) -> list[pa.Buffer | None]:
    """Read a range of each value; return ``None`` for nulls.

    Parameters
    ----------
    locations
        The locations of the values.
    ranges
        Offset and length of the range of each value, in bytes.

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
        # ``own=False``: the caller may read overlapping ranges of one value.
        wanted.append(
            BlobLocation(location.store, location.path, location.offset + offset, length, own=False,
                      shared=location.shared)
        )  # fmt: skip
    return read_locations(wanted)


# --- A value of a blob column as a file, which reads only the bytes needed --------------

DEFAULT_BLOB_BUFFER_SIZE = 512 << 10
"""The ``buffer_size`` of pylance. By default glaive chooses it by the location of the file."""


@refuse_members(REFUSED_MEMBERS)
class BlobFile(io.RawIOBase):
    """A blob value as a read-only, seekable binary file.

    ``dataset.take_blobs`` returns such files. A read fetches only the bytes requested, with one
    request. In a local file it copies them from the memory map; :meth:`view` returns a view of the
    map. A file can be pickled if its store can; it reopens at the same position. Use a file in one
    thread, as it has a position. Threads may share :meth:`read_range`.

    Parameters
    ----------
    location
        Location of the value.
    buffer_size
        Bytes to read ahead in sequential reads. 0 reads only the bytes requested. It is ignored for
        local files.
    """

    def __init__(self, location: BlobLocation, buffer_size: int = 0) -> None:
        super().__init__()
        self._location = location
        self._reader: RangeReader | None = location.shared
        self._position = 0
        self._buffer_size = _check_buffer_size(buffer_size)
        self._buffered = (0, pa.py_buffer(b""))

    def __repr__(self) -> str:
        return f"<BlobFile size={self.size()}>"

    def __reduce__(self) -> tuple[object, ...]:
        location = self._location
        # Only the store: options for other locations of the dataset, such as secrets, stay here.
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
        """The URI of the object that holds the value."""
        return self._location.store.full(self._location.path)

    def size(self) -> int:
        """Return the size of the value in bytes.

        A request is only needed if the value is a whole external object.

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
        """Return True."""
        return True

    def write(self, data: object, /) -> int:
        """Raise: blobs are read-only."""
        raise io.UnsupportedOperation("write")

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read. A read beyond the end returns ``b""``.

        Parameters
        ----------
        offset
            Bytes relative to ``whence``.
        whence
            ``io.SEEK_SET``, ``io.SEEK_CUR`` or ``io.SEEK_END``: the start, the current position
            or the end.
        """
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
        """Read ``size`` bytes, or fewer at the end.

        Parameters
        ----------
        size
            Number of bytes. By default, and if it is negative or ``None``, all remaining bytes.
        """
        self._check_open()
        remaining = max(0, self.size() - self._position)
        wanted = remaining if size is None or size < 0 else min(size, remaining)
        data = self._read_next(wanted).to_pybytes()
        self._position += wanted
        return data

    def readall(self) -> bytes:
        """Read all remaining bytes."""
        return self.read()

    def read1(self, size: int = -1) -> bytes:
        """Read ``size`` bytes; the same as :meth:`read`."""
        return self.read(size)

    def readinto(self, buffer: Any) -> int:
        """Read into a writable buffer and return the number of bytes.

        The number is smaller than the buffer only at the end of the value.
        """
        self._check_open()
        target = memoryview(buffer).cast("B")
        wanted = min(len(target), max(0, self.size() - self._position))
        if wanted:
            target[:wanted] = memoryview(self._read_next(wanted)).cast("B")
        self._position += wanted
        return wanted

    def readinto1(self, buffer: Any) -> int:
        """Read into a writable buffer; the same as :meth:`readinto`."""
        return self.readinto(buffer)

    def read_range(self, offset: int, length: int) -> bytes:
        """Read a range; the position of the file stays the same.

        Parameters
        ----------
        offset, length
            First byte and number of bytes.

        Raises
        ------
        OptionError
            The range goes beyond the value.
        """
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges; near ranges take one request. The position stays the same.

        Parameters
        ----------
        ranges
            Offset and length of each range in bytes.
        """
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
        """Return a view of a range; in a local file it stays valid after close.

        Parameters
        ----------
        offset
            First byte.
        length
            Number of bytes; by default, all bytes to the end.
        """
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
        """Close the file. Closing twice is allowed."""
        self._buffered = (0, pa.py_buffer(b""))
        self._reader = None
        super().close()

    # ------------------------------------------------------------------ bytes

    def _read_next(self, size: int) -> pa.Buffer:
        """Return the next ``size`` bytes, which the value must have."""
        if not size:
            return pa.py_buffer(b"")
        start, (first, buffered) = self._position, self._buffered
        if first <= start and start + size <= first + buffered.size:
            return buffered.slice(start - first, size)
        if size >= self._buffer_size or self._open().mapped:
            return self._fetch([ByteRange(start, size)])[0]
        more = min(self._buffer_size, self.size() - start)
        (buffered,) = self._fetch([ByteRange(start, more)])
        self._buffered = (start, buffered)
        return buffered.slice(0, size)

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
