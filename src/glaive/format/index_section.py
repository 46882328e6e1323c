"""The index section of a manifest: one entry per segment of an index.

Specification: "Segments" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from glaive.errors import CorruptFileError
from glaive.format.pb import table_pb2
from glaive.format.wire import check_file_name, parse, parse_bitmap

if TYPE_CHECKING:
    from pyroaring import BitMap


_Folder: TypeAlias = tuple[str, bytes, int | None]

_UUID_BYTES: Final = 16
_LAST_MOMENT: Final = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970: the maximum of ``datetime``."""
_MAX_COVERED: Final = 1 << 22
"""Limit of the total coverage of all segments: a bitmap of a few bytes can stand for billions."""


def decode_index_section(data: bytes, where: object) -> list[table_pb2.IndexMetadata]:
    """The entries of a section, in order, checked.

    Raises
    ------
    CorruptFileError
        The section cannot be parsed, or as for :func:`check_entries`.
    """
    section = parse(table_pb2.IndexSection(), data, "index section", where)
    check_entries(section.indices, where)
    return list(section.indices)


def check_entries(entries: Sequence[table_pb2.IndexMetadata], where: object) -> None:
    """Check the entries of segments that a version has at one time.

    Raises
    ------
    CorruptFileError
        As for :func:`check_entry` and :func:`check_covered`.
    """
    for entry in entries:
        check_entry(entry, where)
    check_covered(entries, where)


def check_covered(entries: Sequence[table_pb2.IndexMetadata], where: object) -> None:
    """Check how many fragments the segments of a version cover.

    Raises
    ------
    CorruptFileError
        They are more than 2^22 in total, or as for :func:`count_covered`.
    """
    covered = sum(count_covered(entry, where) for entry in entries)
    if covered > _MAX_COVERED:
        raise CorruptFileError(
            "fragments covered by all segments of indices",
            expected=f"at most {_MAX_COVERED}",
            found=f"{covered}",
            where=where,
        )


def count_covered(entry: table_pb2.IndexMetadata, where: object) -> int:
    """Number of fragments that a segment covers, 0 if unknown; see :func:`open_coverage`."""
    return len(open_coverage(entry, where)) if entry.fragment_bitmap else 0


def open_coverage(entry: table_pb2.IndexMetadata, where: object) -> BitMap:
    """The bitmap of the fragments that a segment covers.

    Raises
    ------
    CorruptFileError
        It cannot be read.
    """
    return parse_bitmap(entry.fragment_bitmap, f"fragments of index {entry.name!r}", where)


def check_entry(entry: table_pb2.IndexMetadata, where: object) -> None:
    """Check the entry of a segment.

    Raises
    ------
    CorruptFileError
        Its uuid, a path of a file, its version or its time is invalid.
    """
    check_uuid(entry.uuid, f"uuid of index {entry.name!r}", where)
    if entry.index_version < 0:
        raise CorruptFileError(
            f"version of index {entry.name!r}",
            expected="0 or more",
            found=f"{entry.index_version}",
            where=where,
        )
    if entry.created_at > _LAST_MOMENT:
        raise CorruptFileError(
            f"time at which index {entry.name!r} was built",
            expected=f"at most {_LAST_MOMENT} milliseconds since 1970",
            found=f"{entry.created_at}",
            where=where,
        )
    for file in entry.files:
        check_file_name(file.path, f"path of a file of index {entry.name!r}", where)


def with_own_folders(
    entries: Sequence[table_pb2.IndexMetadata],
) -> Sequence[table_pb2.IndexMetadata]:
    """The entries but those that name one folder as segments of one index, and differ.

    Which of them has the rows of the files there is not known.
    """
    first: dict[_Folder, table_pb2.IndexMetadata] = {}
    shared: set[_Folder] = set()
    for entry in entries:
        folder = _folder_of(entry)
        known = first.setdefault(folder, entry)
        if known is not entry and known != entry:
            shared.add(folder)
    return [entry for entry in entries if _folder_of(entry) not in shared] if shared else entries


def contents_of(entry: table_pb2.IndexMetadata) -> bytes:
    """What an entry says of what the files of its segment are, beside their place.

    Entries of two datasets may name one segment, and one of them may be damaged.
    """
    stated = repr((entry.index_version, [file.path for file in entry.files]))
    return stated.encode() + entry.index_details.value


def _folder_of(entry: table_pb2.IndexMetadata) -> _Folder:
    """What index a folder is of, and where it is; below another base path it is another one."""
    base = entry.base_id if entry.HasField("base_id") else None
    return entry.name, entry.uuid.uuid, base


def check_uuid(uuid: table_pb2.UUID, subject: str, where: object) -> None:
    """Check the length of a uuid.

    Raises
    ------
    CorruptFileError
        It is missing or has another length.
    """
    if len(uuid.uuid) != _UUID_BYTES:
        raise CorruptFileError(
            subject, expected=f"{_UUID_BYTES} bytes", found=f"{len(uuid.uuid)}", where=where
        )
