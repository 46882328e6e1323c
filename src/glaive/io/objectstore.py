"""Objects in a bucket or in memory, through obstore: S3, Google, Azure, HTTP, ``memory://``.

Waiting happens outside the interpreter lock. Answers are handed out as they arrived unless
that would misalign them: buffers keep the alignment they have in the object, as maps do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from threading import Lock
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, NotSupportedError, UnknownConfigurationKeyError
from obstore.store import HTTPStore, MemoryStore, from_url

from glaive.errors import OptionError, StoreError
from glaive.io.failures import beyond_end, from_object_store
from glaive.io.ranges import coalesce, split
from glaive.io.store import BytesLike, ObjectMeta, PutMode
from glaive.types import ByteRange

__all__ = ["ObjectReader", "ObjectSink", "ObjectStoreAdapter", "connect"]

_ALIGNMENT = 64
_PART = 8 * 1024 * 1024
"""Bytes per part of a multipart upload."""
_REFUSALS = (BaseError, OSError, ValueError)
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
_memories: dict[str, MemoryStore] = {}
_memories_lock = Lock()


def connect(uri: str, options: Mapping[str, str]) -> ObjectStoreAdapter:
    """Open ``scheme://bucket/prefix``.

    ``memory://name`` is one store per name and process. Options are those of the store
    (``aws_region``, ``google_service_account``, …) and of its HTTP client (``timeout``,
    ``allow_http``, …), as obstore names them.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if scheme == "memory":
        with _memories_lock:
            store: Any = _memories.setdefault(bucket, MemoryStore())
    else:
        store = _remote(scheme, bucket, uri, options)
    return ObjectStoreAdapter(store, f"{scheme}://{bucket}", prefix, dict(options))


def _remote(scheme: str, bucket: str, uri: str, options: Mapping[str, str]) -> Any:
    client: dict[str, Any] = {}
    config: Any = {}
    retry: dict[str, Any] = {}
    for key, value in options.items():
        name = key.lower()
        if name == "client_max_retries":
            retry["max_retries"] = int(value)
        elif name == "client_retry_timeout":
            retry["retry_timeout"] = timedelta(seconds=int(value))
        elif name in _CLIENT_OPTIONS:
            client[name] = value
        else:
            config[name] = value
    if scheme == "http" and "allow_http" not in client:
        client["allow_http"] = "true"
    try:
        kinds: dict[str, Any] = {
            "client_options": client or None,
            "retry_config": retry or None,
        }
        if scheme in ("http", "https"):
            return HTTPStore.from_url(f"{scheme}://{bucket}", **kinds)
        return from_url(f"{scheme}://{bucket}", config=config or None, **kinds)
    except UnknownConfigurationKeyError as error:
        raise OptionError(
            f"storage_options for {uri}: {str(error).splitlines()[0]} "
            "Remove the option or correct its name."
        ) from None
    except _REFUSALS as error:
        raise from_object_store(error, uri, "open") from None


