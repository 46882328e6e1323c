"""Make every request of an operation fail once, and look at what is left.

A request can fail, be carried out and its answer lost, wait, or be carried out twice, as a
client does that repeats what it got no answer to. Whatever happens, the dataset must be at
the version before or after the operation, and doing it again must come to the same end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from glaive.dataset.dataset import LanceDataset
from glaive.errors import GlaiveError
from glaive.io.counting import CountingStore, Fault
from glaive.io.store import BytesLike, ObjectStore, PutMode
from glaive.table.load import load_numbered, open_latest

__all__ = ["KINDS", "FaultyStore", "Kind", "Outcome", "each_request", "open_on", "requests_of"]

Kind = Literal["fail", "lie", "delay", "repeat"]
KINDS: tuple[Kind, ...] = ("fail", "lie", "delay", "repeat")
"""What can happen to a request."""

Operation = Callable[[LanceDataset], object]


class FaultyStore(CountingStore):
    """Counts requests, and does to one of them what it was told.

    Nothing happens to any before :meth:`arm` is called.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._repeat = 0

    def arm(self, at: int, kind: Kind) -> None:
        """Choose a request, counted from 1 from now on, and what happens to it.

        ``"repeat"`` carries out what changes the store twice, and answers with the outcome of
        the second time. The other kinds are those of :class:`glaive.io.counting.Fault`.
        """
        self.reset()
        if kind == "repeat":
            self._repeat = at
        else:
            self.inject(Fault(at=at, kind=kind, seconds=0.005))

    def reset(self) -> None:
        """Forget what was counted and what was to happen."""
        super().reset()
        self._repeat = 0

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Count the request; twice if it is the one."""
        super().put(path, data, mode=mode)
        if self.requests == self._repeat:
            self.inner.put(path, data, mode=mode)

    def delete(self, paths: Sequence[str]) -> None:
        """Count the requests; twice if it is one of them."""
        before = self.requests
        super().delete(paths)
        if before < self._repeat <= self.requests:
            self.inner.delete(paths)

    def discard(self, paths: Sequence[str]) -> None:
        """Count the requests; twice if it is one of them."""
        before = self.requests
        super().discard(paths)
        if before < self._repeat <= self.requests:
            self.inner.discard(paths)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an operation one of whose requests was meddled with."""

    at: int
    kind: Kind
    store: ObjectStore
    """The store as it was left, without faults."""
    error: GlaiveError | None
    dataset: LanceDataset
    """The dataset the operation was done to, without faults from now on."""


def open_on(store: ObjectStore, version: int | None = None) -> LanceDataset:
    """Open the dataset that lies at the root of a store."""
    manifest = open_latest(store) if version is None else load_numbered(store, version, "V2")
    return LanceDataset.of(store, manifest)


def requests_of(make: Callable[[], ObjectStore], operation: Operation) -> int:
    """How many requests the operation makes."""
    store = CountingStore(make())
    dataset = open_on(store)
    store.reset()
    operation(dataset)
    return store.requests


def each_request(
    make: Callable[[], ObjectStore], operation: Operation, kind: Kind
) -> Iterator[Outcome]:
    """Carry out an operation once for each of its requests, and meddle with that one.

    Parameters
    ----------
    make
        Makes a store with a dataset at its root: the same one each time.
    operation
        Changes the dataset. Errors that are no ``GlaiveError`` are not caught.
    kind
        What happens to the request.
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
