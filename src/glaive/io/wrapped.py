"""A store or reader around another one: base classes of those that change its behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, Literal

import pyarrow as pa

from glaive.io.failures import beyond_end
from glaive.io.mapped import Advice
from glaive.io.store import ObjectStore, RangeReader
from glaive.types import ByteRange

# ruff: noqa: D102  # ObjectStore and RangeReader say what each method does


class WrappedStore(ObjectStore):
    """A store around another. Methods that are not overridden are those of the inner store."""

    __slots__ = ("inner",)

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner


_OF_OTHERS = ("discard", "file_link_out", "public_uri")
"""What a store makes of its other methods."""


def _handed_on(name: str, member: Any) -> Any:
    """A method or property that is that of the inner store."""
    if isinstance(member, property):
        return property(lambda self: getattr(self.inner, name))

    @wraps(member)
    def call(self: WrappedStore, *arguments: Any, **named: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **named)

    return call


for _name, _member in vars(ObjectStore).items():
    if not _name.startswith("_") and _name not in _OF_OTHERS:
        setattr(WrappedStore, _name, _handed_on(_name, _member))


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
