"""Objects in a bucket or in memory, through obstore: S3, Google, Azure, HTTP, ``memory://``.

Requests release the interpreter lock. Buffers keep the alignment they have in the object, as maps
do; a response is copied only to align it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from threading import RLock
from typing import Any, Final, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, HTTPStore, MemoryStore, S3Store

from glaive.config import settings
from glaive.errors import GlaiveError, ObjectNotFoundError, OptionError, StoreError
from glaive.io.failures import (
    MAX_OBJECT_BYTES,
    PANIC,
    check_ranges,
    first_line_of,
    from_object_store,
)
from glaive.io.location import check_object_path
from glaive.io.pool import side_by_side
from glaive.io.remote import (
    MAX_REQUEST,
    RemoteReader,
    RemoteSink,
    RequestLimit,
    aligned,
    coalesce,
    described,
    is_transient,
    pause,
    repeating,
    split,
)
from glaive.io.storage_options import Connection, StoreKind, read_options
from glaive.io.store import BytesLike, IoCounters, ObjectMeta, ObjectStore, PutMode, byte_views
from glaive.process import fork_safe
from glaive.types import ByteRange

# --- Exceptions of the client of object stores when a request fails ----------------------


def refusals() -> tuple[type[BaseException], ...]:
    """Return the client's classes of errors. Call it in an ``except`` clause, after the error.

    The client panics at answers that break the protocol, such as an error for an object that was
    never requested. The class of a panic is a ``BaseException`` and exists only after the first
    panic.
    """
    panics = (kind for kind in BaseException.__subclasses__() if kind.__name__ == PANIC)
    return (BaseError, OSError, ValueError, NotImplementedError, *panics)


# --- Bodies of responses of object stores, at most as long as requested or stated -------
# A server may state any length and send another. glaive allocates memory for bytes that arrived. If
# a server sends more bytes than it should, glaive closes the response early.


def body_of_object(store: Any, key: str) -> bytes:
    """Return a whole object, with the number of bytes that the server stated.

    Raises
    ------
    ValueError
        The server sends more or fewer bytes.
    """
    response = obstore.get(store, key)
    return _checked(response, response.meta["size"])


def body_of_tail(store: Any, key: str, size: int) -> tuple[int, bytes]:
    """Return the size of an object, and its last bytes, at most ``size``."""
    response = obstore.get(store, key, options={"range": {"suffix": size}})
    total = response.meta["size"]
    return total, _checked(response, min(size, total))


def body_of_ranges(
    store: Any, key: str, starts: Sequence[int], lengths: Sequence[int]
) -> list[bytes]:
    """Return one body per range, in order, requested concurrently."""
    ranges = list(zip(starts, lengths, strict=True))

    def read(of: tuple[int, int]) -> bytes:
        start, length = of
        response = obstore.get(store, key, options={"range": (start, start + length)})
        return _checked(response, length, shorter=True)

    return side_by_side(read, ranges)


def _checked(response: Any, size: int, *, shorter: bool = False) -> bytes:
    """Return the body. Its first chunk has all of it, or one byte more than it should have."""
    if size > MAX_OBJECT_BYTES:
        raise ValueError(f"the server stated {size} bytes, more than an object has")
    data: bytes = next(iter(response.stream(min_chunk_size=size + 1)), b"")
    if len(data) > size:
        raise ValueError(f"the server sent more bytes than the {size} that it had to")
    if len(data) < size and not shorter:
        raise ValueError(f"incomplete: the server sent {len(data)} bytes of {size}")
    return data


# --- Threads of the client of buckets, which a fork loses -------------------------------
# obstore sends requests with threads that it starts only once, at the first request. A child
# process that is forked afterwards lacks these threads: it would wait forever in every request. So
# it gets an error. A child that is forked before the first request starts its own threads.


class _Threads:
    """Whether this process, or a process that it was forked from, has started the threads."""

    started = False
    left_behind = False


def require_client_threads(uri: str, *, is_remote: bool) -> None:
    """Note that a request begins. Only remote objects need a thread.

    Raises
    ------
    StoreError
        The threads belong to another process.
    """
    _Threads.started = True
    if _Threads.left_behind and is_remote:
        raise StoreError(
            f"cannot reach {uri}: this process was forked from a process that had made requests to "
            "a bucket, and the client's threads (obstore) stayed there. Start processes by "
            "'forkserver' or 'spawn' (multiprocessing_context='forkserver' of a DataLoader), or "
            "fork before the first request."
        )


def _after_fork() -> None:
    _Threads.left_behind = _Threads.started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# --- Delete many objects of a bucket; missing objects are ignored -----------------------


def delete_objects(client: Any, keys: Sequence[str]) -> None:
    """Delete up to a thousand objects, in one request if the store supports it.

    In other stores (Google Cloud Storage, memory), a missing object ends a batch before its other
    objects are deleted. It may be missing because the client repeated a request after its answer
    was lost.
    """
    try:
        obstore.delete(client, keys)
    except FileNotFoundError:
        for key in keys:
            with suppress(FileNotFoundError):
                obstore.delete(client, [key])


T = TypeVar("T")

_PART_BYTES = 8 * 1024 * 1024
"""Bytes per part of a multipart upload."""
_MEMORY_PART_BYTES = MAX_OBJECT_BYTES
"""Bytes per part in memory: parts would need threads, which forked children lack."""
_DIRECTORY_BUCKETS = ("--x-s3", "--xa-s3")
"""Ends of names of S3 Express One Zone buckets and their access points."""
_MAX_CONCURRENT = 10
"""Concurrent requests of obstore for one call."""


class ObjectStoreAdapter(ObjectStore):
    """A prefix of a bucket, opened by :func:`glaive.io.objectstore.connect`.

    It repeats reads whose response breaks off. The client repeats refused and unanswered requests.
    ``options`` are the storage options of the store, and ``reopen`` opens it by URI and options in
    another process.
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
        """Whether bytes go over a network; otherwise they are in the memory of this process."""
        return not self._base.startswith("memory://")

    @property
    def lists_in_order(self) -> bool:
        """Whether objects are listed by name: everywhere except in directory buckets."""
        return self._in_order

    @property
    def uri(self) -> str:
        """``scheme://bucket/prefix``."""
        return f"{self._base}/{self._prefix}" if self._prefix else self._base

    def full(self, path: str) -> str:
        """Return the URI of an object."""
        return f"{self.uri}/{path}" if path else self.uri

    def _key(self, path: str) -> str:
        check_object_path(path, self.uri)
        return "/".join(part for part in (self._prefix, path) if part)

    def open(self, path: str, *, size: int | None = None) -> ObjectReader:
        """Make a reader; its first read makes the first request."""
        return ObjectReader(self, self._store, self._key(path), self.full(path), size)

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error of the client; remove credentials."""
        return from_object_store(error, path, doing, self.options)

    def _require_client(self) -> None:
        """Raise in a child forked after the first request, which lacks the client's threads."""
        require_client_threads(self.uri, is_remote=self.is_remote)

    def reading(self, requests: int, read: Callable[[], T]) -> T:
        """Return the result of ``read``, once ``requests`` more requests may begin."""
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
        """Replace an empty object; ``False`` if it has content, or is just being made.

        The store rejects the request if the object changes meanwhile.
        """
        try:
            meta = obstore.head(self._store, key)
        except FileNotFoundError:  # a conflict with an active request of another writer
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
        """Yield the objects directly under a prefix, page by page."""
        cut = len(prefix) + 1 if prefix else 0
        return (meta for meta in self.walk(prefix) if "/" not in meta.path[cut:])

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the objects at any depth under a prefix, page by page."""
        return self.walk_between(prefix, None, None)

    def walk_between(
        self, prefix: str, start: str | None, stop: str | None
    ) -> Iterator[ObjectMeta]:
        """Yield the objects of :meth:`walk` from ``start`` to ``stop``, with fewer pages if in
        order.
        """
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
                        yield _described(self, path, meta)
        except refusals() as error:
            raise self.failed(error, self.full(prefix), "list") from None

    def _pages(self, key: str | None, after: str | None) -> Iterator[Any]:
        """Yield the pages of a listing after a key; continue after the last page if it breaks off.

        If objects are unordered, a listing is repeated only if it breaks off before its first page.
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
        """Return the size and time of an object. One request."""
        key = self._key(path)
        try:
            meta = self.reading(1, lambda: obstore.head(self._store, key))
            self.counters.add_read(1, 0)
        except refusals() as error:
            raise self.failed(error, self.full(path), "look up") from None
        return _described(self, path, meta)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, many per request if the store can; missing objects are ignored."""
        self._require_client()
        keys = [self._key(path) for path in paths]
        for at in range(0, len(keys), 1000):
            try:
                delete_objects(self._store, keys[at : at + 1000])
            except refusals() as error:
                raise self.failed(error, self.full(paths[at]), "delete") from None


def _before(path: str) -> str:
    """Return a path shortly before another: listings omit the path that they begin after."""
    return f"{path[:-1]}{chr(ord(path[-1]) - 1)}~"


class ObjectReader(RemoteReader):
    """An object read with range requests; adjacent ranges share a request."""

    __slots__ = ("_adapter", "_key", "_size", "_store", "path")

    def __init__(
        self, adapter: ObjectStoreAdapter, store: Any, key: str, path: str, size: int | None
    ) -> None:
        self._adapter, self._store, self._key = adapter, store, key
        self.path, self._size = path, size

    @property
    def size(self) -> int:
        """Bytes in the object; one HEAD request unless an earlier response had the size."""
        if self._size is None:
            try:
                head = self._adapter.reading(1, lambda: obstore.head(self._store, self._key))
                self._size = head["size"]
                self._adapter.counters.add_read(1, 0)
            except refusals() as error:
                raise self._adapter.failed(error, self.path, "look up") from None
        return self._size

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes with one request, which also returns the object's size."""
        if self._size is None:
            try:
                total, data = self._adapter.reading(
                    1, lambda: body_of_tail(self._store, self._key, max(size, 1))
                )
                self._size = total
                self._adapter.counters.add_read(1, len(data))
                return aligned(data, total - len(data))
            except NotSupportedError:  # Azure lacks suffix ranges: request the size first
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
        if joined.requests[-1].end > MAX_OBJECT_BYTES:  # too large for the client's integers
            self._check_again(ranges)
        starts, lengths = map(list, zip(*joined.requests, strict=True))
        failed: StoreError | None = None
        try:
            responses = self._adapter.reading(len(starts), lambda: self._bodies(starts, lengths))
            self._adapter.counters.add_read(len(starts), joined.size)
        except refusals() as error:
            failed = self._adapter.failed(error, self.path, "read")
        if failed is not None:  # after the handler, which would show the client's error, too
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
        """Return one body per range. Bodies of web servers, which are untrusted, are limited to it.

        The client reads several ranges of a bucket with one call. This is much faster, but takes
        the memory for all ranges at once. So large ranges, which may be wrong, are read one by one.
        """
        web, large = isinstance(self._store, HTTPStore), max(lengths) > MAX_REQUEST
        if self._adapter.is_remote and (web or large or len(starts) == 1):
            return body_of_ranges(self._store, self._key, starts, lengths)
        return obstore.get_ranges(
            self._store, self._key, starts=starts, lengths=lengths, coalesce=0
        )

    def _check_again(self, ranges: Sequence[ByteRange]) -> None:
        """Check against the size that the store reports, instead of the given size."""
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
        part = _PART_BYTES if adapter.is_remote else _MEMORY_PART_BYTES
        try:
            super().__init__(obstore.open_writer(store, key, buffer_size=part), full)
        except refusals() as error:
            raise self.failed(error, full, "write") from None

    def finish(self) -> int:
        """Complete the upload; return the object's size in bytes."""
        writer, self._file = self._opened(), None
        try:
            writer.close()
        except refusals() as error:
            # If the client repeated the request, the first one may have completed the upload.
            if not (isinstance(error, FileNotFoundError) and self._is_whole()):
                raise self.failed(error, self._full, "write") from None
        self._adapter.counters.add_write(1, self.position)
        return self.position

    def _is_whole(self) -> bool:
        """Return whether an object of the written size exists. One request."""
        try:
            size: int = obstore.head(self._store, self._key)["size"]
        except refusals():
            return False
        return size == self.position

    def abort(self) -> None:
        """Abandon the upload."""
        self._file = None

    refusals = staticmethod(refusals)

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error of the client."""
        return self._adapter.failed(error, path, doing)


# --- S3 keys in options: the environment's session token belongs to other keys -----------
# The client would send the token with any keys, also to a server that only the options name.

_TOKENS: Final = ("AWS_SESSION_TOKEN", "AWS_TOKEN")


def keys_without_token(config: Mapping[str, str]) -> Any | None:
    """Return a provider of the keys in options; ``None`` if the client itself chooses well."""
    key, secret = config.get("aws_access_key_id"), config.get("aws_secret_access_key")
    if not key or not secret or "aws_session_token" in config:
        return None
    own = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    # The id alone is not secret: an attacker who knows it could make glaive send the token.
    if (key, secret) == own or not any(map(os.environ.get, _TOKENS)):
        return None
    keys = {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}
    return lambda: keys


# --- Credentials from the profiles of the AWS command line, read by boto3 if installed ---
# The object store client supports keys in options and in the environment, web identities,
# containers and instances. boto3 adds profiles, single sign-on and assumed roles.

_IN_OPTIONS = ("aws_access_key_id", "aws_skip_signature", "aws_web_identity_token_file")
_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


def profile_credentials(config: Mapping[str, str]) -> Any | None:
    """Return a provider of the profile's credentials.

    ``None`` if other credentials are configured, or boto3 or the files of profiles are missing. In
    these cases boto3 stays unloaded.

    Raises
    ------
    StoreError
        The profile is missing or incomplete, or its source fails to give credentials.
    """
    if any(key in config for key in _IN_OPTIONS):
        return None
    if any(os.environ.get(key) for key in _IN_ENVIRONMENT):
        return None
    if not os.environ.get("AWS_PROFILE") and not _has_file():
        return None
    if find_spec("boto3") is None:
        return None
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        session = boto3.Session()
        is_known = session.get_credentials() is not None
    except Exception as error:  # any: a profile may name a program, whose answer is parsed
        raise StoreError(
            f"no credentials from the AWS profile {os.environ.get('AWS_PROFILE', 'default')!r}: "
            f"{first_line_of(error, config)}. Correct AWS_PROFILE and the files of profiles, or "
            "give keys in storage_options."
        ) from None
    return Boto3CredentialProvider(session) if is_known else None


def _has_file() -> bool:
    paths = (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
    )
    return any(os.path.isfile(os.path.expanduser(path)) for path in paths)


# --- Open an object store by URI and options --------------------------------------------

_KINDS: Mapping[str, StoreKind] = {
    "s3": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "http": "http",
    "https": "http",
    "memory": "memory",
}
_logger = logging.getLogger(__name__)
_CLASSES: Mapping[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_memories: dict[str, MemoryStore] = {}
_memories_lock = fork_safe(RLock())


def connect(uri: str, options: Mapping[str, str]) -> ObjectStoreAdapter:
    """Open ``scheme://bucket/prefix``; the first access makes the first request.

    ``memory://name`` is one store per name and process. A user and password in the URI are
    removed, which keeps them out of messages and files: all stores here ignore them.

    Raises
    ------
    OptionError
        An option has an invalid value.
    StoreError
        The client fails to open the store with these options.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    kind = _KINDS[scheme]
    if kind != "az" and "@" in bucket:  # in Azure URIs the container is before the @
        bucket = bucket.rpartition("@")[2]
        uri = f"{scheme}://{bucket}/{prefix}"
        public = GlaiveError.without_secrets(uri)
        _logger.warning("%s: the user before the host in the URI is not sent", public)
    connection = read_options(kind, options, uri=uri)
    if kind == "memory":
        with _memories_lock:
            store: Any = _memories.setdefault(bucket, MemoryStore())
    else:
        store = _remote(kind, f"{scheme}://{bucket}", uri, connection)
    return ObjectStoreAdapter(
        store,
        f"{scheme}://{bucket}",
        prefix,
        dict(options),
        download_retries=connection.download_retries,
        request_limit=RequestLimit(settings.io_concurrency),
        counters=IoCounters(),
        reopen=connect,
    )


def _remote(kind: StoreKind, root: str, uri: str, connection: Connection) -> Any:
    client = dict(connection.client)
    if root.startswith("http://"):
        client.setdefault("allow_http", "true")
    arguments: dict[str, Any] = {
        "client_options": client or None,
        "retry_config": dict(connection.retry),
    }
    if kind == "s3":
        provider = keys_without_token(connection.config) or profile_credentials(connection.config)
        if provider is not None:
            arguments["credential_provider"] = provider
    try:
        if kind == "http":
            return HTTPStore.from_url(root, **arguments)
        return _CLASSES[kind].from_url(root, config=dict(connection.config) or None, **arguments)
    except refusals() as error:
        given = {**connection.config, **connection.client}
        if isinstance(error, OSError):
            raise from_object_store(error, uri, "open", given) from None
        remedy = "" if isinstance(error, UnknownConfigurationKeyError) else ". Correct the value."
        raise OptionError(
            f"storage_options for {uri}: {first_line_of(error, given)}{remedy}"
        ) from None


def _described(store: ObjectStore, path: str, meta: Any) -> ObjectMeta:
    return described(store, path, meta["size"], meta["last_modified"], meta["e_tag"])
