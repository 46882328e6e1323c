"""Files that are larger than what they hold.

A file may have holes, which take no room on a disk or in an archive, and read as zeros: a few bytes
can stand for terabytes. No Lance library writes such files, and metadata is read as a whole.
"""

from __future__ import annotations

import os
from typing import Final

from glaive.errors import CorruptFileError

__all__ = ["MOST_HOLES", "refuse_holes"]

MOST_HOLES: Final = 64 * 1024 * 1024
"""Bytes of a file that may lie in holes: some file systems make some of long zeros."""

_MOST_STEPS: Final = 10_000
_SEES_HOLES: Final = hasattr(os, "SEEK_HOLE")


def refuse_holes(fd: int, size: int, path: str) -> None:
    """Refuse a file with large holes; moves the position in the file to where it was.

    Files of up to 64 MiB are not looked at. A file system that cannot tell says that there is none.

    Raises
    ------
    CorruptFileError
        More than 64 MiB of the file are holes.
    """
    if size <= MOST_HOLES or not _SEES_HOLES:
        return
    before = os.lseek(fd, 0, os.SEEK_CUR)
    holes = end = 0
    for _ in range(_MOST_STEPS):
        hole = os.lseek(fd, end, os.SEEK_HOLE)
        if hole >= size:
            break
        try:
            end = os.lseek(fd, hole, os.SEEK_DATA)
        except OSError:  # the file ends in the hole
            end = size
        holes += end - hole
        if holes > MOST_HOLES:
            raise CorruptFileError(
                "file", expected="bytes", found=f"holes in {size} bytes", where=path
            )
        if end >= size:
            break
    os.lseek(fd, before, os.SEEK_SET)
