"""Stores, readers and sinks that wrap others and change their behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, Literal

import pyarrow as pa

from glaive.errors import ObjectExistsError, ObjectNotFoundError
from glaive.io.failures import beyond_end
from glaive.io.mapped import Advice
from glaive.io.store import ALIGNMENT, BytesLike, ObjectStore, RangeReader, Sink
from glaive.types import ByteRange

# ruff: noqa: D102  # ObjectStore and RangeReader say what each method does


class WrappedStore(ObjectStore):
    """A store that wraps another store, and passes on calls of methods that it lacks."""

    __slots__ = ("inner",)

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner


_DERIVED = ("discard", "file_link_out", "public_uri")
"""Methods that a store derives from its other methods."""


def _delegated(name: str, member: Any) -> Any:
    """Return a method or property that calls the inner store's."""
    if isinstance(member, property):
        return property(lambda self: getattr(self.inner, name))

    @wraps(member)
    def call(self: WrappedStore, *arguments: Any, **named: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **named)

    return call


for _name, _member in vars(ObjectStore).items():
    if not _name.startswith("_") and _name not in _DERIVED:
        setattr(WrappedStore, _name, _delegated(_name, _member))


class WrappedReader:
    """A reader that wraps another reader and hides its map."""

    __slots__ = ("_inner",)

    mapped = False

    def __init__(self, inner: RangeReader) -> None:
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size(self) -> int:
        return self._inner.size

    def tail(self, size: int) -> pa.Buffer:
        return self._inner.tail(size)

    def advise(self, ranges: Sequence[ByteRange], advice: Advice) -> None:
        self._inner.advise(ranges, advice)

    def advise_pattern(self, pattern: Literal["random", "sequential"]) -> None:
        self._inner.advise_pattern(pattern)

    def close(self) -> None:
        self._inner.close()


class HeldStore(WrappedStore):
    """A store that keeps some objects in memory by path, and counts only reads of the others."""

    __slots__ = ("_held",)

    def __init__(self, inner: ObjectStore, held: Mapping[str, pa.Buffer]) -> None:
        super().__init__(inner)
        self._held = held

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Open an object; if it is in memory, it is read from there."""
        held = self._held.get(path)
        return super().open(path, size=size) if held is None else HeldReader(self.full(path), held)

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object."""
        held = self._held.get(path)
        return super().get(path) if held is None else held


class HeldReader:
    """An object in memory."""

    __slots__ = ("_data", "mapped", "path", "size")

    def __init__(self, path: str, data: pa.Buffer) -> None:
        self.path, self._data, self.size, self.mapped = path, data, data.size, True

    def tail(self, size: int) -> pa.Buffer:
        return self._data.slice(max(0, self.size - size))

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        for one in ranges:
            if one.offset < 0 or one.size < 0 or one.offset + one.size > self.size:
                raise beyond_end(self.path, one, self.size)
        return [self._data.slice(*one) for one in ranges]

    def advise(self, ranges: Sequence[ByteRange], advice: Advice) -> None:
        """Ignore advice: the object is in memory."""

    def advise_pattern(self, pattern: Advice) -> None:
        """Ignore advice: the object is in memory."""

    def close(self) -> None:
        """Return at once: the owner of the memory releases it."""


# --- Write aligned buffers: the data buffers of a Lance file begin on 64-byte offsets ---

# --- Create an object, and recognise it if the answer to the request was lost -----------


def create_own(store: ObjectStore, path: str, content: bytes) -> bool:
    """Create an object with unique content; ``False`` if another object exists already.

    A client or a proxy may have repeated the request, and received the answer to the second
    request: then the object exists with this content. One request, and another if an object exists.
    """
    try:
        store.put(path, [content], mode="create")
    except ObjectExistsError:
        try:
            return store.get(path).to_pybytes() == content
        except ObjectNotFoundError:
            return False
    return True


PAD = b"\x48"
"""The byte between buffers."""

_PADDING = PAD * ALIGNMENT

FLUSH_BYTES = 4 * 1024 * 1024
"""Bytes to collect before they are passed to the inner sink with one call."""


class AlignedSink:
    """A sink that aligns buffers and writes many with one call.

    Padding is written before a buffer, because unaligned data follows the last buffer. Buffers are
    kept until some MiB are collected. So their memory must stay the same after they were passed.
    """

    __slots__ = ("_pending", "_position", "_sink", "_waiting")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._position = sink.position
        self._pending: list[BytesLike] = []
        self._waiting = 0

    @property
    def position(self) -> int:
        """Bytes written so far, including bytes that are still kept."""
        return self._position

    def pad(self) -> int:
        """Write padding up to the next multiple of 64; return the new position."""
        gap = -self._position % ALIGNMENT
        if gap:
            self._put(_PADDING[:gap], gap)
        return self._position

    def write(self, data: Sequence[BytesLike]) -> ByteRange:
        """Append parts as they are, unaligned; return their range."""
        start = self._position
        for part in data:
            self._put(part, memoryview(part).nbytes)
        self._flush_some()
        return ByteRange(start, self._position - start)

    def write_aligned(
        self, buffers: Sequence[BytesLike | tuple[BytesLike, ...]]
    ) -> list[ByteRange]:
        """Append buffers, each on a 64-byte offset; return their ranges.

        A tuple has the parts of a buffer, which are adjacent in the file.
        """
        ranges: list[ByteRange] = []
        for buffer in buffers:
            position = self.pad()
            if isinstance(buffer, bytes):
                self._put(buffer, len(buffer))
            else:
                for part in buffer if isinstance(buffer, tuple) else (buffer,):
                    self._put(part, memoryview(part).nbytes)
            ranges.append(ByteRange(position, self._position - position))
        self._flush_some()
        return ranges

    def finish(self) -> int:
        """Make the object visible; return its size in bytes."""
        self._flush()
        return self._sink.finish()

    def abort(self) -> None:
        """Discard the object."""
        self._pending, self._waiting = [], 0
        self._sink.abort()

    def _put(self, part: BytesLike, size: int) -> None:
        if size:
            self._pending.append(part)
            self._position += size
            self._waiting += size

    def _flush_some(self) -> None:
        if self._waiting >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            pending, self._pending, self._waiting = self._pending, [], 0
            self._sink.write(pending)


# --- Files with new random names: small files are written in place ----------------------
# A data file has a random name, and the manifest that refers to it is written later. So it may
# be visible in its directory before it is complete. A writer that is stopped leaves a file that all
# versions ignore, as it would with a temporary name.


class NewFiles(WrappedStore):
    """A store whose newly created objects all have new names."""

    __slots__ = ()

    def create(self, path: str) -> Sink:
        """Start writing; in a directory, a small file is created when it is finished."""
        inner = self.inner
        return _NewFile(inner, path) if inner.is_local else inner.create(path)


class _NewFile:
    """A file that is created once more than one call's worth is written, or else at its end."""

    __slots__ = ("_path", "_pending", "_sink", "_store", "position")

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store, self._path = store, path
        self._sink: Sink | None = None
        self._pending: list[BytesLike] = []
        self.position = 0

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append parts; the first parts are kept, so their memory must stay the same."""
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
        """Make the file visible; return its size in bytes."""
        if self._sink is not None:
            return self._sink.finish()
        self._store.put_new(self._path, self._pending)
        return self.position

    def abort(self) -> None:
        """Discard the file."""
        self._pending = []
        if self._sink is not None:
            self._sink.abort()
