"""Open folders below a root, and refuse symlinks that lead out of it.

A dataset from somebody else may contain symlinks: its folder ``data`` may really be any other
folder. Deleting files through such a symlink would destroy other data. So deletions descend from
the root and check each symlink. They open a descriptor per folder, which stays valid when another
process replaces the folder by a symlink.

A symlink may be followed if it leads to a folder of the same dataset below the same root. Another
dataset there, such as a branch, is a folder that has ``_versions``, or a folder below it.
The caller specified the root itself, so its path may contain symlinks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from stat import S_ISDIR
from typing import Final

from glaive.io.failures import from_system
from glaive.io.local_sink import is_temporary, sync_folder
from glaive.io.store import ObjectMeta

_BY_DESCRIPTOR: Final = (
    hasattr(os, "O_NOFOLLOW")
    and {os.open, os.unlink, os.rmdir, os.stat, os.readlink} <= os.supports_dir_fd
)
"""Whether the system supports names relative to a folder's descriptor; Windows lacks them."""

_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_MARK: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_MAX_LINKS: Final = 40
"""Maximum symlinks followed in one path; the limit of Linux."""

_ATTEMPTS: Final = 4
"""Attempts to find what a name is, while another process exchanges symlinks and folders."""

_NOT_REMOVED: Final = frozenset(
    {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY}
)
"""Errors for a folder that is missing or not empty, for a symlink or a mount point."""

_STRICT: Final = os.name != "nt"
"""Whether the system says why following a part of a path fails; drives of Windows may hide it."""

_DATASET: Final = "_versions"
_JUNCTION: Final = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)


class LeadsOutError(Exception):
    """A symlink in the path of a folder leads out of the root; stores translate the error."""


def is_link(full: str) -> bool:
    """Return whether a path is a symlink or a junction."""
    try:
        status = os.lstat(full)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _JUNCTION


def real_path(path: str) -> str:
    """Resolve all symlinks of a path.

    glaive opens the file first, because the system limits the symlinks that it follows, unlike
    Python. Untrusted symlinks may lead to paths that are too long to inspect. Python's lenient
    mode takes such a part for a plain name, so the strict mode is used where the system allows it.

    Raises
    ------
    OSError
        The file is missing, or the system fails to resolve its path.
    """
    os.stat(path)
    return os.path.realpath(path, strict=_STRICT)


def is_downloaded(root: str, path: str) -> bool:
    """Return whether a file is in ``x/blobs`` for a root below ``x/snapshots``.

    ``huggingface_hub`` stores files there, and makes symlinks to them. Both paths must be resolved.
    """
    above, mark, _ = root.replace(os.sep, "/").rpartition("/snapshots/")
    return bool(mark) and path.replace(os.sep, "/").rpartition("/")[0] == f"{above}/blobs"


def unlink_all(folder: int | str, names: Sequence[str], *, fsync: bool = False) -> None:
    """Delete files of an opened folder. Symlinks are deleted; their targets stay.

    Missing files are ignored. With ``fsync``, the folder is then forced to disk.
    """
    for name in names:
        try:
            if isinstance(folder, int):
                os.unlink(name, dir_fd=folder)
            else:
                os.unlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue
    if fsync:
        sync_folder(folder)


def remove_folder(folder: int | str, name: str) -> None:
    """Remove an empty folder in an opened folder. Keep anything else of this name."""
    try:
        if isinstance(folder, int):
            os.rmdir(name, dir_fd=folder)
        else:
            os.rmdir(f"{folder}/{name}")
    except OSError as error:
        if error.errno not in _NOT_REMOVED:
            raise


def write_mark(folder: int | str, name: str, data: bytes, *, fsync: bool = False) -> None:
    """Write a few bytes as a file in an opened folder, replacing a file or symlink.

    With ``fsync``, the bytes are forced to disk.
    """
    unlink_all(folder, [name])
    at, path = (folder, name) if isinstance(folder, int) else (None, f"{folder}/{name}")
    fd = os.open(path, _MARK, 0o666, dir_fd=at)
    try:
        os.write(fd, data)
        if fsync:
            os.fsync(fd)
    finally:
        os.close(fd)
    if fsync:
        sync_folder(folder)


