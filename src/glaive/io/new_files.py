"""Files with names that nobody knows yet: small ones need no temporary name.

A data file is named by random digits, and nothing refers to it before the manifest does. So a
directory may show it before all of it is there, and a writer that is stopped leaves a file that
no version has, as it would with a temporary name.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.io.sink import FLUSH_BYTES
from glaive.io.store import BytesLike, ObjectStore, Sink
from glaive.io.wrapped import WrappedStore

__all__ = ["NewFiles"]


class NewFiles(WrappedStore):
    """A store in which all that is created has a new name."""

    __slots__ = ()

    def create(self, path: str) -> Sink:
        """Start writing; a directory makes a small file only when it is finished."""
        inner = self.inner
        return _NewFile(inner, path) if inner.is_local else inner.create(path)


class _NewFile:
    """A file that is begun when more is written than one call takes, or else when it ends."""

    __slots__ = ("_begun", "_path", "_pieces", "_store", "position")

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path = store, path
        self._begun: Sink | None = None
        self._pieces: list[BytesLike] = []
        self.position = 0

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append pieces; the first ones wait, so their memory must not change any more."""
        if self._begun is None:
            size = sum([memoryview(piece).nbytes for piece in data])
            if self.position + size < FLUSH_BYTES:
                self._pieces += data
                self.position += size
                return
            self._begun = self._store.create(self._path)
            self._begun.write(self._pieces)
            self._pieces = []
        self._begun.write(data)
        self.position = self._begun.position

    def finish(self) -> int:
        """Make the file visible; returns its size in bytes."""
        if self._begun is not None:
            return self._begun.finish()
        self._store.put_new(self._path, self._pieces)
        return self.position

    def abort(self) -> None:
        """Leave nothing behind."""
        self._pieces = []
        if self._begun is not None:
            self._begun.abort()
