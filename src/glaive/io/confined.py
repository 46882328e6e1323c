"""Open folders below a root without following links that lead out of it.

A dataset from somebody else may contain links: its folder ``data`` may really be a folder of
another dataset, or of no dataset at all. Deleting files through such a link would destroy foreign
data. So deletions descend from the root with a descriptor per folder, which cannot be replaced by
a link meanwhile, and check each link.

A link may be followed if it leads to a folder below the same root, and not into another dataset
there, such as a branch: a folder that has ``_versions``, or one below it. The root itself was
named by the caller, and its path may contain links.
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
"""Whether the system supports names relative to the descriptor of a folder; Windows does not."""

_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_MARK: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_MAX_LINKS: Final = 40
"""Links followed in one path; the limit of Linux."""

_ATTEMPTS: Final = 4
"""Questions what a name is, while another process exchanges links and folders."""

_NOT_REMOVED: Final = frozenset(
    {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY}
)
"""Errors for a folder that is not empty, does not exist, is a link or a mount point."""

_STRICT: Final = os.name != "nt"
"""Whether the system says of each part of a path why it cannot be followed; drives of Windows may
not."""

_DATASET: Final = "_versions"
_JUNCTION: Final = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)


class LeadsOutError(Exception):
    """A link in the path of a folder leads out of the root; stores translate it."""


def is_link(full: str) -> bool:
    """Whether a path is a symbolic link, or a junction."""
    try:
        status = os.lstat(full)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _JUNCTION


def real_path(path: str) -> str:
    """The path without links of what the system finds at a path.

    The system is asked first: it follows some links, where Python would follow any number. Links
    of strangers may also lead through others to paths that are too long to be looked at, where what
    is no link and what nobody can look at are not the same: from there the system goes on.

    Raises
    ------
    OSError
        The system finds nothing, or nobody knows where it is.
    """
    os.stat(path)
    return os.path.realpath(path, strict=_STRICT)


def is_downloaded(root: str, path: str) -> bool:
    """Whether a file lies in ``x/blobs`` for a root below ``x/snapshots``; both without links.

    ``huggingface_hub`` keeps files there, and makes links to them.
    """
    above, mark, _ = root.replace(os.sep, "/").rpartition("/snapshots/")
    return bool(mark) and path.replace(os.sep, "/").rpartition("/")[0] == f"{above}/blobs"


def unlink_all(folder: int | str, names: Sequence[str], *, fsync: bool = False) -> None:
    """Delete files of an opened folder, links instead of their targets; missing ones are fine.

    With ``fsync`` the folder is forced to disk then.
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
    """Remove a folder in an opened one if it is empty; else, and if it is no folder, it stays."""
    try:
        if isinstance(folder, int):
            os.rmdir(name, dir_fd=folder)
        else:
            os.rmdir(f"{folder}/{name}")
    except OSError as error:
        if error.errno not in _NOT_REMOVED:
            raise


def write_mark(folder: int | str, name: str, data: bytes, *, fsync: bool = False) -> None:
    """Write some bytes as a file of an opened folder, in the place of one or of a link.

    With ``fsync`` they are forced to disk.
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
    """A descriptor of a folder; on Windows its path, which is checked once.

    Parameters
    ----------
    anchor
        A folder that the caller named.
    prefix
        The root below it, as a relative path, which must contain no link.
    folder
        Path below the root.

    Raises
    ------
    LeadsOutError
        A link in the path leads out of the root, into another dataset, or in circles.
    OSError
        There is no such folder, or the system failed.
    """
    if not _BY_DESCRIPTOR:
        yield _by_name(anchor, prefix, folder)
        return
    descent = _Descent(anchor, prefix)
    try:
        descent.go(folder)
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
                    raise _leads_out(name, below, f"below {anchor}")
                self.folders.append(below)
                os.close(self.folders.pop(0))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all descriptors: folders have nothing to write, so that an error says nothing."""
        while self.folders:
            with suppress(OSError):
                os.close(self.folders.pop())

    def go(self, folder: str) -> None:
        """Descend to a folder of the root."""
        ahead: list[str | None] = list(reversed(folder.split("/")))
        links: list[tuple[str, str]] = []
        while ahead:
            name = ahead.pop()
            if name is None:  # the end of a link
                if len(self.folders) == 1 or any(map(_is_dataset, self.folders[1:])):
                    raise _leads_out(*links[0], "where there is another dataset")
            elif name == "..":  # part of a link: paths have none
                if len(self.folders) == 1:
                    raise _leads_out(*links[0], f"outside of {self._root}")
                os.close(self.folders.pop())
            elif name not in ("", "."):
                below = self._enter(name)
                if isinstance(below, int):
                    self.folders.append(below)
                    continue
                links.append((name, below))
                if len(links) > _MAX_LINKS:
                    raise _leads_out(*links[0], "which leads in circles")
                ahead += (None, *reversed(self._relative(links[-1][1], links[0]).split("/")))

    def _enter(self, name: str) -> int | str:
        """A folder of the last one; the target if it is a link.

        Another process may exchange a link and a folder between the two questions.
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
        """The target of a link relative to the last folder; the root becomes it if absolute."""
        if not target.startswith("/"):
            return target
        root = os.path.realpath(self._root)
        path = target
        if not _is_below(path, root):
            try:
                path = real_path(target)
            except OSError as error:
                raise _leads_out(*first, f"which cannot be followed: {error.strerror}") from None
        if not _is_below(path, root):
            raise _leads_out(*first, f"outside of {self._root}")
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
    """The path of a folder, if no link in it leads out; each name is checked once."""
    root = anchor
    for name in filter(None, prefix.split("/")):
        root = f"{root}/{name}"
        if is_link(root):
            raise _leads_out(name, os.path.realpath(root), f"below {anchor}")
    top = at = os.path.realpath(root)
    for name in filter(None, folder.split("/")):
        at = os.path.join(at, name)
        if not is_link(at):
            continue
        at = os.path.realpath(at)
        if is_link(at):
            raise _leads_out(name, at, "which leads in circles")
        if not _is_below(at, top):
            raise _leads_out(name, at, f"outside of {root}")
        inside = at[len(top) :].strip(os.sep).split(os.sep)
        above = [
            os.path.join(top, *inside[:depth], _DATASET) for depth in range(1, len(inside) + 1)
        ]
        if at == top or any(map(os.path.lexists, above)):
            raise _leads_out(name, at, "where there is another dataset")
    return at


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _leads_out(name: str, target: str, where: str) -> LeadsOutError:
    return LeadsOutError(f"{name} is a link to {target}, {where}")


# --- List directories -------------------------------------------------------------------
# Links to files count as files. Links to directories are ignored: nothing is listed through a
# link, unless the listed directory is one itself. Names of unfinished files are omitted.

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
