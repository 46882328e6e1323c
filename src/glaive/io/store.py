"""The contract of object stores: a directory, a bucket, or memory.

Paths are relative to the store's root and separated by ``/``, like ``data/0.lance``. Every failure
is a ``StoreError`` (or subclass) with the full path and the remedy.

Results are ``pyarrow.Buffer``: they have an address, slices of them are views, and they keep their
memory alive (a memory map for local files).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import accumulate
from threading import RLock
from typing import Final, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import GlaiveError, ObjectNotFoundError, StoreError
from glaive.process import fork_safe
from glaive.types import ByteRange

# --- Counts of the operations and bytes read and written through a store ----------------
# Each store has its own counters, so the figures are for one opened dataset. Reads of mapped files
# are counted: each range is an operation, even if its pages are in memory.


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IOStats:
    """Operations and bytes since the store was opened, or since the counters were reset.

    Parameters
    ----------
    read_iops, write_iops
        Operations: ranges after adjacent ranges were joined, whole objects, uploads.
    read_bytes, written_bytes
        Bytes fetched, including gaps between joined ranges; bytes passed for writing.
    """

    read_iops: int = 0
    read_bytes: int = 0
    write_iops: int = 0
    written_bytes: int = 0

    def __repr__(self) -> str:
        return (
            f"IOStats(read_iops={self.read_iops}, read_bytes={self.read_bytes}, "
            f"write_iops={self.write_iops}, write_bytes={self.written_bytes})"
        )

    @property
    def write_bytes(self) -> int:
        """Alias of ``written_bytes``."""
        return self.written_bytes


class IoCounters:
    """Counts of one store. Safe to share between threads; an addition costs about 0.3 us."""

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._lock = fork_safe(RLock())
        self._counts = (0, 0, 0, 0)

    def add(self, reads: int = 0, bytes_read: int = 0, writes: int = 0, written: int = 0) -> None:
        """Add to operations and bytes of the store and of this process."""
        with self._lock:
            now = self._counts
            self._counts = (now[0] + reads, now[1] + bytes_read, now[2] + writes, now[3] + written)
        if self is not _process_counters:
            _process_counters.add(reads, bytes_read, writes, written)

    def add_read(self, operations: int, size: int) -> None:
        """Count reads of ``size`` bytes in total."""
        self.add(operations, size)

    def add_write(self, operations: int, size: int) -> None:
        """Count writes of ``size`` bytes in total."""
        self.add(0, 0, operations, size)

    @property
    def reads(self) -> int:
        """Operations so far."""
        return self._counts[0]

    def snapshot(self) -> IOStats:
        """Return the current figures."""
        reads, bytes_read, writes, written = self._counts
        return IOStats(
            read_iops=reads, read_bytes=bytes_read, write_iops=writes, written_bytes=written
        )

    def take(self) -> IOStats:
        """Return the current figures, and restart from zero."""
        with self._lock:
            taken = self.snapshot()
            self._counts = (0, 0, 0, 0)
        return taken


_process_counters = IoCounters()


def process_totals() -> IOStats:
    """Return the operations and bytes of all stores since this process started."""
    return _process_counters.snapshot()


PutMode = Literal["create", "overwrite"]
BytesLike = bytes | bytearray | memoryview | pa.Buffer

_EXPIRY_OPTIONS: Final = ("expires_at_millis", "refresh_offset_millis")
"""Options that say how long the other options are valid."""


def byte_views(data: Sequence[BytesLike]) -> Iterator[memoryview]:
    """Yield a one-dimensional view of bytes over each part; skip empty parts."""
    for part in data:
        view = memoryview(part)
        if view.nbytes:
            yield view.cast("B") if view.format != "B" or view.ndim != 1 else view


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """One object: path relative to the store, size in bytes, time of last change (UTC), ETag."""

    path: str
    size: int
    modified: datetime | None = None
    etag: str | None = None

    @property
    def stated_size(self) -> int | None:
        """The size, if it is known already."""
        return self.size


@runtime_checkable
class RangeReader(Protocol):
    """An object opened for reading ranges. Safe to share between threads."""

    @property
    def path(self) -> str:
        """Full path or URI, for messages."""

    @property
    def mapped(self) -> bool:
        """Whether ranges are views of a memory map, aligned as on disk."""

    @property
    def size(self) -> int:
        """Bytes in the object; the first call may make a HEAD request."""

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes, or all bytes if there are fewer.

        One request, which also returns the object's size.
        """

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order.

        Adjacent ranges are fetched with one request. A range beyond the end of the object is a
        ``CorruptFileError`` with path, range and size.
        """

    def advise(
        self,
        ranges: Sequence[ByteRange],
        advice: Literal["random", "sequential", "willneed", "dontneed", "normal"],
    ) -> None:
        """Advise how ranges will be used: a hint for maps."""

    def advise_pattern(self, pattern: Literal["random", "sequential"]) -> None:
        """Advise how the object will be read from now on; a hint as well."""

    def close(self) -> None:
        """Release the object; buffers returned before stay valid."""


@runtime_checkable
class Sink(Protocol):
    """An object being written from start to end; invisible until :meth:`finish`."""

    @property
    def position(self) -> int:
        """Bytes written so far."""

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append parts, one after the other."""

    def finish(self) -> int:
        """Make the object visible under its path; return its size in bytes."""

    def abort(self) -> None:
        """Discard the object; safe to call twice and after a failure."""


