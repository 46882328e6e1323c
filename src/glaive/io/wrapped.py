"""A store or reader around another one: base classes of those that change its behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa

from glaive.io.failures import beyond_end
from glaive.io.mapped import Advice
from glaive.io.store import (
    BytesLike,
    IoCounters,
    ObjectMeta,
    ObjectStore,
    PutMode,
    RangeReader,
    Sink,
)
from glaive.types import ByteRange

# ruff: noqa: D102  # ObjectStore and RangeReader say what each method does


class WrappedStore(ObjectStore):
    """A store around another. Methods that are not overridden are those of the inner store."""

    __slots__ = ("inner",)

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def options(self) -> Mapping[str, str]:
        return self.inner.options

    @property
    def secret(self) -> str:
        return self.inner.secret

    def can_name(self, path: str) -> bool:
        return self.inner.can_name(path)

    @property
    def reached_by(self) -> bytes:
        return self.inner.reached_by

    @property
    def counters(self) -> IoCounters:
        return self.inner.counters

    @property
    def is_local(self) -> bool:
        return self.inner.is_local

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    @property
    def lists_in_order(self) -> bool:
        return self.inner.lists_in_order

    def full(self, path: str) -> str:
        return self.inner.full(path)

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        return self.inner.open(path, size=size)

    def get(self, path: str) -> pa.Buffer:
        return self.inner.get(path)

    def get_into(self, path: str, target: memoryview) -> int:
        return self.inner.get_into(path, target)

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        self.inner.put(path, data, mode=mode)

    def put_new(self, path: str, data: Sequence[BytesLike]) -> None:
        self.inner.put_new(path, data)

    def rewrite(self, path: str, data: bytes) -> bool:
        return self.inner.rewrite(path, data)

    def mark(self, path: str, data: bytes) -> None:
        self.inner.mark(path, data)

    def create(self, path: str) -> Sink:
        return self.inner.create(path)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        return self.inner.list(prefix)

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        return self.inner.walk(prefix)

    def walk_between(
        self, prefix: str, start: str | None, stop: str | None
    ) -> Iterator[ObjectMeta]:
        return self.inner.walk_between(prefix, start, stop)

    def names(self, prefix: str) -> Sequence[str] | None:
        return self.inner.names(prefix)

    def folder_state(self, prefix: str) -> tuple[int, int, int] | None:
        return self.inner.folder_state(prefix)

    def below(self, path: str) -> ObjectStore | None:
        return self.inner.below(path)

    def beside(self, uri: str) -> ObjectStore | None:
        return self.inner.beside(uri)

    def again(self, uri: str) -> ObjectStore | None:
        return self.inner.again(uri)

    def head(self, path: str) -> ObjectMeta:
        return self.inner.head(path)

    def is_free(self, path: str) -> bool:
        return self.inner.is_free(path)

    def delete(self, paths: Sequence[str]) -> None:
        self.inner.delete(paths)

    def delete_written(self, paths: Sequence[str]) -> None:
        self.inner.delete_written(paths)

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        return self.inner.unfinished(prefix)

    def remove_unfinished(self, path: str) -> bool:
        return self.inner.remove_unfinished(path)

    def remove_folders(self) -> None:
        self.inner.remove_folders()

    def empty_folders(self, prefix: str) -> Iterator[ObjectMeta]:
        return self.inner.empty_folders(prefix)

    def remove_empty(self, folders: Sequence[str]) -> None:
        self.inner.remove_empty(folders)

    def links(self, prefix: str) -> Iterator[str]:
        return self.inner.links(prefix)

    def is_link(self, path: str) -> bool:
        return self.inner.is_link(path)

    def link_out(self, folder: str) -> str | None:
        return self.inner.link_out(folder)


class WrappedReader:
    """A reader around another, which pretends not to be mapped."""

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
    """A store that holds some objects in memory, by their paths. Reads of these are not counted."""

    __slots__ = ("_held",)

    def __init__(self, inner: ObjectStore, held: Mapping[str, pa.Buffer]) -> None:
        super().__init__(inner)
        self._held = held

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Open; what is in memory is read there."""
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
        """Nothing to advise."""

    def advise_pattern(self, pattern: Advice) -> None:
        """Nothing to advise."""

    def close(self) -> None:
        """Leave the memory to those who hold it."""
