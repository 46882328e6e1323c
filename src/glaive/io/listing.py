"""What is in a directory and below it.

Links to files are files, links to directories are neither: nothing is listed through a link, but
where the directory asked for is one itself. Names of unfinished files are left out.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from stat import S_ISDIR

from glaive.io.confined import is_link
from glaive.io.failures import from_system
from glaive.io.store import ObjectMeta
from glaive.io.temporary import is_temporary

__all__ = [
    "describe",
    "files_below",
    "files_in",
    "links_below",
    "names_in",
    "remove_empty_folders",
    "unfinished_below",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STAYS = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY}
"""Why a directory stays: it is not empty, gone, a link, or where a disk is mounted."""

_HAS_JUNCTIONS = os.name == "nt"


def names_in(folder: str) -> list[str]:
    """Names of all that is in a directory, in any order; none if it is not there."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_system(error, folder, "list") from None


def files_in(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Files directly in a directory, in name order; each is looked at when it comes."""
    for name in sorted(names_in(_joined(root, prefix))):
        path = f"{prefix}/{name}" if prefix else name
        if not is_temporary(name) and (found := _file(root, path)) is not None:
            yield found


def files_below(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Files at any depth below a directory, in name order."""
    for path, _ in _below(root, prefix):
        if not is_temporary(path.rpartition("/")[2]) and (found := _file(root, path)) is not None:
            yield found


def unfinished_below(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Unfinished files at any depth below a directory: of writers at work, or that failed."""
    for path, _ in _below(root, prefix):
        if is_temporary(path.rpartition("/")[2]) and (found := _file(root, path)) is not None:
            yield found


def links_below(root: str, prefix: str) -> Iterator[str]:
    """Links at any depth below a directory, wherever they lead."""
    return (path for path, link in _below(root, prefix) if link)


def remove_empty_folders(root: str) -> None:
    """Remove a directory and those below it, as far as they are empty.

    Links stay, but for the root itself, which goes with what it leads to.
    """
    for path in [path for path, _ in _below(root, "", folders=True) if path.endswith("/")][::-1]:
        _remove_folder(f"{root}/{path}")
    _remove_folder(os.path.realpath(root))
    if is_link(root) and not os.path.exists(root):
        os.unlink(root)


def _remove_folder(full: str) -> None:
    try:
        os.rmdir(full)
    except OSError as error:
        if error.errno not in _STAYS:
            raise from_system(error, full, "remove") from None


def describe(path: str, status: os.stat_result) -> ObjectMeta:
    """What a store tells of a file."""
    changed = _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
    return ObjectMeta(path, status.st_size, changed)


def _below(root: str, prefix: str, *, folders: bool = False) -> Iterator[tuple[str, bool]]:
    """All that is no directory, in name order, and whether it is a link.

    With ``folders`` directories as well, before what is in them: those paths end in a slash.
    """
    folder, links = f"{prefix}/" if prefix else "", set()
    ahead = [folder]
    while ahead:
        path = ahead.pop()
        if path and not path.endswith("/"):
            yield path, path in links
            continue
        if folders and path != folder:
            yield path, False
        found = []
        for name, is_folder, link in _scanned(_joined(root, path.rstrip("/"))):
            # A directory sorts as its paths do: as if its name ended in "/".
            found.append(f"{path}{name}/" if is_folder else f"{path}{name}")
            if link:
                links.add(found[-1])
        ahead += sorted(found, reverse=True)


def _scanned(folder: str) -> list[tuple[str, bool, bool]]:
    """Names in a directory, whether each is a directory, and whether it is a link."""
    try:
        with os.scandir(folder) as entries:
            return [_kind(entry) for entry in entries]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_system(error, folder, "list") from None


def _kind(entry: os.DirEntry[str]) -> tuple[str, bool, bool]:
    link = entry.is_symlink() or (_HAS_JUNCTIONS and is_link(entry.path))
    return entry.name, not link and entry.is_dir(follow_symlinks=False), link


def _file(root: str, path: str) -> ObjectMeta | None:
    """A file, or what a link leads to; ``None`` if it is none, or gone since it was listed."""
    full = _joined(root, path)
    try:
        status = os.stat(full)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return None
        raise from_system(error, full, "look up") from None
    return None if S_ISDIR(status.st_mode) else describe(path, status)


def _joined(root: str, path: str) -> str:
    return f"{root}/{path}" if path else root
