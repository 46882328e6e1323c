"""Write files under a temporary name, and make them visible atomically."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from stat import S_IFCHR, S_IFREG, S_ISDIR, S_ISLNK, S_ISREG
from typing import Final

from glaive.errors import NotForcedError, StoreError
from glaive.io.failures import from_system, not_a_file
from glaive.io.store import BytesLike, IoCounters, PutMode, byte_views
from glaive.process import Origin

# --- Names of unfinished files ----------------------------------------------------------
# A file is written as ``.<name>.<16 hexadecimal digits>.tmp`` in its final folder. The digits are
# random, and such a file is created only if the name is free. So nobody can put a symlink there
# beforehand. Listings omit all names that begin with a dot and end in ``.tmp``.

_END: Final = ".tmp"
_REMOVED_END: Final = ".removed.tmp"
_WRITTEN: Final = r"(?s)\.(.+?)\.(?:[0-9a-f]{4,32}(?:\.removed)?|removal)\.tmp"

_PYLANCE_END: Final = r"\.tmp[0-9A-Za-z]{6}"


def temporary_path(full: str) -> str:
    """Return a new temporary path for the file that will be renamed to ``full``."""
    folder, _, name = full.rpartition("/")
    return f"{folder}/.{name}.{os.urandom(8).hex()}{_END}"


def removal_name(name: str) -> str:
    """Return the name of the marker for the removal of an unfinished file of this name."""
    return f".{name}.removal{_END}"


def removed_path(full: str) -> str:
    """Return a new path for an unfinished file that is being removed."""
    return temporary_path(full).removesuffix(_END) + _REMOVED_END


def is_removed(name: str) -> bool:
    """Return whether a file was moved away to be removed."""
    return name.endswith(_REMOVED_END)


def is_temporary(name: str) -> bool:
    """Return whether listings omit a file of this name."""
    return name.startswith(".") and name.endswith(_END)


def is_others_temporary(name: str) -> bool:
    """Return whether pylance gives this name to a local file while it writes the file."""
    return re.fullmatch(_PYLANCE_END, name) is not None


def final_name(name: str) -> str | None:
    """Return the final name of a temporary file of glaive, or ``None``."""
    match = re.fullmatch(_WRITTEN, name)
    return None if match is None else match[1]


# --- Put-if-absent for local files, which commits need: name a finished file if the name is free
# ---
#
# There are three ways. glaive uses the first way that the file system supports:
#
# 1. a hard link, which is atomic;
# 2. a rename that fails if the name is taken, which is atomic (``renameat2`` on Linux,
#    ``renamex_np`` on macOS, any rename on Windows);
# 3. take the name with an empty file, then rename the finished file over it. A writer that is
#    stopped between these two steps leaves an **empty file**. With the other two ways, a file is
#    visible only when it is complete.
#
# Readers therefore ignore empty files. A writer that needs the
# name waits a moment for the writer that took it, then replaces it. Several may do so, and the
# first writer may only be slow. So each writer deletes the finished files of all other writers that
# wait for this name. It checks that the name is still the same empty file, and renames its own
# finished file over it. The writer that creates its own file later finds the file of the other
# writer: at most one file remains to be renamed. A writer whose file was deleted gets an error.
#
# Decision: ``docs/adr/0015-unfinished-files.md``.

EMPTY_FILE_SECONDS: Final = 2.0
"""Seconds that a name may be an empty file before its writer counts as stopped. An active writer
renames its file at once."""

REMOVAL_SECONDS: Final = 10.0
"""Seconds until a process that removes an unfinished file counts as stopped."""

_PAUSE_SECONDS: Final = 0.002
"""Seconds between two checks of an empty file."""

_ATTEMPTS: Final = 8
"""Attempts to take a name that other writers take and remove meanwhile."""

_NO_LINKS: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EMLINK,
        errno.EINVAL,
    }
)
_NO_SUCH_RENAME: Final = _NO_LINKS | {errno.ENOTTY}
_CREATE_EMPTY: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)

_Identity = tuple[int, int, int]


def take_name(temporary: str, full: str) -> None:
    """Name a finished file, replacing an unfinished file of this name.

    Raises
    ------
    FileExistsError
        A file of this name exists, or another writer is about to create it.
    OSError
        The system failed; the name is unchanged.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _name(temporary, full)
        except FileNotFoundError:
            if _is_folder_there(full):
                raise _taken(full) from None  # deleted by a writer that replaces it
            raise
        except FileExistsError:
            empty = _stays_empty(full, temporary)
            if empty is not None:
                return _take_over(temporary, full, empty)
            if os.path.lexists(full):
                raise
    raise _taken(full)


