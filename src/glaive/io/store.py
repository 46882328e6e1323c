"""What glaive asks of a place that holds objects: a directory, a bucket, or memory.

Paths are relative to the store's root, separated by ``/``, without a leading one. Every
failure is a ``StoreError`` (or subclass) that names the full path and what to do.

Buffers that come back are ``pyarrow.Buffer``: with an address, sliceable without a copy, and
keeping alive what they view (a memory map for local files).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from glaive.io.stats import IoCounters
from glaive.types import ByteRange

__all__ = ["BytesLike", "ObjectMeta", "ObjectStore", "PutMode", "RangeReader", "Sink"]

PutMode = Literal["create", "overwrite"]
BytesLike = bytes | bytearray | memoryview | pa.Buffer


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """One object: path relative to the store, size in bytes, time of last change (UTC)."""

    path: str
    size: int
    modified: datetime | None = None


@runtime_checkable
class RangeReader(Protocol):
    """An object opened for reading ranges. Safe to share between threads."""

    @property
    def path(self) -> str:
        """Full path or URI, for messages."""

    @property
    def mapped(self) -> bool:
        """Whether ranges are views of a memory map: free to ask for, aligned as on disk."""

    @property
    def size(self) -> int:
        """Bytes in the object; asks the store (one HEAD) when not known yet."""

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes, or all if there are fewer. One request.

        Learns the object's size with the same request.
        """

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order.

        Near ranges are fetched with one request. A range beyond the end of the object is a
        ``CorruptFileError`` naming path, range and size.
        """

    def advise(
        self,
        ranges: Sequence[ByteRange],
        advice: Literal["random", "sequential", "willneed", "dontneed", "normal"],
    ) -> None:
        """Tell how ranges will be used; a hint, without effect where there is no map."""

    def expect(self, pattern: Literal["random", "sequential"]) -> None:
        """Tell how the object will be read from now on; a hint as well."""

    def close(self) -> None:
        """Let go of the object; buffers handed out stay valid."""


@runtime_checkable
class Sink(Protocol):
    """An object being written from start to end; invisible until :meth:`finish`."""

    @property
    def position(self) -> int:
        """Bytes written so far."""

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append pieces, one after the other, without joining them first."""

    def finish(self) -> int:
        """Make the object visible under its path; returns its size in bytes."""

    def abort(self) -> None:
        """Leave nothing behind; safe to call twice and after a failure."""


class ObjectStore(ABC):
    """A root with objects below it. Picklable unless it lives in this process's memory.

    What is abstract, every store has. Below it stands what only some stores can do; the methods
    here are right for all others, so callers need not ask which store they have. A store around
    another one passes all of it on: :class:`glaive.io.wrapped.WrappedStore`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root, for messages and for opening it again elsewhere."""

    @abstractmethod
    def full(self, path: str) -> str:
        """Full path or URI of ``path``, for messages."""

    @abstractmethod
    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Open for reading; ``size`` spares asking for it. Missing: ``ObjectNotFoundError``
        (now, or at the first read on stores where opening makes no request).
        """

    @abstractmethod
    def get(self, path: str) -> pa.Buffer:
        """Return a whole object. One request."""

    @abstractmethod
    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole object at once, atomically: others see all of it or nothing.

        With ``mode="create"`` an existing object is left alone and ``ObjectExistsError``
        raised: this is the primitive that commits stand on. An empty object is none: a writer
        took the name and was stopped before it wrote anything, and this one takes its place.
        """

    @abstractmethod
    def create(self, path: str) -> Sink:
        """Start writing a new object piece by piece."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Objects whose directory is ``prefix`` (not deeper), in name order; none if absent."""

    @abstractmethod
    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """All objects below ``prefix`` at any depth, in name order."""

    @abstractmethod
    def head(self, path: str) -> ObjectMeta:
        """Size and time of one object; ``ObjectNotFoundError`` if absent. One request."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those already gone are no error."""

    # ------------------------------------------------------------ how it was opened

    @property
    def options(self) -> Mapping[str, str]:
        """Storage options, as they were given."""
        return {}

    @property
    def secret(self) -> str:
        """Password that the caller's URI had; empty if none."""
        return ""

    @property
    def counters(self) -> IoCounters:
        """What was read and written; fresh counters where nothing is counted."""
        return IoCounters()

    # ------------------------------------------------------------ directories

    @property
    def is_local(self) -> bool:
        """Whether objects are files in a directory: looking at one waits for no request."""
        return False

    def below(self, path: str) -> ObjectStore | None:
        """A store of a folder of this one; ``None`` where folders are opened by their URI."""
        return None

    def names(self, prefix: str) -> Sequence[str] | None:
        """Names of all that is in a directory, unfinished files too, in any order.

        Quicker than :meth:`list`; ``None`` where it is not.
        """
        return None

    def folder_state(self, prefix: str) -> tuple[int, ...] | None:
        """What changes when names come into a directory or go; ``None`` if nothing tells."""
        return None

    def is_free(self, path: str) -> bool:
        """Whether there certainly is no such object, as a look without a request tells."""
        return False

    def get_into(self, path: str, target: memoryview) -> int:
        """Read a whole object into memory at hand, as far as it fits. One request.

        Returns its size; of one that is larger than the memory perhaps only what fits.
        """
        data = self.get(path)
        size = min(data.size, len(target))
        target[:size] = memoryview(data).cast("B")[:size]
        return data.size

    # ------------------------------------------------------------ writing

    def put_new(self, path: str, data: Sequence[BytesLike]) -> None:
        """Write an object whose name nobody else knows before all of it is there.

        Such as one with a name of random digits that a manifest is going to name.
        """
        self.put(path, data)

    def rewrite(self, path: str, data: bytes) -> bool:
        """Write over an object of the same size in place, where that is quicker.

        Not atomic, hence only for hints. ``False`` if nothing was written.
        """
        return False

    # ------------------------------------------------------------ deleting, links

    def discard(self, paths: Sequence[str]) -> None:
        """Delete objects that this process has written under names it made up.

        They lie where it wrote them, so links on the way do not matter.
        """
        self.delete(paths)

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        """Temporary files at any depth below a directory: of writers at work, or that failed."""
        return iter(())

    def remove_unfinished(self, path: str) -> bool:
        """Remove an empty object whose writer was stopped; whether it was removed.

        Elsewhere than in a directory names are not taken before there is something to be named.
        """
        return False

    def remove_folders(self) -> None:  # noqa: B027  # right as it is where there are none
        """Remove the root and the directories below it, as far as they are empty."""

    def links(self, prefix: str) -> Iterator[str]:
        """Links at any depth below a directory. Only directories have them."""
        return iter(())

    def is_link(self, path: str) -> bool:
        """Whether a name in a folder is a link: no writer makes one."""
        return False

    def link_out(self, folder: str) -> str | None:
        """Why objects in a folder are not deleted: the link that leads out of the root, and to
        where.

        ``None`` if there is no such link, or the caller allowed to delete through links.
        """
        return None

    def file_link_out(self, path: str) -> str | None:
        """Why the content of a file is not copied: it is a link that leads out of the root.

        For content of which nothing tells whether it is the dataset's. ``None`` if the file is no
        such link, or the caller allowed what lies behind links. Links of folders do not count: the
        file there has a name that only writers of datasets give.
        """
        return self.link_out(path) if self.is_link(path) else None
