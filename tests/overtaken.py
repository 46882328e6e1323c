"""Datasets on which another writer is first, at a version or a request that a test names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import glaive
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.load import open_latest

__all__ = ["Countdown", "Interrupted", "open_overtaken", "opened"]


def open_overtaken(
    path: str, another: Callable[[], object], *, number: int = 2
) -> glaive.LanceDataset:
    """Open a dataset; when it is about to make its version of this ``number``, another goes first.

    A compaction makes two: the first reserves ids of fragments, the second rewrites.
    """
    left = [number]

    @contextmanager
    def lock(_: int) -> Iterator[None]:
        left[0] -= 1
        if left[0] == 0:
            another()
        yield

    return glaive.dataset(path, commit_lock=lock)


class Countdown:
    """Does something before one of the requests, once."""

    def __init__(self, requests: int, work: Callable[[], object]) -> None:
        self.left, self.work = requests, work

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.work()


class Interrupted(WrappedStore):
    """A store whose requests, those of its branches included, are counted down."""

    def __init__(self, inner: ObjectStore, countdown: Countdown) -> None:
        super().__init__(inner)
        self.countdown = countdown

    def get(self, path: str) -> pa.Buffer:
        self.countdown.count()
        return super().get(path)

    def put(self, path: str, *given: Any, **options: Any) -> None:
        self.countdown.count()
        self.inner.put(path, *given, **options)

    def put_new(self, path: str, data: Any) -> None:
        self.countdown.count()
        super().put_new(path, data)

    def head(self, path: str) -> Any:
        self.countdown.count()
        return super().head(path)

    def list(self, prefix: str) -> Iterator[Any]:
        self.countdown.count()
        return super().list(prefix)

    def names(self, prefix: str) -> Sequence[str] | None:
        self.countdown.count()
        return super().names(prefix)

    def walk(self, prefix: str) -> Iterator[Any]:
        self.countdown.count()
        return iter([*super().walk(prefix)])

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.countdown.count()
            super().delete([path])

    def below(self, path: str) -> ObjectStore | None:
        store = super().below(path)
        return None if store is None else Interrupted(store, self.countdown)


def opened(place: Path, countdown: Countdown) -> glaive.LanceDataset:
    store = Interrupted(LocalStore(place), countdown)
    return glaive.LanceDataset.of(store, open_latest(LocalStore(place)))
