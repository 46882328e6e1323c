"""Put-if-absent for local files, on which commits rely: name a finished file if the name is free.

There are three ways; the first that the file system supports is used:

1. a hard link, which is atomic;
2. a rename that fails if the name is taken, which is atomic (``renameat2`` on Linux,
   ``renamex_np`` on macOS, any rename on Windows);
3. the name is taken with an empty file, then the finished file is renamed over it. This is not
   atomic: a writer that is stopped in between leaves an **empty file**, and nothing else. With
   the other two, a file is visible only when it is complete.

An empty file therefore does not count as an object. Readers ignore it; a writer that needs the
name waits a moment for the writer that took it, then replaces it. Several may do so, and the first
writer may only be slow. So each deletes the finished files of all other writers that wait for this
name, checks that the name is still the same empty file, and renames its own finished file over it.
Of two writers, the one that created its own file later finds that of the other: at most one file
remains to be renamed. A writer that finds its own file deleted was not first, and gets an error.

Decision: ``docs/adr/0015-unfinished-files.md``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from stat import S_ISREG
from typing import Final

from glaive.errors import StoreError
from glaive.io.temporary import final_name, is_removed, removal_name, removed_path

__all__ = ["remove_unfinished", "take_name"]

PATIENCE: Final = 2.0
"""Seconds for which a name may be an empty file before its writer counts as stopped: between the
two steps there is nothing to do."""

REMOVAL_SECONDS: Final = 10.0
"""Seconds after which a process that was removing an unfinished file counts as stopped."""

_PAUSE: Final = 0.002
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
_EMPTY: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)

_Identity = tuple[int, int, int]


def take_name(temporary: str, full: str) -> None:
    """Name a finished file, replacing an unfinished one if there is one.

    Raises
    ------
    FileExistsError
        There is a file of this name, or another writer is about to create it.
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
            os.close(os.open(full, _EMPTY, 0o666))
            _fill(temporary, full)
    else:
        with suppress(OSError):  # the name is taken; a clean-up finds the other one
            os.unlink(temporary)


def _rename_if_free(source: str, target: str) -> bool:
    """Atomically rename a file unless the new name is taken; ``False`` if that is not possible.

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
    """The system's rename that never replaces a file, if it has one."""
    libc = ctypes.CDLL(None, use_errno=True)
    here, text, number = -100, ctypes.c_char_p, ctypes.c_int
    if sys.platform.startswith("linux") and hasattr(libc, "renameat2"):
        libc.renameat2.argtypes = (number, text, number, text, ctypes.c_uint)
        return lambda source, target: int(libc.renameat2(here, source, here, target, 1))
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        libc.renamex_np.argtypes = (text, text, ctypes.c_uint)
        return lambda source, target: int(libc.renamex_np(source, target, 4))
    return None


def _fill(temporary: str, full: str) -> None:
    """Rename a finished file over the empty one that holds its name."""
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
    _fill(temporary, full)


def remove_unfinished(full: str) -> bool:
    """Remove an empty file that holds a name, unless its writer continues within a moment.

    Returns whether it was removed; also ``False`` if another process is removing it.

    Raises
    ------
    OSError
        The system failed.
    """
    folder, _, name = full.rpartition("/")
    marker = f"{folder}/{removal_name(name)}"
    try:
        os.close(os.open(marker, _EMPTY, 0o666))
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
    """Remove an empty file that nobody may fill while the marker is valid.

    If this process is suspended for longer, the file may have been filled. So it is first moved
    away, and moved back if it is not empty.
    """
    aside = removed_path(full)
    os.rename(full, aside)
    if not os.stat(aside).st_size:
        os.unlink(aside)
        return True
    try:
        _name(aside, full)
    except FileExistsError:
        raise StoreError(
            f"{full} was written while it was removed as unfinished, and then written again. The "
            f"first content is kept in {aside}: compare both before you continue."
        ) from None
    return False


def _withdraw_others(full: str, mine: str) -> None:
    """Delete the finished files of all other writers that wait for a name.

    Waits for a process that is removing the unfinished file, unless that was stopped.
    """
    folder, _, name = full.rpartition("/")
    marker = f"{folder}/{removal_name(name)}"
    if mine != marker and not _disappears(marker, mine):
        raise _taken(full)
    with os.scandir(folder) as entries:  # no folder is a file that could get the name
        others = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    for other in others:
        path = f"{folder}/{other}"
        if final_name(other) == name and not is_removed(other) and path not in (mine, marker):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _disappears(marker: str, now: str) -> bool:
    """Whether a marker is absent, disappears within a moment, or was left by a stopped process.

    Its time may be anything, as may be its kind: one whose time is far ahead is looked at for as
    long as a process may take that removes a file, and is of none if it stays the same.
    """
    began, first = time.monotonic(), _seen(marker)
    while (found := _seen(marker)) is not None:
        waited, age = time.monotonic() - began, _age(marker, now)
        if waited + age >= REMOVAL_SECONDS or (found == first and waited >= REMOVAL_SECONDS):
            return True
        if waited >= PATIENCE and (found != first or age > -REMOVAL_SECONDS):
            return False
        time.sleep(_PAUSE)
    return True


def _seen(path: str) -> tuple[int, int] | None:
    """What tells a marker from a later one of its name; ``None`` if there is none."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _age(path: str, now: str) -> float:
    """Seconds between the last changes of two files, by the clock of their file system."""
    try:
        return os.stat(now).st_mtime - os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _stays_empty(full: str, just_written: str) -> _Identity | None:
    """The file, if it stays empty until its writer counts as stopped; else ``None``.

    The modification time of ``just_written`` is the current time of the file system's clock.
    """
    began = time.monotonic()
    while (empty := _empty_file(full)) is not None:
        waited = time.monotonic() - began
        if waited + _age(full, just_written) >= PATIENCE or waited >= PATIENCE:
            return empty
        time.sleep(_PAUSE)
    return None


def _empty_file(full: str) -> _Identity | None:
    """The identity of an empty file, unlike a later one of its name; ``None`` if there is none."""
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
