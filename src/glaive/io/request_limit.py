"""A limit on the requests that one store has in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, RLock, get_ident
from typing import Final

from glaive.forks import renewed

__all__ = ["RequestLimit"]

_AGAIN: Final = 1.0
"""Seconds until a caller that waits looks by itself: Ctrl-C may end another one's notice."""


class RequestLimit:
    """A counting semaphore over requests.

    A caller that needs more than ``limit`` requests runs alone. One whose own thread has some in
    flight does not wait: it is a handler of a signal, or the end of an object, amid them.
    """

    __slots__ = ("__weakref__", "_changed", "_in_flight", "_lock", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self._in_flight: dict[int, int] = {}
        """Requests by thread."""
        self._new_lock()
        renewed(self)

    def _new_lock(self) -> None:
        # Taken as it is: Ctrl-C may come once a condition, which is Python code, has taken it.
        self._lock = RLock()
        self._changed = Condition(self._lock)

    def _at_fork_reinit(self) -> None:
        """In a forked child, no request of the parent is in flight."""
        self._in_flight = {}
        self._new_lock()

    @contextmanager
    def acquire(self, requests: int) -> Iterator[None]:
        """Wait until so many requests may begin; they may be in flight inside the block."""
        wanted, thread = min(max(1, requests), self.limit), get_ident()
        if thread in self._in_flight:
            yield
            return
        try:
            with self._lock:
                while sum(self._in_flight.values()) > self.limit - wanted:
                    self._changed.wait(_AGAIN)
                self._in_flight[thread] = wanted
            yield
        finally:  # also where Ctrl-C comes before the block begins
            if self._in_flight.pop(thread, None) is not None:
                with self._lock:
                    self._changed.notify_all()
