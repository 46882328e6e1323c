"""Checksums of many small files in one buffer, compared where they came over a network.

A step per file and buffer: each was fetched with a request of its own, which costs far more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from glaive.errors import CorruptFileError
from glaive.file.v2.bulk_reads import BulkReadError
from glaive.format.checksums import TRAILER, FileChecksums, trailing_size
from glaive.io.checksums import Expected, check
from glaive.types import ByteRange, Int64s, Where

__all__ = ["compare_pages", "small_checksums"]

_WHERE = Where("small files")


class _Page(Protocol):
    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        """The buffers of the page."""


def small_checksums(
    data: pa.Buffer, bases: Int64s, sizes: Sequence[int], footers: Any
) -> list[FileChecksums | None]:
    """The checksums of files of some ``sizes`` that begin at ``bases``; None where there are none.

    Raises
    ------
    BulkReadError
        Those of the metadata differ, or there may be some that are damaged.
    """
    found: list[FileChecksums | None] = []
    parts = (footers[part].tolist() for part in ("metadata", "columns", "buffers"))
    for base, whole, start, count, buffers in zip(bases.tolist(), sizes, *parts, strict=True):
        at = base + start
        before = data.slice(at - TRAILER, TRAILER).to_pybytes() if start >= TRAILER else b""
        size = trailing_size(before)
        if size is None or size > start:
            if buffers > 1:  # the schema is one of them, and perhaps damaged checksums are
                raise BulkReadError("a file has more than a schema and pages")
            found.append(None)
            continue
        try:
            checksums = FileChecksums.parse(data.slice(at - size, size), count, where=_WHERE.path)
            if checksums is not None:
                metadata = data.slice(at, whole - start)
                check(Expected(checksums.metadata, "metadata of a file", _WHERE), metadata)
        except CorruptFileError as damage:
            raise BulkReadError("a checksum differs") from damage
        found.append(checksums)
    return found


def compare_pages(
    data: pa.Buffer,
    bases: Int64s,
    checksums: Sequence[FileChecksums | None],
    column: int,
    pages: Sequence[_Page],
    which: Sequence[int],
) -> None:
    """Compare the buffers of a column, which has one page in each file.

    Raises
    ------
    BulkReadError
        Some differ.
    """
    for base, own, number in zip(bases.tolist(), checksums, which, strict=True):
        if own is None:
            continue
        ranges, expected = pages[number].ranges, own.of_column(column)
        if len(expected) != len(ranges):
            raise BulkReadError("a checksum differs")
        try:
            for (offset, size), checksum in zip(ranges, expected, strict=True):
                buffer = data.slice(base + offset, size)
                check(Expected(checksum, "page buffer", _WHERE), buffer)
        except CorruptFileError as damage:
            raise BulkReadError("a checksum differs") from damage
