"""A dataset that one process of its own reads ahead, pass after pass.

Unlike the workers of a loader, the process stays the same in all passes: what the dataset keeps,
such as a cache, is kept.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import Queue
from threading import Thread
from typing import Any

from torch.utils.data import IterableDataset

from glaive.errors import JobError, OptionError
from glaive.process import Origin

__all__ = ["AsyncDataset", "async_dataset"]

_POLL_SECONDS = 0.05
"""How often a process that is being ended is looked at."""

_PATIENCE = 5.0
"""Seconds that such a process has for the item that it is about to read."""

_PIECE = 1 << 20
"""Bytes that are dropped at a time of what such a process has sent."""


def _read(
    create: Callable[[], Iterable[Any]], theirs: Connection, ours: Connection, ahead: int
) -> None:
    """What the process does: passes over the dataset, until it is stopped, or nobody reads."""
    theirs.close()  # a fork has it, too, and would not notice that its reader ended
    items: Queue[tuple[str, Any] | None] = Queue(maxsize=ahead)
    sender = Thread(target=_send, args=(items, ours), daemon=True)
    sender.start()
    try:
        dataset = create()
        while not ours.poll():
            for item in dataset:
                if ours.poll():
                    break
                items.put(("item", item))
            items.put(("end", None))
    except Exception as error:  # raised where the items are read
        items.put(("error", error))
    items.put(None)
    sender.join()
    ours.poll(None)  # tensors are fetched from this process when they are read


def _send(items: Queue[tuple[str, Any] | None], ours: Connection) -> None:
    """Hand out what was read; where nobody reads, drop it, so that the other thread goes on."""
    while (message := items.get()) is not None:
        try:
            ours.send(message)
        except OSError:
            continue
        except Exception as error:  # whatever pickling an item raises
            with suppress(OSError):
                ours.send(("error", JobError(f"AsyncDataset: an item cannot be sent: {error}")))


def _drop(items: Connection) -> None:
    """Drop some of what was sent, also where it begins in the middle of an item.

    Raises
    ------
    EOFError, OSError
        Nothing more is sent.
    """
    if sys.platform == "win32":
        items.recv_bytes()
    elif not os.read(items.fileno(), _PIECE):
        raise EOFError


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
    JobError
        On iteration, if the process has ended, or an item cannot be sent or received. Or this
        process was forked in the middle of the pass, which is that of its parent.

    Notes
    -----
    What the dataset raises is raised where the items are read. The pass after it begins with
    another process. So does the pass after one that Ctrl-C, or the handler of another signal, ended
    in the middle of an item: the rest of that item is never taken for others. A process that is
    forked begins with another one, too.
    """

    def __init__(
        self, dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
    ) -> None:
        self.dataset_creator = dataset_creator
        self.queue_size = queue_size
        self._process: Process | None = None
        self._items: Connection | None = None
        self._closed = False
        self._midway = False
        self._origin = Origin()

    def __iter__(self) -> Iterator[Any]:
        if self._closed:
            raise OptionError("AsyncDataset: it is closed; make another one")
        if not self._origin.is_here:
            self._end()
        items = self._items = self._items or self._start()
        while self._midway:  # the rest of a pass that was left
            self._midway = self._next(items)[0] == "item"
        self._midway = True
        while True:
            kind, item = self._next(items)
            if kind == "end":
                self._midway = False
                return
            yield item

    def _start(self) -> Connection:
        # No queue: one that a process is killed in the middle of writing to is waited for without
        # end. Of a pipe this process closes the other end, and then sees that nobody writes.
        ours, theirs = Pipe()
        arguments = (self.dataset_creator, ours, theirs, self.queue_size)
        self._process = Process(target=_read, args=arguments, daemon=True)
        self._process.start()
        self._origin = Origin()
        theirs.close()
        return ours

    def close(self) -> None:
        """End the process, in the middle of an item where that takes more than some seconds.

        What it has read ahead is dropped.
        """
        self._closed = True
        self._end()

    def _next(self, items: Connection) -> tuple[str, Any]:
        if not self._origin.is_here:
            raise JobError("AsyncDataset: the process was forked in this pass; begin another one")
        try:
            data = items.recv_bytes()
        except BaseException as error:
            self._end()  # what is left may begin in the middle of an item
            if isinstance(error, EOFError | OSError):
                raise JobError("AsyncDataset: the process that reads has ended") from error
            raise
        try:
            kind, item = ForkingPickler.loads(data)
        except Exception as error:  # whatever unpickling an item raises
            kind, item = "error", JobError(f"AsyncDataset: an item cannot be received: {error}")
            item.__cause__ = error
        if kind == "error":
            self._end()  # the process sends nothing more, and would be waited for without end
            raise item
        return kind, item

    def _end(self) -> None:
        process, items = self._process, self._items
        self._process = self._items = None
        self._midway = False
        if process is None or items is None:
            return
        if not self._origin.is_here:  # both go on for the parent
            items.close()
            return
        limit = time.monotonic() + _PATIENCE
        with suppress(EOFError, OSError):  # it has ended
            items.send(None)
            while process.is_alive() and time.monotonic() < limit:
                while items.poll(_POLL_SECONDS):  # so that it is not stuck in a full pipe
                    _drop(items)
        process.join(max(0.0, limit - time.monotonic()))
        process.terminate()  # it waits for an item, maybe for ever
        process.join(_PATIENCE)
        process.kill()  # it has the handlers of this process, which need not end it
        process.join()
        items.close()


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
