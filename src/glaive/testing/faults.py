"""Make each request of an operation fail once, to check the state of the dataset.

A request can fail, succeed but lose its response, be delayed, or be executed twice, as by a
client that retries after a lost response. In all cases the dataset must be at the version before
or after the operation, and repeating the operation must have the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from glaive.dataclass import dataclass
from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError
from glaive.io.counting import CountingStore, Fault
from glaive.io.store import BytesLike, ObjectStore, PutMode
from glaive.table.load import load_numbered, open_latest

__all__ = ["KINDS", "FaultyStore", "Kind", "Outcome", "each_request", "open_on", "requests_of"]

Kind = Literal["fail", "lie", "delay", "repeat"]
KINDS: tuple[Kind, ...] = ("fail", "lie", "delay", "repeat")
"""All kinds of faults."""

Operation = Callable[[LanceDataset], object]


class FaultyStore(CountingStore):
    """Counts requests and applies a fault to one of them, after a call of :meth:`arm`."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._repeat = 0

    def arm(self, at: int, kind: Kind) -> None:
        """Apply a fault to the ``at``-th request from now on, counted from 1.

        ``"repeat"`` executes a request that changes the store twice, and returns the outcome of
        the second execution. For the other kinds see :class:`glaive.io.counting.Fault`.
        """
        self.reset()
        if kind == "repeat":
            self._repeat = at
        else:
            self.inject(Fault(at=at, kind=kind, seconds=0.005))

    def reset(self) -> None:
        """Reset the counters and remove the fault."""
        super().reset()
        self._repeat = 0

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Count the request; execute it twice if it is to be repeated."""
        super().put(path, data, mode=mode)
        if self.requests == self._repeat:
            self.inner.put(path, data, mode=mode)

    def delete(self, paths: Sequence[str]) -> None:
        """Count the requests; execute them twice if one is to be repeated."""
        before = self.requests
        super().delete(paths)
        if before < self._repeat <= self.requests:
            self.inner.delete(paths)

    def delete_written(self, paths: Sequence[str]) -> None:
        """Count the requests; execute them twice if one is to be repeated."""
        before = self.requests
        super().delete_written(paths)
        if before < self._repeat <= self.requests:
            self.inner.delete_written(paths)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operation with a fault in one request."""

    at: int
    kind: Kind
    store: ObjectStore
    """The store after the operation, without faults."""
    error: GlaiveError | None
    dataset: LanceDataset
    """The dataset of the operation, without further faults."""


def open_on(store: ObjectStore, version: int | None = None) -> LanceDataset:
    """Open the dataset at the root of a store."""
    manifest = open_latest(store) if version is None else load_numbered(store, version, "V2")
    return LanceDataset.of(store, manifest)


def requests_of(make: Callable[[], ObjectStore], operation: Operation) -> int:
    """Count the requests of an operation."""
    store = CountingStore(make())
    dataset = open_on(store)
    store.reset()
    operation(dataset)
    return store.requests


def each_request(
    make: Callable[[], ObjectStore], operation: Operation, kind: Kind
) -> Iterator[Outcome]:
    """Run an operation once for each of its requests, with a fault in that request.

    Parameters
    ----------
    make
        Creates a store with a dataset at its root, always with the same content.
    operation
        Changes the dataset. Only errors of the class ``GlaiveError`` are caught.
    kind
        The kind of fault.
    """
    for at in range(1, requests_of(make, operation) + 1):
        inner = make()
        store = FaultyStore(inner)
        dataset = open_on(store)
        store.reset()
        store.arm(at, kind)
        error: GlaiveError | None = None
        try:
            operation(dataset)
        except GlaiveError as raised:
            error = raised
        store.reset()
        yield Outcome(at, kind, inner, error, dataset)
