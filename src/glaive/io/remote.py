"""Common parts of readers, sinks and listings of remote objects.

Byte ranges are joined to few requests and split again. Reads whose response broke off are repeated.
The number of concurrent requests is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Condition, RLock, get_ident
from typing import Any, Final, TypeVar

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import StoreError
from glaive.io.failures import MAX_OBJECT_BYTES, too_large
from glaive.io.store import ALIGNMENT, BytesLike, ObjectMeta, ObjectStore, byte_views
from glaive.process import fork_safe, fraction, sleep
from glaive.types import ByteRange

# --- Byte ranges: join adjacent ranges into few requests, and split the responses -------
# Pure functions: the caller reads.

MAX_GAP = 64 * 1024
"""Maximum bytes between two ranges for which one request is cheaper than two."""

MAX_REQUEST = 16 * 1024 * 1024
"""Maximum bytes of a joined request, so that large reads run concurrently."""


@dataclass(frozen=True, slots=True)
class Coalesced:
    """Requests to make, and for each range the request that covers it.

    ``source[i]`` is the index in ``requests`` for range ``i``; -1 for an empty range.
    """

    requests: list[ByteRange]
    source: list[int]

    @property
    def size(self) -> int:
        """Bytes fetched, gaps included."""
        return sum(request.size for request in self.requests)


def coalesce(
    ranges: Sequence[ByteRange], *, max_gap: int = MAX_GAP, max_request: int = MAX_REQUEST
) -> Coalesced:
    """Join ranges that overlap or are at most ``max_gap`` bytes apart.

    Overlapping ranges are always joined. Other ranges are joined only up to ``max_request`` bytes
    per request. A single range stays whole. ``ranges`` may be in any order.
    """
    requests: list[ByteRange] = []
    source = [-1] * len(ranges)
    start = end = -1
    for i in sorted(range(len(ranges)), key=lambda i: ranges[i].offset):
        offset, size = ranges[i]
        if size == 0:
            continue
        near = end >= 0 and offset <= end + max_gap
        if near and (offset < end or offset + size - start <= max_request):
            end = max(end, offset + size)
            requests[-1] = ByteRange(start, end - start)
        else:
            start, end = offset, offset + size
            requests.append(ByteRange(start, size))
        source[i] = len(requests) - 1
    return Coalesced(requests, source)


def split(
    ranges: Sequence[ByteRange], coalesced: Coalesced, responses: Sequence[pa.Buffer]
) -> list[pa.Buffer]:
    """Split the responses to ``coalesced.requests`` into one view per range."""
    empty = pa.py_buffer(b"")
    buffers: list[pa.Buffer] = []
    for (offset, size), at in zip(ranges, coalesced.source, strict=True):
        if at < 0:
            buffers.append(empty)
            continue
        buffers.append(responses[at].slice(offset - coalesced.requests[at].offset, size))
    return buffers


def aligned(data: Any, offset: int) -> pa.Buffer:
    """Wrap a response so that its address is aligned like ``offset`` in the object.

    It copies the response only if the alignment differs.
    """
    buffer = pa.py_buffer(data)
    phase = offset % ALIGNMENT
    if buffer.size == 0 or buffer.address % ALIGNMENT == phase:
        return buffer
    memory, target = aligned_memory(buffer.size, offset)
    target[:] = memoryview(buffer)
    return memory


def aligned_memory(size: int, offset: int) -> tuple[pa.Buffer, memoryview]:
    """Allocate memory whose address is aligned like ``offset`` in the object, and open it."""
    memory = pa.allocate_buffer(size + ALIGNMENT)
    start = (offset - memory.address) % ALIGNMENT
    return memory.slice(start, size), memoryview(memory)[start : start + size]


class RemoteReader:
    """An object that is requested range by range."""

    __slots__ = ()

    mapped = False

    def advise(self, ranges: Sequence[ByteRange], advice: str) -> None:
        """Ignore advice, which is for maps."""

    def advise_pattern(self, pattern: str) -> None:
        """Ignore advice, which is for maps."""

    def close(self) -> None:
        """Return at once: each request closes what it opens."""


class RemoteSink:
    """An object being written through a file object of a library."""

    __slots__ = ("_file", "_full", "position")

    def __init__(self, file: Any, full: str) -> None:
        self._file, self._full, self.position = file, full, 0

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append parts; full parts may be uploaded in the background."""
        file = self._opened()
        for view in byte_views(data):
            try:
                file.write(view)
            except self.refusals() as error:
                raise self.failed(error, self._full, "write") from None
            self.position += view.nbytes

    def _opened(self) -> Any:
        if self._file is None:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        return self._file

    def refusals(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions of the library."""
        return (Exception,)

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error of the library."""
        raise NotImplementedError


def described(
    store: ObjectStore, path: str, size: int, modified: datetime | None, etag: str | None = None
) -> ObjectMeta:
    """Return a server's metadata of an object; raise an error for an impossible size."""
    if size > MAX_OBJECT_BYTES:
        raise too_large(store.full(path), size)
    return ObjectMeta(path, size, modified, etag)


# --- Repeat reads whose response broke off, waiting longer each time --------------------
#
# The object store client repeats requests that were refused or unanswered. It gives up when a
# response ends early, because it has already passed on the start of the response. glaive repeats
# such reads, which is safe; it does not repeat writes.

T = TypeVar("T")

_FIRST_WAIT_SECONDS = 0.1
"""Maximum seconds before the first repetition; each later wait may be twice as long."""

_MAX_WAIT_SECONDS = 10.0
_DOUBLINGS = 7
"""Number of doublings from the first wait to the longest."""
_TRANSIENT_TEXTS = (
    "500 internal server error",  # of WebDAV, while another writer moves the file
    "body",
    "closed connection",  # of FTP: its server ends an idle connection
    "connection closed",
    "connection dropped",  # of SSH, by a server that ends or is restarted
    "connection reset",
    "end of file",
    "eof",
    "incomplete",
    "protocol banner",  # of SSH: a server drops some of many connections that begin at once
    "session not active",  # of SSH, as the next line: it ended an idle connection
    "socket is closed",
    "timed out",
    "timeout",
)
"""Parts of lower-case error messages when a response broke off."""


def repeating(read: Callable[[], T], times: int, *, refusals: tuple[type[BaseException], ...]) -> T:
    """Return the result of ``read``, repeated up to ``times`` after a transient failure.

    Before repetition ``n`` it sleeps a random time of up to ``2**n`` tenths of a second, at most
    ten seconds. Other failures, and the last failure, are raised unchanged.
    """
    for attempt in range(times):
        try:
            return read()
        except refusals as error:
            if not is_transient(error):
                raise
        pause(attempt)
    return read()


def pause(attempt: int) -> None:
    """Sleep before repetition ``attempt`` (from 0): a random part of a doubling time."""
    sleep(fraction() * min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(attempt, _DOUBLINGS)))


