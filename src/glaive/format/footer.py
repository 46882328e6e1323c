"""Footers: the last bytes of a file, with the offsets of its parts and its version.

======== ======= ====================================================================
file     bytes   content
======== ======= ====================================================================
2.x      40      ``u64`` start of column metadata, ``u64`` start of the table of column
                 metadata, ``u64`` start of the table of global buffers, ``u32`` global
                 buffers, ``u32`` columns, ``u16`` major, ``u16`` minor, ``LANC``
0.1      16      ``u64`` start of the metadata, ``u16`` major, ``u16`` minor, ``LANC``
manifest 16      ``u64`` start of the manifest, ``u16`` major, ``u16`` minor, ``LANC``
======== ======= ====================================================================

Specification: "Footer" and "Manifest file" in ``docs/format``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, NotLanceError, UnsupportedFeatureError
from glaive.io.checksums import Expected, check
from glaive.types import Where

MAGIC: Final = b"LANC"

_FILE: Final = struct.Struct("<QQQIIHH4s")
_SHORT: Final = struct.Struct("<QHH4s")
_VERSION: Final = struct.Struct("<HH4s")
_PAIR: Final = 16
"""Bytes of one (position, size) pair in the offset tables."""

_FILE_VERSIONS: Final = frozenset({(0, 3), (2, 0), (2, 1), (2, 2), (2, 3)})
_LEGACY_VERSIONS: Final = frozenset({(0, 0), (0, 1), (0, 2)})
_MANIFEST_VERSIONS: Final = frozenset({(0, 0), (0, 1), (0, 2)})


def file_version(tail: pa.Buffer, size: int, *, where: object) -> tuple[int, int]:
    """Return the major and minor version in the last bytes of a data file of any format.

    Raises
    ------
    NotLanceError
        The file is too short or does not end in ``LANC``.
    """
    major, minor = _unpacked(_VERSION, tail, size, LegacyFooter.SIZE, where, "file")
    return major, minor


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFooter:
    """Footer of a 2.x data file; positions are absolute, in bytes.

    Parameters
    ----------
    metadata_start
        Position of the first column's metadata.
    column_table
        Position of the table of column metadata: one (position, size) pair per column.
    global_table
        Position of the table of global buffers: one (position, size) pair each.
    global_buffers, columns
        Number of entries of the two tables.
    major, minor
        Version in the footer; (0, 3) for format 2.0.
    """

    SIZE: ClassVar[int] = _FILE.size

    metadata_start: int
    column_table: int
    global_table: int
    global_buffers: int
    columns: int
    major: int
    minor: int

    @classmethod
    def parse(cls, tail: pa.Buffer, size: int, *, where: object) -> FileFooter:
        """Read the footer from the last bytes of a file of ``size`` bytes.

        Raises
        ------
        NotLanceError
            The file is too short or does not end in ``LANC``.
        UnsupportedFeatureError
            The version is unsupported.
        CorruptFileError
            The tables extend beyond the file or into the footer.
        """
        start, column_table, global_table, buffers, columns, major, minor = _unpacked(
            _FILE, tail, size, cls.SIZE, where, "file"
        )
        if (major, minor) in _LEGACY_VERSIONS:
            raise UnsupportedFeatureError(
                f"{where} is a file of format 0.1 (footer {major}.{minor}), which has another "
                "footer. Open it through its dataset."
            )
        if (major, minor) not in _FILE_VERSIONS:
            raise UnsupportedFeatureError(
                f"{where} has file version {major}.{minor}; this reader supports 2.0 to 2.3. "
                "The file was probably written by a newer Lance: upgrade glaive."
            )
        end = size - cls.SIZE
        if not (
            start <= column_table <= end
            and column_table + columns * _PAIR <= end
            and global_table + buffers * _PAIR <= end
        ):
            raise CorruptFileError(
                "footer",
                expected=f"tables of {columns} columns and {buffers} global buffers within "
                f"the {end} bytes before it",
                found=f"column metadata at {start}, tables at {column_table} and {global_table}",
                where=where,
            )
        return cls(
            metadata_start=start,
            column_table=column_table,
            global_table=global_table,
            global_buffers=buffers,
            columns=columns,
            major=major,
            minor=minor,
        )

    def build(self) -> bytes:
        """Return the 40 bytes of the footer."""
        return _FILE.pack(
            self.metadata_start,
            self.column_table,
            self.global_table,
            self.global_buffers,
            self.columns,
            self.major,
            self.minor,
            MAGIC,
        )


@dataclass(frozen=True, slots=True)
class _ShortFooter:
    """A footer with only the position of the metadata."""

    SIZE: ClassVar[int] = _SHORT.size
    KIND: ClassVar[str]

    position: int
    major: int = 0
    minor: int = 2

    @classmethod
    def parse(cls, tail: pa.Buffer, size: int, *, where: object) -> Self:
        """Read the footer from the last bytes; errors as for :meth:`FileFooter.parse`."""
        position, major, minor = _unpacked(_SHORT, tail, size, cls.SIZE, where, cls.KIND)
        cls._check_version(major, minor, where)
        if position + 4 > size - cls.SIZE:
            raise CorruptFileError(
                f"position of the metadata of a {cls.KIND}",
                expected=f"at most {size - cls.SIZE - 4} bytes",
                found=f"{position}",
                where=where,
            )
        return cls(position, major, minor)

    @classmethod
    def _check_version(cls, major: int, minor: int, where: object) -> None:
        """Check the version; data files are dispatched by version before."""

    def build(self) -> bytes:
        """Return the 16 bytes of the footer."""
        return _SHORT.pack(self.position, self.major, self.minor, MAGIC)


@dataclass(frozen=True, slots=True)
class LegacyFooter(_ShortFooter):
    """Footer of a 0.1 data file: position of the metadata message's length, in bytes."""

    KIND: ClassVar[str] = "file"


