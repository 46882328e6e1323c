"""Memory-mapped files read as if by requests: ranges are prefetched before they are accessed.

Accessing a cold map reads one page at a time and waits for each. A reader from here gets all
ranges of a step at once, as one of an object store does, and has the operating system read them
concurrently: 100 cold rows take 2 ms instead of 15. For data that is in memory already the plain
map is faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from glaive.io.failures import beyond_end
from glaive.io.mapped import MappedReader
from glaive.io.mapping import Advice
from glaive.io.ranges import coalesce
from glaive.io.store import ObjectStore, RangeReader
from glaive.io.wrapped import WrappedReader, WrappedStore
from glaive.types import ByteRange

__all__ = ["HeldStore", "PrefetchingReader", "PrefetchingStore"]

_GAP = 16 * 1024
"""Gap in bytes up to which two ranges are read as one: on a disk that is faster."""
_MAX_PREFETCH = 1 << 30
"""Bytes prefetched with one call, at most."""


class PrefetchingReader(WrappedReader):
    """A mapped file that pretends not to be mapped, so that callers request ranges."""

    __slots__ = ()

    _inner: MappedReader

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Prefetch all ranges, then return a view of each."""
        buffers = self._inner.read(ranges)
        joined = coalesce(ranges, max_gap=_GAP, max_request=_MAX_PREFETCH)
        self._inner.prefetch(joined.requests)
        return buffers


class PrefetchingStore(WrappedStore):
    """A store whose mapped files are opened as :class:`PrefetchingReader`."""

    __slots__ = ()

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Open; ranges of a mapped file are prefetched."""
        reader = super().open(path, size=size)
        return PrefetchingReader(reader) if isinstance(reader, MappedReader) else reader


class HeldStore(WrappedStore):
    """A store that holds some objects in memory, by their paths. Reads of these are not counted."""

    __slots__ = ("_held",)

    def __init__(self, inner: ObjectStore, held: Mapping[str, pa.Buffer]) -> None:
        super().__init__(inner)
        self._held = held

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Open; what is in memory is read there."""
        held = self._held.get(path)
        return super().open(path, size=size) if held is None else _HeldReader(self.full(path), held)

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object."""
        held = self._held.get(path)
        return super().get(path) if held is None else held


class _HeldReader:
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
        """Nothing to advise."""

    def advise_pattern(self, pattern: Advice) -> None:
        """Nothing to advise."""

    def close(self) -> None:
        """Leave the memory to those who hold it."""