class ObjectStore:
    """A root with objects below it. Picklable unless it is in the memory of this process.

    Every store implements the methods that raise here. The other methods are optional. Their
    defaults are right for stores that lack the capability, so callers treat all types of stores
    alike. A store that wraps another delegates all: :class:`glaive.io.wrapped.WrappedStore`.
    """

    __slots__ = ()

    @property
    def uri(self) -> str:
        """The root, for messages and for opening it again elsewhere."""
        raise NotImplementedError

    @property
    def public_uri(self) -> str:
        """The root for logs; keys among the parameters of its URL are removed."""
        return GlaiveError.without_secrets(self.uri)

    def full(self, path: str) -> str:
        """Return the full path or URI of ``path``, for messages."""
        raise NotImplementedError

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Open an object for reading; a known ``size`` saves a request.

        If it is missing, raise ``ObjectNotFoundError`` now or at the first read, depending on the
        store.
        """
        raise NotImplementedError

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object. One request."""
        raise NotImplementedError

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole object atomically: readers see it only when it is complete.

        With ``mode="create"`` keep an existing object and raise ``ObjectExistsError``: commits rely
        on this. An empty object counts as missing, so it is replaced: its writer took the name and
        was stopped before it wrote the content.
        """
        raise NotImplementedError

    def create(self, path: str) -> Sink:
        """Start writing a new object in parts."""
        raise NotImplementedError

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the objects directly in the directory ``prefix``, if it exists.

        They are in name order if :attr:`lists_in_order`.
        """
        raise NotImplementedError

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield all objects below ``prefix`` at any depth, in the order of :meth:`list`."""
        raise NotImplementedError

    def walk_between(
        self, prefix: str, start: str | None, stop: str | None
    ) -> Iterator[ObjectMeta]:
        """Yield the objects of :meth:`walk` from path ``start`` to before ``stop``.

        ``None`` leaves that end open. Use it for listings that several processes share.
        """
        for meta in self.walk(prefix):
            if stop is not None and meta.path >= stop:
                if self.lists_in_order:
                    return
            elif start is None or meta.path >= start:
                yield meta

    def head(self, path: str) -> ObjectMeta:
        """Return the size and time of an object; ``ObjectNotFoundError`` if absent. One request."""
        raise NotImplementedError

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing objects are ignored."""
        raise NotImplementedError

    # ------------------------------------------------------------ how it was opened

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options of the store."""
        return {}

    @property
    def secret(self) -> str:
        """Password of the caller's URI, or an empty string."""
        return ""

    def can_name(self, path: str) -> bool:
        """Return whether the store accepts a path that was found in a folder.

        A Mac makes files whose names end with a line end.
        """
        try:
            self.full(path)
        except StoreError:
            return False
        return True

    @property
    def reached_by(self) -> bytes:
        """Digest of options and password: with the path it identifies an object's bytes.

        Empty where the path alone identifies them. For the same path, other options may lead to
        another server, and other credentials may lack the permission to read the bytes.
        """
        if not self.is_remote:
            return b""
        given = sorted(pair for pair in self.options.items() if pair[0] not in _EXPIRY_OPTIONS)
        return blake2b(repr((given, self.secret)).encode(), digest_size=16).digest()

    @property
    def counters(self) -> IoCounters:
        """Counts of reads and writes; new counters for a store that keeps none."""
        return IoCounters()

    @property
    def is_remote(self) -> bool:
        """Whether bytes come and go over a network."""
        return not self.is_local

    @property
    def lists_in_order(self) -> bool:
        """Whether objects are listed by name; S3 directory buckets list them unordered."""
        return True

    # ------------------------------------------------------------ directories

    @property
    def is_local(self) -> bool:
        """Whether objects are files in a directory, which system calls access."""
        return False

    def below(self, path: str) -> ObjectStore | None:
        """Return a store of a folder of this store; ``None`` if folders are opened by URI."""
        return None

    def sibling(self, uri: str) -> ObjectStore | None:
        """Return a store of another location of the same system; ``None`` to open it by URI."""
        return None

    def again(self, uri: str) -> ObjectStore | None:
        """Return a store of another location with this store's options, if they change over time.

        ``None`` if :attr:`options` are enough to open it.
        """
        return None

    def names(self, prefix: str) -> Sequence[str] | None:
        """Return the names of all entries of a directory, also unfinished files, unordered.

        ``None`` where :meth:`list` is as fast.
        """
        return None

    def folder_state(self, prefix: str) -> tuple[int, int, int] | None:
        """Return a value that changes with a directory's entries; ``None`` if it is missing.

        It is the directory's number, and the times (ns) of the last changes of its entries and
        itself.
        """
        return None

    def is_free(self, path: str) -> bool:
        """Return whether an object is known to be missing; makes no request."""
        return False

    def get_into(self, path: str, target: memoryview) -> int:
        """Read a whole object into given memory, up to its end. One request.

        Return the size of the object. If it is larger than the memory, the size may be of the part
        that fits.
        """
        data = self.get(path)
        size = min(data.size, len(target))
        target[:size] = memoryview(data).cast("B")[:size]
        return data.size

    # ------------------------------------------------------------ writing

    def put_new(self, path: str, data: Sequence[BytesLike]) -> None:
        """Write an object whose name only this process knows until it is complete.

        For example, an object with a random name that a later manifest refers to.
        """
        self.put(path, data)

    def rewrite(self, path: str, data: bytes) -> bool:
        """Overwrite an object of the same size in place, if that is faster.

        Use it only for hints: readers may see a part. Return whether the object was written.
        """
        return False

    def mark(self, path: str, data: bytes) -> None:
        """Write a small object; refuse to follow a symlink, which would mark another folder."""
        self.put(path, [data])

    # ------------------------------------------------------------ deleting, links

    def discard(self, paths: Sequence[str], *, own: bool = True) -> None:
        """Delete objects that have become useless, if that is possible.

        Objects that the store fails to delete stay for a clean-up, and a log entry says why.
        ``own`` says that this process has written the objects under new names. Other objects may be
        reached through a symlink, and belong to somebody else.
        """
        try:
            (self.delete_written if own else self.delete)(paths)
        except StoreError as error:
            import logging

            logging.getLogger(__name__).debug(
                "files that nothing needs stay in %s: %s", self.public_uri, error
            )

    def delete_written(self, paths: Sequence[str]) -> None:
        """Delete objects that this process has written under new names.

        They are where it wrote them: in the folder that the first name of their path leads to.
        A symlink is followed only for this first name.
        """
        self.delete(paths)

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield temporary files of active or failed writers, at any depth below a directory."""
        return iter(())

    def remove_unfinished(self, path: str) -> bool:
        """Remove an empty object whose writer was stopped; return whether it was removed.

        Only in directories a writer can take a name before the object is written.
        """
        return False

    def remove_folders(self) -> None:  # right for stores that lack folders
        """Remove the root and the directories below it that are empty."""

    def empty_folders(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield empty directories at any depth below a directory, with their last change.

        Only local stores have directories.
        """
        return iter(())

    def remove_empty(self, folders: Sequence[str]) -> None:  # right for stores that lack folders
        """Remove directories that are empty; other directories and symlinks stay."""

    def links(self, prefix: str) -> Iterator[str]:
        """Yield the symlinks at any depth below a directory. Only local stores have symlinks."""
        return iter(())

    def is_link(self, path: str) -> bool:
        """Return whether a name in a folder is a symlink, which somebody else has made."""
        return False

    def link_out(self, folder: str) -> str | None:
        """Return why objects in a folder are kept: a symlink out of the root, and its target.

        ``None`` if the folder is inside the root, or the caller allowed to delete through symlinks.
        """
        return None

    def file_link_out(self, path: str) -> str | None:
        """Return why copies omit the content of a file: it is a symlink that leads out of the root.

        Use it for content that may belong to somebody else. ``None`` if the file is inside the
        root, or the caller allowed access through symlinks. Symlinks in place of folders are
        allowed: the file there has a name that only writers of datasets use.
        """
        return self.link_out(path) if self.is_link(path) else None