@dataclass(frozen=True, slots=True)
class ManifestFooter(_ShortFooter):
    """Footer of a manifest file: position of the manifest message's length, in bytes."""

    KIND: ClassVar[str] = "manifest"

    @classmethod
    def _check_version(cls, major: int, minor: int, where: object) -> None:
        if (major, minor) not in _MANIFEST_VERSIONS:
            raise UnsupportedFeatureError(
                f"{where} has manifest version {major}.{minor}; this reader supports 0.1 and 0.2. "
                "The dataset was probably written by a newer Lance: upgrade glaive."
            )


def _unpacked(
    layout: struct.Struct, tail: pa.Buffer, size: int, need: int, where: object, kind: str
) -> list[int]:
    """Return the numbers before the magic bytes; such a file has at least ``need`` bytes."""
    if tail.size >= layout.size and size >= need:
        *numbers, magic = layout.unpack_from(tail, tail.size - layout.size)
        if magic == MAGIC:
            return numbers
    last = tail.slice(max(0, tail.size - 4)).to_pybytes()
    if size < need:
        reason = f"it has {size} bytes, the footer alone takes {need}"
    else:
        reason = f"expected {MAGIC!r} as the last 4 bytes, found {last!r}"
    raise NotLanceError(
        f"{where} is not a Lance {kind}: {reason}. It is another kind of file, or was truncated "
        "while it was written or copied."
    )


# --- The checksums of a data file: the last global buffer, right before the column metadata
#
# ======================= ====================================================================
# bytes                   content
# ======================= ====================================================================
# 4, 4, 4                 ``u32`` version (1), number of columns, number of global buffers
#                         before this one
# 8                       ``u64`` checksum of all bytes from the column metadata to the end
# 4 × columns             ``u32`` buffers of all pages of each column
# 8 × global buffers      ``u64`` checksum of each
# 8 × buffers             ``u64`` checksum of each buffer of a page: column by column, page by page
# 8                       ``u64`` checksum of all bytes above
# 4, 4                    ``u32`` size of all this in bytes, ``GLXX``
# ======================= ====================================================================
#
# Specification: "Checksums" in ``docs/format/container.md``.

