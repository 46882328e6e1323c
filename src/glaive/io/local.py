"""Objects in a directory of the local file system.

Everything that becomes visible becomes so in one step: it is written under a temporary name
in its own directory and then linked (``create``) or renamed (``overwrite``) into place.
Temporary files are named ``.<name>.<random>.tmp``; listings leave them out. Small files with
names that nobody knows yet need none (:meth:`LocalStore.put_new`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import FileIO
from stat import S_ISDIR, S_ISREG

import pyarrow as pa

from glaive.config import settings
from glaive.errors import OptionError, StoreError
from glaive.io.failures import from_system, not_a_file
from glaive.io.local_sink import SMALL, TEMPORARY, LocalSink, place_small, write_new
from glaive.io.mapped import READING, MappedReader
from glaive.io.stats import IoCounters
from glaive.io.store import BytesLike, ObjectMeta, PutMode

__all__ = ["LocalStore"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SLICE = 8 * 1024 * 1024
"""Bytes per system call for what follows."""
_FIRST = 64 * 1024


class LocalStore:
    """A directory. Made without touching the disk; directories appear when first written to.

    ``options`` are storage options: ``fsync`` (``true`` or ``false``) says whether what becomes
    visible is forced to disk before, in place of ``GLAIVE_FSYNC``; the others mean nothing here.

    Raises
    ------
    OptionError
        ``fsync`` is neither true nor false.
    """

    __slots__ = ("counters", "fsync", "options", "root")

    def __init__(
        self, root: str | os.PathLike[str], options: Mapping[str, str] | None = None
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.options: Mapping[str, str] = options or {}
        self.fsync = _fsync(self.options) if options else settings.fsync
        self.counters = IoCounters()

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStore) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalStore, (self.root, dict(self.options)))

    @property
    def uri(self) -> str:
        """The directory, absolute."""
        return self.root

    def full(self, path: str) -> str:
        """Absolute path of an object; refuses paths that lead out of the directory."""
        if path.startswith("/") or (".." in path and ".." in path.split("/")):
            raise StoreError(
                f"path {path!r} leads out of {self.root}. A manifest that names such a path is "
                "damaged or was made to do harm."
            )
        if "\0" in path:
            raise StoreError(
                f"path {path!r} below {self.root} has a null character, which no file's name has. "
                "A manifest that names such a path is damaged."
            )
        return f"{self.root}/{path}" if path else self.root

    def open(self, path: str, *, size: int | None = None) -> MappedReader:
        """Map a file. The size found on disk is used, whatever ``size`` says."""
        return MappedReader(self.full(path), self.counters)

    def get(self, path: str) -> pa.Buffer:
        """Read a whole file into memory."""
        full = self.full(path)
        try:
            fd = os.open(full, READING)
            try:
                data = os.read(fd, _FIRST)  # most manifests: spares asking for the size
                if len(data) == _FIRST:
                    status = os.fstat(fd)
                    if not S_ISREG(status.st_mode):
                        raise not_a_file(full, status.st_mode)
                    data = b"".join([data, *_rest(fd, status.st_size - _FIRST)])
            finally:
                os.close(fd)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise from_system(error, full, "read") from None
        self.counters.add_read(1, len(data))
        return pa.py_buffer(data)

    def get_into(self, path: str, target: memoryview) -> int:
        """Read a whole file into memory at hand, as far as it fits; returns its bytes read."""
        full = self.full(path)
        done = 0
        try:
            with FileIO(full, opener=_opened) as file:
                while done < len(target) and (count := file.readinto(target[done:])):
                    done += count
        except OSError as error:
            raise from_system(error, full, "read") from None
        self.counters.add_read(1, done)
        return done

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole file; see the contract in :mod:`glaive.io.store`."""
        if not self.fsync and (whole := _whole(data)) is not None:
            place_small(self.full(path), whole, mode)
            self.counters.add_write(1, len(whole))
            return
        sink = self.create(path)
        try:
            sink.write(data)
            sink.place(mode)
        except BaseException:
            sink.abort()
            raise

    def put_new(self, path: str, data: Sequence[BytesLike]) -> None:
        """Write a file whose name nobody else knows before all of it is there.

        Such as one with a name of random digits that a manifest is going to name. It needs no
        temporary name: a writer that is stopped leaves a file that nothing refers to.
        """
        whole = None if self.fsync else _whole(data)
        if whole is not None:
            full = self.full(path)
            try:
                write_new(full, whole)
            except FileExistsError:  # of an attempt before
                place_small(full, whole, "overwrite")
            except OSError as error:
                raise from_system(error, full, "write") from None
            self.counters.add_write(1, len(whole))
        else:
            self.put(path, data)

    def rewrite(self, path: str, data: bytes) -> bool:
        """Write over a file of the same size in place; ``False`` if there is no such file.

        Not atomic, hence only for hints: a reader may see a mixture of old and new bytes.
        """
        try:
            fd = os.open(self.full(path), os.O_WRONLY | getattr(os, "O_BINARY", 0))
        except OSError:
            return False
        try:
            return os.fstat(fd).st_size == len(data) and os.write(fd, data) == len(data)
        except OSError as error:
            raise from_system(error, self.full(path), "write") from None
        finally:
            os.close(fd)

    def create(self, path: str) -> LocalSink:
        """Start writing a file; its directory is made when there is none."""
        return LocalSink(self.full(path), self.counters, fsync=self.fsync)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Files directly in a directory, in name order; each is looked at when it comes."""
        full = self.full(prefix)
        for name in self._names(full):
            if _is_temporary(name):
                continue
            status = _status(f"{full}/{name}")
            if status is not None and not S_ISDIR(status.st_mode):
                yield _meta(f"{prefix}/{name}" if prefix else name, status)

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Files at any depth below a directory, in name order."""
        full = self.full(prefix)
        names = set()
        for name in self._names(full):
            if _is_temporary(name):
                continue
            if os.path.isdir(f"{full}/{name}") and not os.path.islink(f"{full}/{name}"):
                names.add(name + "/")
            else:
                names.add(name)
        # A directory sorts as its paths do: as if its name ended in "/".
        for name in sorted(names):
            path = f"{prefix}/{name}" if prefix else name
            if name.endswith("/"):
                yield from self.walk(path[:-1])
            elif (status := _status(f"{full}/{name}")) is not None:
                yield _meta(path, status)

    def remove_folders(self) -> None:
        """Remove the root and the directories below it, as far as they are empty."""
        for folder, _, _ in os.walk(self.root, topdown=False):
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise from_system(error, folder, "remove") from None

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        """Temporary files at any depth below a directory: of writers at work, or that failed."""
        full = self.full(prefix)
        for name in self._names(full):
            path = f"{prefix}/{name}" if prefix else name
            if _is_temporary(name):
                if (status := _status(f"{full}/{name}")) is not None:
                    yield _meta(path, status)
            elif os.path.isdir(f"{full}/{name}") and not os.path.islink(f"{full}/{name}"):
                yield from self.unfinished(path)

    def names(self, prefix: str) -> Sequence[str]:
        """Names of all that is in a directory, unfinished files too, in any order."""
        return _listdir(self.full(prefix))

    @staticmethod
    def _names(full: str) -> Sequence[str]:
        return sorted(_listdir(full))

    def head(self, path: str) -> ObjectMeta:
        """Size and time of a file."""
        full = self.full(path)
        try:
            status = os.stat(full)
        except OSError as error:
            raise from_system(error, full, "look up") from None
        if S_ISDIR(status.st_mode):
            raise StoreError(f"cannot look up {full}: it is a directory. Check the path.")
        return _meta(path, status)

    def folder_state(self, prefix: str) -> tuple[int, ...] | None:
        """What changes when names come into a directory or go; ``None`` if there is none."""
        try:
            status = os.stat(self.full(prefix))
        except OSError:  # whoever lists it is told why
            return None
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns

    def is_free(self, path: str) -> bool:
        """Whether there certainly is no such file."""
        try:
            os.stat(self.full(path))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; those already gone are no error."""
        for path in paths:
            full = self.full(path)
            try:
                os.unlink(full)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise from_system(error, full, "delete") from None


def _fsync(options: Mapping[str, str]) -> bool:
    """Whether the options, else the settings, ask for files to be forced to disk."""
    for key, value in options.items():
        if key.lower() == "fsync":
            found = _SWITCHES.get(value.lower())
            if found is None:
                raise OptionError(f"storage_options: fsync is true or false, found {value!r}")
            return found
    return settings.fsync


_SWITCHES = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


def _whole(data: Sequence[BytesLike]) -> bytes | None:
    """The pieces of a small file, joined; ``None`` if it is not small."""
    if sum([memoryview(piece).nbytes for piece in data]) > SMALL:
        return None
    return b"".join(data)


def _opened(full: str, flags: int) -> int:
    return os.open(full, flags | READING)


def _listdir(full: str) -> Sequence[str]:
    try:
        return os.listdir(full)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_system(error, full, "list") from None


def _rest(fd: int, size: int) -> Iterator[bytes]:
    """What follows, of about this size."""
    while data := os.read(fd, max(_FIRST, min(size, _SLICE))):
        size -= len(data)
        yield data


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY)


def _status(full: str) -> os.stat_result | None:
    try:
        return os.stat(full)
    except FileNotFoundError:  # deleted since it was listed
        return None


def _meta(path: str, status: os.stat_result) -> ObjectMeta:
    changed = _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
    return ObjectMeta(path, status.st_size, changed)
