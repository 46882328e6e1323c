"""A dataset that one process of its own reads ahead, pass after pass.

Unlike the workers of a loader, the process stays the same in all passes: what the dataset keeps,
such as a cache, is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import Event, Process, Queue
from queue import Empty
from typing import Any

from torch.utils.data import IterableDataset

from glaive.errors import JobError, OptionError

__all__ = ["AsyncDataset", "async_dataset"]

_POLL_SECONDS = 0.5
"""How often a reader looks whether the process is still there."""


def _read(create: Callable[[], Iterable[Any]], queue: Any, stopped: Any) -> None:
    """What the process does: passes over the dataset, until it is stopped."""
    try:
        dataset = create()
        while not stopped.is_set():
            for item in dataset:
                if stopped.is_set():
                    break
                queue.put(("item", item))
            queue.put(("end", None))
    except Exception as error:  # raised where the items are read
        queue.put(("error", error))


class AsyncDataset(IterableDataset):  # type: ignore[misc]  # torch is not installed for type checks
    """Items of a dataset that another process reads ahead.

    Parameters
    ----------
    dataset_creator
        Makes the dataset, in the process. It must be possible to pickle it where processes are
        spawned.
    queue_size
        Items that are read ahead.

    Raises
    ------
    OptionError
        On iteration, if it was closed.
    """

    def __init__(
        self, dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
    ) -> None:
        self.dataset_creator = dataset_creator
        self.queue: Any = Queue(maxsize=queue_size)
        self._stopped = Event()
        self._process: Process | None = None
        self._midway = False

    def __iter__(self) -> Iterator[Any]:
        if self._stopped.is_set():
            raise OptionError("AsyncDataset: it is closed; make another one")
        if self._process is None:
            arguments = (self.dataset_creator, self.queue, self._stopped)
            self._process = Process(target=_read, args=arguments, daemon=True)
            self._process.start()
        while self._midway:  # the rest of a pass that was left
            self._midway = self._next()[0] == "item"
        self._midway = True
        while True:
            kind, item = self._next()
            if kind == "end":
                self._midway = False
                return
            yield item

    def _next(self) -> tuple[str, Any]:
        while True:
            try:
                kind, item = self.queue.get(timeout=_POLL_SECONDS)
            except Empty:
                if self._process is None or not self._process.is_alive():
                    raise JobError("AsyncDataset: the process that reads has ended") from None
                continue
            if kind == "error":
                raise item
            return kind, item

    def close(self) -> None:
        """End the process; what it has read ahead is dropped."""
        self._stopped.set()
        process, self._process = self._process, None
        while process is not None and process.is_alive():
            while not self.queue.empty():  # so that the process is not stuck in a full queue
                self.queue.get()
            process.join(timeout=_POLL_SECONDS / 10)
        self.queue.close()


@contextmanager
def async_dataset(
    dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
) -> Iterator[AsyncDataset]:
    """An :class:`AsyncDataset` that is closed at the end of the block."""
    dataset = AsyncDataset(dataset_creator, queue_size=queue_size)
    try:
        yield dataset
    finally:
        dataset.close()
