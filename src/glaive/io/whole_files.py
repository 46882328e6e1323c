"""Read local files as a whole, as metadata is: their first bytes, and the rest if there is one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from stat import S_ISREG
from typing import Final

from glaive.errors import StoreError
from glaive.io.failures import from_system, not_a_file
from glaive.io.mapped import READING

__all__ = ["read_whole", "read_whole_into"]

_FIRST_READ: Final = 64 * 1024
_SLICE: Final = 8 * 1024 * 1024
"""Bytes per system call after the first."""


def read_whole(full: str, *, with_holes: bool) -> bytes:
    """A whole file.

    Parameters
    ----------
    full
        Its path.
    with_holes
        Whether it may have large holes.

    Raises
    ------
    StoreError
        The system failed; or it is a pipe or a device, or has more bytes than the system says, as
        what the system makes up while it is read: some of that never ends.
    CorruptFileError
        It has large holes.
    """
    try:
        fd = os.open(full, READING)
        try:
            # Enough for most manifests: saves a system call for the size.
            data = _read_at(fd, _FIRST_READ, 0, full)
            if not data or len(data) == _FIRST_READ:
                status = os.fstat(fd)
                if not S_ISREG(status.st_mode):
                    raise not_a_file(full, status.st_mode)
                if not with_holes:
                    from glaive.io.holes import refuse_holes

                    refuse_holes(fd, status.st_size, full)
                if status.st_size < len(data):
                    raise StoreError(
                        f"cannot read {full}: the system says that it has {status.st_size} bytes, "
                        "and has more. It is no file of a disk: check the path."
                    )
                data = b"".join([data, *_rest(fd, len(data), status.st_size, full)])
        finally:
            os.close(fd)
    except OSError as error:
        raise from_system(error, full, "read") from None
    return data


def read_whole_into(full: str, target: memoryview) -> int:
    """Read a whole file into given memory, as far as it fits; returns the bytes read.

    Raises
    ------
    StoreError
        The system failed; or it is a pipe, of which no byte is taken.
    """
    done = 0
    try:
        fd = os.open(full, READING)
        try:
            while done < len(target) and (count := _read_into(fd, target[done:], done, full)):
                done += count
        finally:
            os.close(fd)
    except OSError as error:
        raise from_system(error, full, "read") from None
    return done


def _read_into(fd: int, target: memoryview, start: int, full: str) -> int:
    if hasattr(os, "preadv"):
        try:
            return os.preadv(fd, [target], start)
        except OSError as error:
            raise _without_positions(error, fd, full) from None
    data = os.read(fd, len(target))
    target[: len(data)] = data
    return len(data)


def _read_at(fd: int, size: int, start: int, full: str) -> bytes:
    """Bytes from a position on: the system takes none out of what has no positions."""
    if not hasattr(os, "pread"):
        return os.read(fd, size)  # which begins at the same position
    try:
        return os.pread(fd, size, start)
    except OSError as error:
        raise _without_positions(error, fd, full) from None


def _without_positions(error: OSError, fd: int, full: str) -> OSError:
    """The error that what was opened is a pipe, a socket or a terminal, if it is."""
    return not_a_file(full, os.fstat(fd).st_mode) if error.errno == errno.ESPIPE else error


def _rest(fd: int, start: int, end: int, full: str) -> Iterator[bytes]:
    """The bytes between two positions, fewer where the file was cut off."""
    while start < end and (data := _read_at(fd, min(end - start, _SLICE), start, full)):
        start += len(data)
        yield data
