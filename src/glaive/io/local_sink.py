"""Write files under a temporary name, and make them visible atomically."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from stat import S_IFCHR, S_IFREG, S_ISDIR, S_ISLNK, S_ISREG

from glaive.errors import NotForcedError, StoreError
from glaive.forks import Origin
from glaive.io.exclusive import take_name
from glaive.io.failures import from_system, not_a_file
from glaive.io.stats import IoCounters
from glaive.io.store import BytesLike, PutMode, byte_views
from glaive.io.temporary import temporary_path

__all__ = [
    "SMALL_FILE_BYTES",
    "LocalSink",
    "joined_if_small",
    "put_small",
    "sync_folder",
    "write_new",
]

SMALL_FILE_BYTES = 256 * 1024
"""Size of a file up to which its parts are joined and written with one call."""

_SLICE = 8 * 1024 * 1024
"""Bytes per system call: large writes go to the page cache fastest in slices."""
_MAX_PARTS = 512
"""Parts per ``writev``; POSIX guarantees 16, and current systems 1024."""
_PREALLOCATE_FROM = 1024 * 1024
"""Size of one write from which blocks are preallocated.

Writing into preallocated blocks costs about a third less processor time than growing the file
with every write. Only Linux has the call without a slow emulation, so elsewhere nothing is
preallocated.
"""
_PREALLOCATED_BYTES = 32 * 1024 * 1024
"""Bytes preallocated at a time; unused ones are released when the file is finished."""
_ROOM = 8
"""Preallocations for which a disk has room before glaive preallocates: other writers need some."""

_FOLDER_ATTEMPTS = 8
"""Times that a folder is made which others remove at once."""

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: the file size does not change

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def joined_if_small(data: Sequence[BytesLike]) -> bytes | None:
    """The content of a small file; ``None`` if it is not small."""
    if sum([memoryview(part).nbytes for part in data]) > SMALL_FILE_BYTES:
        return None
    return b"".join(data)


def write_new(full: str, data: bytes) -> None:
    """Write a new small file under its own name; its folder is created if missing.

    Raises
    ------
    FileExistsError
        The file exists; it is not changed.
    OSError
        It could not be written; nothing is left behind.
    """
    fd = _open_new(full)
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


def _open_new(full: str, *, fsync: bool = False) -> int:
    """A descriptor of a new file; its folder is created if missing.

    Also where a clean-up finds that folder empty, and removes it before the file is in it.
    """
    for _ in range(_FOLDER_ATTEMPTS):
        with suppress(FileNotFoundError):
            return os.open(full, _NEW, 0o666)
        _make_folder(full, fsync=fsync)
    return os.open(full, _NEW, 0o666)


def _make_folder(full: str, *, fsync: bool = False) -> None:
    """Create the folder of a file if missing; with ``fsync`` its name is forced to disk."""
    folder = os.path.dirname(full)
    above: list[str] = []
    at = folder
    while fsync and not os.path.isdir(at):
        at = os.path.dirname(at)
        above.append(at)
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError as error:  # a part of the path is a file
        raise FileNotFoundError(errno.ENOENT, "no directory", folder) from error
    for folder in above:
        sync_folder(folder)


def put_small(full: str, data: bytes, mode: PutMode) -> None:
    """Write a small file under a temporary name, then make it visible."""
    temporary = temporary_path(full)
    try:
        write_new(temporary, data)
        try:
            if mode == "create":
                take_name(temporary, full)
            else:
                _replace(temporary, full)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise from_system(error, full, "write") from None


def _replace(temporary: str, full: str) -> None:
    """Give a file its name, in the place of another one, but not of ``/dev/null`` or a pipe.

    Nor of a link to one, such as ``/dev/stdout``, wherever that leads just now.
    """
    mode = S_IFREG
    with suppress(OSError):  # the system says below what is wrong, if that matters
        mode = os.lstat(full).st_mode
        if S_ISLNK(mode):
            folder = os.path.realpath(os.path.dirname(full))
            is_of_system = folder == "/dev" or folder.startswith("/proc/")
            mode = S_IFREG  # what is replaced, if it leads nowhere
            mode = S_IFCHR if is_of_system else os.stat(full).st_mode
    if not (S_ISREG(mode) or S_ISDIR(mode)):
        raise not_a_file(full, mode, "write")
    os.replace(temporary, full)


class LocalSink:
    """A file being written under a temporary name.

    Data is passed directly to the operating system, so its memory may be reused after ``write``.
    """

    __slots__ = (
        "_counters",
        "_fd",
        "_fsync",
        "_full",
        "_origin",
        "_preallocated",
        "_temporary",
        "position",
    )

    def __init__(self, full: str, counters: IoCounters, *, fsync: bool) -> None:
        self._full, self._counters, self._fsync = full, counters, fsync
        self._temporary = temporary_path(full)
        self._origin = Origin()
        self.position = 0
        self._preallocated = 0
        try:
            self._fd = _open_new(self._temporary, fsync=fsync)
        except OSError as error:
            raise self._failed(error, full) from None

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append data with as few system calls as possible."""
        if self._fd < 0:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        size = sum(memoryview(part).nbytes for part in data)
        if size >= _PREALLOCATE_FROM and self.position + size > self._preallocated:
            self._preallocated = _preallocate(
                self._fd,
                self.position,
                max(self.position, self._preallocated),
                max(size, _PREALLOCATED_BYTES),
            )
        try:
            self.position += _write_all(self._fd, data)
        except OSError as error:
            raise self._failed(error, self._full) from None

    def finish(self) -> int:
        """Rename the file into place; returns its size in bytes."""
        self.publish("overwrite")
        return self.position

    def publish(self, mode: PutMode) -> None:
        """Make the file visible, replacing an existing one or only if there is none."""
        if self._fd < 0:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        try:
            if self._preallocated > self.position:
                _release(self._fd, self.position)
            if self._fsync:
                os.fsync(self._fd)
            self._close()
            if mode == "create":
                take_name(self._temporary, self._full)
            else:
                _replace(self._temporary, self._full)
            if self._fsync:
                self._force_name()
        except OSError as error:
            self.abort()
            raise self._failed(error, self._full) from None
        self._counters.add_write(1, self.position)

    def _force_name(self) -> None:
        try:
            sync_folder(os.path.dirname(self._full))
        except OSError as error:
            raise NotForcedError(
                f"{self._full} was written, but its name could not be forced to disk: "
                f"{error.strerror}. A power failure may undo it. Check the disk."
            ) from None

    def abort(self) -> None:
        """Remove the written data; safe to call twice and after a failure."""
        with suppress(OSError):
            self._close()
        if self._origin.is_here:
            with suppress(OSError):
                os.unlink(self._temporary)

    def _close(self) -> None:
        """Close the file, once: after an error, too, its number may be that of another file."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    @staticmethod
    def _failed(error: OSError, path: str) -> StoreError:
        return from_system(error, path, "write")


def _write_all(fd: int, data: Sequence[BytesLike]) -> int:
    """Write all parts; returns their size in bytes."""
    pending: list[memoryview] = []
    pending_size = total = 0
    for view in byte_views(data):
        size = view.nbytes
        total += size
        if pending_size + size <= _SLICE and len(pending) < _MAX_PARTS:
            pending.append(view)
            pending_size += size
            continue
        _flush(fd, pending)
        for start in range(0, size - size % _SLICE, _SLICE):
            _flush(fd, [view[start : start + _SLICE]])
        rest = view[size - size % _SLICE :]
        pending, pending_size = [rest] if rest.nbytes else [], rest.nbytes
    _flush(fd, pending)
    return total


def _flush(fd: int, views: list[memoryview]) -> None:
    """Write views, continuing after short writes."""
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


def sync_folder(folder: int | str) -> None:
    """Force the names in a folder, or in that of a descriptor, to disk."""
    if isinstance(folder, int):
        return os.fsync(folder)
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _load() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "fallocate"):
        return None
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return libc


_libc = _load()


def _preallocate(fd: int, size: int, start: int, more: int) -> int:
    """Preallocate ``more`` bytes of a file of ``size`` bytes from ``start`` on.

    Return where the preallocated part ends. Without room or support it ends where the file does:
    the next write then reports the problem, if there is one.
    """
    if _libc is None:
        return start
    disk = os.fstatvfs(fd)
    if disk.f_bavail * disk.f_frsize < _ROOM * more:
        return start
    if _libc.fallocate(fd, _KEEP_SIZE, start, more) == 0:
        return start + more
    _release(fd, size)  # ext4 keeps the blocks that it found before it failed
    return size


def _release(fd: int, size: int) -> None:
    """Release what was preallocated behind the first ``size`` bytes."""
    os.ftruncate(fd, size)
