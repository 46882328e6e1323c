"""List directories.

Links to files count as files. Links to directories are ignored: nothing is listed through a link,
unless the listed directory is one itself. Names of unfinished files are omitted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from stat import S_ISDIR

from glaive.io.confined import is_link, real_path, remove_folder
from glaive.io.failures import from_system
from glaive.io.store import ObjectMeta
from glaive.io.temporary import is_temporary

__all__ = [
    "LinkTargets",
    "describe",
    "empty_folders_below",
    "files_below",
    "files_in",
    "folders_below",
    "links_below",
    "names_in",
    "remove_root",
    "unfinished_below",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HAS_JUNCTIONS = os.name == "nt"


def names_in(folder: str) -> list[str]:
    """Names of all entries of a directory, in any order; none if it does not exist."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_system(error, folder, "list") from None


def files_in(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Files directly in a directory, in name order; each is inspected when it is reached."""
    for name in sorted(names_in(_joined(root, prefix))):
        path = f"{prefix}/{name}" if prefix else name
        if not is_temporary(name) and (meta := _file(root, path)) is not None:
            yield meta


def files_below(
    root: str, prefix: str, start: str | None = None, stop: str | None = None
) -> Iterator[ObjectMeta]:
    """Files at any depth below a directory, in name order.

    Those from ``start`` on and before ``stop`` only; others are not looked up.
    """
    for path, _ in _below(root, prefix):
        if stop is not None and path >= stop:
            return
        if start is not None and path < start:
            continue
        if not is_temporary(path.rpartition("/")[2]) and (meta := _file(root, path)) is not None:
            yield meta


def unfinished_below(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Unfinished files at any depth below a directory: of active writers, or of failed ones."""
    for path, _ in _below(root, prefix):
        if is_temporary(path.rpartition("/")[2]) and (meta := _file(root, path)) is not None:
            yield meta


def links_below(root: str, prefix: str) -> Iterator[str]:
    """Links at any depth below a directory, wherever they lead."""
    return (path for path, link in _below(root, prefix) if link)


class LinkTargets:
    """Files and directories that links lead to, by whatever way; ``path in`` it for a full path."""

    def __init__(self, links: Iterable[str]) -> None:
        self._targets: set[str] = set()
        for link in links:
            with suppress(OSError):  # it leads nowhere
                self._targets.add(real_path(link))

    def __contains__(self, full: str) -> bool:
        """Whether a link leads to a file, or to a directory around it."""
        if not self._targets:
            return False
        try:
            path = real_path(full)
        except OSError:  # nobody knows
            return True
        while path not in self._targets:
            above = os.path.dirname(path)
            if above == path:
                return False
            path = above
        return True


def empty_folders_below(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Directories without entries at any depth below a directory."""
    for path, _ in _below(root, prefix, folders=True):
        full = _joined(root, path.rstrip("/"))
        if path.endswith("/") and not names_in(full) and (status := _status(full)) is not None:
            yield describe(path.rstrip("/"), status)


def folders_below(root: str) -> list[str]:
    """Directories at any depth below a directory, each after those in it."""
    paths = [path for path, _ in _below(root, "", folders=True) if path.endswith("/")]
    return [path.rstrip("/") for path in reversed(paths)]


def remove_root(root: str) -> None:
    """Remove a directory if it is empty; where it is a link, its target, and then the link."""
    full = root
    try:
        full = os.path.realpath(root)  # which raises if a link is exchanged while it is read
        remove_folder(*os.path.split(full))
        if is_link(root) and not os.path.exists(root):
            os.unlink(root)
    except OSError as error:
        raise from_system(error, full, "remove") from None


def describe(path: str, status: os.stat_result) -> ObjectMeta:
    """The metadata of a file; without its time if that is of a year that Python's times lack."""
    changed = None
    with suppress(OverflowError):  # who writes a file may set any time
        changed = _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
    return ObjectMeta(path, status.st_size, changed)


def _below(root: str, prefix: str, *, folders: bool = False) -> Iterator[tuple[str, bool]]:
    """All entries but directories, in name order, and whether each is a link.

    With ``folders`` directories as well, before their entries; their paths end in a slash.
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
        paths = []
        for name, is_folder, link in _scanned(_joined(root, path.rstrip("/"))):
            # A directory is sorted as its paths are: as if its name ended in "/".
            paths.append(f"{path}{name}/" if is_folder else f"{path}{name}")
            if link:
                links.add(paths[-1])
        ahead += sorted(paths, reverse=True)


def _scanned(folder: str) -> list[tuple[str, bool, bool]]:
    """Names in a directory, whether each is a directory, and whether it is a link."""
    try:
        with os.scandir(folder) as entries:
            return [_described(entry) for entry in entries]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_system(error, folder, "list") from None


def _described(entry: os.DirEntry[str]) -> tuple[str, bool, bool]:
    link = entry.is_symlink() or (_HAS_JUNCTIONS and is_link(entry.path))
    return entry.name, not link and entry.is_dir(follow_symlinks=False), link


def _file(root: str, path: str) -> ObjectMeta | None:
    """A file or the target of a link; ``None`` if that is no file, or has been deleted since."""
    status = _status(_joined(root, path))
    return None if status is None or S_ISDIR(status.st_mode) else describe(path, status)


def _status(full: str) -> os.stat_result | None:
    """The status of a file or directory; ``None`` if it has been deleted."""
    try:
        return os.stat(full)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a circular link
            return None
        raise from_system(error, full, "look up") from None


def _joined(root: str, path: str) -> str:
    return f"{root}/{path}" if path else root