def _name(temporary: str, full: str) -> None:
    """Name a finished file if the name is free, in the first way that the system supports."""
    try:
        os.link(temporary, full)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not _rename_if_free(temporary, full):
            os.close(os.open(full, _CREATE_EMPTY, 0o666))
            _rename_over_empty(temporary, full)
    else:
        with suppress(OSError):  # the name is taken; a clean-up finds the temporary name
            os.unlink(temporary)


def _rename_if_free(source: str, target: str) -> bool:
    """Atomically rename a file unless the new name is taken; ``False`` if unsupported.

    Raises
    ------
    FileExistsError
        The name is taken.
    """
    if sys.platform == "win32":
        os.rename(source, target)
        return True
    rename = _exclusive_rename()
    if rename is None:
        return False
    sys.audit("os.rename", source, target, -1, -1)
    if rename(os.fsencode(source), os.fsencode(target)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_SUCH_RENAME:
        return False
    raise OSError(number, os.strerror(number), source, None, target)


@cache
def _exclusive_rename() -> Callable[[bytes, bytes], int] | None:
    """Return the system's rename that fails if the name is taken, or ``None``."""
    libc = ctypes.CDLL(None, use_errno=True)
    at_fdcwd, text, number = -100, ctypes.c_char_p, ctypes.c_int
    if sys.platform.startswith("linux") and hasattr(libc, "renameat2"):
        libc.renameat2.argtypes = (number, text, number, text, ctypes.c_uint)
        return lambda source, target: int(libc.renameat2(at_fdcwd, source, at_fdcwd, target, 1))
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        libc.renamex_np.argtypes = (text, text, ctypes.c_uint)
        return lambda source, target: int(libc.renamex_np(source, target, 4))
    return None


def _rename_over_empty(temporary: str, full: str) -> None:
    """Rename a finished file over the empty file that has its name."""
    try:
        os.replace(temporary, full)
    except FileNotFoundError:
        if _is_folder_there(full):
            raise _taken(full) from None  # deleted by a writer that replaces it
        raise


def _take_over(temporary: str, full: str, empty: _Identity) -> None:
    _withdraw_others(full, temporary)
    if _empty_file(full) != empty:
        raise _taken(full)
    _rename_over_empty(temporary, full)


def remove_unfinished(full: str) -> bool:
    """Remove an empty file that takes a name, unless its writer continues within a moment.

    Return whether it was removed; ``False`` also if another process removes it.

    Raises
    ------
    OSError
        The system failed.
    """
    folder, _, name = full.rpartition("/")
    marker = f"{folder}/{removal_name(name)}"
    try:
        os.close(os.open(marker, _CREATE_EMPTY, 0o666))
    except FileExistsError:
        return False
    try:
        empty = _stays_empty(full, marker)
        if empty is None:
            return False
        _withdraw_others(full, marker)
        return _empty_file(full) == empty and _remove_empty(full)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(marker)


def _remove_empty(full: str) -> bool:
    """Remove an empty file while the marker is valid, which stops other processes from filling it.

    If this process is suspended for longer, the file may have been filled. So it is first moved
    away, and moved back if it has content.
    """
    removed = removed_path(full)
    os.rename(full, removed)
    if not os.stat(removed).st_size:
        os.unlink(removed)
        return True
    try:
        _name(removed, full)
    except FileExistsError:
        raise StoreError(
            f"{full} was written while it was removed as unfinished, and then written again. The "
            f"first content is kept in {removed}: compare both before you continue."
        ) from None
    return False


def _withdraw_others(full: str, mine: str) -> None:
    """Delete the finished files of all other writers that wait for a name.

    Wait for a process that removes the unfinished file, unless it was stopped.
    """
    folder, _, name = full.rpartition("/")
    marker = f"{folder}/{removal_name(name)}"
    if mine != marker and not _disappears(marker, mine):
        raise _taken(full)
    with os.scandir(folder) as entries:  # a folder keeps its name: only files are renamed here
        others = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    for other in others:
        path = f"{folder}/{other}"
        if final_name(other) == name and not is_removed(other) and path not in (mine, marker):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _disappears(marker: str, now: str) -> bool:
    """Return whether a marker is absent, disappears in a moment, or is of a stopped process.

    The marker may have any time and be any kind of file. If its time is far ahead, glaive observes
    it for as long as a removal may take. If it stays the same, its process was stopped.
    """
    began, first = time.monotonic(), _identity(marker)
    while (found := _identity(marker)) is not None:
        waited, age = time.monotonic() - began, _age(marker, now)
        if waited + age >= REMOVAL_SECONDS or (found == first and waited >= REMOVAL_SECONDS):
            return True
        if waited >= EMPTY_FILE_SECONDS and (found != first or age > -REMOVAL_SECONDS):
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _identity(path: str) -> tuple[int, int] | None:
    """Return what differs between a marker and a later one; ``None`` if it is missing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _age(path: str, now: str) -> float:
    """Return the seconds between the last changes of two files, by their file system."""
    try:
        return os.stat(now).st_mtime - os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _stays_empty(full: str, just_written: str) -> _Identity | None:
    """Return the file if it stays empty until its writer counts as stopped, else ``None``.

    The modification time of ``just_written`` is the current time of the file system's clock.
    """
    began = time.monotonic()
    while (empty := _empty_file(full)) is not None:
        waited = time.monotonic() - began
        if waited + _age(full, just_written) >= EMPTY_FILE_SECONDS or waited >= EMPTY_FILE_SECONDS:
            return empty
        time.sleep(_PAUSE_SECONDS)
    return None


def _empty_file(full: str) -> _Identity | None:
    """Return the identity of an empty file, which differs for a later one; else ``None``."""
    try:
        status = os.lstat(full)
    except FileNotFoundError:
        return None
    if status.st_size or not S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _is_folder_there(full: str) -> bool:
    return os.path.isdir(full.rpartition("/")[0])


def _taken(full: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), full)


SMALL_FILE_BYTES = 256 * 1024
"""Size up to which the parts of a file are joined and written with one call."""

_SLICE_BYTES = 8 * 1024 * 1024
"""Bytes per system call: large writes reach the page cache fastest in slices."""
_MAX_PARTS = 512
"""Parts per ``writev``; POSIX guarantees 16, and current systems 1024."""
_RESERVED_FROM = 1024 * 1024
"""Minimum bytes of a system call for reserved blocks, which save a third of its processor time."""
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: only writing makes the file larger

_FOLDER_ATTEMPTS = 8
"""Attempts to make a folder that other processes remove at once."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def joined_if_small(data: Sequence[BytesLike]) -> bytes | None:
    """Return the content of a small file, or ``None``."""
    if sum([memoryview(part).nbytes for part in data]) > SMALL_FILE_BYTES:
        return None
    return b"".join(data)


def write_new(full: str, data: bytes) -> None:
    """Write a new small file under its own name; its folder is created if missing.

    Raises
    ------
    FileExistsError
        The file exists; it is kept.
    OSError
        Writing failed; the new file is removed.
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
    """Return a descriptor of a new file; its folder is created if missing.

    The folder is created again if a clean-up finds it empty and removes it before the file exists.
    """
    for _ in range(_FOLDER_ATTEMPTS):
        with suppress(FileNotFoundError):
            return os.open(full, _CREATE, 0o666)
        _make_folder(full, fsync=fsync)
    return os.open(full, _CREATE, 0o666)


def _make_folder(full: str, *, fsync: bool = False) -> None:
    """Create the folder of a file if missing; with ``fsync``, force its name to disk."""
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
    """Give a file its name, replacing another file. Refuse to replace ``/dev/null`` or a pipe.

    Refuse also a symlink to such a file, and ``/dev/stdout`` with any target.
    """
    mode = S_IFREG
    with suppress(OSError):  # the rename reports the error, if it matters
        mode = os.lstat(full).st_mode
        if S_ISLNK(mode):
            folder = os.path.realpath(os.path.dirname(full))
            is_of_system = folder == "/dev" or folder.startswith("/proc/")
            mode = S_IFREG  # of a symlink that leads nowhere, which is replaced
            mode = S_IFCHR if is_of_system else os.stat(full).st_mode
    if not (S_ISREG(mode) or S_ISDIR(mode)):
        raise not_a_file(full, mode, "write")
    os.replace(temporary, full)


class LocalSink:
    """A file being written under a temporary name.

    Data is passed directly to the operating system, so its memory may be reused after ``write``.
    """

    __slots__ = ("_counters", "_fd", "_fsync", "_full", "_origin", "_temporary", "position")

    def __init__(self, full: str, counters: IoCounters, *, fsync: bool) -> None:
        self._full, self._counters, self._fsync = full, counters, fsync
        self._temporary = temporary_path(full)
        self._origin = Origin()
        self.position = 0
        try:
            self._fd = _open_new(self._temporary, fsync=fsync)
        except OSError as error:
            raise self._failed(error, full) from None

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append data with as few system calls as possible."""
        if self._fd < 0:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        try:
            self.position += _write_all(self._fd, data)
        except OSError as error:
            raise self._failed(error, self._full) from None

    def finish(self) -> int:
        """Rename the file into place; return its size in bytes."""
        self.publish("overwrite")
        return self.position

    def publish(self, mode: PutMode) -> None:
        """Make the file visible: replace an existing file, or only if the name is free."""
        if self._fd < 0:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        try:
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
        if self._origin.is_this_process:
            with suppress(OSError):
                os.unlink(self._temporary)

    def _close(self) -> None:
        """Close the file once: after an error, too, its number may belong to another file."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    @staticmethod
    def _failed(error: OSError, path: str) -> StoreError:
        return from_system(error, path, "write")


def _write_all(fd: int, data: Sequence[BytesLike]) -> int:
    """Write all parts; return their size in bytes."""
    pending: list[memoryview] = []
    pending_size = total = 0
    for view in byte_views(data):
        size = view.nbytes
        total += size
        if pending_size + size <= _SLICE_BYTES and len(pending) < _MAX_PARTS:
            pending.append(view)
            pending_size += size
            continue
        _flush(fd, pending)
        for start in range(0, size - size % _SLICE_BYTES, _SLICE_BYTES):
            _flush(fd, [view[start : start + _SLICE_BYTES]])
        rest = view[size - size % _SLICE_BYTES :]
        pending, pending_size = [rest] if rest.nbytes else [], rest.nbytes
    _flush(fd, pending)
    return total


def _flush(fd: int, views: list[memoryview]) -> None:
    """Write views, continuing after short writes."""
    size = sum(view.nbytes for view in views)
    if size >= _RESERVED_FROM and (reserve := _reserve()) is not None:
        # If it fails, writing allocates the blocks, or reports a lack of space.
        reserve(fd, _KEEP_SIZE, os.lseek(fd, 0, os.SEEK_CUR), size)
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


@cache
def _reserve() -> Callable[[int, int, int, int], int] | None:
    """Return the system's call that reserves blocks of a file, or ``None``."""
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    fallocate = getattr(libc, "fallocate", None)
    if fallocate is not None:
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return fallocate


def sync_folder(folder: int | str) -> None:
    """Force the names in a folder, given by path or descriptor, to disk."""
    if isinstance(folder, int):
        return os.fsync(folder)
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
