"""The checksums of a manifest: 20 bytes between its sections and the message.

======================= ====================================================================
bytes                   content
======================= ====================================================================
8                       ``u64`` xxh3 of all bytes before these 20
8                       ``u64`` xxh3 of all bytes after them
4                       ``GLXM``
======================= ====================================================================

Nothing refers to them: other readers go by the positions of the sections and of the message.

Specification: "Manifest file" in ``docs/format/manifest.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from glaive.io.checksums import Expected, check
from glaive.io.store import BytesLike
from glaive.types import Where

__all__ = ["SIZE", "compare_manifest", "manifest_checksums"]

_BLOCK: Final = struct.Struct("<QQ4s")
_MAGIC: Final = b"GLXM"

SIZE: Final = _BLOCK.size
"""Bytes of the checksums."""


def manifest_checksums(
    function: Callable[[BytesLike], int], before: Sequence[bytes], after: Sequence[bytes]
) -> bytes:
    """The checksums of the parts of a manifest that come before and after them."""
    return _BLOCK.pack(function(b"".join(before)), function(b"".join(after)), _MAGIC)


def compare_manifest(data: memoryview, position: int, sections_end: int, where: str) -> bool:
    """Compare a manifest with its checksums; whether it has any.

    Parameters
    ----------
    data
        The file.
    position
        Of the message, as its footer says.
    sections_end
        Where the last section ends.
    where
        The file, for messages.

    Raises
    ------
    CorruptFileError
        Bytes were changed.
    """
    start = position - SIZE
    if start < sections_end or bytes(data[position - len(_MAGIC) : position]) != _MAGIC:
        return False
    before, after, _ = _BLOCK.unpack_from(data, start)
    check(Expected(before, "checksum of the sections of the manifest", Where(where)), data[:start])
    check(Expected(after, "checksum of the manifest", Where(where)), data[position:])
    return True
