"""What glaive asks of a place that holds objects: a directory, a bucket, or memory.

Paths are relative to the store's root, separated by ``/``, without a leading one. Every
failure is a ``StoreError`` (or subclass) that names the full path and what to do.

Buffers that come back are ``pyarrow.Buffer``: with an address, sliceable without a copy, and
keeping alive what they view (a memory map for local files).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

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


@runtime_checkable
class ObjectStore(Protocol):
    """A root with objects below it. Picklable unless it lives in this process's memory."""

    @property
    def uri(self) -> str:
        """The root, for messages and for opening it again elsewhere."""

    def full(self, path: str) -> str:
        """Full path or URI of ``path``, for messages."""

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Open for reading; ``size`` spares asking for it. Missing: ``ObjectNotFoundError``
        (now, or at the first read on stores where opening makes no request).
        """

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object. One request."""

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole object at once, atomically: others see all of it or nothing.

        With ``mode="create"`` an existing object is left alone and ``ObjectExistsError``
        raised: this is the primitive that commits stand on. An empty object is none: a writer
        took the name and was stopped before it wrote anything, and this one takes its place.
        """

    def create(self, path: str) -> Sink:
        """Start writing a new object piece by piece."""

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Objects whose directory is ``prefix`` (not deeper), in name order; none if absent."""

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """All objects below ``prefix`` at any depth, in name order."""

    def head(self, path: str) -> ObjectMeta:
        """Size and time of one object; ``ObjectNotFoundError`` if absent. One request."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those already gone are no error."""
