"""The end of a 2.x file: column metadata, tables, footer; and the checksums before it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain

from glaive.format.checksums import FileChecksums, checksums_size
from glaive.format.footer import FileFooter
from glaive.io.sink import AlignedSink
from glaive.io.store import BytesLike
from glaive.types import ByteRange

__all__ = ["ChecksumsOf", "write_metadata"]


class ChecksumsOf:
    """The checksums of a file being written: of its global buffers but the schema, and its pages.

    Parameters
    ----------
    columns
        Number of columns.
    function
        The checksum of some bytes.
    """

    def __init__(self, columns: int, function: Callable[[BytesLike], int]) -> None:
        self.function = function
        self._global: list[int] = []
        self._columns: list[list[int]] = [[] for _ in range(columns)]

    def add_page(self, column: int, buffers: Sequence[BytesLike | tuple[BytesLike, ...]]) -> None:
        """Append the buffers of the next page of a column, some of them in parts."""
        whole = (b"".join(each) if isinstance(each, tuple) else each for each in buffers)
        self._columns[column] += map(self.function, whole)

    def add_global(self, data: BytesLike) -> None:
        """Append a global buffer that comes after the schema."""
        self._global.append(self.function(data))

    def size(self) -> int:
        """Bytes that they take in the file."""
        return checksums_size(
            len(self._columns), 1 + len(self._global), sum(map(len, self._columns))
        )

    def build(self, schema: bytes, metadata: bytes) -> bytes:
        """The bytes of the file: with those of the schema, and of all that comes after them."""
        function = self.function
        every = [function(schema), *self._global]
        return FileChecksums.build(function(metadata), every, self._columns, function)


def write_metadata(
    sink: AlignedSink,
    schema: bytes,
    global_ranges: Sequence[ByteRange],
    columns: Sequence[bytes],
    version: tuple[int, int],
    checksums: ChecksumsOf | None,
) -> None:
    """Write the schema and all that comes after it.

    Parameters
    ----------
    global_ranges
        Where the other global buffers are.
    columns
        The metadata of each column.
    version
        Major and minor version in the footer.
    """
    ranges = [*sink.write_aligned([schema]), *global_ranges]
    if checksums is None:
        sink.write(_metadata(columns, ranges, sink.position, version))
        return
    own = ByteRange(sink.pad(), checksums.size())
    metadata = b"".join(_metadata(columns, [*ranges, own], own.end, version))
    sink.write([checksums.build(schema, metadata), metadata])


def _metadata(
    columns: Sequence[bytes],
    global_ranges: Sequence[ByteRange],
    start: int,
    version: tuple[int, int],
) -> list[bytes]:
    """All bytes from the column metadata on, which begins at ``start``."""
    table, at = [], start
    for raw in columns:
        table += [at, len(raw)]
        at += len(raw)
    column_table = _numbers(table)
    footer = FileFooter(
        metadata_start=start,
        column_table=at,
        global_table=at + len(column_table),
        global_buffers=len(global_ranges),
        columns=len(columns),
        major=version[0],
        minor=version[1],
    )
    return [*columns, column_table, _numbers([*chain(*global_ranges)]), footer.build()]


def _numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)
