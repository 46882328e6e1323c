"""Objects in a directory of the local file system.

Files become visible atomically: they are written under a temporary name in their own directory
and then linked (``create``) or renamed (``overwrite``). Listings omit temporary names. Small
files with new random names are written in place (:meth:`LocalStore.put_new`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from stat import S_ISDIR, S_ISREG
from typing import Final, TypeAlias

import pyarrow as pa

from glaive.config import settings
from glaive.errors import StoreError
from glaive.io.confined import (
    LeadsOutError,
    describe,
    empty_folders_below,
    files_below,
    files_in,
    folders_below,
    is_link,
    links_below,
    names_in,
    opened_folder,
    remove_folder,
    remove_root,
    unfinished_below,
    unlink_all,
    write_mark,
)
from glaive.io.failures import check_ranges, from_system, not_a_file
from glaive.io.local_sink import LocalSink, joined_if_small, put_small, remove_unfinished, write_new
from glaive.io.location import ALWAYS_CHECKED, absolute_path, check_object_path, check_root
from glaive.io.mapped import READING, MappedReader
from glaive.io.remote import MAX_REQUEST, RemoteReader, aligned_memory, coalesce, split
from glaive.io.storage_options import read_switch
from glaive.io.store import BytesLike, IoCounters, ObjectMeta, ObjectStore, PutMode, RangeReader
from glaive.types import ByteRange

# --- Local files read range by range, for processes whose address space is limited ------

_MAX_GAP_BYTES = 16 * 1024
"""Gap in bytes up to which two ranges are read as one."""


def open_file(path: str, counters: IoCounters) -> MappedReader | PositionedReader:
    """Map a file, or read its ranges if it exceeds a limited address space."""
    try:
        return MappedReader(path, counters)
    except StoreError as error:
        if error.errno != errno.ENOMEM:
            raise
        return PositionedReader(path, counters)


class PositionedReader(RemoteReader):
    """A file whose ranges are copied into memory on request.

    It replaces :class:`glaive.io.mapped.MappedReader` if a map of the whole file would take too
    much of the address space, as with ``spark.executor.pyspark.memory``. The file is opened and
    closed at each call, which costs about 20 us and keeps descriptors few.
    """

    __slots__ = ("_counters", "path", "size")

    def __init__(self, path: str, counters: IoCounters) -> None:
        self.path = path
        self._counters = counters
        try:
            self.size: int = os.stat(path).st_size
        except OSError as error:
            raise from_system(error, path, "read") from None

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes, or all bytes if there are fewer."""
        start = max(0, self.size - size)
        return self.read([ByteRange(start, self.size - start)])[0]

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order. Adjacent ranges are read at once."""
        check_ranges(self.path, ranges, self.size)
        joined = coalesce(ranges, max_gap=_MAX_GAP_BYTES, max_request=MAX_REQUEST)
        try:
            fd = os.open(self.path, READING)
            try:
                buffers = [self._read(fd, request) for request in joined.requests]
            finally:
                os.close(fd)
        except OSError as error:
            raise from_system(error, self.path, "read") from None
        self._counters.add_read(len(buffers), joined.size)
        return split(ranges, joined, buffers)

    def _read(self, fd: int, request: ByteRange) -> pa.Buffer:
        """Read one range, in several calls if needed: the system reads at most 2 GiB at once."""
        data, target = aligned_memory(request.size, request.offset)
        done = 0
        while done < request.size:
            count = os.preadv(fd, [target[done:]], request.offset + done)
            if not count:
                self.size = os.fstat(fd).st_size
                check_ranges(self.path, [request], self.size)
                raise StoreError(
                    f"cannot read {self.path}: it changed while it was read. Try again."
                )
            done += count
        return data


# --- Read whole local files, such as metadata: their first bytes, then the rest, if any ---

_FIRST_READ_BYTES: Final = 64 * 1024
_SLICE_BYTES: Final = 8 * 1024 * 1024
"""Bytes per system call after the first call."""


def read_whole(full: str, *, with_holes: bool) -> bytes:
    """Read a whole file.

    Parameters
    ----------
    full
        Its path.
    with_holes
        Whether it may have large holes.

    Raises
    ------
    StoreError
        The system failed. The file is a pipe or a device. Or it has more bytes than the system
        says, as files that the system generates on reading: some of them are endless.
    CorruptFileError
        The file has large holes.
    """
    try:
        fd = os.open(full, READING)
        try:
            # Enough for most manifests: saves a system call for the size.
            data = _read_at(fd, _FIRST_READ_BYTES, 0, full)
            if not data or len(data) == _FIRST_READ_BYTES:
                status = os.fstat(fd)
                if not S_ISREG(status.st_mode):
                    raise not_a_file(full, status.st_mode)
                if not with_holes:
                    from glaive.io.mapped import refuse_holes

                    refuse_holes(fd, status.st_size, full)
                if status.st_size < len(data):
                    raise StoreError(
                        f"cannot read {full}: the system says that it has {status.st_size} bytes, "
                        "and has more. It is not a file on a disk: check the path."
                    )
                data = b"".join([data, *_rest(fd, len(data), status.st_size, full)])
        finally:
            os.close(fd)
    except OSError as error:
        raise from_system(error, full, "read") from None
    return data


def _read_at(fd: int, size: int, start: int, full: str) -> bytes:
    """Read bytes from a position. Raise for a pipe or device, which has no positions."""
    if not hasattr(os, "pread"):
        return os.read(fd, size)  # which begins at the same position
    try:
        return os.pread(fd, size, start)
    except OSError as error:
        raise _without_positions(error, fd, full) from None


def _without_positions(error: OSError, fd: int, full: str) -> OSError:
    """Return a better error if the opened file is a pipe, a socket or a terminal."""
    return not_a_file(full, os.fstat(fd).st_mode) if error.errno == errno.ESPIPE else error


def _rest(fd: int, start: int, end: int, full: str) -> Iterator[bytes]:
    """Yield the bytes between two positions; fewer if the file was truncated."""
    while start < end and (data := _read_at(fd, min(end - start, _SLICE_BYTES), start, full)):
        start += len(data)
        yield data


_ALLOW = (
    "Files there may belong to somebody else; storage_options={'delete_through_links': 'true'} "
    "allows reading and deleting them."
)
_Reached: TypeAlias = AbstractContextManager[int | str]
_FOLDER = None if os.sep != "/" else os.O_RDONLY | os.O_DIRECTORY
_REWRITE = (
    os.O_WRONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)


class LocalStore(ObjectStore):
    """A directory. Only reads and writes access the disk. Writes create missing directories.

    ``options`` are storage options. ``fsync`` (``true`` or ``false``), which overrides
    ``GLAIVE_FSYNC``, is whether to force files to disk before they become visible.
    ``delete_through_links`` is whether to delete files in folders outside of the root that a
    symlink leads to. Other options are ignored.

    Raises
    ------
    OptionError
        An option is not true or false. Or the directory is relative to a working directory that was
        removed.
    """

    __slots__ = ("anchor", "counters", "fsync", "options", "root", "through_links")

    counters: IoCounters

    def __init__(
        self, root: str | os.PathLike[str], options: Mapping[str, str] | None = None
    ) -> None:
        self.root = absolute_path(os.fspath(root))
        check_root(self.root, is_local=True)
        self.options: Mapping[str, str] = options or {}
        self.fsync, self.through_links = settings.fsync, False
        if options:
            self.fsync = read_switch(options, "fsync", default=self.fsync)
            self.through_links = read_switch(options, "delete_through_links")
        self.counters = IoCounters()
        self.anchor = self.root

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStore) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopened, (self.anchor, self.root[len(self.anchor) + 1 :], dict(self.options)))

    @property
    def is_local(self) -> bool:
        """``True``: objects are files in a directory."""
        return True

    @property
    def uri(self) -> str:
        """The directory, absolute."""
        return self.root

    def full(self, path: str) -> str:
        """Return the absolute path of an object; ``StoreError`` if it leaves the directory."""
        if path.startswith("/") or ".." in path or not path.isprintable() or ALWAYS_CHECKED:
            check_object_path(path, self.root, is_local=True)
        return f"{self.root}/{path}" if path else self.root

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Map a file if possible. ``size`` is ignored: the size on disk is used."""
        return open_file(self.full(path), self.counters)

    def get(self, path: str) -> pa.Buffer:
        """Read a whole file into memory."""
        # Only values of blobs may have holes. Metadata, records of runs and sources of a conversion
        # are dense.
        with_holes = not path.startswith("_") and not path.endswith((".json", ".parquet"))
        data = read_whole(self.full(path), with_holes=with_holes)
        self.counters.add_read(1, len(data))
        return pa.py_buffer(data)

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole file; see the contract in :mod:`glaive.io.store`."""
        if not self.fsync and (small := joined_if_small(data)) is not None:
            put_small(self.full(path), small, mode)
            self.counters.add_write(1, len(small))
            return
        sink = self.create(path)
        try:
            sink.write(data)
            sink.publish(mode)
        except BaseException:
            sink.abort()
            raise

    def put_new(self, path: str, data: Sequence[BytesLike]) -> None:
        """Write a file whose name only this process knows until it is complete.

        It is written in place: a writer that is stopped leaves a file that readers ignore.
        """
        small = None if self.fsync else joined_if_small(data)
        if small is not None:
            full = self.full(path)
            try:
                write_new(full, small)
            except FileExistsError:  # from an earlier attempt
                put_small(full, small, "overwrite")
            except OSError as error:
                raise from_system(error, full, "write") from None
            self.counters.add_write(1, len(small))
        else:
            self.put(path, data)

    def rewrite(self, path: str, data: bytes) -> bool:
        """Overwrite a file of the same size in place; return ``False`` if that is impossible.

        Use it only for hints: a reader may see a mixture of old and new bytes. A symlink, or a file
        that has another name as well, is left as it is.
        """
        try:
            fd = os.open(self.full(path), _REWRITE)
            try:
                status = os.fstat(fd)
                mine = S_ISREG(status.st_mode) and status.st_nlink == 1
                return mine and status.st_size == len(data) and os.write(fd, data) == len(data)
            finally:
                os.close(fd)
        except OSError:
            return False

    def mark(self, path: str, data: bytes) -> None:
        """Write a small file where files may be deleted: refuse symlinks that lead out."""
        full = self.full(path)
        try:
            with self._reached(_folder_of(path)) as at:
                write_mark(at, full.rpartition("/")[2], data, fsync=self.fsync)
        except LeadsOutError as error:
            raise StoreError(f"cannot write {full}: {error}. {_ALLOW}") from None
        except OSError as error:
            raise from_system(error, full, "write") from None

    def create(self, path: str) -> LocalSink:
        """Start writing a file; its directory is created if missing."""
        return LocalSink(self.full(path), self.counters, fsync=self.fsync)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the files directly in a directory, in name order; each is inspected when
        reached.
        """
        self.full(prefix)
        return files_in(self.root, prefix)

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the files at any depth below a directory, in name order."""
        self.full(prefix)
        return files_below(self.root, prefix)

    def walk_between(
        self, prefix: str, start: str | None, stop: str | None
    ) -> Iterator[ObjectMeta]:
        """Yield the files of :meth:`walk` from a path to before another, and inspect only these."""
        self.full(prefix)
        return files_below(self.root, prefix, start, stop)

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield temporary files of active or failed writers, at any depth below a directory."""
        self.full(prefix)
        return unfinished_below(self.root, prefix)

    def empty_folders(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the empty directories, at any depth below a directory."""
        self.full(prefix)
        return empty_folders_below(self.root, prefix)

    def remove_empty(self, folders: Sequence[str]) -> None:
        """Remove directories that are empty, if files in them may be deleted."""
        for path in folders:
            self._remove_empty(self._reached(_folder_of(path)), self.full(path))

    def _remove_empty(self, parent: _Reached, full: str) -> None:
        """Remove a directory in its opened parent, if it is empty."""
        try:
            with parent as at:
                remove_folder(at, full.rpartition("/")[2])
        except (FileNotFoundError, NotADirectoryError, LeadsOutError):
            return
        except OSError as error:
            raise from_system(error, full, "remove") from None

    def links(self, prefix: str) -> Iterator[str]:
        """Yield the symlinks at any depth below a directory."""
        self.full(prefix)
        return links_below(self.root, prefix)

    def names(self, prefix: str) -> Sequence[str]:
        """Return the names of all entries of a directory, also unfinished files, unordered."""
        return names_in(self.full(prefix))

    def remove_folders(self) -> None:
        """Remove the root and the directories below it that are empty.

        If the root is a folder of the directory that the caller specified, and is reached through a
        symlink, it is kept.
        """
        named = [path for path in folders_below(self.root) if self.can_name(path)]
        self.remove_empty(named)
        above, _, name = self.root[len(self.anchor) + 1 :].rpartition("/")
        if self.through_links or not name:
            remove_root(self.root)
        else:
            self._remove_empty(opened_folder(self.anchor, above, ""), self.root)

    def head(self, path: str) -> ObjectMeta:
        """Return the size and time of a file."""
        full = self.full(path)
        try:
            status = os.stat(full)
        except OSError as error:
            raise from_system(error, full, "look up") from None
        if S_ISDIR(status.st_mode):
            raise StoreError(f"cannot look up {full}: it is a directory. Check the path.")
        return describe(path, status)

    def folder_state(self, prefix: str) -> tuple[int, int, int] | None:
        """Return a value that changes with a directory's entries; ``None`` if it is missing.

        The directory is opened, because network file systems then ask their server, as for a
        listing.
        """
        try:
            if _FOLDER is None:
                status = os.stat(self.full(prefix))
            else:
                folder = os.open(self.full(prefix), _FOLDER)
                try:
                    status = os.fstat(folder)
                finally:
                    os.close(folder)
        except OSError:  # listing it raises the error
            return None
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns

    def is_free(self, path: str) -> bool:
        """Return whether a file is certainly missing."""
        try:
            os.stat(self.full(path))
        except OSError as error:
            return isinstance(error, FileNotFoundError)
        return False

    def below(self, path: str) -> LocalStore:
        """Return a store of a folder; its deletions raise if a symlink leads to the folder."""
        store = LocalStore(self.full(path), self.options)
        store.anchor = self.anchor
        return store

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files in this order. Symlinks are deleted; their targets stay.

        Missing files are ignored. A symlink that leads out of the root is followed only if
        ``delete_through_links`` is set. With ``fsync``, the deletions in one folder are on disk
        before deletions in the next folder begin.
        """
        self._delete(paths, self._reached)

    def delete_written(self, paths: Sequence[str]) -> None:
        """Delete files that this process has written, also if a symlink leads to the root.

        Somebody else may have replaced a folder that this process made below the root by a symlink:
        such a symlink is refused.
        """
        self._delete(paths, self._written_to)

    def _delete(self, paths: Sequence[str], reach: Callable[[str], _Reached]) -> None:
        for path in paths:
            self.full(path)  # check all paths before the first is deleted
        for folder, group in groupby(paths, _folder_of):
            full = self.full(folder)
            names = [path[len(folder) + 1 if folder else 0 :] for path in group]
            try:
                with reach(folder) as at:
                    unlink_all(at, names, fsync=self.fsync)
            except LeadsOutError as error:
                raise StoreError(f"cannot delete files in {full}: {error}. {_ALLOW}") from None
            except FileNotFoundError:
                continue  # the folder is missing
            except OSError as error:
                name = os.path.basename(error.filename or "")  # or a folder in its path
                path = f"{full}/{name}" if name in names else full
                raise from_system(error, path, "delete") from None

    def link_out(self, folder: str) -> str | None:
        """Return why files in a folder are kept: a symlink leads out of the root."""
        if self.through_links:
            return None
        try:
            with self._confined(folder):
                return None
        except LeadsOutError as error:
            return f"{error}. {_ALLOW}"
        except (FileNotFoundError, NotADirectoryError):  # the end is missing or a file
            return None
        except OSError as error:  # reading a file may still follow it
            raise from_system(error, self.full(folder), "look up") from None

    def _reached(self, folder: str) -> _Reached:
        """Open a folder to delete in: its path if it may be anywhere, else a descriptor."""
        return nullcontext(self.full(folder)) if self.through_links else self._confined(folder)

    def _written_to(self, folder: str) -> _Reached:
        """Open a folder of new files to delete in; its first name may be a symlink."""
        if self.through_links:
            return nullcontext(self.full(folder))
        first, _, below = folder.partition("/")
        return opened_folder(self.full(first), below, "")

    def _confined(self, folder: str) -> _Reached:
        return opened_folder(self.anchor, self.root[len(self.anchor) + 1 :], folder)

    def is_link(self, path: str) -> bool:
        """Return whether a name in a folder is a symlink."""
        return is_link(self.full(path))

    def remove_unfinished(self, path: str) -> bool:
        """Remove an empty file whose writer was stopped; return whether it was removed."""
        full = self.full(path)
        if self.link_out(_folder_of(path)) is not None:
            return False
        try:
            return remove_unfinished(full)
        except OSError as error:
            raise from_system(error, full, "remove") from None


def _reopened(anchor: str, prefix: str, options: Mapping[str, str]) -> LocalStore:
    store = LocalStore(anchor, options)
    return store.below(prefix) if prefix else store


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
