"""The index section of a manifest: one entry per segment of an index.

Specification: "Segments" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import Final

from glaive.errors import CorruptFileError
from glaive.format.limits import check_file_name
from glaive.format.pb import table_pb2
from glaive.format.wire import parse

__all__ = ["check_entry", "check_uuid", "decode_index_section"]

_UUID_BYTES: Final = 16
_LAST_MOMENT: Final = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970: no later time can be shown."""


def decode_index_section(data: bytes, where: object) -> list[table_pb2.IndexMetadata]:
    """The entries of a section, in order, checked.

    Raises
    ------
    CorruptFileError
        The section cannot be parsed, or as :func:`check_entry`.
    """
    section = parse(table_pb2.IndexSection(), data, "index section", where)
    for entry in section.indices:
        check_entry(entry, where)
    return list(section.indices)


def check_entry(entry: table_pb2.IndexMetadata, where: object) -> None:
    """Make sure that what an entry says of a segment can be.

    Raises
    ------
    CorruptFileError
        Its uuid, which names its folder, is none; a file leads elsewhere; or its time cannot be.
    """
    check_uuid(entry.uuid, f"uuid of index {entry.name!r}", where)
    if entry.created_at > _LAST_MOMENT:
        raise CorruptFileError(
            f"time at which index {entry.name!r} was built",
            expected=f"at most {_LAST_MOMENT} milliseconds since 1970",
            found=f"{entry.created_at}",
            where=where,
        )
    for file in entry.files:
        check_file_name(file.path, f"path of a file of index {entry.name!r}", where)


def check_uuid(uuid: table_pb2.UUID, what: str, where: object) -> None:
    """Make sure that a uuid has the bytes of one.

    Raises
    ------
    CorruptFileError
        It has more or fewer, or is not there.
    """
    if len(uuid.uuid) != _UUID_BYTES:
        raise CorruptFileError(
            what, expected=f"{_UUID_BYTES} bytes", found=f"{len(uuid.uuid)}", where=where
        )
