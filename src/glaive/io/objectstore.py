"""Objects in a bucket or in memory, through obstore: S3, Google, Azure, HTTP, ``memory://``.

Waiting happens without the interpreter lock. Responses are returned without a copy unless that
would misalign them: buffers keep the alignment they have in the object, as maps do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, NotSupportedError
from obstore.store import HTTPStore

from glaive.errors import ObjectNotFoundError, StoreError
from glaive.io.bodies import LARGEST_OBJECT, body_of_object, body_of_ranges, body_of_tail
from glaive.io.client_threads import require_client_threads
from glaive.io.failures import check_ranges, from_object_store
from glaive.io.object_deletes import delete_objects
from glaive.io.object_path import check_object_path
from glaive.io.ranges import MAX_REQUEST, aligned, coalesce, split
from glaive.io.refusals import refusals
from glaive.io.remote import RemoteReader, RemoteSink, described
from glaive.io.request_limit import RequestLimit
from glaive.io.retry import is_transient, pause, repeating
from glaive.io.stats import IoCounters
from glaive.io.store import BytesLike, ObjectMeta, ObjectStore, PutMode, byte_views
from glaive.types import ByteRange

__all__ = ["ObjectReader", "ObjectSink", "ObjectStoreAdapter"]

T = TypeVar("T")

_PART = 8 * 1024 * 1024
"""Bytes per part of a multipart upload."""
_WHOLE = 1 << 62
"""The same in memory: parts would need threads, which forked children do not have."""
_DIRECTORY_BUCKETS = ("--x-s3", "--xa-s3")
"""How names of buckets of S3 Express One Zone, and of access points to them, end."""
_MAX_CONCURRENT = 10
"""Concurrent requests of obstore for one call."""


class ObjectStoreAdapter(ObjectStore):
    """A prefix of a bucket, opened by :func:`glaive.io.connect.connect`.

    Reads whose response breaks off are repeated here; requests that are refused or not answered
    are repeated by the client. ``options`` are the storage options it was opened with, and
    ``reopen`` opens it by URI and options in another process.
    """

    __slots__ = (
        "_base",
        "_in_order",
        "_prefix",
        "_store",
        "counters",
        "download_retries",
        "options",
        "reopen",
        "request_limit",
    )

    counters: IoCounters
    options: Mapping[str, str]

    def __init__(
        self,
        store: Any,
        base: str,
        prefix: str,
        options: Mapping[str, str],
        *,
        download_retries: int,
        request_limit: RequestLimit,
        counters: IoCounters,
        reopen: Callable[[str, Mapping[str, str]], ObjectStoreAdapter],
    ) -> None:
        self.reopen = reopen
        self._store, self._base, self._prefix, self.options = store, base, prefix, options
        self.download_retries, self.counters = download_retries, counters
        self.request_limit = request_limit
        self._in_order = not (base.startswith("s3://") and base.endswith(_DIRECTORY_BUCKETS))

    def __repr__(self) -> str:
        return f"ObjectStoreAdapter({self.public_uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self._base.startswith("memory://"):
            raise StoreError(
                f"{self.uri} is in the memory of this process and cannot be sent to another. "
                "Use a directory or a bucket."
            )
        return (self.reopen, (self.uri, dict(self.options)))

    @property
    def is_remote(self) -> bool:
        """Whether bytes go over a network: unless they are in the memory of this process."""
        return not self._base.startswith("memory://")

    @property
    def lists_in_order(self) -> bool:
        """Whether objects are listed by name: not in directory buckets."""
        return self._in_order

    @property
    def uri(self) -> str:
        """``scheme://bucket/prefix``."""
        return f"{self._base}/{self._prefix}" if self._prefix else self._base

    def full(self, path: str) -> str:
        """URI of an object."""
        return f"{self.uri}/{path}" if path else self.uri

    def _key(self, path: str) -> str:
        check_object_path(path, self.uri)
        return "/".join(part for part in (self._prefix, path) if part)

    def open(self, path: str, *, size: int | None = None) -> ObjectReader:
        """Make a reader; no request yet."""
        return ObjectReader(self, self._store, self._key(path), self.full(path), size)

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error of the client, without credentials."""
        return from_object_store(error, path, doing, self.options)

    def _require_client(self) -> None:
        """Check that requests can be made: not in a child forked after the first one."""
        require_client_threads(self.uri, is_remote=self.is_remote)

    def reading(self, requests: int, read: Callable[[], T]) -> T:
        """Return what ``read`` returns, once so many requests may begin."""
        self._require_client()
        with self.request_limit.acquire(min(requests, _MAX_CONCURRENT)):
            return repeating(read, self.download_retries, refusals=refusals())

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object. One request."""
        key = self._key(path)
        try:
            data = self.reading(1, lambda: self._whole(key))
            self.counters.add_read(1, len(data))
            return aligned(data, 0)
        except refusals() as error:
            raise self.failed(error, self.full(path), "read") from None

    def _whole(self, key: str) -> Any:
        if self.is_remote:
            return body_of_object(self._store, key)
        return obstore.get(self._store, key).bytes()

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole object with one conditional or unconditional request."""
        self._require_client()
        parts = list(byte_views(data))
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        key = self._key(path)
        try:
            try:
                obstore.put(self._store, key, body, mode=mode, use_multipart=False)
            except AlreadyExistsError:
                if not self._put_over_empty(key, body):
                    raise
            self.counters.add_write(1, len(body))
        except refusals() as error:
            raise self.failed(error, self.full(path), "write") from None

    def _put_over_empty(self, key: str, body: bytes | memoryview) -> bool:
        """Replace an empty object; ``False`` if it is not empty, or is only about to be made.

        The store rejects it if the object changes meanwhile.
        """
        try:
            meta = obstore.head(self._store, key)
        except FileNotFoundError:  # a conflict with a request of another writer that is under way
            return False
        if meta["size"] or not meta["e_tag"]:
            return False
        unchanged: Any = {"e_tag": meta["e_tag"]}
        if meta["version"]:
            unchanged["version"] = meta["version"]
        obstore.put(self._store, key, body, mode=unchanged, use_multipart=False)
        return True

    def create(self, path: str) -> ObjectSink:
        """Start a multipart upload."""
        self._require_client()
        return ObjectSink(self, self._store, self._key(path), self.full(path))

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Objects directly under a prefix, page by page."""
        cut = len(prefix) + 1 if prefix else 0
        return (meta for meta in self.walk(prefix) if "/" not in meta.path[cut:])

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Objects at any depth under a prefix, page by page."""
        return self.walk_between(prefix, None, None)

    def walk_between(
        self, prefix: str, start: str | None, stop: str | None
    ) -> Iterator[ObjectMeta]:
        """The same; where they are in order, pages begin at ``start``, and end at ``stop``."""
        self._require_client()
        cut = len(self._prefix) + 1 if self._prefix else 0
        key = self._key(prefix) or None
        after = self._key(_before(start)) if start is not None and self._in_order else None
        try:
            for page in self._pages(key, after):
                for meta in page:
                    path = meta["path"][cut:]
                    if stop is not None and path >= stop:
                        if self._in_order:
                            return
                    elif start is None or path >= start:
                        yield described(self, path, meta["size"], meta["last_modified"])
        except refusals() as error:
            raise self.failed(error, self.full(prefix), "list") from None

    def _pages(self, key: str | None, after: str | None) -> Iterator[Any]:
        """Pages of a listing after a key; continued from the last one if it breaks off.

        Where they are in no order, only one that breaks off before its first page is repeated.
        """
        last = after
        for attempt in range(self.download_retries + 1):
            try:
                for page in obstore.list(self._store, key, offset=last, chunk_size=1000):
                    self.counters.add_read(1, 0)
                    last = page[-1]["path"] if page else last
                    yield page
            except refusals() as error:
                may_go_on = self._in_order or last == after
                if attempt == self.download_retries or not may_go_on or not is_transient(error):
                    raise
                pause(attempt)
            else:
                return

    def head(self, path: str) -> ObjectMeta:
        """Size and time of an object. One request."""
        key = self._key(path)
        try:
            meta = self.reading(1, lambda: obstore.head(self._store, key))
            self.counters.add_read(1, 0)
        except refusals() as error:
            raise self.failed(error, self.full(path), "look up") from None
        return described(self, path, meta["size"], meta["last_modified"])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, many per request if the store can; missing ones are no error."""
        self._require_client()
        keys = [self._key(path) for path in paths]
        for at in range(0, len(keys), 1000):
            try:
                delete_objects(self._store, keys[at : at + 1000])
            except refusals() as error:
                raise self.failed(error, self.full(paths[at]), "delete") from None


