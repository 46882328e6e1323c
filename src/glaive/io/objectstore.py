"""Objects in a bucket or in memory, through obstore: S3, Google, Azure, HTTP, ``memory://``.

Waiting happens without the interpreter lock. Responses are returned without a copy unless that
would misalign them: buffers keep the alignment they have in the object, as maps do.
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
from glaive.io.failures import PANIC, check_ranges, first_line_of, from_object_store
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
from glaive.process import renewed
from glaive.types import ByteRange

# --- What the client of object stores raises where a request fails ----------------------


def refusals() -> tuple[type[BaseException], ...]:
    """The classes of its errors, for an ``except``, which asks when there is one.

    The client panics at answers that no server should give, such as an error for an object that
    was not asked for. That is no ``Exception``, and its class is there after the first one only.
    """
    panics = (kind for kind in BaseException.__subclasses__() if kind.__name__ == PANIC)
    return (BaseError, OSError, ValueError, NotImplementedError, *panics)


# --- Bodies of responses of object stores, never longer than what was asked for or stated
# A server may state any length and send another one. Memory is taken for bytes that arrived, and
# one that goes on after the last byte it owes is left: its bytes are not waited for.

LARGEST_OBJECT: Final = 1 << 62
"""Bytes of an object at most, far more than any store takes."""


def body_of_object(store: Any, key: str) -> bytes:
    """A whole object: as many bytes as the server stated.

    Raises
    ------
    ValueError
        The server sends more than that, or fewer.
    """
    response = obstore.get(store, key)
    return _checked(response, response.meta["size"])


def body_of_tail(store: Any, key: str, size: int) -> tuple[int, bytes]:
    """Size of the object, and its last bytes, ``size`` of them at most."""
    response = obstore.get(store, key, options={"range": {"suffix": size}})
    total = response.meta["size"]
    return total, _checked(response, min(size, total))


def body_of_ranges(
    store: Any, key: str, starts: Sequence[int], lengths: Sequence[int]
) -> list[bytes]:
    """One body per range, in order, requested side by side."""
    ranges = list(zip(starts, lengths, strict=True))

    def read(of: tuple[int, int]) -> bytes:
        start, length = of
        response = obstore.get(store, key, options={"range": (start, start + length)})
        return _checked(response, length, shorter=True)

    return side_by_side(read, ranges)


def _checked(response: Any, size: int, *, shorter: bool = False) -> bytes:
    """The body; one chunk of it ends with the body, or as soon as it has a byte too many."""
    if size > LARGEST_OBJECT:
        raise ValueError(f"the server stated {size} bytes, more than an object has")
    data: bytes = next(iter(response.stream(min_chunk_size=size + 1)), b"")
    if len(data) > size:
        raise ValueError(f"the server sent more bytes than the {size} that it had to")
    if len(data) < size and not shorter:
        raise ValueError(f"incomplete: the server sent {len(data)} bytes of {size}")
    return data


# --- Threads of the client of buckets, which a fork does not copy -----------------------
# obstore makes requests with threads that it starts at the first one and never again. A child that
# is forked afterwards would wait for them without end, in every request to any bucket, so it gets
# an error. One that is forked before has its own.


class _Threads:
    """Whether this process, or one that it was forked from, has started them."""

    started = False
    left_behind = False


def require_client_threads(uri: str, *, is_remote: bool) -> None:
    """Note that a request begins; what is in the memory of this process needs no thread for it.

    Raises
    ------
    StoreError
        The threads are those of another process.
    """
    _Threads.started = True
    if _Threads.left_behind and is_remote:
        raise StoreError(
            f"cannot reach {uri}: this process was forked from one that had made requests to a "
            "bucket, and the client's threads (obstore) stayed there. Start processes by "
            "'forkserver' or 'spawn' (multiprocessing_context='forkserver' of a DataLoader), or "
            "fork before the first request."
        )


def _after_fork() -> None:
    _Threads.left_behind = _Threads.started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# --- Delete many objects of a bucket: those that are missing are no error ---------------


def delete_objects(client: Any, keys: Sequence[str]) -> None:
    """Delete up to a thousand objects, in one request if the store can.

    Where it cannot, as Google Cloud Storage and memory, a missing object ends a batch with others
    of it still there; so does one whose deletion was repeated since its answer was lost.
    """
    try:
        obstore.delete(client, keys)
    except FileNotFoundError:
        for key in keys:
            with suppress(FileNotFoundError):
                obstore.delete(client, [key])


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
    """A prefix of a bucket, opened by :func:`glaive.io.objectstore.connect`.

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


# --- Keys of S3 that options give: the session token of the environment belongs to other ones
# The client would send it along with any keys, also to a server that only these are meant for.

_TOKENS: Final = ("AWS_SESSION_TOKEN", "AWS_TOKEN")


def keys_without_token(config: Mapping[str, str]) -> Any | None:
    """A provider of the keys in options; ``None`` where the client itself takes the right ones."""
    key, secret = config.get("aws_access_key_id"), config.get("aws_secret_access_key")
    if not key or not secret or "aws_session_token" in config:
        return None
    own = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    # The id alone is no secret: whoever knows it could have the token sent to a server of theirs.
    if (key, secret) == own or not any(map(os.environ.get, _TOKENS)):
        return None
    keys = {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}
    return lambda: keys


# --- Credentials from the profiles of the AWS command line, read by boto3 if it is installed
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
    """A provider of the profile's credentials; ``None`` if there is no profile, or other ones.

    boto3 is loaded only if there is a profile and no other credentials are configured.

    Raises
    ------
    StoreError
        The profile is missing, incomplete, or names what gives no credentials.
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
    except Exception as error:  # any: a profile may name a program, whose answer is read there
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
_memories_lock = renewed(RLock())


def connect(uri: str, options: Mapping[str, str]) -> ObjectStoreAdapter:
    """Open ``scheme://bucket/prefix``; no request is made.

    ``memory://name`` is one store per name and process. No store here uses a user and password
    from the URI: they are removed, so that they appear in no message and no file.

    Raises
    ------
    OptionError
        An option has an invalid value.
    StoreError
        The store cannot be opened with these options.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    kind = _KINDS[scheme]
    if kind != "az" and "@" in bucket:  # Azure has the container there
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