class ObjectStoreAdapter:
    """A prefix of a bucket."""

    __slots__ = ("_base", "_options", "_prefix", "_store")

    def __init__(self, store: Any, base: str, prefix: str, options: dict[str, str]) -> None:
        self._store, self._base, self._prefix, self._options = store, base, prefix, options

    def __repr__(self) -> str:
        return f"ObjectStoreAdapter({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self._base.startswith("memory://"):
            raise StoreError(
                f"{self.uri} lives in the memory of this process and cannot be sent to another. "
                "Use a directory or a bucket."
            )
        return (connect, (self.uri, self._options))

    @property
    def uri(self) -> str:
        """``scheme://bucket/prefix``."""
        return f"{self._base}/{self._prefix}" if self._prefix else self._base

    def full(self, path: str) -> str:
        """URI of an object."""
        return f"{self.uri}/{path}" if path else self.uri

    def _key(self, path: str) -> str:
        if path.startswith("/") or (".." in path and ".." in path.split("/")):
            raise StoreError(
                f"path {path!r} leads out of {self.uri}. A manifest that names such a path is "
                "damaged or was made to do harm."
            )
        return "/".join(part for part in (self._prefix, path) if part)

    def open(self, path: str, *, size: int | None = None) -> ObjectReader:
        """Make a reader; no request yet."""
        return ObjectReader(self._store, self._key(path), self.full(path), size)

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object. One request."""
        key = self._key(path)
        try:
            return _aligned(obstore.get(self._store, key).bytes(), 0)
        except _REFUSALS as error:
            raise from_object_store(error, self.full(path), "read") from None

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole object with one conditional or unconditional request."""
        pieces = [piece for piece in data if memoryview(piece).nbytes]
        body = memoryview(pieces[0]).cast("B") if len(pieces) == 1 else b"".join(pieces)
        key = self._key(path)
        try:
            obstore.put(self._store, key, body, mode=mode, use_multipart=False)
        except _REFUSALS as error:
            raise from_object_store(error, self.full(path), "write") from None

    def create(self, path: str) -> ObjectSink:
        """Start a multipart upload."""
        return ObjectSink(self._store, self._key(path), self.full(path))

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Objects directly under a prefix, in key order, page by page."""
        cut = len(prefix) + 1 if prefix else 0
        return (meta for meta in self.walk(prefix) if "/" not in meta.path[cut:])

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Objects at any depth under a prefix, in key order, page by page."""
        cut = len(self._prefix) + 1 if self._prefix else 0
        key = self._key(prefix) or None
        try:
            for page in obstore.list(self._store, key, chunk_size=1000):
                for found in page:
                    yield ObjectMeta(found["path"][cut:], found["size"], found["last_modified"])
        except _REFUSALS as error:
            raise from_object_store(error, self.full(prefix), "list") from None

    def head(self, path: str) -> ObjectMeta:
        """Size and time of an object. One request."""
        key = self._key(path)
        try:
            found = obstore.head(self._store, key)
        except _REFUSALS as error:
            raise from_object_store(error, self.full(path), "look up") from None
        return ObjectMeta(path, found["size"], found["last_modified"])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, many per request where the store can; gone ones are no error."""
        keys = [self._key(path) for path in paths]
        # A missing object ends a batch in memory, so there each goes alone.
        step = 1 if isinstance(self._store, MemoryStore) else 1000
        for at in range(0, len(keys), step):
            try:
                obstore.delete(self._store, keys[at : at + step])
            except FileNotFoundError:
                continue
            except _REFUSALS as error:
                raise from_object_store(error, self.full(paths[at]), "delete") from None


class ObjectReader:
    """An object read with range requests; near ranges share one."""

    __slots__ = ("_key", "_size", "_store", "path")

    mapped = False

    def __init__(self, store: Any, key: str, path: str, size: int | None) -> None:
        self._store, self._key, self.path, self._size = store, key, path, size

    @property
    def size(self) -> int:
        """Bytes in the object; one HEAD unless a request told it before."""
        if self._size is None:
            try:
                self._size = obstore.head(self._store, self._key)["size"]
            except _REFUSALS as error:
                raise from_object_store(error, self.path, "look up") from None
        return self._size

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes with one request, learning the object's size."""
        try:
            if self._size is not None:
                start = max(0, self._size - size)
                return self.read([ByteRange(start, self._size - start)])[0]
            answer = obstore.get(
                self._store, self._key, options={"range": {"suffix": max(size, 1)}}
            )
            self._size = answer.meta["size"]
            data = answer.bytes()
            return _aligned(data, self._size - len(data))
        except NotSupportedError:  # Azure has no suffix ranges: ask for the size first
            return self.read([ByteRange(max(0, self.size - size), min(size, self.size))])[0]
        except _REFUSALS as error:
            if isinstance(error, StoreError):
                raise
            raise from_object_store(error, self.path, "read") from None

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order."""
        if self._size is not None:
            self._check(ranges, self._size)
        joined = coalesce(ranges)
        if not joined.requests:
            return split(ranges, joined, [])
        starts = [request.offset for request in joined.requests]
        lengths = [request.size for request in joined.requests]
        try:
            answers = obstore.get_ranges(
                self._store, self._key, starts=starts, lengths=lengths, coalesce=0
            )
        except _REFUSALS as error:
            if not isinstance(error, FileNotFoundError):
                self._check_again(ranges)
            raise from_object_store(error, self.path, "read") from None
        if any(len(got) < want for got, want in zip(answers, lengths, strict=True)):
            self._check_again(ranges)
            raise StoreError(
                f"cannot read {self.path}: the store answered with fewer bytes than were asked "
                "for. Try again."
            )
        buffers = [_aligned(got, at) for got, at in zip(answers, starts, strict=True)]
        return split(ranges, joined, buffers)

    def _check_again(self, ranges: Sequence[ByteRange]) -> None:
        """Check against the size the store tells, in place of the one that was given."""
        self._size = None
        self._check(ranges, self.size)

    def _check(self, ranges: Sequence[ByteRange], size: int) -> None:
        for asked in ranges:
            if asked[0] < 0 or asked[1] < 0 or asked[0] + asked[1] > size:
                raise beyond_end(self.path, ByteRange(*asked), size)

    def advise(self, ranges: Sequence[ByteRange], advice: str) -> None:
        """Do nothing: there is no map."""

    def expect(self, pattern: str) -> None:
        """Do nothing: there is no map."""

    def close(self) -> None:
        """Do nothing: requests hold no connection."""


class ObjectSink:
    """A multipart upload; small objects go up with one request.

    The store shows the object when :meth:`finish` completes the upload. After ``abort``
    parts already uploaded are left to the bucket's rule for incomplete uploads.
    """

    __slots__ = ("_full", "_writer", "position")

    def __init__(self, store: Any, key: str, full: str) -> None:
        self._full, self.position = full, 0
        try:
            self._writer: Any = obstore.open_writer(store, key, buffer_size=_PART)
        except _REFUSALS as error:
            raise from_object_store(error, full, "write") from None

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append pieces; full parts are uploaded in the background."""
        writer = self._open_writer()
        for piece in data:
            view = memoryview(piece)
            if view.nbytes == 0:
                continue
            try:
                writer.write(view.cast("B") if view.format != "B" or view.ndim != 1 else view)
            except _REFUSALS as error:
                raise from_object_store(error, self._full, "write") from None
            self.position += view.nbytes

    def finish(self) -> int:
        """Complete the upload; returns the object's size in bytes."""
        writer, self._writer = self._open_writer(), None
        try:
            writer.close()
        except _REFUSALS as error:
            raise from_object_store(error, self._full, "write") from None
        return self.position

    def abort(self) -> None:
        """Never complete the upload."""
        self._writer = None

    def _open_writer(self) -> Any:
        if self._writer is None:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        return self._writer


def _aligned(data: Any, offset: int) -> pa.Buffer:
    """Wrap an answer so that its address is aligned as ``offset`` is in the object."""
    buffer = pa.py_buffer(data)
    phase = offset % _ALIGNMENT
    if buffer.size == 0 or buffer.address % _ALIGNMENT == phase:
        return buffer
    room = pa.allocate_buffer(buffer.size + _ALIGNMENT)
    start = (phase - room.address) % _ALIGNMENT
    memoryview(room)[start : start + buffer.size] = memoryview(buffer)
    return room.slice(start, buffer.size)
