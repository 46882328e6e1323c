"""Files being written under a temporary name, and made visible in one step."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from glaive.errors import StoreError
from glaive.io.exclusive import take_name
from glaive.io.failures import from_system
from glaive.io.preallocate import PREALLOCATED_BYTES, preallocate, release
from glaive.io.stats import IoCounters
from glaive.io.store import BytesLike, PutMode
from glaive.io.temporary import temporary_path

__all__ = ["SMALL", "LocalSink", "place_small", "write_new"]

SMALL = 256 * 1024
"""Bytes of a file below which its pieces are joined and written with one call."""

_SLICE = 8 * 1024 * 1024
"""Bytes per system call: large writes go to the page cache fastest in slices."""
_PIECES = 512
"""Pieces per ``writev``; POSIX promises 1024 on the systems we know, 16 at least."""
_PREALLOCATE_FROM = 1024 * 1024
"""Bytes of one write from which blocks are preallocated."""


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def write_new(full: str, data: bytes) -> None:
    """Write a small file where none is, under its own name; its folder is made when missing.

    Raises
    ------
    FileExistsError
        There is one; it stays as it is.
    OSError
        It could not be written; nothing is left behind.
    """
    try:
        fd = os.open(full, _NEW, 0o666)
    except FileNotFoundError:
        _make_folder(full)
        fd = os.open(full, _NEW, 0o666)
    try:
        try:
            done = os.write(fd, data)
            if done < len(data):
                _flush(fd, [memoryview(data)[done:]])
        finally:
            os.close(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(full)
        raise


def _make_folder(full: str, *, fsync: bool = False) -> None:
    """Make the folder of a file, unless there is one; with ``fsync`` its name is on disk then."""
    folder = os.path.dirname(full)
    above: list[str] = []
    at = folder
    while fsync and not os.path.isdir(at):
        at = os.path.dirname(at)
        above.append(at)
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError as error:  # not that of the file: something else has its name
        raise FileNotFoundError(errno.ENOENT, "no directory", folder) from error
    for folder in above:
        _sync_folder(folder)


def place_small(full: str, data: bytes, mode: PutMode) -> None:
    """Write a small file under a temporary name, then make it visible."""
    temporary = temporary_path(full)
    try:
        write_new(temporary, data)
        try:
            if mode == "create":
                take_name(temporary, full)
            else:
                os.replace(temporary, full)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise from_system(error, full, "write") from None


class LocalSink:
    """A file being written under a temporary name.

    Pieces go straight to the operating system, so they may be reused after ``write``.
    """

    __slots__ = ("_counters", "_fd", "_fsync", "_full", "_preallocated", "_temporary", "position")

    def __init__(self, full: str, counters: IoCounters, *, fsync: bool) -> None:
        self._full, self._counters, self._fsync = full, counters, fsync
        self._temporary = temporary_path(full)
        self.position = 0
        self._preallocated = 0
        try:
            try:
                self._fd = os.open(self._temporary, _NEW, 0o666)
            except FileNotFoundError:
                _make_folder(full, fsync=fsync)
                self._fd = os.open(self._temporary, _NEW, 0o666)
        except OSError as error:
            raise self._failed(error, full) from None

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append pieces with as few system calls as possible."""
        if self._fd < 0:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        size = sum(memoryview(piece).nbytes for piece in data)
        if size >= _PREALLOCATE_FROM and self.position + size > self._preallocated:
            start = max(self.position, self._preallocated)
            self._preallocated = preallocate(self._fd, start, max(size, PREALLOCATED_BYTES))
        try:
            self.position += _write_all(self._fd, data)
        except OSError as error:
            raise self._failed(error, self._full) from None

    def finish(self) -> int:
        """Rename the file into place; returns its size in bytes."""
        self.place("overwrite")
        return self.position

    def place(self, mode: PutMode) -> None:
        """Make the file visible, over another one or only where there is none."""
        if self._fd < 0:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        try:
            if self._preallocated > self.position:
                release(self._fd, self.position)
            if self._fsync:
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
            if mode == "create":
                take_name(self._temporary, self._full)
            else:
                os.replace(self._temporary, self._full)
            if self._fsync:
                _sync_folder(os.path.dirname(self._full))
        except OSError as error:
            self.abort()
            raise self._failed(error, self._full) from None
        self._counters.add_write(1, self.position)

    def abort(self) -> None:
        """Remove what was written; safe to call twice and after a failure."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with suppress(OSError):
            os.unlink(self._temporary)

    @staticmethod
    def _failed(error: OSError, path: str) -> StoreError:
        return error if isinstance(error, StoreError) else from_system(error, path, "write")


def _write_all(fd: int, data: Sequence[BytesLike]) -> int:
    """Write all pieces; returns their size in bytes."""
    pending: list[memoryview] = []
    waiting = total = 0
    for piece in data:
        view = memoryview(piece)
        size = view.nbytes
        if size == 0:
            continue
        if view.format != "B" or view.ndim != 1:
            view = view.cast("B")
        total += size
        if waiting + size <= _SLICE and len(pending) < _PIECES:
            pending.append(view)
            waiting += size
            continue
        _flush(fd, pending)
        for start in range(0, size - size % _SLICE, _SLICE):
            _flush(fd, [view[start : start + _SLICE]])
        rest = view[size - size % _SLICE :]
        pending, waiting = [rest] if rest.nbytes else [], rest.nbytes
    _flush(fd, pending)
    return total


def _flush(fd: int, views: list[memoryview]) -> None:
    """Write views, again from where a short write stopped."""
    while views:
        if len(views) == 1 or not hasattr(os, "writev"):
            done = os.write(fd, views[0])
        else:
            done = os.writev(fd, views)
        at = 0
        while at < len(views) and done >= views[at].nbytes:
            done -= views[at].nbytes
            at += 1
        views = views[at:]
        if done:
            views[0] = views[0][done:]


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