# --- Read whole objects into one buffer, one after the other ----------------------------

ALIGNMENT = 64
"""Buffers begin at multiples of so many bytes."""

_ZEROS = bytes(ALIGNMENT)


def find_object(store: ObjectStore, path: str) -> ObjectMeta | None:
    """Return the size and time of an object; ``None`` if it is absent. One request."""
    try:
        return store.head(path)
    except ObjectNotFoundError:
        return None


class JoinedObjects(NamedTuple):
    """Objects in ``data``: object ``i`` has ``sizes[i]`` bytes from ``starts[i]`` on.

    Starts are multiples of 64. Mapped objects have ``counters`` for the parts that are read.
    """

    data: pa.Buffer
    starts: list[int]
    sizes: list[int]
    counters: IoCounters | None = None


def read_many(
    store: ObjectStore, paths: Sequence[str], sizes: Sequence[int]
) -> JoinedObjects | None:
    """Read objects of known sizes in bytes, with a request for each.

    ``None`` when the size of an object differs.

    Raises
    ------
    StoreError
        Reading an object failed.
    """
    *starts, end = accumulate([size + -size % ALIGNMENT for size in sizes], initial=0)
    data = pa.allocate_buffer(end)
    memory = memoryview(np.frombuffer(data, np.uint8))  # type: ignore[call-overload]  # a buffer
    for path, start, size in zip(paths, starts, sizes, strict=True):
        if store.get_into(path, memory[start : start + size]) != size:
            return None
        memory[start + size : start + size + -size % ALIGNMENT] = _ZEROS[: -size % ALIGNMENT]
    return JoinedObjects(data, starts, list(sizes))
