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
from typing import ClassVar, Final, Self

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, NotLanceError, UnsupportedFeatureError

__all__ = [
    "MAGIC",
    "FileFooter",
    "LegacyFooter",
    "ManifestFooter",
    "file_version",
]

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
    """Major and minor version in the last bytes of a data file of any format.

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
            The version is not supported.
        CorruptFileError
            The tables are not within the file, before the footer.
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
        """The 40 bytes of the footer."""
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
        """The 16 bytes of the footer."""
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
    """The numbers before the magic bytes; a file of this kind has at least ``need`` bytes."""
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
