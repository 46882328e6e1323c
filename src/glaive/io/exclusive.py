"""Give a finished file its name only where the name is free: the step that commits stand on.

Three ways, the first that the file system has:

1. a hard link, in one step;
2. a rename that fails if the name is taken, in one step (``renameat2`` on Linux, ``renamex_np``
   on macOS, any rename on Windows);
3. the name is taken with an empty file, then the finished file is renamed over it. Only this
   one can be seen half done: a writer that is stopped in between leaves an **empty file**, and
   nothing else. The other two show a file when all of it is there.

An empty file is therefore no object yet. Readers pass it over; a writer that wants the name waits
a moment for whoever took it, then takes its place. Several may want to, and the first writer may
only be slow. So each deletes the finished files of all others that wait for this name, makes sure
that the name is still the same empty file, and renames its own finished file over it. Of two, the
one that began its own file later finds that of the other: at most one is left to be renamed.
Whoever finds its own file gone was not first, and is told so.

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
"""Seconds that a name may be an empty file before its writer is taken for dead: between the
two steps there is nothing to do."""

_REMOVAL_SECONDS: Final = 10.0
"""Seconds after which whoever was removing an unfinished file is taken for dead."""

_PAUSE: Final = 0.002
"""Seconds between two looks at an empty file."""

_LOOKS: Final = 8
"""How often a name is tried that others take and remove meanwhile."""

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
    """Name a finished file, in the place of an unfinished one if there is one.

    Raises
    ------
    FileExistsError
        There is a file of this name, or another writer is about to put it there.
    OSError
        The system refused; the name is as it was.
    """
    for _ in range(_LOOKS):
        try:
            return _name(temporary, full)
        except FileNotFoundError:
            if _is_folder_there(full):
                raise _taken(full) from None  # deleted by a writer that takes its place
            raise
        except FileExistsError:
            empty = _stays_empty(full, temporary)
            if empty is not None:
                return _take_over(temporary, full, empty)
            if os.path.lexists(full):
                raise
    raise _taken(full)


def _name(temporary: str, full: str) -> None:
    """Name a finished file where there is none, in the first way that the system has."""
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
        os.unlink(temporary)


def _rename_if_free(source: str, target: str) -> bool:
    """Rename a file in one step unless the new name is taken; ``False`` if that cannot be done.

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
    """The system's rename that replaces nothing, if it has one."""
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
            raise _taken(full) from None  # deleted by a writer that takes its place
        raise


def _take_over(temporary: str, full: str, empty: _Identity) -> None:
    _withdraw_others(full, temporary)
    if _empty_file(full) != empty:
        raise _taken(full)
    _fill(temporary, full)


def remove_unfinished(full: str) -> bool:
    """Remove an empty file that holds a name, unless its writer goes on within a moment.

    Returns whether it was removed; ``False`` as well if another process is doing it.

    Raises
    ------
    OSError
        The system refused.
    """
    folder, _, name = full.rpartition("/")
    mark = f"{folder}/{removal_name(name)}"
    try:
        os.close(os.open(mark, _EMPTY, 0o666))
    except FileExistsError:
        return False
    try:
        empty = _stays_empty(full, mark)
        if empty is None:
            return False
        _withdraw_others(full, mark)
        return _empty_file(full) == empty and _remove_empty(full)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(mark)


def _remove_empty(full: str) -> bool:
    """Remove a file that is empty and that nobody may fill, for as long as the mark counts.

    A process that stands still for longer may find it filled. So it is first moved away, and put
    back if there is anything in it.
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
            f"{full} was written while it was removed as unfinished, and then once more. What was "
            f"written first is kept in {aside}: look at both before going on."
        ) from None
    return False


def _withdraw_others(full: str, mine: str) -> None:
    """Delete the finished files of all others that wait for a name.

    Whoever removes the unfinished file is waited for, unless it was stopped.
    """
    folder, _, name = full.rpartition("/")
    removal = f"{folder}/{removal_name(name)}"
    if mine != removal and not _is_gone_soon(removal, mine):
        raise _taken(full)
    for other in os.listdir(folder):
        path = f"{folder}/{other}"
        if final_name(other) == name and not is_removed(other) and path not in (mine, removal):
            with suppress(FileNotFoundError):
                os.unlink(path)


def _is_gone_soon(mark: str, now: str) -> bool:
    """Whether a mark is not there, or not after a moment, or was left by who was stopped."""
    began = time.monotonic()
    while os.path.lexists(mark):
        waited = time.monotonic() - began
        if waited + _age(mark, now) >= _REMOVAL_SECONDS:
            return True
        if waited >= PATIENCE:
            return False
        time.sleep(_PAUSE)
    return True


def _age(path: str, now: str) -> float:
    """Seconds between the last changes of two files, by the clock of their file system."""
    try:
        return os.stat(now).st_mtime - os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _stays_empty(full: str, just_written: str) -> _Identity | None:
    """The file, if it stays empty until its writer must be taken for dead; else ``None``.

    The other file tells the time, by the clock that stamps both.
    """
    began = time.monotonic()
    while (empty := _empty_file(full)) is not None:
        waited = time.monotonic() - began
        if waited + _age(full, just_written) >= PATIENCE or waited >= PATIENCE:
            return empty
        time.sleep(_PAUSE)
    return None


def _empty_file(full: str) -> _Identity | None:
    """What tells an empty file from one that has its name later; ``None`` if there is none."""
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