@contextmanager
def opened_folder(anchor: str, prefix: str, folder: str) -> Iterator[int | str]:
    """Open a folder and yield its descriptor; on Windows its path, which is checked once.

    Parameters
    ----------
    anchor
        A folder that the caller specified.
    prefix
        The root as a path relative to ``anchor``; every symlink in it is refused.
    folder
        Path below the root.

    Raises
    ------
    LeadsOutError
        A symlink in the path leads out of the root, into another dataset, or in circles.
    OSError
        The folder is missing, or the system failed.
    """
    if not _BY_DESCRIPTOR:
        yield _by_name(anchor, prefix, folder)
        return
    descent = _Descent(anchor, prefix)
    try:
        descent.descend(folder)
        yield descent.folders[-1]
    finally:
        descent.close()


class _Descent:
    """A path down from the root: descriptors of the root and of each folder in the path."""

    def __init__(self, anchor: str, prefix: str) -> None:
        self._root = f"{anchor}/{prefix}" if prefix else anchor
        self.folders = [os.open(anchor, _FOLDER)]
        try:
            for name in filter(None, prefix.split("/")):
                below = self._enter(name)
                if isinstance(below, str):
                    raise _link_error(name, below, f"below {anchor}")
                self.folders.append(below)
                os.close(self.folders.pop(0))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all descriptors. Errors are ignored, because the folders were only read."""
        while self.folders:
            with suppress(OSError):
                os.close(self.folders.pop())

    def descend(self, folder: str) -> None:
        """Descend to a folder of the root."""
        ahead: list[str | None] = list(reversed(folder.split("/")))
        links: list[tuple[str, str]] = []
        while ahead:
            name = ahead.pop()
            if name is None:  # the end of a symlink
                if len(self.folders) == 1 or any(map(_is_dataset, self.folders[1:])):
                    raise _link_error(*links[0], "where there is another dataset")
            elif name == "..":  # from a symlink: only they have it
                if len(self.folders) == 1:
                    raise _link_error(*links[0], f"outside of {self._root}")
                os.close(self.folders.pop())
            elif name not in ("", "."):
                below = self._enter(name)
                if isinstance(below, int):
                    self.folders.append(below)
                    continue
                links.append((name, below))
                if len(links) > _MAX_LINKS:
                    raise _link_error(*links[0], "which leads in circles")
                ahead += (None, *reversed(self._relative(links[-1][1], links[0]).split("/")))

    def _enter(self, name: str) -> int | str:
        """Open a folder in the last folder; return the target instead if it is a symlink.

        Another process may exchange a symlink and a folder between the two calls.
        """
        at = self.folders[-1]
        for _ in range(_ATTEMPTS):
            try:
                return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                    raise
                try:
                    return os.readlink(name, dir_fd=at)
                except OSError as no_link:
                    if no_link.errno != errno.EINVAL:
                        raise
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)

    def _relative(self, target: str, first: tuple[str, str]) -> str:
        """Return a symlink's target relative to the last folder; if absolute, go to the root."""
        if not target.startswith("/"):
            return target
        root = os.path.realpath(self._root)
        path = target
        if not _is_below(path, root):
            try:
                path = real_path(target)
            except OSError as error:
                raise _link_error(*first, f"which cannot be followed: {error.strerror}") from None
        if not _is_below(path, root):
            raise _link_error(*first, f"outside of {self._root}")
        while len(self.folders) > 1:
            os.close(self.folders.pop())
        return path[len(root) :]


