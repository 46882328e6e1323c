"""Test programs that use glaive: make each request of an operation fail.

:func:`each_request` runs an operation once for each of its requests, with a fault in that request.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Literal

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError, StoreError
from glaive.io.remote import coalesce
from glaive.io.store import BytesLike, ObjectMeta, ObjectStore, PutMode, RangeReader, Sink
from glaive.io.wrapped import WrappedReader, WrappedStore
from glaive.process import fork_safe
from glaive.table.load import load_numbered, open_latest
from glaive.types import ByteRange

__all__ = [
    "CountingReader",
    "CountingSink",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "Outcome",
    "Request",
    "each_request",
    "open_on",
    "requests_of",
]

# --- A store that counts the requests to another store, and can make them fail ------------
# It counts requests as an object store receives them, after adjacent ranges are joined. Its readers
# are never mapped, so that only requested ranges are fetched.


Kind = Literal["fail", "lie", "delay", "repeat"]
KINDS: tuple[Kind, ...] = ("fail", "lie", "delay", "repeat")
"""All kinds of faults."""

_REPEATED = StoreError("this request is executed twice")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: method, path, first byte (0 unless a range) and size in bytes."""

    method: str
    path: str
    offset: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault at the ``at``-th matching request from now on (1 = the next).

    Parameters
    ----------
    at
        Number of the matching request; with ``forever``, also all later requests.
    kind
        ``"fail"``: only raise the error. ``"lie"``: execute the request, then raise the
        error, as if the response was lost. ``"delay"``: execute it ``seconds`` later. ``"repeat"``:
        execute it twice if it puts or deletes, like a client that repeats a request after it lost
        the response.
    method, path
        Only requests of this method, with this string in their path; ``None`` for all.
    """

    at: int
    kind: Kind = "fail"
    method: str | None = None
    path: str | None = None
    seconds: float = 0.0
    forever: bool = False
    error: Exception | None = None


class CountingStore(WrappedStore):
    """A store that wraps any store like a bucket. ``log`` has every request, in order."""

    # The capabilities of directories are replaced by requests, which are counted.
    is_local = False
    below = ObjectStore.below
    names = ObjectStore.names
    folder_state = ObjectStore.folder_state
    is_free = ObjectStore.is_free
    get_into = ObjectStore.get_into
    put_new = ObjectStore.put_new
    rewrite = ObjectStore.rewrite

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.log: list[Request] = []
        self._faults: list[tuple[Fault, int]] = []
        self._lock = fork_safe(RLock())

    @property
    def requests(self) -> int:
        """Requests made, except opening a reader."""
        return len(self.log)

    @property
    def by_method(self) -> Counter[str]:
        """Requests per method."""
        return Counter(request.method for request in self.log)

    @property
    def bytes_read(self) -> int:
        """Bytes fetched, including gaps between joined ranges."""
        return sum(r.size for r in self.log if r.method in ("tail", "read", "get"))

    @property
    def bytes_written(self) -> int:
        """Bytes passed to ``put`` and to sinks."""
        return sum(r.size for r in self.log if r.method in ("put", "write"))

    def reset(self) -> None:
        """Clear the log and the faults."""
        with self._lock:
            self.log.clear()
            self._faults.clear()

    def inject(self, fault: Fault) -> None:
        """Make a coming request fail, lie or wait."""
        with self._lock:
            self._faults.append((fault, 0))

    def note(self, method: str, path: str, offset: int = 0, size: int = 0) -> Exception | None:
        """Count one request; return the error to raise after executing it, if any."""
        late: Exception | None = None
        wait = 0.0
        with self._lock:
            self.log.append(Request(method, path, offset, size))
            for i, (fault, seen) in enumerate(self._faults):
                if fault.method not in (None, method) or (fault.path or "") not in path:
                    continue
                self._faults[i] = (fault, seen + 1)
                if seen + 1 != fault.at and not (fault.forever and seen + 1 > fault.at):
                    continue
                if fault.kind == "delay":
                    wait += fault.seconds
                    continue
                error = fault.error or StoreError(
                    f"cannot {method} {self.inner.full(path)}: injected fault. Try again."
                )
                if fault.kind == "fail":
                    raise error
                late = _REPEATED if fault.kind == "repeat" else error
        if wait:
            time.sleep(wait)
        return late

    def open(self, path: str, *, size: int | None = None) -> CountingReader:
        """Open; requests for bytes are counted later."""
        return CountingReader(self, path, self.inner.open(path, size=size), size)

    def get(self, path: str) -> pa.Buffer:
        """Count the request and its bytes."""
        buffer = self.inner.get(path)
        _raise(self.note("get", path, 0, buffer.size))
        return buffer

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Count the request and its bytes."""
        late = self.note("put", path, 0, _size(data))
        for _ in range(2 if late is _REPEATED else 1):
            self.inner.put(path, data, mode=mode)
        _raise(late)

    def create(self, path: str) -> CountingSink:
        """Count the start of an upload."""
        late = self.note("create", path)
        sink = CountingSink(self, path, self.inner.create(path))
        _raise(late)
        return sink

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Count one request."""
        _raise(self.note("list", prefix))
        return self.inner.list(prefix)

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Count one request."""
        _raise(self.note("list", prefix))
        return self.inner.walk(prefix)

    def walk_between(
        self, prefix: str, start: str | None, stop: str | None
    ) -> Iterator[ObjectMeta]:
        """Count one request."""
        _raise(self.note("list", prefix))
        return self.inner.walk_between(prefix, start, stop)

    def head(self, path: str) -> ObjectMeta:
        """Count one request."""
        _raise(self.note("head", path))
        return self.inner.head(path)

    def delete(self, paths: Sequence[str]) -> None:
        """Count one request per object."""
        self._delete(paths, self.inner.delete)

    def delete_written(self, paths: Sequence[str]) -> None:
        """Count one request per object, as :meth:`delete` does."""
        self._delete(paths, self.inner.delete_written)

    def _delete(self, paths: Sequence[str], delete: Callable[[Sequence[str]], None]) -> None:
        late = [self.note("delete", path) for path in paths]
        for _ in range(2 if _REPEATED in late else 1):
            delete(paths)
        for error in late:
            _raise(error)


