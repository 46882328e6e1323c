"""The 2.x container: footer, offset tables, global buffers, column metadata.

Opening takes one request for the tail and, only if the metadata is larger, one more for the
rest of it. The metadata of a column is parsed on first use.

Specification: ``docs/format/container.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.footer import FileFooter
from glaive.format.pb import encodings21_pb2, file2_pb2, file_pb2
from glaive.format.wire import DecodeError, parse, unseal
from glaive.io.checksums import Expected, VerifyingReader, check
from glaive.io.store import RangeReader
from glaive.types import ByteRange, UInt64s, Where, as_array

if TYPE_CHECKING:
    from glaive.format.footer import FileChecksums


_TAIL_BYTES = 64 * 1024
"""Bytes of the first request; the metadata of a few hundred pages fits."""

_MAPPED_TAIL_BYTES = 4 * 1024
"""The same of a mapped file, where a further range is free."""

MAX_ROWS = 2**48
"""Maximum rows of a file: keeps sums and products of row numbers from wrapping around."""

_PAGE_LAYOUT = "lance.encodings21.PageLayout"
_PLANAR_LAYOUT = "lance.encodings23.PlanarLayout"
MAX_SINGLE_READ = 512 * 1024
"""Maximum bytes of metadata beyond the first request that are fetched at once."""

_PAIR = 16


def tail_bytes(reader: RangeReader) -> int:
    """Return the bytes at the end of a file to begin with."""
    return _MAPPED_TAIL_BYTES if reader.mapped else _TAIL_BYTES


class _End(NamedTuple):
    """The bytes of a file from ``start`` on; replaced as one, since threads share a container."""

    start: int
    data: pa.Buffer


class Container:
    """The metadata section of an opened file."""

    __slots__ = (
        "_base", "_columns", "_end", "_prepared", "checksums", "footer", "path", "reader",
    )  # fmt: skip

    def __init__(self, reader: RangeReader, tail: pa.Buffer | None = None) -> None:
        self.reader = reader
        self.path = reader.path
        tail = reader.tail(tail_bytes(reader)) if tail is None else tail
        size = reader.size
        self._end = _End(size - tail.size, tail)
        self.footer = FileFooter.parse(tail, size, where=self.path)
        self._base = size - FileFooter.SIZE
        self._columns: UInt64s | None = None
        self._prepared: dict[int, pa.Buffer] = {}
        self.checksums: FileChecksums | None = None
        if isinstance(reader, VerifyingReader):
            self.checksums = self._load_checksums(reader)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held: the end of the file, where it was fetched."""
        return 0 if self.reader.mapped else self._end.data.size

    # ------------------------------------------------------------------ metadata bytes

    def _bytes(self, offset: int, size: int, section: str) -> pa.Buffer:
        """Return the bytes of the metadata section; fetches the rest of it when necessary."""
        self._check_within(offset, size, section)
        end = self._end
        if offset < end.start and (self.reader.mapped or self._is_large(end)):
            return self.reader.read([ByteRange(offset, size)])[0]
        if offset < end.start:
            first = min(offset, self._first_metadata_byte(end))
            rest = self.reader.read([ByteRange(first, end.start - first)])[0]
            end = _End(first, pa.py_buffer(rest.to_pybytes() + end.data.to_pybytes()))
            self._end = end
        return end.data.slice(offset - end.start, size)

    def _is_large(self, end: _End) -> bool:
        """Return whether so much metadata is missing that only a part should be fetched."""
        return end.start - self._first_metadata_byte(end) > MAX_SINGLE_READ

    def prepare(self, columns: Sequence[int]) -> None:
        """Fetch the metadata of these columns with two requests, in a file of many columns.

        In other files all metadata is fetched with one request when any of it is needed.
        """
        footer = self.footer
        wanted = [column for column in columns if 0 <= column < footer.columns]
        end = self._end
        if end.start <= footer.metadata_start or not wanted or not self._is_large(end):
            return
        table = footer.column_table
        entries = self.reader.read([ByteRange(table + _PAIR * column, _PAIR) for column in wanted])
        ranges = [ByteRange(*struct.unpack("<QQ", entry)) for entry in entries]
        for column, pair in zip(wanted, ranges, strict=True):
            self._check_within(*pair, f"metadata of column {column}")
        self._check_apart(np.array([size for _, size in ranges], np.uint64))
        self._prepared.update(zip(wanted, self.reader.read(ranges), strict=True))

    def _first_metadata_byte(self, end: _End) -> int:
        """Return where the metadata begins: the schema, or else the first column metadata.

        The table of global buffers has the position of the schema; it is right before the footer
        and thus in memory.
        """
        footer = self.footer
        first = min(footer.metadata_start, footer.column_table, footer.global_table)
        at = footer.global_table - end.start
        if footer.global_buffers and 0 <= at <= end.data.size - _PAIR:
            (position,) = struct.unpack_from("<Q", end.data, at)
            first = min(position, first)
        return first

    # ------------------------------------------------------------------ contents

    def global_buffer(self, index: int) -> pa.Buffer:
        """Return the bytes of a global buffer; number 0 holds the schema."""
        footer = self.footer
        if not 0 <= index < footer.global_buffers:
            raise CorruptFileError(
                "global buffer",
                expected=f"a number below {footer.global_buffers}",
                found=f"{index}",
                where=self.path,
            )
        entry = self._bytes(footer.global_table + _PAIR * index, _PAIR, "global buffer table")
        position, size = struct.unpack("<QQ", entry)
        if position >= footer.metadata_start or position + size > self._base:
            self._check_within(position, size, f"global buffer {index}")
        if index == 0:
            schema = self._bytes(position, size, "schema")
            if isinstance(self.reader, VerifyingReader):
                self.reader.compare(ByteRange(position, size), schema)
            return schema
        self._check_within(position, size, f"global buffer {index}")
        return self.reader.read([ByteRange(position, size)])[0]

    def global_ranges(self) -> list[ByteRange]:
        """Return the ranges of the global buffers."""
        footer = self.footer
        table = self._bytes(
            footer.global_table, _PAIR * footer.global_buffers, "global buffer table"
        )
        return [ByteRange(*pair) for pair in struct.iter_unpack("<QQ", table)]

    def _check_within(self, position: int, size: int, section: str) -> None:
        if position < 0 or size < 0 or position + size > self._base:
            raise CorruptFileError(
                section,
                expected=f"bytes within 0..{self._base}",
                found=f"{size} bytes at {position}",
                where=self.path,
            )

    def _check_apart(self, sizes: UInt64s) -> None:
        """Refuse metadata that many columns share: each would take the memory of its pages."""
        total = sizes[sizes <= self._base].sum(dtype=np.float64)  # others are refused one by one
        if total > self._base:
            raise CorruptFileError(
                "metadata of all columns",
                expected=f"at most {self._base} bytes, as the file has",
                found=f"{int(total)}",
                where=self.path,
            )

    def descriptor(self) -> Any:
        """Return the file descriptor: schema and number of rows."""
        message = file_pb2.FileDescriptor()
        descriptor = parse(message, self.global_buffer(0), "schema", self.path)
        if not descriptor.HasField("schema"):  # zero bytes are a message, too
            found = f"fields {[field.number for field, _ in descriptor.ListFields()]}"
            raise CorruptFileError("schema", expected="a schema", found=found, where=self.path)
        if descriptor.length > MAX_ROWS:
            raise CorruptFileError(
                "rows of the file",
                expected=f"at most {MAX_ROWS}",
                found=str(descriptor.length),
                where=self.path,
            )
        return descriptor

    def column(self, index: int, name: str | None = None) -> Any:
        """Return the metadata message of one column, whose name is for messages."""
        footer = self.footer
        if not 0 <= index < footer.columns:
            raise CorruptFileError(
                "column index",
                expected=f"a number below {footer.columns} (the columns in the file)",
                found=f"{index}",
                where=self.path,
            )
        raw = self._prepared.pop(index, None)
        if raw is None:
            if self._columns is None:
                table = self._bytes(footer.column_table, _PAIR * footer.columns, "column table")
                self._columns = as_array(table, "<u8").reshape(-1, 2)
                self._check_apart(self._columns[:, 1])
            position, size = self._columns[index].tolist()
            raw = self._bytes(position, size, f"metadata of column {index}")
        where = Where(self.path, index, name)
        message = parse(file2_pb2.ColumnMetadata(), raw, "column metadata", where)
        if self.checksums is not None and isinstance(self.reader, VerifyingReader):
            self.reader.expect(self._buffer_checksums(self.checksums, index, message, where))
        return message

    # ------------------------------------------------------------------ checksums

    def _load_checksums(self, reader: VerifyingReader) -> FileChecksums | None:
        """Return the checksums of the file, if they exist and are in memory.

        With ``always``, read them whatever that takes; all metadata is compared then.
        """
        from glaive.format.footer import TRAILER, FileChecksums

        footer, end = self.footer, self._end
        before = footer.metadata_start - TRAILER < end.start
        if not reader.always and before and self._is_large(end):
            return None
        place = self.checksums_range()
        if place is None:
            return None
        raw = self._bytes(*place, "checksums")
        checksums = FileChecksums.parse(raw, footer.columns, where=self.path)
        if checksums is None:
            return None
        start, end = footer.metadata_start, self._end
        size = self._base + FileFooter.SIZE - start
        metadata = (
            end.data.slice(start - end.start)
            if start >= end.start
            else reader.read([ByteRange(start, size)])[0]
        )
        check(Expected(checksums.metadata, "metadata of a file", Where(self.path)), metadata)
        ranges = self.global_ranges()[:-1]
        if len(ranges) != len(checksums.global_buffers):
            raise CorruptFileError(
                "checksums of global buffers",
                expected=f"{len(ranges)}",
                found=f"{len(checksums.global_buffers)}",
                where=self.path,
            )
        reader.expect(
            (pair, Expected(number, f"global buffer {at}", Where(self.path)))
            for at, (pair, number) in enumerate(
                zip(ranges, checksums.global_buffers.tolist(), strict=True)
            )
        )
        return checksums

    def checksums_range(self) -> ByteRange | None:
        """Return the range of the checksums; ``None`` if the file lacks them.

        They end where the metadata of the first column begins. The footer and the table of columns
        state this position; the table of global buffers has the same range. If only some of these
        lead to checksums, the others are damaged, and the checksum of the metadata reports that.
        If all fail although the last global buffer has the place and size of checksums, the
        checksums are damaged. The range is then the table's, and the end of the checksums is
        invalid. Other buffers end earlier, since the schema is written after all others.
        """
        from glaive.format.footer import TRAILER, has_size, trailing_size

        footer = self.footer
        start, last = footer.metadata_start, ByteRange(0, 0)
        ends = [start]
        if footer.global_buffers > 1:
            at = footer.global_table + _PAIR * (footer.global_buffers - 1)
            entry = self._bytes(at, _PAIR, "global buffer table")
            last = ByteRange(*struct.unpack("<QQ", entry))
            first = start
            if footer.columns:
                entry = self._bytes(footer.column_table, _PAIR, "column table")
                first, _ = struct.unpack("<QQ", entry)
            ends += {last.end, first} - {start}
        for end in ends:
            if TRAILER <= end <= self._base:
                size = trailing_size(self._bytes(end - TRAILER, TRAILER, "checksums").to_pybytes())
                if size is not None and TRAILER <= size <= end:
                    return ByteRange(end - size, size)
        if last.end == start and has_size(last.size, footer.columns, footer.global_buffers - 1):
            return last
        return None

    def _buffer_checksums(
        self, checksums: FileChecksums, index: int, message: Any, where: Where
    ) -> list[tuple[ByteRange, Expected]]:
        """Return the ranges of a column's buffers with their checksums."""
        numbers = checksums.of_column(index)
        pages = [
            list(zip(page.buffer_offsets, page.buffer_sizes, strict=False))
            for page in message.pages
        ]
        if sum(map(len, pages)) != len(numbers):
            raise CorruptFileError(
                "checksums of a column",
                expected=f"{sum(map(len, pages))}, as many as its buffers",
                found=f"{len(numbers)}",
                where=where,
            )
        number = iter(numbers)
        return [
            (
                ByteRange(*pair),
                Expected(next(number), f"page buffer {at}", replace(where, page=page)),
            )
            for page, pairs in enumerate(pages)
            for at, pair in enumerate(pairs)
        ]

    def page_layout(self, encoding: Any, where: Where) -> Any:
        """Return the layout message of a page (from 2.1 on)."""
        return parse_page_layout(self.page_encoding(encoding, where), where)

    def page_encoding(self, encoding: Any, where: Where) -> bytes:
        """Return the bytes of a page's encoding, which include the type of the message."""
        location = encoding.WhichOneof("location")
        if location != "direct":
            raise UnsupportedFeatureError(
                f"page encoding is stored {location or 'nowhere'} (in {where}); only direct "
                "encodings are supported. The file was probably written by a newer Lance."
            )
        raw: bytes = encoding.direct.encoding
        return raw


@lru_cache(maxsize=1024)
def _layout(raw: bytes) -> Any:
    """Parse an Any with a page layout; pages of many files share these bytes."""
    name, message = unseal(raw)
    if name == _PAGE_LAYOUT:
        return encodings21_pb2.PageLayout.FromString(message)
    if name == _PLANAR_LAYOUT:
        from glaive.format.pb import encodings23_pb2

        return encodings23_pb2.PlanarLayout.FromString(message)
    return name


def parse_page_layout(raw: bytes, where: Where) -> Any:
    """Parse the bytes of a page's encoding into its ``PageLayout`` or ``PlanarLayout``."""
    try:
        layout = _layout(raw)
    except DecodeError as error:
        raise CorruptFileError(
            "page encoding", expected="a protobuf message", found=str(error), where=where
        ) from None
    if isinstance(layout, str):
        raise UnsupportedFeatureError(
            f"unknown page encoding {layout!r} (in {where}); this reader knows {_PAGE_LAYOUT} "
            f"and {_PLANAR_LAYOUT}. "
            "The file was written in a format version that glaive does not read yet."
        )
    return layout