def _is_dataset(folder: int) -> bool:
    try:
        os.stat(_DATASET, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _by_name(anchor: str, prefix: str, folder: str) -> str:
    """Return the path of a folder. Check each name in it once, and refuse symlinks out of it."""
    root = anchor
    for name in filter(None, prefix.split("/")):
        root = f"{root}/{name}"
        if is_link(root):
            raise _link_error(name, os.path.realpath(root), f"below {anchor}")
    top = at = os.path.realpath(root)
    for name in filter(None, folder.split("/")):
        at = os.path.join(at, name)
        if not is_link(at):
            continue
        at = os.path.realpath(at)
        if is_link(at):
            raise _link_error(name, at, "which leads in circles")
        if not _is_below(at, top):
            raise _link_error(name, at, f"outside of {root}")
        inside = at[len(top) :].strip(os.sep).split(os.sep)
        above = [
            os.path.join(top, *inside[:depth], _DATASET) for depth in range(1, len(inside) + 1)
        ]
        if at == top or any(map(os.path.lexists, above)):
            raise _link_error(name, at, "where there is another dataset")
    return at


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _link_error(name: str, target: str, where: str) -> LeadsOutError:
    return LeadsOutError(f"{name} is a link to {target}, {where}")


# --- List directories -------------------------------------------------------------------
# Symlinks to files count as files. Symlinks to directories are ignored, unless the listed directory
# itself is a symlink. Names of unfinished files are omitted.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HAS_JUNCTIONS = os.name == "nt"


def names_in(folder: str) -> list[str]:
    """Return the names of all entries of a directory, unordered; empty if it is missing."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_system(error, folder, "list") from None


def files_in(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Yield the files directly in a directory, in name order; each is inspected when reached."""
    for name in sorted(names_in(_joined(root, prefix))):
        path = f"{prefix}/{name}" if prefix else name
        if not is_temporary(name) and (meta := _file(root, path)) is not None:
            yield meta


def files_below(
    root: str, prefix: str, start: str | None = None, stop: str | None = None
) -> Iterator[ObjectMeta]:
    """Yield the files at any depth below a directory, in name order.

    Only files from ``start`` on and before ``stop`` are inspected and yielded.
    """
    for path, _ in _below(root, prefix):
        if stop is not None and path >= stop:
            return
        if start is not None and path < start:
            continue
        if not is_temporary(path.rpartition("/")[2]) and (meta := _file(root, path)) is not None:
            yield meta


def unfinished_below(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Yield unfinished files of active or failed writers, at any depth below a directory."""
    for path, _ in _below(root, prefix):
        if is_temporary(path.rpartition("/")[2]) and (meta := _file(root, path)) is not None:
            yield meta


def links_below(root: str, prefix: str) -> Iterator[str]:
    """Yield the symlinks at any depth below a directory, with any target."""
    return (path for path, link in _below(root, prefix) if link)


class LinkTargets:
    """Files and directories that symlinks lead to. ``path in targets`` checks a full path."""

    def __init__(self, links: Iterable[str]) -> None:
        self._targets: set[str] = set()
        for link in links:
            with suppress(OSError):  # it leads nowhere
                self._targets.add(real_path(link))

    def __contains__(self, full: str) -> bool:
        """Return whether a symlink leads to a file, or to a directory that contains it."""
        if not self._targets:
            return False
        try:
            path = real_path(full)
        except OSError:  # unknown
            return True
        while path not in self._targets:
            above = os.path.dirname(path)
            if above == path:
                return False
            path = above
        return True


def empty_folders_below(root: str, prefix: str) -> Iterator[ObjectMeta]:
    """Yield the empty directories, at any depth below a directory."""
    for path, _ in _below(root, prefix, folders=True):
        full = _joined(root, path.rstrip("/"))
        if path.endswith("/") and not names_in(full) and (status := _status(full)) is not None:
            yield describe(path.rstrip("/"), status)


def folders_below(root: str) -> list[str]:
    """List the directories at any depth below a directory, each after those it contains."""
    paths = [path for path, _ in _below(root, "", folders=True) if path.endswith("/")]
    return [path.rstrip("/") for path in reversed(paths)]


def remove_root(root: str) -> None:
    """Remove a directory if it is empty. If it is a symlink, remove the target, then the
    symlink.
    """
    full = root
    try:
        full = os.path.realpath(root)  # which raises if a symlink is exchanged while it is read
        remove_folder(*os.path.split(full))
        if is_link(root) and not os.path.exists(root):
            os.unlink(root)
    except OSError as error:
        raise from_system(error, full, "remove") from None


def describe(path: str, status: os.stat_result) -> ObjectMeta:
    """Return the metadata of a file; omit the time if Python cannot represent its year."""
    changed = None
    with suppress(OverflowError):  # the writer of a file may set any time
        changed = _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
    return ObjectMeta(path, status.st_size, changed)


def _below(root: str, prefix: str, *, folders: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield all entries except directories, in name order, and whether each is a symlink.

    With ``folders``, also yield directories before their entries; their paths end in a slash.
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
            # A directory is sorted like its paths: as if its name ended in "/".
            paths.append(f"{path}{name}/" if is_folder else f"{path}{name}")
            if link:
                links.add(paths[-1])
        ahead += sorted(paths, reverse=True)


def _scanned(folder: str) -> list[tuple[str, bool, bool]]:
    """Return names in a directory, whether each is a directory, and whether a symlink."""
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
    """Return a file, or a symlink's target; ``None`` for all else, and if it was deleted."""
    status = _status(_joined(root, path))
    return None if status is None or S_ISDIR(status.st_mode) else describe(path, status)


def _status(full: str) -> os.stat_result | None:
    """Return the status of a file or directory; ``None`` if it was deleted."""
    try:
        return os.stat(full)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a circular symlink
            return None
        raise from_system(error, full, "look up") from None


def _joined(root: str, path: str) -> str:
    return f"{root}/{path}" if path else root
