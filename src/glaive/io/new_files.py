"""Files with new random names: small ones need no temporary name.

A data file has a random name, and nothing refers to it before the manifest does. So it may be
visible in its directory before it is complete, and a writer that is stopped leaves a file that no
version has, as it would with a temporary name.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.io.sink import FLUSH_BYTES
from glaive.io.store import BytesLike, ObjectStore, Sink
from glaive.io.wrapped import WrappedStore

__all__ = ["NewFiles"]


class NewFiles(WrappedStore):
    """A store in which every object that is created has a new name."""

    __slots__ = ()

    def create(self, path: str) -> Sink:
        """Start writing; in a directory, a small file is created when it is finished."""
        inner = self.inner
        return _NewFile(inner, path) if inner.is_local else inner.create(path)


class _NewFile:
    """A file that is created when more is written than one call takes, or else at its end."""

    __slots__ = ("_path", "_pending", "_sink", "_store", "position")

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path = store, path
        self._sink: Sink | None = None
        self._pending: list[BytesLike] = []
        self.position = 0

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append parts; the first ones are kept, so their memory must not change afterwards."""
        if self._sink is None:
            size = sum([memoryview(part).nbytes for part in data])
            if self.position + size < FLUSH_BYTES:
                self._pending += data
                self.position += size
                return
            self._sink = self._store.create(self._path)
            self._sink.write(self._pending)
            self._pending = []
        self._sink.write(data)
        self.position = self._sink.position

    def finish(self) -> int:
        """Make the file visible; returns its size in bytes."""
        if self._sink is not None:
            return self._sink.finish()
        self._store.put_new(self._path, self._pending)
        return self.position

    def abort(self) -> None:
        """Leave nothing behind."""
        self._pending = []
        if self._sink is not None:
            self._sink.abort()