class CountingReader(WrappedReader):
    """A reader whose requests are counted; never mapped."""

    __slots__ = ("_path", "_size", "_store")

    def __init__(
        self, store: CountingStore, path: str, inner: RangeReader, size: int | None
    ) -> None:
        super().__init__(inner)
        self._store, self._path, self._size = store, path, size

    @property
    def size(self) -> int:
        """Bytes in the object; counts one HEAD unless the size is known."""
        if self._size is None:
            _raise(self._store.note("head", self._path))
            self._size = self._inner.size
        return self._size

    def tail(self, size: int) -> pa.Buffer:
        """Count one request."""
        buffer = self._inner.tail(size)
        self._size = self._inner.size
        _raise(self._store.note("tail", self._path, self._size - buffer.size, buffer.size))
        return buffer

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Count one request per group of adjacent ranges."""
        late = [self._store.note("read", self._path, *r) for r in coalesce(ranges).requests]
        buffers = self._inner.read(ranges)
        for error in late:
            _raise(error)
        return buffers


class CountingSink:
    """A sink whose writes are counted."""

    def __init__(self, store: CountingStore, path: str, inner: Sink) -> None:
        self._store, self._path, self._inner = store, path, inner

    @property
    def position(self) -> int:
        """The inner sink's position."""
        return self._inner.position

    def write(self, data: Sequence[BytesLike]) -> None:
        """Count the call and its bytes."""
        late = self._store.note("write", self._path, self._inner.position, _size(data))
        self._inner.write(data)
        _raise(late)

    def finish(self) -> int:
        """Count the request that makes the object visible."""
        late = self._store.note("finish", self._path)
        size = self._inner.finish()
        _raise(late)
        return size

    def abort(self) -> None:
        """Abort the inner sink; uncounted, and free of faults."""
        self._inner.abort()


def _size(data: Sequence[BytesLike]) -> int:
    return sum(memoryview(part).nbytes for part in data)


def _raise(error: Exception | None) -> None:
    if error is not None and error is not _REPEATED:
        raise error


# --- Make each request of an operation fail once, to check the state of the dataset -----
# A request can fail, succeed but lose its response, be delayed, or be executed twice, as by a
# client that retries after a lost response. In all cases the dataset must be at the version before
# or after the operation, and repeating the operation must have the same result.

Operation = Callable[[LanceDataset], object]


class FaultyStore(CountingStore):
    """A store that counts requests and applies a fault to one, after a call of :meth:`arm`."""

    def arm(self, at: int, kind: Kind) -> None:
        """Apply a fault to the ``at``-th request from now on, counted from 1.

        See :class:`glaive.testing.Fault` for the kinds.
        """
        self.reset()
        self.inject(Fault(at=at, kind=kind, seconds=0.005))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operation with a fault in one request."""

    at: int
    kind: Kind
    store: ObjectStore
    """The store after the operation, free of faults."""
    error: GlaiveError | None
    dataset: LanceDataset
    """The dataset of the operation, free of further faults."""


def open_on(store: ObjectStore, version: int | None = None) -> LanceDataset:
    """Open the dataset at the root of a store."""
    manifest = open_latest(store) if version is None else load_numbered(store, version, "V2")
    return LanceDataset.of(store, manifest)


def requests_of(make: Callable[[], ObjectStore], operation: Operation) -> int:
    """Count the requests of an operation."""
    store = CountingStore(make())
    dataset = open_on(store)
    store.reset()
    operation(dataset)
    return store.requests


def each_request(
    make: Callable[[], ObjectStore], operation: Operation, kind: Kind
) -> Iterator[Outcome]:
    """Run an operation once for each of its requests, with a fault in that request.

    Parameters
    ----------
    make
        Creates a store with a dataset at its root, always with the same content.
    operation
        Changes the dataset. Only errors of the class ``GlaiveError`` are caught.
    kind
        The kind of fault.
    """
    for at in range(1, requests_of(make, operation) + 1):
        inner = make()
        store = FaultyStore(inner)
        dataset = open_on(store)
        store.reset()
        store.arm(at, kind)
        error: GlaiveError | None = None
        try:
            operation(dataset)
        except GlaiveError as raised:
            error = raised
        store.reset()
        yield Outcome(at, kind, inner, error, dataset)