def _before(path: str) -> str:
    """A path shortly before another, as listings leave out the one that they begin after."""
    return f"{path[:-1]}{chr(ord(path[-1]) - 1)}~"


class ObjectReader(RemoteReader):
    """An object read with range requests; near ranges share one."""

    __slots__ = ("_adapter", "_key", "_size", "_store", "path")

    def __init__(
        self, adapter: ObjectStoreAdapter, store: Any, key: str, path: str, size: int | None
    ) -> None:
        self._adapter, self._store, self._key = adapter, store, key
        self.path, self._size = path, size

    @property
    def size(self) -> int:
        """Bytes in the object; one HEAD unless an earlier response had it."""
        if self._size is None:
            try:
                head = self._adapter.reading(1, lambda: obstore.head(self._store, self._key))
                self._size = head["size"]
                self._adapter.counters.add_read(1, 0)
            except refusals() as error:
                raise self._adapter.failed(error, self.path, "look up") from None
        return self._size

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes with one request, which also gives the object's size."""
        if self._size is None:
            try:
                total, data = self._adapter.reading(
                    1, lambda: body_of_tail(self._store, self._key, max(size, 1))
                )
                self._size = total
                self._adapter.counters.add_read(1, len(data))
                return aligned(data, total - len(data))
            except NotSupportedError:  # Azure has no suffix ranges: request the size first
                pass
            except refusals() as error:
                raise self._adapter.failed(error, self.path, "read") from None
        start = max(0, self.size - size)
        return self.read([ByteRange(start, self.size - start)])[0]

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order."""
        if self._size is not None:
            check_ranges(self.path, ranges, self._size)
        joined = coalesce(ranges)
        if not joined.requests:
            return split(ranges, joined, [])
        if joined.requests[-1].end > LARGEST_OBJECT:  # the client has no such numbers
            self._check_again(ranges)
        starts, lengths = map(list, zip(*joined.requests, strict=True))
        failed: StoreError | None = None
        try:
            responses = self._adapter.reading(len(starts), lambda: self._bodies(starts, lengths))
            self._adapter.counters.add_read(len(starts), joined.size)
        except refusals() as error:
            failed = self._adapter.failed(error, self.path, "read")
        if failed is not None:  # not in the handler: the error of the client would be shown, too
            if not isinstance(failed, ObjectNotFoundError):
                self._check_again(ranges)
            raise failed
        if any(len(data) < length for data, length in zip(responses, lengths, strict=True)):
            self._check_again(ranges)
            raise StoreError(
                f"cannot read {self.path}: the store returned fewer bytes than were requested. "
                "Try again."
            )
        buffers = [aligned(data, start) for data, start in zip(responses, starts, strict=True)]
        return split(ranges, joined, buffers)

    def _bodies(self, starts: list[int], lengths: list[int]) -> Sequence[Any]:
        """One body per range; those of web servers, which may be anybody's, are kept to it.

        Several ranges of a bucket are one call of the client, which is faster by far, but takes
        the memory for them at once: it gets none of those that only the size of an object allows.
        """
        web, large = isinstance(self._store, HTTPStore), max(lengths) > MAX_REQUEST
        if self._adapter.is_remote and (web or large or len(starts) == 1):
            return body_of_ranges(self._store, self._key, starts, lengths)
        return obstore.get_ranges(
            self._store, self._key, starts=starts, lengths=lengths, coalesce=0
        )

    def _check_again(self, ranges: Sequence[ByteRange]) -> None:
        """Check against the size that the store reports, instead of the one that was given."""
        self._size = None
        check_ranges(self.path, ranges, self.size)


class ObjectSink(RemoteSink):
    """A multipart upload; small objects are uploaded with one request.

    The object becomes visible when :meth:`finish` completes the upload. After ``abort``, parts
    already uploaded are subject to the bucket's rule for incomplete uploads.
    """

    __slots__ = ("_adapter", "_key", "_store")

    def __init__(self, adapter: ObjectStoreAdapter, store: Any, key: str, full: str) -> None:
        self._adapter, self._store, self._key = adapter, store, key
        part = _PART if adapter.is_remote else _WHOLE
        try:
            super().__init__(obstore.open_writer(store, key, buffer_size=part), full)
        except refusals() as error:
            raise self.failed(error, full, "write") from None

    def finish(self) -> int:
        """Complete the upload; returns the object's size in bytes."""
        writer, self._file = self._opened(), None
        try:
            writer.close()
        except refusals() as error:
            # Where the client repeated the request, the upload may have ended with the first one.
            if not (isinstance(error, FileNotFoundError) and self._is_whole()):
                raise self.failed(error, self._full, "write") from None
        self._adapter.counters.add_write(1, self.position)
        return self.position

    def _is_whole(self) -> bool:
        """Whether there is an object of the size that was written. One request."""
        try:
            size: int = obstore.head(self._store, self._key)["size"]
        except refusals():
            return False
        return size == self.position

    def abort(self) -> None:
        """Never complete the upload."""
        self._file = None

    refusals = staticmethod(refusals)

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error of the client."""
        return self._adapter.failed(error, path, doing)
