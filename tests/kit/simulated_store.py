"""The store of an actor of a simulation: every request is a step of the schedule."""

# ObjectStore and RangeReader say what each method does

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from tests.kit.simulation import Actor

from glaive.errors import ObjectNotFoundError
from glaive.io.failures import check_ranges
from glaive.io.remote import RemoteReader
from glaive.io.store import BytesLike, IoCounters, ObjectMeta, ObjectStore, PutMode, byte_views
from glaive.types import ByteRange

__all__ = ["SimulatedReader", "SimulatedSink", "SimulatedStore"]


class SimulatedStore(ObjectStore):
    """A folder of the bucket of a simulation, as one actor sees it.

    Parameters
    ----------
    actor
        Whose requests these are.
    folder
        Path of the root within the bucket; empty for the bucket itself.
    """

    __slots__ = ("_actor", "_bucket", "_counters", "_folder", "_simulation")

    def __init__(self, actor: Actor, folder: str = "") -> None:
        self._actor, self._folder = actor, folder
        self._simulation = actor.simulation
        self._bucket = self._simulation.bucket
        self._counters = IoCounters()

    @property
    def uri(self) -> str:
        return f"{self._bucket.uri}/{self._folder}" if self._folder else self._bucket.uri

    @property
    def is_remote(self) -> bool:
        return False

    @property
    def counters(self) -> IoCounters:
        return self._counters

    def full(self, path: str) -> str:
        return f"{self.uri}/{path}" if path else self.uri

    def below(self, path: str) -> SimulatedStore:
        return SimulatedStore(self._actor, self._key(path))

    def sibling(self, uri: str) -> SimulatedStore | None:
        """A store of another folder of the bucket."""
        start = self._bucket.uri
        if uri.rstrip("/") != start and not uri.startswith(f"{start}/"):
            return None
        return SimulatedStore(self._actor, uri.removeprefix(start).strip("/"))

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._folder, path) if part)

    def found(self, path: str) -> pa.Buffer:
        """The content of an object, after a request for it."""
        data = self._bucket.get(self._key(path))
        if data is None:
            raise ObjectNotFoundError(f"{self.full(path)} does not exist. Check the path.")
        return data

    def ask(self, method: str, path: str) -> None:
        """A request that changes nothing."""
        self._simulation.request(self._actor, f"{method} {self.full(path)}", None)

    def write(self, path: str, data: Sequence[BytesLike], mode: PutMode) -> None:
        """A request that writes an object."""
        key, content = self._key(path), b"".join(byte_views(data))
        bucket, simulation, doing = self._bucket, self._simulation, self._actor.doing
        simulation.request(
            self._actor,
            f"write {self.full(path)}",
            lambda: bucket.put(key, content, mode, simulation.time, doing),
        )

    def open(self, path: str, *, size: int | None = None) -> SimulatedReader:
        return SimulatedReader(self, path, size)

    def get(self, path: str) -> pa.Buffer:
        self.ask("read", path)
        return self.found(path)

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        self.write(path, data, mode)

    def create(self, path: str) -> SimulatedSink:
        return SimulatedSink(self, path)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        cut = len(prefix) + 1 if prefix else 0
        return (meta for meta in self.walk(prefix) if "/" not in meta.path[cut:])

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        self.ask("list", prefix)
        moment = self._simulation.listed_at()
        cut = len(self._folder) + 1 if self._folder else 0
        for meta in self._bucket.walk(self._key(prefix), moment):
            yield ObjectMeta(meta.path[cut:], meta.size, meta.modified)

    def head(self, path: str) -> ObjectMeta:
        self.ask("look up", path)
        return ObjectMeta(path, self.found(path).size)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            effect = partial(self._remove, self._key(path), self._actor.doing)
            self._simulation.request(self._actor, f"delete {self.full(path)}", effect)

    def _remove(self, key: str, doing: object) -> None:
        self._bucket.delete(key, self._simulation.time, doing)


class SimulatedReader(RemoteReader):
    """An object that is read range by range."""

    __slots__ = ("_size", "_store", "path")

    def __init__(self, store: SimulatedStore, path: str, size: int | None) -> None:
        self._store, self.path, self._size = store, path, size

    @property
    def size(self) -> int:
        if self._size is None:
            self._store.ask("look up", self.path)
            self._size = self._store.found(self.path).size
        return self._size

    def tail(self, size: int) -> pa.Buffer:
        self._store.ask("read", self.path)
        data = self._store.found(self.path)
        self._size = data.size
        return data.slice(max(0, data.size - size))

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        self._store.ask("read", self.path)
        data = self._store.found(self.path)
        check_ranges(self._store.full(self.path), ranges, data.size)
        return [data.slice(offset, size) for offset, size in ranges]


class SimulatedSink:
    """An object that becomes visible with one request."""

    __slots__ = ("_parts", "_path", "_store", "position")

    def __init__(self, store: SimulatedStore, path: str) -> None:
        self._store, self._path = store, path
        self._parts: list[bytes] = []
        self.position = 0

    def write(self, data: Sequence[BytesLike]) -> None:
        for view in byte_views(data):
            self._parts.append(bytes(view))
            self.position += view.nbytes

    def finish(self) -> int:
        self._store.write(self._path, self._parts, "overwrite")
        return self.position

    def abort(self) -> None:
        self._parts = []
