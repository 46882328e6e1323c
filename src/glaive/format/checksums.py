"""The checksums of a data file: the last global buffer, right before the column metadata.

======================= ====================================================================
bytes                   content
======================= ====================================================================
4, 4, 4                 ``u32`` version (1), number of columns, number of global buffers
                        before this one
8                       ``u64`` checksum of all bytes from the column metadata to the end
4 × columns             ``u32`` buffers of all pages of each column
8 × global buffers      ``u64`` checksum of each
8 × buffers             ``u64`` checksum of each buffer of a page: column by column, page by page
8                       ``u64`` checksum of all bytes above
4, 4                    ``u32`` size of all this in bytes, ``GLXX``
======================= ====================================================================

Specification: "Checksums" in ``docs/format/container.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.io.checksums import Expected, check
from glaive.types import Where

__all__ = ["TRAILER", "FileChecksums", "checksums_size", "has_size", "trailing_size"]

MAGIC: Final = b"GLXX"
TRAILER: Final = 8
"""Bytes at the end: the size, and the magic."""

_VERSION: Final = 1
_HEAD: Final = struct.Struct("<IIIQ")
_END: Final = struct.Struct("<QI4s")
_TRAILER: Final = struct.Struct("<I4s")


def checksums_size(columns: int, global_buffers: int, buffers: int) -> int:
    """Bytes that checksums of so many columns and buffers take."""
    return _HEAD.size + 4 * columns + 8 * (global_buffers + buffers) + _END.size


def trailing_size(before: Any) -> int | None:
    """The size of the checksums that end with these eight bytes; None if there are none."""
    if len(before) != TRAILER:
        return None
    size, magic = _TRAILER.unpack(before)
    return size if magic == MAGIC else None


def has_size(size: int, columns: int, global_buffers: int) -> bool:
    """Whether checksums of so many columns and global buffers may take so many bytes.

    It depends on the number of buffers of their pages.
    """
    beyond = size - checksums_size(columns, global_buffers, 0)
    return beyond >= 0 and beyond % 8 == 0


@dataclass(frozen=True, slots=True)
class FileChecksums:
    """The checksums of a file.

    Parameters
    ----------
    metadata
        Of all bytes from the column metadata to the end of the file.
    global_buffers
        Of each global buffer before this one; uint64.
    starts
        Buffers of all columns before each column, and their total; int64.
    buffers
        Of each buffer of a page, column by column; uint64.
    """

    metadata: int
    global_buffers: NDArray[np.uint64]
    starts: NDArray[np.int64]
    buffers: NDArray[np.uint64]

    @staticmethod
    def build(
        metadata: int, global_buffers: Sequence[int], columns: Sequence[Sequence[int]], own: Any
    ) -> bytes:
        """The bytes; ``own`` is the function that returns a checksum."""
        counts = [len(column) for column in columns]
        plain = [number for column in columns for number in column]
        size = checksums_size(len(columns), len(global_buffers), len(plain))
        content = (
            _HEAD.pack(_VERSION, len(columns), len(global_buffers), metadata)
            + struct.pack(f"<{len(counts)}I", *counts)
            + struct.pack(f"<{len(global_buffers)}Q", *global_buffers)
            + struct.pack(f"<{len(plain)}Q", *plain)
        )
        return content + _END.pack(own(content), size, MAGIC)

    @classmethod
    def parse(cls, raw: Any, columns: int, *, where: str) -> Self | None:
        """Read the checksums of a file of so many columns; None for those of another version.

        Raises
        ------
        CorruptFileError
            They are damaged.
        """
        data = memoryview(raw)
        least = _HEAD.size + _END.size
        if len(data) < least:
            raise _damaged(f"at least {least} bytes", f"{len(data)}", where)
        version, count, globals_, metadata = _HEAD.unpack_from(data)
        own, size, magic = _END.unpack_from(data, len(data) - _END.size)
        if magic != MAGIC or size != len(data):
            raise _damaged(
                f"{len(data)} bytes that end with {MAGIC!r}", f"{size}, {magic!r}", where
            )
        check(Expected(own, "checksums of a file", Where(where)), data[: len(data) - _END.size])
        if version != _VERSION:
            return None
        room = len(data) - least
        if count != columns or 4 * count > room or 8 * globals_ > room - 4 * count:
            raise _damaged(f"those of {columns} columns", f"{count}", where)
        at = _HEAD.size
        counts = np.frombuffer(data, "<u4", count, at)
        at += 4 * count
        numbers = np.frombuffer(data[at : len(data) - _END.size], "<u8")
        starts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        if len(numbers) - globals_ != int(starts[-1]):
            raise _damaged(f"{int(starts[-1])} of buffers", f"{len(numbers) - globals_}", where)
        return cls(metadata, numbers[:globals_], starts, numbers[globals_:])

    def of_column(self, column: int) -> list[int]:
        """Those of the buffers of a column."""
        found: list[int] = self.buffers[self.starts[column] : self.starts[column + 1]].tolist()
        return found


def _damaged(expected: str, found: str, where: str) -> CorruptFileError:
    return CorruptFileError("checksums of a file", expected=expected, found=found, where=where)
