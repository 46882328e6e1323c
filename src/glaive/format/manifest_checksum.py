"""The checksums of a manifest: 20 bytes between its sections and the message.

======================= ====================================================================
bytes                   content
======================= ====================================================================
8                       ``u64`` xxh3 of all bytes before these 20
8                       ``u64`` xxh3 of all bytes after them
4                       ``GLXM``
======================= ====================================================================

The message says that they are there; other readers skip that field, and go by the positions of the
sections and of the message. A writer that knows neither leaves out both.

Specification: "Manifest file" in ``docs/format/manifest.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from glaive.errors import CorruptFileError
from glaive.io.checksums import Expected, check, checksum_function
from glaive.io.store import BytesLike
from glaive.types import Where

__all__ = ["SIZE", "compare_manifest", "has_checksums", "manifest_checksums"]

_BLOCK: Final = struct.Struct("<QQ4s")
_MAGIC: Final = b"GLXM"

SIZE: Final = _BLOCK.size
"""Bytes of the checksums."""


def manifest_checksums(
    function: Callable[[BytesLike], int], before: Sequence[bytes], after: Sequence[bytes]
) -> bytes:
    """The checksums of the parts of a manifest that come before and after them."""
    return _BLOCK.pack(function(b"".join(before)), function(b"".join(after)), _MAGIC)


def has_checksums(
    data: memoryview, position: int, sections_end: int, *, stated: bool, own: bool
) -> bool:
    """Whether a manifest has checksums, or has to have some.

    Parameters
    ----------
    data
        The file.
    position
        Of the message, as its footer says.
    sections_end
        Where the last section ends.
    stated
        Whether the message says that there are checksums.
    own
        Whether the message says that glaive wrote it. There are checksums if this is so, the
        message states them and the bytes look like some, or two of the three: no single damage
        hides them, and neither bytes of another writer that end like checksums nor the field of
        the message, if it has kept that, are taken for some. A run of bytes that was overwritten
        may hide what the message says: bytes that look like some are some, too, if the first is
        that of the sections.
    """
    there = _are_there(data, position, sections_end)
    if stated + own + there < 2:  # two of the three
        return there and not stated and not own and _is_of_sections(data, position - SIZE)
    return True


def _are_there(data: memoryview, position: int, sections_end: int) -> bool:
    """Whether the bytes before a message look like checksums."""
    return position - SIZE >= sections_end and _last(data, position) == _MAGIC


def _last(data: memoryview, position: int) -> bytes:
    return bytes(data[max(0, position - len(_MAGIC)) : position])


def _is_of_sections(data: memoryview, start: int) -> bool:
    """Whether the first checksum, of those at a position, is that of all bytes before."""
    function = checksum_function()
    before, _, _ = _BLOCK.unpack_from(data, start)
    return function is not None and function(data[:start]) == before


def compare_manifest(data: memoryview, position: int, sections_end: int, where: str) -> None:
    """Compare a manifest that has checksums with them; parameters as of :func:`has_checksums`.

    Raises
    ------
    CorruptFileError
        Bytes were changed, or the checksums are not where they have to be.
    """
    if not _are_there(data, position, sections_end):
        raise CorruptFileError(
            "checksums of the manifest",
            expected=f"{SIZE} bytes that end in {_MAGIC!r} before the message",
            found=f"{_last(data, position)!r}, and sections that end at {sections_end} of "
            f"{position}",
            where=where,
        )
    start = position - SIZE
    before, after, _ = _BLOCK.unpack_from(data, start)
    check(Expected(before, "checksum of the sections of the manifest", Where(where)), data[:start])
    check(Expected(after, "checksum of the manifest", Where(where)), data[position:])
