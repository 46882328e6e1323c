"""A store that hands everything on: what others that wrap one have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from glaive.io import deleting
from glaive.io.store import BytesLike, ObjectMeta, ObjectStore, PutMode, RangeReader, Sink

__all__ = ["ForwardingStore"]


class ForwardingStore:
    """A store around another. What is not overridden is passed on."""

    __slots__ = ("inner",)

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    @property
    def options(self) -> Mapping[str, str]:
        """Storage options of the inner store."""
        options: Mapping[str, str] = getattr(self.inner, "options", {})
        return options

    @property
    def secret(self) -> str:
        """Password that the caller's URI of the inner store had; empty if none."""
        return getattr(self.inner, "secret", "")

    @property
    def uri(self) -> str:
        """The inner store's root."""
        return self.inner.uri

    def full(self, path: str) -> str:
        """The inner store's name for ``path``."""
        return self.inner.full(path)

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        """Pass on."""
        return self.inner.open(path, size=size)

    def get(self, path: str) -> pa.Buffer:
        """Pass on."""
        return self.inner.get(path)

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Pass on."""
        self.inner.put(path, data, mode=mode)

    def create(self, path: str) -> Sink:
        """Pass on."""
        return self.inner.create(path)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Pass on."""
        return self.inner.list(prefix)

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Pass on."""
        return self.inner.walk(prefix)

    def head(self, path: str) -> ObjectMeta:
        """Pass on."""
        return self.inner.head(path)

    def delete(self, paths: Sequence[str]) -> None:
        """Pass on."""
        self.inner.delete(paths)

    def discard(self, paths: Sequence[str]) -> None:
        """Pass on."""
        deleting.discard(self.inner, paths)

    def link_out(self, folder: str) -> str | None:
        """Pass on."""
        return deleting.link_out(self.inner, folder)

    def is_link(self, path: str) -> bool:
        """Pass on."""
        return deleting.is_link(self.inner, path)

    def remove_unfinished(self, path: str) -> bool:
        """Pass on."""
        return deleting.remove_unfinished(self.inner, path)