def is_transient(error: BaseException) -> bool:
    """Return whether a response broke off, so that repeating the request may help."""
    if isinstance(error, FileNotFoundError | PermissionError):
        return False
    if isinstance(error, ConnectionError | EOFError | TimeoutError):
        return True
    text = str(error).lower()
    # The client has used up its own retries: more retries would only take longer.
    if "after" in text and "retries" in text:
        return False
    return any(sign in text for sign in _TRANSIENT_TEXTS)


# --- A limit on the concurrent requests of a store ---------------------------------------

_CHECK_SECONDS: Final = 1.0
"""Seconds until a waiting caller checks by itself, in case Ctrl-C prevented a notification."""


class RequestLimit:
    """A counting semaphore over requests.

    A caller that needs more than ``limit`` requests runs alone. A thread with active requests gets
    more at once: the caller is then a signal handler or finaliser that interrupted them.
    """

    __slots__ = ("__weakref__", "_changed", "_in_flight", "_lock", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self._in_flight: dict[int, int] = {}
        """Number of active requests by thread."""
        self._new_lock()
        fork_safe(self)

    def _new_lock(self) -> None:
        # Avoid a condition: Ctrl-C may interrupt its Python code after it took the lock.
        self._lock = RLock()
        self._changed = Condition(self._lock)

    def _at_fork_reinit(self) -> None:
        """Reset in a forked child: active requests are the parent's."""
        self._in_flight = {}
        self._new_lock()

    @contextmanager
    def acquire(self, requests: int) -> Iterator[None]:
        """Wait until ``requests`` more requests may begin; they may be active inside the block."""
        wanted, thread = min(max(1, requests), self.limit), get_ident()
        if thread in self._in_flight:
            yield
            return
        try:
            with self._lock:
                while sum(self._in_flight.values()) > self.limit - wanted:
                    self._changed.wait(_CHECK_SECONDS)
                self._in_flight[thread] = wanted
            yield
        finally:  # also if Ctrl-C comes before the block begins
            if self._in_flight.pop(thread, None) is not None:
                with self._lock:
                    self._changed.notify_all()
