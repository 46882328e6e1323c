"""One process compiles at a time: workers that start together find each other's code.

They need the same kernels in the same order, so each would compile what the others do. The lock is
that of the folder in which code is kept; it ends with its process, and leaves no file. It saves
work, and nothing relies on it: where a system or a file system has no such locks, and after
:data:`PATIENCE`, a process compiles all the same. It does so from then on without waiting: who has
the lock that long may be stopped, and there are dozens of kernels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # asked for below

__all__ = ["PATIENCE", "alone_in"]

PATIENCE: Final = 30.0
"""Seconds to wait for others: a kernel takes one, and several where the machine is busy."""

_PAUSE: Final = 0.02

_IN_VAIN: Final[set[Path]] = set()
"""Folders that this process has waited for as long as it does."""


@contextmanager
def alone_in(folder: Path | None, is_done: Callable[[], bool]) -> Iterator[None]:
    """Run the block while no other process does for this folder, or once ``is_done``."""
    taken = None if folder is None or fcntl is None else _open(folder)
    if folder is None or taken is None:
        yield
        return
    try:
        locked = _wait(taken, folder, is_done)
        try:
            yield
        finally:
            if locked:  # said for processes that were forked meanwhile, which have it open, too
                fcntl.flock(taken, fcntl.LOCK_UN)
    finally:
        os.close(taken)


def _open(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not there, or not to be read: nothing is shared
        return None


def _wait(taken: int, folder: Path, is_done: Callable[[], bool]) -> bool:
    """Whether the lock was taken."""
    # The time of other processes, whatever that of a simulation here.
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if folder in _IN_VAIN or is_done():
                return False
            if time.monotonic() > end:
                _IN_VAIN.add(folder)
                return False
            time.sleep(_PAUSE)
        except OSError:  # no such locks on this file system
            return False
        else:
            return True