CHECKSUMS_MAGIC: Final = b"GLXX"
TRAILER: Final = 8
"""Bytes at the end: the size, and the magic."""

_CHECKSUMS_VERSION: Final = 1
_HEAD: Final = struct.Struct("<IIIQ")
_END: Final = struct.Struct("<QI4s")
_TRAILER: Final = struct.Struct("<I4s")


def checksums_size(columns: int, global_buffers: int, buffers: int) -> int:
    """Return the bytes that checksums of so many columns and buffers take."""
    return _HEAD.size + 4 * columns + 8 * (global_buffers + buffers) + _END.size


def trailing_size(before: Any) -> int | None:
    """Return the size of the checksums that end with these eight bytes, or ``None``."""
    if len(before) != TRAILER:
        return None
    size, magic = _TRAILER.unpack(before)
    return size if magic == CHECKSUMS_MAGIC else None


def has_size(size: int, columns: int, global_buffers: int) -> bool:
    """Return whether checksums of so many columns and global buffers may take so many bytes.

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
        """Return the bytes; ``own`` is the function that returns a checksum."""
        counts = [len(column) for column in columns]
        plain = [number for column in columns for number in column]
        size = checksums_size(len(columns), len(global_buffers), len(plain))
        content = (
            _HEAD.pack(_CHECKSUMS_VERSION, len(columns), len(global_buffers), metadata)
            + struct.pack(f"<{len(counts)}I", *counts)
            + struct.pack(f"<{len(global_buffers)}Q", *global_buffers)
            + struct.pack(f"<{len(plain)}Q", *plain)
        )
        return content + _END.pack(own(content), size, CHECKSUMS_MAGIC)

    @classmethod
    def parse(cls, raw: Any, columns: int, *, where: str) -> Self | None:
        """Read the checksums of a file of so many columns; ``None`` if of another version.

        Raises
        ------
        CorruptFileError
            They are damaged.
        """
        data = memoryview(raw)
        minimum = _HEAD.size + _END.size
        if len(data) < minimum:
            raise _damaged(f"at least {minimum} bytes", f"{len(data)}", where)
        version, count, globals_, metadata = _HEAD.unpack_from(data)
        own, size, magic = _END.unpack_from(data, len(data) - _END.size)
        if magic != CHECKSUMS_MAGIC or size != len(data):
            raise _damaged(
                f"{len(data)} bytes that end with {CHECKSUMS_MAGIC!r}", f"{size}, {magic!r}", where
            )
        check(Expected(own, "checksums of a file", Where(where)), data[: len(data) - _END.size])
        if version != _CHECKSUMS_VERSION:
            return None
        available = len(data) - minimum
        if count != columns or 4 * count > available or 8 * globals_ > available - 4 * count:
            raise _damaged(f"checksums of {columns} columns", f"{count}", where)
        at = _HEAD.size
        counts = np.frombuffer(data, "<u4", count, at)
        at += 4 * count
        numbers = np.frombuffer(data[at : len(data) - _END.size], "<u8")
        starts = np.concatenate(([0], counts.cumsum(dtype=np.int64)))
        if len(numbers) - globals_ != int(starts[-1]):
            raise _damaged(f"{int(starts[-1])} of buffers", f"{len(numbers) - globals_}", where)
        return cls(metadata, numbers[:globals_], starts, numbers[globals_:])

    def of_column(self, column: int) -> list[int]:
        """Return the checksums of the buffers of a column."""
        found: list[int] = self.buffers[self.starts[column] : self.starts[column + 1]].tolist()
        return found


def _damaged(expected: str, found: str, where: str) -> CorruptFileError:
    return CorruptFileError("checksums of a file", expected=expected, found=found, where=where)
